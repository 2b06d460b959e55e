//! Bounds on the allocations of the paths that every request to a service behind the layer takes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use allocation_counter::measure;
use bytes::Bytes;
use http::header::{ACCEPT, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method};
use ifmatch_core::EntityTag;
use ifmatch_core::precondition::{Preconditions, Validators, Verdict};
use ifmatch_core::tag::TagList;

#[test]
fn a_request_without_conditions_allocates_nothing() {
    let headers =
        HeaderMap::from_iter([(HOST, received("example.com")), (ACCEPT, received("*/*"))]);
    let counted = measure(|| {
        let conditions = Preconditions::from_headers(&headers);
        assert_eq!(conditions.evaluate(&Method::GET, None), Verdict::Proceed);
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn one_tag_allocates_its_list_and_nothing_else() {
    let tag = EntityTag::from_header(&received("\"2cf24dba5fb0a30e26e83b2ac5b9e29e\"")).unwrap();
    let headers = HeaderMap::from_iter([(IF_NONE_MATCH, tag.to_header())]);
    let current = Validators {
        tags: std::slice::from_ref(&tag),
        last_modified: None,
    };
    let counted = measure(|| {
        let conditions = Preconditions::from_headers(&headers);
        assert_eq!(
            conditions.evaluate(&Method::GET, Some(&current)),
            Verdict::NotModified
        );
    });
    assert_eq!(counted.count_total, 1);
}

#[test]
fn a_date_allocates_nothing() {
    let headers =
        HeaderMap::from_iter([(IF_MODIFIED_SINCE, received("Sun, 06 Nov 1994 08:49:37 GMT"))]);
    let counted = measure(|| {
        let conditions = Preconditions::from_headers(&headers);
        assert!(conditions.if_modified_since.is_some());
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn a_tag_becomes_a_header_without_allocation() {
    let tag = EntityTag::from_header(&received("\"a\"")).unwrap();
    let counted = measure(|| assert_eq!(tag.to_header(), "\"a\""));
    assert_eq!(counted.count_total, 0);
}

#[test]
fn reading_stops_at_the_limit_of_a_list() {
    let long = HeaderValue::try_from("\"a\",".repeat(100_000)).unwrap();
    let headers = HeaderMap::from_iter([(IF_NONE_MATCH, long)]);
    let counted = measure(|| {
        assert_eq!(
            TagList::from_headers(&headers, IF_NONE_MATCH),
            Some(TagList::Unreadable)
        );
    });
    assert!(
        counted.count_total < 1_100,
        "{} allocations",
        counted.count_total
    );
}

/// Creates a value as a server does: a slice of a buffer shared by the whole request.
fn received(value: &'static str) -> HeaderValue {
    let buffer = Bytes::from(format!("header: {value}\r\n"));
    HeaderValue::from_maybe_shared(buffer.slice(8..8 + value.len())).unwrap()
}
