//! PUT and DELETE: headers, bodies and retries.

use support::raw::Connection;

use crate::plain::reads::pattern;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("write: the same bytes get a new tag", same_bytes);
    suite.case("write: in chunks", chunked);
    suite.case("write: unsupported methods", other_methods);
    suite.case(
        "write: 100 (Continue) is sent if the body is needed",
        |site| continued(site, "", 201, true),
    );
    suite.case(
        "write: 100 (Continue) is not sent if a condition fails",
        |site| {
            continued(site, "If-Match: \"x\"\r\n", 412, false);
        },
    );
    for length in [0, 1, 4096, 65_536, 65_537, 1_048_576, 5_000_001] {
        suite.case(format!("write: {length} bytes"), move |site| {
            whole(site, length);
        });
    }
}

fn path(site: &Site) -> String {
    format!("/{}/blob", site.name())
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

fn chunked(site: &Site) {
    let path = path(site);
    let mut connection = Connection::open(site.address());
    let token = site.token_line();
    connection.send(format!(
        "PUT {path} HTTP/1.1\r\nHost: localhost\r\n{token}Transfer-Encoding: chunked\r\n\r\n"
    ));
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
    for (method, path) in [
        ("POST", path.as_str()),
        ("PATCH", &path),
        ("PUT", container),
        ("DELETE", container),
        ("DELETE", "/"),
    ] {
        let reply = http.send(method, path, &[], "").is(405);
        assert!(reply.field("allow").contains("GET"), "{method} {path}");
    }
    assert_eq!(http.get(&path).is(200).etag(), tag);
}

/// Sends the head first, and the body after a 100 (Continue).
fn continued(site: &Site, condition: &str, status: u16, wanted: bool) {
    let (path, token) = (path(site), site.token_line());
    let mut connection = Connection::open(site.address());
    let fields = format!("Expect: 100-continue\r\nContent-Length: 5\r\n{token}{condition}");
    connection.send(format!(
        "PUT {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
    ));
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
    assert_eq!(
        (read.etag(), read.header("content-length")),
        (tag.as_str(), length.to_string().as_str())
    );
    assert!(read.body == content, "the bytes that were written");
    let head = http.head(&path).is(200);
    assert_eq!(head.header("content-length"), length.to_string());
}
