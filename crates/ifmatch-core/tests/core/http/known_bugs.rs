//! Bugs seen in well-known implementations, each by name.

use http::header::{
    ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::fields::not_modified::retain_304_headers;
use ifmatch_core::precondition::{Precondition, Preconditions, Validators, Verdict};
use ifmatch_core::range::{Limits, Representation, Selection, select};
use ifmatch_core::tag::TagList;

#[test]
fn a_list_is_not_split_on_the_comma_inside_quotes() {
    let read =
        |line: &'static str| verdict(&Method::GET, &[(IF_NONE_MATCH, line)], &["\"a,b\""], None);
    assert_eq!(read("\"a,b\""), Verdict::NotModified);
    assert_eq!(read("\"x\", \"a,b\""), Verdict::NotModified);
    assert_eq!(read("\"x,\"a,b\""), Verdict::Proceed);
    let write = verdict(
        &Method::PUT,
        &[(IF_MATCH, "\"x,\",\"y\"")],
        &["\"y\""],
        None,
    );
    assert_eq!(write, Verdict::Proceed);
}

#[test]
fn every_field_line_is_read_not_only_the_first() {
    let lines = [(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, "\"a\"")];
    assert_eq!(
        verdict(&Method::GET, &lines, &["\"a\""], None),
        Verdict::NotModified
    );
    let lines = [(IF_MATCH, "\"x\""), (IF_MATCH, "\"a\"")];
    assert_eq!(
        verdict(&Method::PUT, &lines, &["\"a\""], None),
        Verdict::Proceed
    );
}

#[test]
fn if_match_is_not_satisfied_by_a_weak_tag() {
    for (sent, current) in [
        ("W/\"a\"", "\"a\""),
        ("\"a\"", "W/\"a\""),
        ("W/\"a\"", "W/\"a\""),
    ] {
        let found = verdict(&Method::PUT, &[(IF_MATCH, sent)], &[current], None);
        let failed = if sent.starts_with('W') {
            Precondition::WeakIfMatch
        } else {
            Precondition::IfMatch
        };
        assert_eq!(found, Verdict::Failed(failed), "{sent} {current}");
    }
}

#[test]
fn a_weak_tag_matches_in_if_none_match() {
    for (sent, current) in [
        ("W/\"a\"", "\"a\""),
        ("\"a\"", "W/\"a\""),
        ("W/\"a\"", "W/\"a\""),
    ] {
        let found = verdict(&Method::GET, &[(IF_NONE_MATCH, sent)], &[current], None);
        assert_eq!(found, Verdict::NotModified, "{sent} {current}");
    }
}

#[test]
fn if_modified_since_does_not_override_if_none_match() {
    let lines = [
        (IF_NONE_MATCH, "\"old\""),
        (IF_MODIFIED_SINCE, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ];
    assert_eq!(
        verdict(&Method::GET, &lines, &["\"new\""], Some(100)),
        Verdict::Proceed
    );
    let lines = [
        (IF_NONE_MATCH, "\"new\""),
        (IF_MODIFIED_SINCE, "Thu, 01 Jan 1970 00:00:00 GMT"),
    ];
    assert_eq!(
        verdict(&Method::GET, &lines, &["\"new\""], Some(100)),
        Verdict::NotModified
    );
}

#[test]
fn times_below_a_second_do_not_break_if_unmodified_since() {
    let first = Timestamp::from_micros(100_200_000);
    let second = Timestamp::from_micros(100_900_000);
    // Both writes are within one second. The date of the first must not be sent before that second has ended...
    assert!(!first.last_modified().has_come(second));
    // ...and a reader at the start of the next second has the date of the second write, so its precondition succeeds.
    let read = Timestamp::from_micros(101_000_000);
    let date = second.last_modified();
    assert!(date.has_come(read));
    assert_eq!(unmodified_since(date, second), Verdict::Proceed);
    // Every write after that has a later date.
    let third = Timestamp::from_micros(101_000_000);
    assert_eq!(
        unmodified_since(date, third),
        Verdict::Failed(Precondition::IfUnmodifiedSince)
    );
}

#[test]
fn dates_before_1970_do_not_panic_and_count_as_early() {
    let early = "Wed, 31 Dec 1969 23:59:59 GMT";
    let write = verdict(&Method::PUT, &[(IF_UNMODIFIED_SINCE, early)], &[], Some(0));
    assert_eq!(write, Verdict::Failed(Precondition::IfUnmodifiedSince));
    let read = verdict(&Method::GET, &[(IF_MODIFIED_SINCE, early)], &[], Some(0));
    assert_eq!(read, Verdict::Proceed);
    assert_eq!(HttpDate::from_unix(-1).to_string(), early);
    assert_eq!(
        HttpDate::from_unix(i64::MIN).to_string(),
        "Sat, 01 Jan 0000 00:00:00 GMT"
    );
    assert_eq!(
        HttpDate::from_unix(i64::MAX).to_string(),
        "Fri, 31 Dec 9999 23:59:59 GMT"
    );
}

#[test]
fn only_get_and_head_are_answered_304() {
    let lines = [
        (IF_NONE_MATCH, "\"a\""),
        (IF_MODIFIED_SINCE, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ];
    for method in [
        "PUT", "POST", "PATCH", "DELETE", "QUERY", "MERGE", "get", "OPTIONS", "TRACE", "CONNECT",
    ] {
        let method: Method = method.parse().unwrap();
        assert_ne!(
            verdict(&method, &lines, &["\"a\""], Some(1)),
            Verdict::NotModified,
            "{method}"
        );
        assert_eq!(
            verdict(&method, &lines[1..], &["\"a\""], Some(1)),
            Verdict::Proceed,
            "{method}"
        );
    }
}

#[test]
fn a_client_without_conditions_gets_no_304() {
    assert_eq!(
        verdict(&Method::GET, &[], &["\"a\""], Some(1)),
        Verdict::Proceed
    );
    // The same holds for preconditions that don't concern the current representation.
    assert_eq!(
        verdict(&Method::GET, &[(IF_NONE_MATCH, "\"\"")], &[], None),
        Verdict::Proceed
    );
    assert_eq!(
        verdict(&Method::GET, &[(IF_MATCH, "\"a\"")], &["\"a\""], None),
        Verdict::Proceed
    );
}

#[test]
fn a_304_keeps_vary() {
    let mut headers = headers(&[(VARY, "accept-encoding"), (VARY, "accept"), (ETAG, "\"a\"")]);
    retain_304_headers(&mut headers);
    assert_eq!(headers.get_all(VARY).iter().count(), 2);
}

#[test]
fn gzip_and_identity_have_different_tags() {
    let identity = EntityTag::strong("a").unwrap();
    let gzip = identity.with_suffix("-gzip").unwrap();
    assert!(!gzip.strong_eq(&identity) && !gzip.weak_eq(&identity));
    // A precondition with either tag succeeds, with any coding of the response.
    for sent in ["\"a\"", "\"a-gzip\""] {
        assert_eq!(
            verdict(
                &Method::GET,
                &[(IF_NONE_MATCH, sent)],
                &["\"a\"", "\"a-gzip\""],
                None
            ),
            Verdict::NotModified
        );
        assert_eq!(
            verdict(
                &Method::PUT,
                &[(IF_MATCH, sent)],
                &["\"a\"", "\"a-gzip\""],
                None
            ),
            Verdict::Proceed
        );
    }
    // Ranges of different codings are never combined.
    let sent = Representation {
        tag: Some(&identity),
        last_modified: None,
        len: 10,
    };
    let resumed = headers(&[(RANGE, "bytes=5-"), (IF_RANGE, "\"a-gzip\"")]);
    assert_eq!(
        select(&resumed, &sent, Timestamp::default(), Limits::default()),
        Selection::Whole
    );
}

#[test]
fn if_range_is_not_ignored() {
    let current = EntityTag::strong("new").unwrap();
    let sent = Representation {
        tag: Some(&current),
        last_modified: None,
        len: 10,
    };
    let select = |lines: &[(HeaderName, &'static str)]| {
        select(
            &headers(lines),
            &sent,
            Timestamp::default(),
            Limits::default(),
        )
    };
    assert_eq!(
        select(&[(RANGE, "bytes=5-"), (IF_RANGE, "\"old\"")]),
        Selection::Whole
    );
    assert_eq!(
        select(&[(RANGE, "bytes=99-"), (IF_RANGE, "\"old\"")]),
        Selection::Whole
    );
    assert!(matches!(
        select(&[(RANGE, "bytes=5-"), (IF_RANGE, "\"new\"")]),
        Selection::Parts(_)
    ));
    assert_eq!(
        select(&[(RANGE, "bytes=99-"), (IF_RANGE, "\"new\"")]),
        Selection::Unsatisfiable
    );
}

#[test]
fn a_list_of_thousands_of_tags_fails_every_write() {
    let tags = vec!["\"x\""; 5_000].join(",") + ",\"a\"";
    let mut headers = HeaderMap::new();
    headers.insert(IF_NONE_MATCH, HeaderValue::from_str(&tags).unwrap());
    let conditions = Preconditions::from_headers(&headers);
    assert_eq!(conditions.if_none_match, Some(TagList::Unreadable));
    let current = [EntityTag::strong("a").unwrap()];
    let current = Validators {
        tags: &current,
        last_modified: None,
    };
    let write = conditions.evaluate(&Method::PUT, Some(&current));
    assert_eq!(write, Verdict::Failed(Precondition::UnreadableIfNoneMatch));
    assert_eq!(
        conditions.evaluate(&Method::GET, Some(&current)),
        Verdict::Proceed
    );
}

#[test]
fn thousands_of_ranges_are_ignored() {
    let ranges: Vec<_> = (0..5_000)
        .map(|at| format!("{}-{}", at * 2, at * 2))
        .collect();
    let value = format!("bytes={}", ranges.join(","));
    assert_eq!(
        Selection::parse(value.as_bytes(), 100_000, Limits::default()),
        Selection::Whole
    );
    let at_the_limit = format!("bytes={}", ranges[..100].join(","));
    let selection = Selection::parse(at_the_limit.as_bytes(), 100_000, Limits::default());
    assert!(matches!(selection, Selection::Parts(parts) if parts.len() == 100));
}

fn unmodified_since(date: HttpDate, modified: Timestamp) -> Verdict {
    let conditions = Preconditions {
        if_unmodified_since: Some(date),
        ..Preconditions::default()
    };
    let current = Validators {
        tags: &[],
        last_modified: Some(modified.last_modified()),
    };
    conditions.evaluate(&Method::PUT, Some(&current))
}

fn verdict(
    method: &Method,
    lines: &[(HeaderName, &'static str)],
    tags: &[&str],
    last_modified: Option<i64>,
) -> Verdict {
    let tags: Vec<_> = tags
        .iter()
        .map(|tag| EntityTag::parse(tag.as_bytes()).unwrap())
        .collect();
    let current = Validators {
        tags: &tags,
        last_modified: last_modified.map(HttpDate::from_unix),
    };
    Preconditions::from_headers(&headers(lines)).evaluate(method, Some(&current))
}

fn headers(lines: &[(HeaderName, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(name, HeaderValue::from_static(value));
    }
    headers
}
