//! Reads of whole blobs and of parts.

use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use support::eventually;
use support::raw::Connection;

use crate::http::Reply;
use crate::plain::conditions::{Blob, meaning, written};
use crate::site::Site;
use crate::suite::{Suite, borrowed, fields, rows};

pub(crate) fn add(suite: &mut Suite) {
    suite.case("read: HEAD has the headers of GET", head);
    suite.case(
        "read: a 304 has the headers that update a stored response, and none about content",
        not_modified,
    );
    suite.case(
        "read: Last-Modified is sent after its second has ended, and does not change",
        dated,
    );
    suite.case("read: the body is not compressed", identity);
    suite.case("read: a 412 carries the tag and problem details", failed);
    suite.case("read: a query is ignored", |site| {
        let (path, mut http) = (format!("/{}/blob", site.name()), site.plain());
        http.put(&path, &[], "hello").is(201);
        assert_eq!(http.get(&format!("{path}?v=1")).is(200).text(), "hello");
    });
    suite.case("read: many requests on one connection", kept_alive);
}

fn head(site: &Site) {
    let (path, mut http) = (format!("/{}/blob", site.name()), site.plain());
    http.put(
        &path,
        &[("content-type", "text/plain"), ("x-meta-a", "1")],
        "hello",
    )
    .is(201);
    eventually("a date", || {
        http.head(&path)
            .headers
            .contains_key("last-modified")
            .then_some(())
    });
    let (get, head) = (http.get(&path).is(200), http.head(&path).is(200));
    assert_eq!(get.header("content-length"), "5");
    assert_eq!(get.header("accept-ranges"), "bytes");
    for name in [
        "etag",
        "content-type",
        "content-length",
        "last-modified",
        "repr-digest",
        "accept-ranges",
        "x-meta-a",
    ] {
        assert_eq!(get.header(name), head.header(name), "{name}");
    }
    assert!(head.body.is_empty());
}

fn not_modified(site: &Site) {
    let (path, mut http) = (format!("/{}/blob", site.name()), site.plain());
    let kept = [("cache-control", "max-age=5"), ("x-meta-a", "1")];
    let described = [
        ("content-type", "text/plain"),
        ("content-language", "en"),
        ("content-disposition", "inline"),
    ];
    let tag = http
        .put(&path, &[&kept[..], &described].concat(), "hello")
        .is(201)
        .etag()
        .to_owned();
    for method in ["GET", "HEAD"] {
        for range in [&[][..], &[("range", "bytes=0-1")]] {
            let fields = [&[("if-none-match", tag.as_str())], range].concat();
            let reply = http.send(method, &path, &fields, "").is(304);
            assert_eq!(reply.etag(), tag);
            for (name, value) in kept {
                assert_eq!(reply.header(name), value, "{method}");
            }
            for name in [
                "content-length",
                "last-modified",
                "repr-digest",
                "accept-ranges",
                "content-range",
            ] {
                assert_eq!(reply.field(name), "", "{method} {name}");
            }
            for (name, _) in described {
                assert_eq!(reply.field(name), "", "{method} {name}");
            }
        }
    }
}

fn dated(site: &Site) {
    let (path, mut http) = (format!("/{}/blob", site.name()), site.plain());
    http.put(&path, &[], "one").is(201);
    let date = |reply: &Reply| {
        Some(reply.field("last-modified").to_owned()).filter(|date| !date.is_empty())
    };
    let first = eventually("a date", || date(&http.head(&path).is(200)));
    // From that second on, no write can get this date.
    http.put(&path, &[], "two").is(200);
    http.put(&path, &[("if-unmodified-since", &first)], "lost")
        .is(412);
    let second = eventually("a date", || date(&http.head(&path).is(200)));
    let parse = |date: &str| httpdate::parse_http_date(date).expect("a date");
    assert!(parse(&second) > parse(&first), "{second} after {first}");
    assert_eq!(http.get(&path).is(200).header("last-modified"), second);
}

fn identity(site: &Site) {
    let (path, mut http) = (format!("/{}/blob", site.name()), site.plain());
    let text = "all the same ".repeat(1000);
    http.put(&path, &[("content-type", "text/plain")], &text)
        .is(201);
    let read = http.get(&path).is(200);
    assert_eq!(
        (read.field("content-encoding"), read.text()),
        ("", text.as_str())
    );
}

fn failed(site: &Site) {
    let (path, mut http) = (format!("/{}/blob", site.name()), site.plain());
    let tag = http.put(&path, &[], "hello").is(201).etag().to_owned();
    for method in ["GET", "PUT", "DELETE"] {
        let reply = http
            .send(method, &path, &[("if-match", "\"x\"")], "")
            .is(412);
        assert_eq!(
            (reply.etag(), reply.header("content-type")),
            (tag.as_str(), "application/problem+json")
        );
        let problem = reply.json();
        assert_eq!(
            (&problem["status"], &problem["condition"]),
            (&412.into(), &"if-match".into()),
            "{problem}"
        );
        assert_eq!(problem["etag"], tag);
    }
}

fn kept_alive(site: &Site) {
    let (path, mut http) = (format!("/{}/blob", site.name()), site.plain());
    let tag = http.put(&path, &[], "hello").is(201).etag().to_owned();
    let mut connection = Connection::open(site.address());
    let token = site.token_line();
    for _ in 0..10 {
        let none_match = format!("If-None-Match: {tag}\r\n");
        for (fields, status) in [
            ("", 200),
            (none_match.as_str(), 304),
            ("Range: bytes=9-\r\n", 416),
            ("", 200),
        ] {
            connection.send(format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}{fields}\r\n"
            ));
            connection.answer().expect(status);
        }
        connection.send(format!(
            "PUT {path}2 HTTP/1.1\r\nHost: localhost\r\n{token}Content-Length: 5\r\n\r\nhello"
        ));
        assert!(connection.answer().status.is_success());
    }
}

/// The lengths of the blobs that all cases read.
const LENGTHS: [usize; 3] = [0, 1, 1000];

/// The longest of these blobs. The names of the others end with their lengths.
type Shared = Arc<OnceLock<Blob>>;

pub(crate) fn add_ranges(suite: &mut Suite) {
    let shared = Shared::default();
    for row in rows(include_str!(
        "../../../../ifmatch-core/tests/data/ranges.txt"
    )) {
        let [fields, length, expected] = row.try_into().expect("three columns");
        // Other rows are about lengths that no blob here has, or about bytes that aren't text.
        let Some(length) = length
            .parse::<usize>()
            .ok()
            .filter(|length| *length <= 1000)
        else {
            continue;
        };
        if fields.contains("\\x") {
            continue;
        }
        let shared = Arc::clone(&shared);
        assert!(LENGTHS.contains(&length), "no blob has {length} bytes");
        suite.case(format!("range: of {length}, {fields}"), move |site| {
            check(site, &shared, "GET", &fields, length, &expected);
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
        site.plain()
            .send("GET", &path, &[("range", "bytes=0-0")], "")
            .is(404);
    });
}

/// Returns bytes that encode their positions.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at * 31 % 251).expect("less than 251"))
        .collect()
}

fn check(site: &Site, shared: &Shared, method: &str, text: &str, length: usize, expected: &str) {
    let mut http = site.plain();
    let blob = shared.get_or_init(|| {
        let mut http = site.plain();
        let blob = written(&mut http, site, true, &pattern(1000));
        // A date is a strong validator only after a second without writes.
        sleep(Duration::from_millis(1100));
        for length in [0, 1] {
            site.plain()
                .put(&format!("{}{length}", blob.path), &[], pattern(length))
                .is(201);
        }
        blob
    });
    let path = if length == 1000 {
        blob.path.clone()
    } else {
        format!("{}{length}", blob.path)
    };
    let fields = fields(&meaning(text, blob));
    let reply = http.send(method, &path, &borrowed(&fields), "");
    match expected {
        "whole" => {
            let reply = reply.is(200);
            assert_eq!(reply.field("content-length"), length.to_string());
            assert_eq!(reply.field("content-range"), "");
            assert_eq!(
                reply.body,
                if method == "HEAD" {
                    Vec::new()
                } else {
                    pattern(length)
                }
            );
        }
        "416" => {
            let reply = reply.is(416);
            assert_eq!(reply.field("content-range"), format!("bytes */{length}"));
            assert!(
                reply
                    .text()
                    .contains("urn:ifmatch:problem:range-not-satisfiable"),
                "{}",
                reply.text()
            );
            assert!(
                length < 1000 || reply.etag() == blob.tag,
                "{}",
                reply.etag()
            );
        }
        "304" | "412" => assert_eq!(
            reply.is(expected.parse().expect("a status")).etag(),
            blob.tag
        ),
        ranges => parts(&reply.is(206), ranges, length),
    }
}

/// Checks that each part of the response has the content that its header states.
fn parts(reply: &Reply, ranges: &str, length: usize) {
    let ranges: Vec<(usize, usize)> = ranges.split(' ').map(bounds).collect();
    let content = pattern(length);
    if let [(first, last)] = ranges[..] {
        assert_eq!(
            reply.field("content-range"),
            format!("bytes {first}-{last}/{length}")
        );
        assert_eq!(reply.body, content[first..=last]);
        return;
    }
    let kind = reply.field("content-type");
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap_or_else(|| reply.fail("multipart"));
    let mut expected = Vec::new();
    let mut rest: &[u8] = &reply.body;
    let delimiter = format!("--{}", boundary.trim_matches('"'));
    for (first, last) in ranges {
        let start = find(rest, delimiter.as_bytes()).unwrap_or_else(|| reply.fail("one more part"));
        let head = find(&rest[start..], b"\r\n\r\n")
            .unwrap_or_else(|| reply.fail("the head of a part"))
            + start
            + 4;
        let fields = String::from_utf8_lossy(&rest[start..head]).to_lowercase();
        assert!(
            fields.contains(&format!("content-range: bytes {first}-{last}/{length}\r\n")),
            "{fields}"
        );
        assert_eq!(rest[head..=head + last - first], content[first..=last]);
        expected.push((first, last));
        rest = &rest[head + last - first + 1..];
    }
    assert_eq!(
        String::from_utf8_lossy(rest).trim(),
        format!("{delimiter}--"),
        "nothing but the end follows"
    );
}

fn bounds(range: &str) -> (usize, usize) {
    let (first, last) = range.split_once('-').expect("a range");
    (
        first.parse().expect("a number"),
        last.parse().expect("a number"),
    )
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

/// Requests a number of ranges of one byte each.
fn many(site: &Site, count: usize, served: bool) {
    let (path, mut http) = (format!("/{}/many", site.name()), site.plain());
    http.put(&path, &[], pattern(1000)).is(201);
    let ranges: Vec<String> = (0..count).map(|at| format!("{0}-{0}", at * 3)).collect();
    let reply = http.send(
        "GET",
        &path,
        &[("range", &format!("bytes={}", ranges.join(",")))],
        "",
    );
    if served {
        parts(&reply.is(206), &ranges.join(" "), 1000);
    } else {
        assert_eq!(reply.is(200).body, pattern(1000));
    }
}
