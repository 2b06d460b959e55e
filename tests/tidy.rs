//! The repository's rules. Each is a function that returns its violations in the tracked files.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/manifests.rs"]
mod manifests;
#[path = "tidy/repository.rs"]
mod repository;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/samples.rs"]
mod samples;
#[path = "tidy/source.rs"]
mod source;

use repository::repository;

/// Fails with all violations, one a line.
#[track_caller]
fn none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn every_file_states_its_purpose() {
    none(&rules::purpose(&repository().sources));
}

#[test]
fn files_are_short() {
    none(&rules::file_length(&repository().sources));
}

#[test]
fn functions_are_short() {
    none(&rules::function_length(&repository().sources));
}

#[test]
fn nothing_is_unsafe() {
    none(&rules::unsafe_code(&repository().sources));
}

#[test]
fn nothing_is_unfinished_or_ignored() {
    none(&rules::unfinished(&repository().sources));
}

#[test]
fn libraries_do_not_unwrap() {
    none(&rules::unwraps(&repository().sources));
}

#[test]
fn only_whole_modules_depend_on_the_target() {
    none(&rules::target_cfgs_in_core(&repository().sources));
    none(&rules::target_cfgs_in_functions(&repository().sources));
}

#[test]
fn crate_roots_have_no_glob_reexports() {
    none(&rules::root_globs(&repository().sources));
}

#[test]
fn the_default_port_is_stated_once() {
    none(&rules::default_port(&repository().sources));
}

#[test]
fn published_crates_agree() {
    none(&manifests::published(&repository().metadata));
}

#[test]
fn licences_are_complete() {
    none(&manifests::licences(&repository().metadata));
}

#[test]
fn every_package_inherits_the_lints_and_the_versions() {
    none(&manifests::inherited(&repository().files));
}

#[test]
fn lock_files_name_no_host() {
    none(&manifests::lock_files(&repository().files));
}

#[test]
fn every_page_is_linked() {
    none(&documents::unlinked(&repository().files));
}

#[test]
fn every_link_leads_to_a_file() {
    none(&documents::broken_links(&repository().files));
}

#[test]
fn every_command_in_the_documents_exists() {
    none(&documents::unknown_commands(repository()));
}

#[test]
fn every_problem_is_documented() {
    none(&documents::undocumented_problems(repository()));
}

#[test]
fn every_metric_in_the_monitoring_exists() {
    none(&documents::unknown_metrics(&repository().files));
}

#[test]
fn the_change_log_covers_this_version() {
    none(&documents::change_log(repository()));
}
