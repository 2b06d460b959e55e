//! GET and HEAD, and the headers of a 304.

use support::raw::Connection;

use crate::site::{Site, eventually};
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("read: HEAD has the headers of GET", head);
    suite.case("read: a 304 has the headers that update a stored response, and none about content", not_modified);
    suite.case("read: Last-Modified is sent after its second has ended, and does not change", dated);
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
    http.put(&path, &[("content-type", "text/plain"), ("x-meta-a", "1")], "hello").is(201);
    eventually("a date", || http.head(&path).headers.contains_key("last-modified").then_some(()));
    let (get, head) = (http.get(&path).is(200), http.head(&path).is(200));
    assert_eq!(get.header("content-length"), "5");
    assert_eq!(get.header("accept-ranges"), "bytes");
    for name in ["etag", "content-type", "content-length", "last-modified", "repr-digest", "accept-ranges", "x-meta-a"]
    {
        assert_eq!(get.header(name), head.header(name), "{name}");
    }
    assert!(head.body.is_empty());
}

fn not_modified(site: &Site) {
    let (path, mut http) = (format!("/{}/blob", site.name()), site.plain());
    let kept = [("cache-control", "max-age=5"), ("x-meta-a", "1")];
    let described = [("content-type", "text/plain"), ("content-language", "en"), ("content-disposition", "inline")];
    let tag = http.put(&path, &[&kept[..], &described].concat(), "hello").is(201).etag().to_owned();
    for method in ["GET", "HEAD"] {
        for range in [&[][..], &[("range", "bytes=0-1")]] {
            let fields = [&[("if-none-match", tag.as_str())], range].concat();
            let reply = http.send(method, &path, &fields, "").is(304);
            assert_eq!(reply.etag(), tag);
            for (name, value) in kept {
                assert_eq!(reply.header(name), value, "{method}");
            }
            for name in ["content-length", "last-modified", "repr-digest", "accept-ranges", "content-range"] {
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
    let date =
        |reply: &crate::http::Reply| Some(reply.field("last-modified").to_owned()).filter(|date| !date.is_empty());
    let first = eventually("a date", || date(&http.head(&path).is(200)));
    // From that second on, no write can get this date.
    http.put(&path, &[], "two").is(200);
    http.put(&path, &[("if-unmodified-since", &first)], "lost").is(412);
    let second = eventually("a date", || date(&http.head(&path).is(200)));
    let parse = |date: &str| httpdate::parse_http_date(date).expect("a date");
    assert!(parse(&second) > parse(&first), "{second} after {first}");
    assert_eq!(http.get(&path).is(200).header("last-modified"), second);
}

fn identity(site: &Site) {
    let (path, mut http) = (format!("/{}/blob", site.name()), site.plain());
    let text = "all the same ".repeat(1000);
    http.put(&path, &[("content-type", "text/plain")], &text).is(201);
    let read = http.get(&path).is(200);
    assert_eq!((read.field("content-encoding"), read.text()), ("", text.as_str()));
}

fn failed(site: &Site) {
    let (path, mut http) = (format!("/{}/blob", site.name()), site.plain());
    let tag = http.put(&path, &[], "hello").is(201).etag().to_owned();
    for method in ["GET", "PUT", "DELETE"] {
        let reply = http.send(method, &path, &[("if-match", "\"x\"")], "").is(412);
        assert_eq!((reply.etag(), reply.header("content-type")), (tag.as_str(), "application/problem+json"));
        let problem = reply.json();
        assert_eq!((&problem["status"], &problem["condition"]), (&412.into(), &"if-match".into()), "{problem}");
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
        for (fields, status) in [("", 200), (none_match.as_str(), 304), ("Range: bytes=9-\r\n", 416), ("", 200)] {
            connection.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}{fields}\r\n"));
            connection.answer().expect(status);
        }
        connection.send(format!("PUT {path}2 HTTP/1.1\r\nHost: localhost\r\n{token}Content-Length: 5\r\n\r\nhello"));
        assert!(connection.answer().status.is_success());
    }
}
