//! The stable parts of problem bodies and their header fields (RFC 9457).

use std::time::Duration;

use http::header::{CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, RETRY_AFTER};
use http::{Method, StatusCode};
use ifmatch_core::EntityTag;
use ifmatch_core::precondition::{Precondition, Preconditions, Validators, Verdict};
use ifmatch_core::problem::Problem;
use serde_json::{Value, json};

#[test]
fn a_412_names_the_condition_and_carries_the_current_tag() {
    let tag = EntityTag::strong("v2").unwrap();
    let problem = Problem::precondition_failed(Precondition::IfMatch, Some(&tag));
    let body = body(&problem);
    assert_eq!(body["type"], "urn:ifmatch:problem:precondition-failed");
    assert_eq!(body["title"], "Precondition Failed");
    assert_eq!(body["status"], 412);
    assert_eq!(body["condition"], "if-match");
    assert_eq!(body["etag"], "\"v2\"");
    assert_eq!(problem.to_response().headers()[ETAG], "\"v2\"");
    assert_eq!(
        problem.to_response().headers()[CONTENT_TYPE],
        "application/problem+json"
    );
}

#[test]
fn a_412_without_a_current_representation_carries_no_tag() {
    let problem = Problem::precondition_failed(Precondition::IfMatch, None);
    assert_eq!(body(&problem).get("etag"), None);
    assert!(!problem.to_response().headers().contains_key(ETAG));
}

#[test]
fn a_412_says_why_the_condition_failed() {
    let tag = EntityTag::strong("v2").unwrap();
    for (name, value, current, expected) in [
        (IF_MATCH, "\"v1\"", Some(&tag), "has changed"),
        (IF_MATCH, "\"v1\"", None, "doesn't exist"),
        (IF_MATCH, "v1", Some(&tag), "If-Match is malformed"),
        (IF_MATCH, "v1", None, "If-Match is malformed"),
        (IF_MATCH, "*, \"v2\"", Some(&tag), "If-Match is malformed"),
        (
            IF_NONE_MATCH,
            "*, \"v1\"",
            Some(&tag),
            "If-None-Match is malformed",
        ),
        (IF_NONE_MATCH, "*", Some(&tag), "already exists"),
    ] {
        let headers = [(name.clone(), value.parse().unwrap())]
            .into_iter()
            .collect();
        let tags = current.map(std::slice::from_ref);
        let validators = tags.map(|tags| Validators {
            tags,
            last_modified: None,
        });
        let verdict =
            Preconditions::from_headers(&headers).evaluate(&Method::PUT, validators.as_ref());
        let Verdict::Failed(failed) = verdict else {
            panic!("{name}: {value}: {verdict:?}")
        };
        assert_eq!(failed.header(), name);
        let detail = body(&Problem::precondition_failed(failed, current))["detail"].to_string();
        assert!(detail.contains(expected), "{name}: {value}: {detail}");
    }
}

#[test]
fn a_tag_that_is_not_text_is_only_in_the_header() {
    let tag = EntityTag::parse(b"\"\xe9\"").unwrap();
    let problem = Problem::precondition_failed(Precondition::IfNoneMatch, Some(&tag));
    assert_eq!(body(&problem).get("etag"), None);
    assert_eq!(
        problem.to_response().headers()[ETAG].as_bytes(),
        b"\"\xe9\""
    );
}

#[test]
fn a_428_explains_how_to_retry() {
    let body = body(&Problem::precondition_required(&Method::PUT));
    let detail = body["detail"].as_str().unwrap();
    assert!(
        ["PUT", "If-Match", "If-None-Match: *"]
            .iter()
            .all(|text| detail.contains(text)),
        "{detail}"
    );
    assert_eq!(
        body["conditions"],
        json!(["if-match", "if-none-match", "if-unmodified-since"])
    );
}

#[test]
fn a_wait_is_rounded_up_and_never_zero() {
    for (millis, seconds) in [
        (0, "1"),
        (1, "1"),
        (1_000, "1"),
        (1_001, "2"),
        (59_500, "60"),
    ] {
        let wait = Duration::from_millis(millis);
        for problem in [Problem::write_in_flight(wait), Problem::unavailable(wait)] {
            assert_eq!(
                problem.to_response().headers()[RETRY_AFTER],
                seconds,
                "{millis}"
            );
        }
    }
    let longest = Problem::unavailable(Duration::MAX).to_response();
    assert_eq!(longest.headers()[RETRY_AFTER], u64::MAX.to_string());
}

#[test]
fn an_extension_cannot_replace_a_standard_member() {
    let problem = Problem::new(StatusCode::BAD_REQUEST, "bad").detail("real");
    let problem = ["type", "title", "status", "detail"]
        .into_iter()
        .fold(problem, |problem, name| problem.member(name, 1));
    let body = body(&problem);
    assert_eq!(body["type"], "urn:ifmatch:problem:bad");
    assert_eq!(body["title"], "Bad Request");
    assert_eq!(body["status"], 400);
    assert_eq!(body["detail"], "real");
}

fn body(problem: &Problem) -> Value {
    serde_json::from_slice(&problem.to_json()).unwrap()
}
