//! PUT and DELETE: headers, bodies and retries.

use support::raw::Connection;

use crate::plain::ranges::pattern;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("write: created, replaced, deleted, gone", life);
    suite.case("write: the same bytes get a new tag", same_bytes);
    suite.case("write: a recreated blob has a new tag", created_again);
    suite.case("write: headers and metadata are stored", fields);
    suite.case("write: a replacement removes all previous headers", replaced_fields);
    suite.case("write: Cache-Control that fetch adds is not stored", added_by_fetch);
    suite.case("write: a retry with the same key gets the first response", retried);
    suite.case("write: a key with a different body is a different request", key_with_another_body);
    suite.case("write: in chunks", chunked);
    suite.case("write: unsupported methods", other_methods);
    suite.case("write: OPTIONS lists the methods", options);
    suite.case("write: 100 (Continue) is sent if the body is needed", |site| continued(site, "", 201, true));
    suite.case("write: 100 (Continue) is not sent if a condition fails", |site| {
        continued(site, "If-Match: \"x\"\r\n", 412, false);
    });
    for length in [0, 1, 4096, 65_536, 65_537, 1_048_576, 5_000_001] {
        suite.case(format!("write: {length} bytes"), move |site| whole(site, length));
    }
    for (name, digest, status) in DIGESTS {
        suite.case(format!("write: {name}"), move |site| digested(site, digest, status));
    }
}

/// Request headers.
type Fields = &'static [(&'static str, &'static str)];

/// Digest of the body `hello`.
const DIGESTS: [(&str, Fields, u16); 5] = [
    ("the right Repr-Digest", &[("repr-digest", "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:")], 201),
    ("the right Content-Digest", &[("content-digest", "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:")], 201),
    (
        "the Repr-Digest of another body",
        &[("repr-digest", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:")],
        400,
    ),
    ("a malformed Content-Digest", &[("content-digest", "sha-256=hello")], 400),
    (
        "digests that contradict each other",
        &[
            ("repr-digest", "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:"),
            ("content-digest", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"),
        ],
        400,
    ),
];

fn path(site: &Site) -> String {
    format!("/{}/blob", site.name())
}

fn life(site: &Site) {
    let (path, mut http) = (path(site), site.plain());
    http.get(&path).is(404);
    http.head(&path).is(404);
    http.delete(&path, &[]).is(404);
    let first = http.put(&path, &[], "hello").is(201);
    let digest = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
    assert_eq!(first.header("repr-digest"), digest);
    let read = http.get(&path).is(200);
    assert_eq!((read.etag(), read.text(), read.header("repr-digest")), (first.etag(), "hello", digest));
    let second = http.put(&path, &[], "hello, world").is(200);
    assert_ne!(second.etag(), first.etag());
    let read = http.get(&path).is(200);
    assert_eq!((read.etag(), read.text()), (second.etag(), "hello, world"));
    assert_eq!(http.delete(&path, &[]).is(204).body.len(), 0);
    http.get(&path).is(404);
    http.delete(&path, &[]).is(404);
}

fn same_bytes(site: &Site) {
    let (path, mut http) = (path(site), site.plain());
    let mut tags = vec![http.put(&path, &[], "same").is(201).etag().to_owned()];
    for _ in 0..5 {
        tags.push(http.put(&path, &[], "same").is(200).etag().to_owned());
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 6, "{tags:?}");
}

/// ABA: the old tag must not match the new blob.
fn created_again(site: &Site) {
    let (path, mut http) = (path(site), site.plain());
    let first = http.put(&path, &[], "same").is(201).etag().to_owned();
    http.delete(&path, &[("if-match", &first)]).is(204);
    let second = http.put(&path, &[("if-none-match", "*")], "same").is(201).etag().to_owned();
    assert_ne!(first, second);
    http.put(&path, &[("if-match", &first)], "lost").is(412);
    http.delete(&path, &[("if-match", &first)]).is(412);
    assert_eq!(http.get(&path).is(200).etag(), second);
}

const FIELDS: [(&str, &str); 7] = [
    ("content-type", "text/markdown; charset=utf-8"),
    ("content-encoding", "x-none"),
    ("content-language", "en-GB, de"),
    ("content-disposition", "attachment; filename=\"a b.md\""),
    ("cache-control", "max-age=60, private"),
    ("x-meta-owner", "me"),
    ("x-meta-long-name", "one; two = \"three\""),
];

fn fields(site: &Site) {
    let (path, mut http) = (path(site), site.plain());
    http.put(&path, &FIELDS, "text").is(201);
    for method in ["GET", "HEAD"] {
        let read = http.send(method, &path, &[], "").is(200);
        for (name, value) in FIELDS {
            assert_eq!(read.header(name), value, "{method}");
        }
        assert_eq!(read.header("x-content-type-options"), "nosniff");
    }
}

fn replaced_fields(site: &Site) {
    let (path, mut http) = (path(site), site.plain());
    http.put(&path, &FIELDS, "text").is(201);
    http.put(&path, &[("x-meta-other", "1")], "text").is(200);
    let read = http.get(&path).is(200);
    assert_eq!((read.header("content-type"), read.header("x-meta-other")), ("application/octet-stream", "1"));
    for (name, _) in &FIELDS[1..] {
        assert_eq!(read.field(name), "", "{name}");
    }
}

/// `fetch` adds both fields to a request on a condition unless the program has set them.
fn added_by_fetch(site: &Site) {
    let (path, mut http) = (path(site), site.plain());
    let pragma = ("pragma", "no-cache");
    http.put(&path, &[("cache-control", "no-cache"), pragma], "text").is(201);
    assert_eq!(http.get(&path).is(200).field("cache-control"), "");
    for own in [&[("cache-control", "no-cache")][..], &[("cache-control", "no-transform"), pragma]] {
        http.put(&path, own, "text").is(200);
        assert_eq!(http.get(&path).is(200).header("cache-control"), own[0].1);
    }
}

fn retried(site: &Site) {
    let (path, mut http) = (path(site), site.plain());
    let create = [("if-none-match", "*"), ("idempotency-key", "key-1")];
    let tag = http.put(&path, &create, "one").is(201).etag().to_owned();
    assert_eq!(http.put(&path, &create, "one").is(201).etag(), tag);
    let replace = [("if-match", tag.as_str()), ("idempotency-key", "key-2")];
    let second = http.put(&path, &replace, "two").is(200).etag().to_owned();
    assert_eq!(http.put(&path, &replace, "two").is(200).etag(), second);
    http.put(&path, &[("if-match", &tag), ("idempotency-key", "key-3")], "two").is(412);
    assert_eq!(http.get(&path).is(200).etag(), second);
}

fn key_with_another_body(site: &Site) {
    let (path, mut http) = (path(site), site.plain());
    let create = [("if-none-match", "*"), ("idempotency-key", "key")];
    http.put(&path, &create, "one").is(201);
    http.put(&path, &create, "two").is(412);
    assert_eq!(http.get(&path).is(200).text(), "one");
}

fn chunked(site: &Site) {
    let path = path(site);
    let mut connection = Connection::open(site.address());
    let token = site.token_line();
    connection.send(format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\n{token}Transfer-Encoding: chunked\r\n\r\n"));
    let mut content = Vec::new();
    for size in [1, 10, 1000, 70_000, 3] {
        let chunk = pattern(size);
        connection.send([format!("{size:x}\r\n").as_bytes(), &chunk, b"\r\n"].concat());
        content.extend(chunk);
    }
    connection.send("0\r\n\r\n");
    let tag = connection.answer().expect(201).etag().to_owned();
    let read = site.plain().get(&path).is(200);
    assert_eq!((read.etag(), &read.body[..]), (tag.as_str(), &content[..]));
}

fn other_methods(site: &Site) {
    let (path, mut http) = (path(site), site.plain());
    let tag = http.put(&path, &[], "kept").is(201).etag().to_owned();
    let container = path.trim_end_matches("/blob");
    for (method, path) in
        [("POST", path.as_str()), ("PATCH", &path), ("PUT", container), ("DELETE", container), ("DELETE", "/")]
    {
        let reply = http.send(method, path, &[], "").is(405);
        assert!(reply.field("allow").contains("GET"), "{method} {path}");
    }
    assert_eq!(http.get(&path).is(200).etag(), tag);
}

fn options(site: &Site) {
    let (path, mut http) = (path(site), site.plain());
    assert_eq!(http.send("OPTIONS", &path, &[], "").is(204).field("allow"), "GET, HEAD, PUT, DELETE, OPTIONS");
}

/// Sends the head first, and the body after a 100 (Continue).
fn continued(site: &Site, condition: &str, status: u16, wanted: bool) {
    let (path, token) = (path(site), site.token_line());
    let mut connection = Connection::open(site.address());
    let fields = format!("Expect: 100-continue\r\nContent-Length: 5\r\n{token}{condition}");
    connection.send(format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
    if wanted {
        assert_eq!(connection.answer().status, 100);
        connection.send("hello");
    }
    assert_eq!(connection.answer().status, status);
}

fn whole(site: &Site, length: usize) {
    let (path, mut http, content) = (path(site), site.plain(), pattern(length));
    let tag = http.put(&path, &[], &content).is(201).etag().to_owned();
    let read = http.get(&path).is(200);
    assert_eq!((read.etag(), read.header("content-length")), (tag.as_str(), length.to_string().as_str()));
    assert!(read.body == content, "the bytes that were written");
    let head = http.head(&path).is(200);
    assert_eq!(head.header("content-length"), length.to_string());
}

fn digested(site: &Site, digest: &[(&str, &str)], status: u16) {
    let (path, mut http) = (path(site), site.plain());
    http.put(&path, digest, "hello").is(status);
    http.get(&path).is(if status == 201 { 200 } else { 404 });
}
