//! Names of blobs: valid names round-trip, ambiguous ones are rejected.

use support::raw::Connection;

use crate::rows::rows;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    for row in rows(include_str!("../../data/blackbox/names.txt")) {
        let [encoded, listed, status] = row.try_into().expect("three columns");
        suite.case(format!("name: {encoded}"), move |site| match status.as_str() {
            "201" => taken(site, &encoded, &listed),
            status => refused(site, &encoded, status.parse().expect("a status")),
        });
    }
    suite.case("name: any encoding of a path names the same blob", |site| {
        let (container, mut http) = (site.name(), site.plain());
        http.put(&format!("/{container}/caf%C3%A9/%7Ea+b"), &[], "x").is(201);
        assert_eq!(http.get(&format!("/{container}/caf%c3%a9/~a%2Bb")).is(200).text(), "x");
    });
    suite.case("name: 1,024 characters", |site| taken(site, &long(1024), &long(1024)));
    suite.case("name: 1,025 characters", |site| refused(site, &long(1025), 414));
    suite.case("name: 10 KiB", |site| refused(site, &"x".repeat(10_240), 414));
    suite.case("name: a container with 89 characters", |site| {
        let path = format!("/{}/blob", "c".repeat(89));
        site.plain().put(&path, &[], "x").is(414);
    });
    for container in ["-c", ".c", "c%20c", "c~", "%C3%BC"] {
        suite.case(format!("name: a container, {container}"), move |site| {
            let status = site.plain().put(&format!("/{container}/blob"), &[], "x").status;
            assert!(status == 400 || status == 404, "{status}");
        });
    }
}

/// Builds a name of segments that fit into a file system.
fn long(length: usize) -> String {
    let mut name = "x".repeat(length);
    for at in (200..length - 1).step_by(200) {
        name.replace_range(at..=at, "/");
    }
    name
}

fn taken(site: &Site, encoded: &str, listed: &str) {
    let (container, mut http) = (site.name(), site.plain());
    let path = format!("/{container}/{encoded}");
    let tag = http.put(&path, &[], "content").is(201).etag().to_owned();
    let read = http.get(&path).is(200);
    assert_eq!((read.etag(), read.text()), (tag.as_str(), "content"));
    let listing = http.get(&format!("/{container}")).is(200).json();
    assert_eq!(listing["blobs"][0]["name"], listed, "{listing}");
    http.delete(&path, &[("if-match", &tag)]).is(204);
    http.get(&path).is(404);
}

/// Checks that all methods reject the name, and that nothing is created.
fn refused(site: &Site, encoded: &str, status: u16) {
    let container = site.name();
    site.plain().put(&format!("/{container}/other"), &[], "other").is(201);
    for method in ["PUT", "GET", "HEAD", "DELETE"] {
        let mut connection = Connection::open(site.address());
        let token = site.token_line();
        let length = if method == "PUT" { "Content-Length: 1\r\n\r\nx" } else { "\r\n" };
        connection.send(format!("{method} /{container}/{encoded} HTTP/1.1\r\nHost: localhost\r\n{token}{length}"));
        let answer = if method == "HEAD" { connection.answer_to_head() } else { connection.answer() };
        assert_eq!(answer.status.as_u16(), status, "{method}: {answer:?}");
        assert!(method == "HEAD" || answer.text().contains("urn:ifmatch:problem:invalid-name"), "{method}: {answer:?}");
    }
    let listing = site.plain().get(&format!("/{container}")).is(200).json();
    assert_eq!(listing["blobs"].as_array().map(Vec::len), Some(1), "{listing}");
}
