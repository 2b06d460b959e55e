//! Ranges: the table of RFC 9110 in ifmatch-core, `If-Range`, and many ranges.

use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use crate::http::Reply;
use crate::plain::conditions::{Blob, meaning, written};
use crate::rows::{borrowed, fields, rows};
use crate::site::Site;
use crate::suite::Suite;

/// The blobs that all cases read.
type Shared = Arc<OnceLock<Blob>>;

pub(crate) fn add(suite: &mut Suite) {
    let shared = Shared::default();
    for row in rows(include_str!("../../../crates/ifmatch-core/tests/data/ranges.txt")) {
        let [fields, length, expected] = row.try_into().expect("three columns");
        // Other rows are about lengths that no blob here has, or about bytes that are not text.
        let Some(length) = length.parse::<usize>().ok().filter(|length| *length <= 1000) else { continue };
        if fields.contains("\\x") {
            continue;
        }
        let shared = Arc::clone(&shared);
        suite.case(format!("range: of {length}, {fields}"), move |site| {
            let lengths = [0, 1, 1000].contains(&length).then_some(length).expect("a length with a blob");
            check(site, &shared, "GET", &fields, lengths, &expected);
        });
    }
    for row in rows(include_str!("../../data/blackbox/ranges.txt")) {
        let [method, fields, expected] = row.try_into().expect("three columns");
        let shared = Arc::clone(&shared);
        suite.case(format!("range: {method} {fields}"), move |site| {
            check(site, &shared, &method, &fields, 1000, &expected);
        });
    }
    suite.case("range: one hundred", |site| many(site, 100, true));
    suite.case("range: one hundred and one", |site| many(site, 101, false));
    suite.case("range: of an absent blob", |site| {
        let path = format!("/{}/none", site.name());
        site.plain().send("GET", &path, &[("range", "bytes=0-0")], "").is(404);
    });
}

/// Returns bytes that encode their positions.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 31 % 251).expect("less than 251")).collect()
}

fn check(site: &Site, shared: &Shared, method: &str, text: &str, length: usize, expected: &str) {
    let mut http = site.plain();
    let blob = shared.get_or_init(|| {
        let mut http = site.plain();
        let blob = written(&mut http, site, true, &pattern(1000));
        // A date is a strong validator only after a second without writes.
        sleep(Duration::from_millis(1100));
        for length in [0, 1] {
            site.plain().put(&format!("{}{length}", blob.path), &[], pattern(length)).is(201);
        }
        blob
    });
    let path = if length == 1000 { blob.path.clone() } else { format!("{}{length}", blob.path) };
    let fields = fields(&meaning(text, blob));
    let reply = http.send(method, &path, &borrowed(&fields), "");
    match expected {
        "whole" => {
            let reply = reply.is(200);
            assert_eq!(reply.field("content-length"), length.to_string());
            assert_eq!(reply.field("content-range"), "");
            assert_eq!(reply.body, if method == "HEAD" { Vec::new() } else { pattern(length) });
        }
        "416" => {
            let reply = reply.is(416);
            assert_eq!(reply.field("content-range"), format!("bytes */{length}"));
            assert!(reply.text().contains("urn:ifmatch:problem:range-not-satisfiable"), "{}", reply.text());
            assert!(length < 1000 || reply.etag() == blob.tag, "{}", reply.etag());
        }
        "304" | "412" => assert_eq!(reply.is(expected.parse().expect("a status")).etag(), blob.tag),
        ranges => parts(&reply.is(206), ranges, length),
    }
}

/// Checks that each part of the response has the content that its header states.
fn parts(reply: &Reply, ranges: &str, length: usize) {
    let ranges: Vec<(usize, usize)> = ranges.split(' ').map(bounds).collect();
    let content = pattern(length);
    if let [(first, last)] = ranges[..] {
        assert_eq!(reply.field("content-range"), format!("bytes {first}-{last}/{length}"));
        assert_eq!(reply.body, content[first..=last]);
        return;
    }
    let kind = reply.field("content-type");
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap_or_else(|| reply.fail("multipart"));
    let mut expected = Vec::new();
    let mut rest: &[u8] = &reply.body;
    let delimiter = format!("--{}", boundary.trim_matches('"'));
    for (first, last) in ranges {
        let start = find(rest, delimiter.as_bytes()).unwrap_or_else(|| reply.fail("one more part"));
        let head = find(&rest[start..], b"\r\n\r\n").unwrap_or_else(|| reply.fail("the head of a part")) + start + 4;
        let fields = String::from_utf8_lossy(&rest[start..head]).to_lowercase();
        assert!(fields.contains(&format!("content-range: bytes {first}-{last}/{length}\r\n")), "{fields}");
        assert_eq!(rest[head..=head + last - first], content[first..=last]);
        expected.push((first, last));
        rest = &rest[head + last - first + 1..];
    }
    assert_eq!(String::from_utf8_lossy(rest).trim(), format!("{delimiter}--"), "nothing but the end follows");
}

fn bounds(range: &str) -> (usize, usize) {
    let (first, last) = range.split_once('-').expect("a range");
    (first.parse().expect("a number"), last.parse().expect("a number"))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Requests a number of ranges of one byte each.
fn many(site: &Site, count: usize, served: bool) {
    let (path, mut http) = (format!("/{}/many", site.name()), site.plain());
    http.put(&path, &[], pattern(1000)).is(201);
    let ranges: Vec<String> = (0..count).map(|at| format!("{0}-{0}", at * 3)).collect();
    let reply = http.send("GET", &path, &[("range", &format!("bytes={}", ranges.join(",")))], "");
    if served {
        parts(&reply.is(206), &ranges.join(" "), 1000);
    } else {
        assert_eq!(reply.is(200).body, pattern(1000));
    }
}
