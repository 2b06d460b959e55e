//! Runs tests of libraries as WebAssembly in Node.

use std::fs;

use super::toolchain::Toolchain;
use super::{Target, write};
use crate::Result;
use crate::command::{Run, executable};
use crate::step::Context;

/// Packages and their tests, as arguments of cargo. The other tests need files or a blocking runtime.
const TESTS: &[(&str, &str)] = &[("ifmatch-core", "--test core"), ("ifmatch", "--lib")];

/// Builds and runs the tests. Fails if a test fails or none was run.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let toolchain = Toolchain::find(context.workspace)?;
    let target = context.workspace.target().join("wasm");
    for (package, which) in TESTS {
        let built = said(
            context,
            toolchain.build_tests(context.workspace, package, which, &target)?,
        )?;
        let folder = target.join("tests");
        write(
            &executable(&built).ok_or("cargo has built no tests")?,
            Target::Node,
            &folder,
        )?;
        let said = said(context, Run::new("node", &folder).args(["tests.js"]))?;
        println!("{package} {which}, as WebAssembly: {}", last_line(&said)?);
    }
    Ok(())
}

/// Runs a command and returns its output. An error includes all output.
fn said(context: &Context<'_>, run: Run) -> Result<String> {
    let log = context.workspace.target().join("wasm/tests.log");
    let passed = run.log_to(&log)?.passes(context.deadline);
    let said = fs::read_to_string(&log)?;
    passed.map_err(|error| format!("{said}\n{error}"))?;
    Ok(said)
}

/// Returns the last line of the harness, if it ran a test.
fn last_line(said: &str) -> Result<&str> {
    let line = said.lines().last().unwrap_or_default();
    let ran = line
        .split_once(" passed, ")
        .and_then(|(passed, _)| passed.parse().ok());
    if ran.is_some_and(|tests: u32| tests > 0) {
        Ok(line)
    } else {
        Err(format!("no test was run:\n{said}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_tests_is_a_failure() {
        assert_eq!(
            last_line("test a\n1 passed, 0 ignored\n").unwrap(),
            "1 passed, 0 ignored"
        );
        for said in ["", "0 passed, 2 ignored", "test a", "passed, "] {
            assert!(last_line(said).is_err(), "{said}");
        }
    }
}
