//! The tables of preconditions, one for each rule of RFC 9110 §13. The naive evaluator must agree with every row.

use http::Method;
use ifmatch_core::precondition::{Precondition, Preconditions, Validators, Verdict, evaluate};

use super::naive;
use crate::table;

#[test]
fn if_match() {
    run("if_match.txt");
}

#[test]
fn if_unmodified_since() {
    run("if_unmodified_since.txt");
}

#[test]
fn if_none_match() {
    run("if_none_match.txt");
}

#[test]
fn if_modified_since() {
    run("if_modified_since.txt");
}

#[test]
fn precedence() {
    run("precedence.txt");
}

#[test]
fn methods() {
    run("methods.txt");
}

#[test]
fn write_conditions() {
    table::each_row("write_conditions.txt", 2, |row| {
        let preconditions = Preconditions::from_headers(&table::headers(&row.columns[0]));
        assert_eq!(
            preconditions.has_write_condition(),
            row.columns[1] == "yes",
            "{}",
            row.place
        );
    });
}

fn run(file: &str) {
    table::each_row(file, 4, |row| {
        let [methods, headers, current, expected] = row.columns.as_slice() else {
            panic!("{}", row.place)
        };
        let headers = table::headers(headers);
        let current = table::current(current);
        let preconditions = Preconditions::from_headers(&headers);
        for method in methods.split(' ') {
            let method: Method = method.parse().unwrap();
            let validators = current.as_ref().map(|current| Validators {
                tags: &current.tags,
                last_modified: current.last_modified,
            });
            let verdict = preconditions.evaluate(&method, validators.as_ref());
            assert_eq!(name(verdict), expected, "{method} in {}", row.place);
            assert_eq!(
                evaluate(&headers, &method, validators.as_ref()),
                verdict,
                "{method} in {}",
                row.place
            );
            assert_eq!(
                naive::evaluate(&method, &headers, current.as_ref()),
                *expected,
                "naive {method}: {}",
                row.place
            );
        }
    });
}

/// Returns a verdict as written in the tables.
pub(crate) fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Proceed => "proceed",
        Verdict::NotModified => "304",
        Verdict::Failed(
            Precondition::IfMatch | Precondition::UnreadableIfMatch | Precondition::WeakIfMatch,
        ) => "412 if-match",
        Verdict::Failed(Precondition::IfUnmodifiedSince) => "412 if-unmodified-since",
        Verdict::Failed(Precondition::IfNoneMatch | Precondition::UnreadableIfNoneMatch) => {
            "412 if-none-match"
        }
        Verdict::Failed(Precondition::IfModifiedSince) => "412 if-modified-since",
    }
}
