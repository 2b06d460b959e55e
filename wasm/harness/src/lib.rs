//! Test harness for WebAssembly. `cargo xtask ci --only wasm` passes it to the compiler.
//!
//! The standard harness can't print there. This one writes to the console, and throws an error if a test fails.
#![cfg(feature = "run")]
#![feature(test)]

extern crate test;

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};

use test::{ShouldPanic, TestDescAndFn, TestFn};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::throw_str;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console)]
    fn log(text: &str);
}

/// Runs the tests one by one. The last line has their numbers: `N passed, N ignored`.
///
/// # Panics
/// Throws an error in JavaScript if a test fails or can't run here.
pub fn run(tests: &[&TestDescAndFn]) {
    set_hook(Box::new(|panic| log(&panic.to_string())));
    let (ignored, tests): (Vec<&TestDescAndFn>, Vec<&TestDescAndFn>) =
        tests.iter().copied().partition(|test| test.desc.ignore);
    for test in &ignored {
        log(&format!(
            "ignored {}: {}",
            test.desc.name,
            test.desc.ignore_message.unwrap_or("no reason is given")
        ));
    }
    let failed: Vec<String> = tests
        .iter()
        .filter(|test| !passes(test))
        .map(|test| test.desc.name.to_string())
        .collect();
    if !failed.is_empty() {
        log(&format!(
            "{} of {} tests failed: {}",
            failed.len(),
            tests.len(),
            failed.join(", ")
        ));
        throw_str("a test failed");
    }
    log(&format!(
        "{} passed, {} ignored",
        tests.len(),
        ignored.len()
    ));
}

/// Runs a test. Returns `true` if it ends as it should.
fn passes(test: &TestDescAndFn) -> bool {
    log(&format!("test {}", test.desc.name));
    let TestFn::StaticTestFn(body) = &test.testfn else {
        return false;
    };
    let returned = matches!(catch_unwind(AssertUnwindSafe(body)), Ok(Ok(())));
    returned == (test.desc.should_panic == ShouldPanic::No)
}
