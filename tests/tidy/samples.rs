//! Violations that each rule must find.

use crate::documents;
use crate::repository::File;
use crate::rules;
use crate::source::Source;

/// Returns the number of violations in a file.
fn found(rule: fn(&[Source]) -> Vec<String>, path: &str, text: &str) -> usize {
    rule(&[Source::parse(path, text)]).len()
}

/// Returns the number of violations in a library's file.
fn in_library(rule: fn(&[Source]) -> Vec<String>, text: &str) -> usize {
    found(rule, "crates/ifmatch-core/src/sample.rs", text)
}

#[test]
fn a_file_without_a_purpose() {
    assert_eq!(in_library(rules::purpose, "//! For this.\n"), 0);
    assert_eq!(in_library(rules::purpose, "// For this.\n"), 1);
    assert_eq!(in_library(rules::purpose, "\n//! For this.\n"), 1);
}

#[test]
fn long_files_and_functions() {
    let body = "\n".repeat(rules::MAX_FUNCTION - 2);
    assert_eq!(in_library(rules::function_length, &format!("fn f() {{\n{body}}}")), 0);
    assert_eq!(in_library(rules::function_length, &format!("fn f() {{\n{body}\n}}")), 1);
    assert_eq!(in_library(rules::function_length, &format!("impl T {{ fn f() {{\n{body}\n}} }}")), 1);
    assert_eq!(in_library(rules::function_length, &format!("trait T {{ fn f() {{\n{body}\n}} }}")), 1);
    assert!(in_library(rules::file_length, &"\n".repeat(rules::MAX_FILE + 1)) > 0);
}

#[test]
fn forbidden_words_count_as_code_only() {
    assert_eq!(in_library(rules::unsafe_code, "// unsafe\nconst A: &str = \"unsafe\";"), 0);
    assert_eq!(in_library(rules::unsafe_code, "fn f() { m!(unsafe { g() }) }"), 1);
    assert_eq!(in_library(rules::unfinished, "/// todo!()\nfn f() {}"), 0);
    assert_eq!(
        in_library(rules::unfinished, "fn f() { todo!() }\n#[test]\n#[ignore = \"slow\"]\nfn g() { dbg!(1) }"),
        3
    );
}

#[test]
fn panics_count_outside_tests_only() {
    let code = "fn f() { g().unwrap() }";
    assert_eq!(in_library(rules::unwraps, code), 1);
    assert_eq!(in_library(rules::unwraps, &format!("#[cfg(test)]\nmod tests {{\n{code}\n}}")), 0);
    assert_eq!(in_library(rules::unwraps, "#[tokio::test]\nasync fn f() { g().unwrap() }"), 0);
    assert_eq!(in_library(rules::unwraps, &format!("#[cfg(not(test))]\nmod real {{\n{code}\n}}")), 1);
    assert_eq!(found(rules::unwraps, "crates/ifmatch/tests/a.rs", code), 0);
    assert_eq!(found(rules::unwraps, "examples/a.rs", code), 0);
}

#[test]
fn a_file_that_only_tests_include_is_test_code() {
    let parent = Source::parse("crates/x/src/a.rs", "#[cfg(test)] mod tests; mod real;");
    let child = |path| Source::parse(path, "fn f() { g().unwrap() }");
    let mut sources = vec![parent, child("crates/x/src/a/tests.rs"), child("crates/x/src/a/real.rs")];
    Source::mark_test_modules(&mut sources);
    assert_eq!(rules::unwraps(&sources), ["crates/x/src/a/real.rs:1: unwrap"]);
}

#[test]
fn conditions_on_the_target() {
    let one = "#[cfg(any(test, target_os = \"linux\"))]\nmod a;";
    assert_eq!(in_library(rules::target_cfgs_in_core, one), 1);
    assert_eq!(found(rules::target_cfgs_in_core, "crates/x/src/lib.rs", one), 0);
    assert_eq!(in_library(rules::target_cfgs_in_core, "#[cfg(feature = \"unix\")]\nmod a;"), 0);
    assert_eq!(in_library(rules::target_cfgs_in_functions, "fn f() { if cfg!(windows) {} }"), 1);
    assert_eq!(in_library(rules::target_cfgs_in_functions, one), 0);
}

#[test]
fn glob_reexports() {
    let root = |text: &str| found(rules::root_globs, "crates/x/src/lib.rs", text);
    assert_eq!(root("pub use a::{b, c as d}; use e::*;"), 0);
    assert_eq!(root("pub use a::*;"), 1);
}

#[test]
fn a_default_that_is_stated_twice() {
    let gateway = |text: &str| found(rules::default_port, "crates/ifmatch-gateway/src/a.rs", text);
    assert_eq!(gateway("const PORT: u16 = 10_000;"), 0);
    assert_eq!(gateway("const PORT: u16 = 10_000; const SAME: u16 = 10000;"), 1);
    assert_eq!(gateway("const PORT: u16 = 1;"), 1);
}

#[test]
fn a_metric_that_does_not_exist() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let source =
        file("crates/ifmatch-gateway/src/metrics.rs", r#"const WAITS: &str = "ifmatch_waits"; "ifmatch_x of y""#);
    let with = |text: &str| [file("packaging/monitoring/a.yml", text), file(&source.path, &source.text)];
    assert_eq!(documents::unknown_metrics(&with("rate(ifmatch_waits[5m]) / ifmatch_waits_count")).len(), 0);
    assert_eq!(documents::unknown_metrics(&with("ifmatch_wait + ifmatch_x{a=\"b\"}")).len(), 2);
}
