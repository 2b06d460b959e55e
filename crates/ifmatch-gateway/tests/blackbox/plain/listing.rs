//! Names of blobs, and listings.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use support::eventually;
use support::raw::Connection;

use crate::http::Http;
use crate::site::Site;
use crate::suite::{Suite, rows};

/// Characters that are percent-encoded in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/');
const NAMES: [&str; 9] = ["a!", "a-", "a/1", "a/2", "a/b/c", "a0", "b", "B", "é"];

pub(crate) fn add(suite: &mut Suite) {
    for limit in [1, 2, 3, 8, 9, 10, 1000] {
        suite.case(format!("list: in pages of {limit}"), move |site| {
            pages(site, limit);
        });
    }
    for (prefix, names) in PREFIXES {
        suite.case(format!("list: with the prefix {prefix:?}"), move |site| {
            let container = filled(site);
            assert_eq!(walk(&mut site.plain(), &container, prefix, 2), names);
        });
    }
    suite.case("list: a blob next to a folder with the same name", |site| {
        let (container, mut http) = (site.name(), site.plain());
        for name in ["a/1", "a", "a/1/x"] {
            http.put(&format!("/{container}/{name}"), &[], "x").is(201);
        }
        assert_eq!(walk(&mut http, &container, "", 1), ["a", "a/1", "a/1/x"]);
    });
    suite.case("list: an entry matches HEAD", tells);
    suite.case("list: after a missing name", after);
    suite.case(
        "list: deleted blobs disappear, and the container remains",
        deleted,
    );
    suite.case("list: an unknown container", |site| {
        drop(site.plain().get(&format!("/{}", site.name())).is(404));
    });
    suite.case("list: the containers", containers);
    suite.case("list: HEAD", |site| {
        let (container, mut http) = (filled(site), site.plain());
        let (get, head) = (
            http.get(&format!("/{container}")).is(200),
            http.head(&format!("/{container}")).is(200),
        );
        assert_eq!(head.field("content-type"), get.field("content-type"));
    });
    for query in QUERIES {
        suite.case(format!("list: rejected, {query}"), move |site| {
            let container = filled(site);
            site.plain().get(&format!("/{container}?{query}")).is(400);
            site.plain().get(&format!("/?{query}")).is(400);
        });
    }
}

/// Queries that listings reject.
const QUERIES: [&str; 9] = [
    "limit=0",
    "limit=-1",
    "limit=",
    "limit=many",
    "limit=99999999999999999999999",
    "prefix=%FF",
    "prefix=%z",
    "delimiter=",
    "nonsense=1",
];

const PREFIXES: [(&str, &[&str]); 6] = [
    (
        "",
        &["B", "a!", "a-", "a/1", "a/2", "a/b/c", "a0", "b", "é"],
    ),
    ("a", &["a!", "a-", "a/1", "a/2", "a/b/c", "a0"]),
    ("a/", &["a/1", "a/2", "a/b/c"]),
    ("a/b", &["a/b/c"]),
    ("é", &["é"]),
    ("x", &[]),
];

fn filled(site: &Site) -> String {
    let (container, mut http) = (site.name(), site.plain());
    for name in NAMES {
        let name = utf8_percent_encode(name, PATH).to_string();
        http.put(&format!("/{container}/{name}"), &[], "x").is(201);
    }
    container
}

/// Adds the name of an entry. A server that repeats names would list them forever.
fn add_next(names: &mut Vec<String>, entry: &Value) {
    let name = entry["name"].as_str().expect("a name");
    let last = names.last();
    assert!(
        last.is_none_or(|last| last.as_str() < name),
        "{name} after {last:?}"
    );
    names.push(name.to_owned());
}

/// Returns the names in all pages.
fn walk(http: &mut Http<'_>, container: &str, prefix: &str, limit: usize) -> Vec<String> {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = http
            .get(&format!(
                "/{container}?prefix={}&limit={limit}{after}",
                encode(prefix)
            ))
            .is(200)
            .json();
        let blobs = page["blobs"].as_array().expect("blobs");
        assert!(blobs.len() <= limit, "{page}");
        for blob in blobs {
            add_next(&mut names, blob);
        }
        let Some(next) = page["next"].as_str() else {
            return names;
        };
        assert!(
            !blobs.is_empty(),
            "a page before the last one has names: {page}"
        );
        after = format!("&after={}", encode(next));
    }
}

fn pages(site: &Site, limit: usize) {
    let container = filled(site);
    let mut sorted = NAMES.map(str::to_owned);
    sorted.sort();
    assert_eq!(walk(&mut site.plain(), &container, "", limit), sorted);
}

fn tells(site: &Site) {
    let (container, mut http) = (site.name(), site.plain());
    let path = format!("/{container}/blob");
    let tag = http
        .put(
            &path,
            &[("content-type", "text/plain"), ("x-meta-owner", "me")],
            "hello",
        )
        .is(201);
    let date = eventually("a date", || {
        Some(http.head(&path).field("last-modified").to_owned()).filter(|date| !date.is_empty())
    });
    let listing = http.get(&format!("/{container}")).is(200).json();
    let expected = serde_json::json!({
        "container": container,
        "blobs": [{
            "name": "blob", "etag": tag.etag(), "size": 5, "content_type": "text/plain", "last_modified": date,
            "metadata": { "owner": "me" },
        }],
        "next": null,
    });
    assert_eq!(listing, expected);
}

fn after(site: &Site) {
    let container = filled(site);
    let listing = site
        .plain()
        .get(&format!("/{container}?after=a%2F15&prefix=a"))
        .is(200)
        .json();
    let names: Vec<_> = listing["blobs"]
        .as_array()
        .expect("blobs")
        .iter()
        .map(|blob| &blob["name"])
        .collect();
    assert_eq!(names, ["a/2", "a/b/c", "a0"]);
}

fn deleted(site: &Site) {
    let (container, mut http) = (site.name(), site.plain());
    for name in ["a", "b", "c"] {
        http.put(&format!("/{container}/{name}"), &[], "x").is(201);
    }
    http.delete(&format!("/{container}/b"), &[]).is(204);
    assert_eq!(walk(&mut http, &container, "", 1), ["a", "c"]);
    for name in ["a", "c"] {
        http.delete(&format!("/{container}/{name}"), &[]).is(204);
    }
    assert!(walk(&mut http, &container, "", 1).is_empty());
}

/// Other runs and cases create containers, too, so only those with one prefix are compared.
fn containers(site: &Site) {
    let (prefix, mut http) = (site.name(), site.plain());
    for name in ["x", "x-y", "z"] {
        http.put(&format!("/{prefix}{name}/blob"), &[], "x").is(201);
    }
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = http
            .get(&format!("/?limit=2&prefix={prefix}{after}"))
            .is(200)
            .json();
        for container in page["containers"].as_array().expect("containers") {
            add_next(&mut names, container);
        }
        let Some(next) = page["next"].as_str() else {
            break;
        };
        after = format!("&after={next}");
    }
    assert_eq!(names, ["x", "x-y", "z"].map(|name| prefix.clone() + name));
}

pub(crate) fn add_names(suite: &mut Suite) {
    for row in rows(include_str!("../../data/blackbox/names.txt")) {
        let [encoded, listed, status] = row.try_into().expect("three columns");
        suite.case(format!("name: {encoded}"), move |site| {
            match status.as_str() {
                "201" => taken(site, &encoded, &listed),
                status => refused(site, &encoded, status.parse().expect("a status")),
            }
        });
    }
    suite.case("name: any encoding of a path names the same blob", |site| {
        let (container, mut http) = (site.name(), site.plain());
        http.put(&format!("/{container}/caf%C3%A9/%7Ea+b"), &[], "x")
            .is(201);
        assert_eq!(
            http.get(&format!("/{container}/caf%c3%a9/~a%2Bb"))
                .is(200)
                .text(),
            "x"
        );
    });
    suite.case("name: 1,024 characters", |site| {
        taken(site, &long(1024), &long(1024));
    });
    suite.case("name: 1,025 characters", |site| {
        refused(site, &long(1025), 414);
    });
    suite.case("name: 10 KiB", |site| {
        refused(site, &"x".repeat(10_240), 414);
    });
    suite.case("name: a container with 89 characters", |site| {
        let path = format!("/{}/blob", "c".repeat(89));
        site.plain().put(&path, &[], "x").is(414);
    });
    for container in ["-c", ".c", "c%20c", "c~", "%C3%BC"] {
        suite.case(format!("name: a container, {container}"), move |site| {
            let status = site
                .plain()
                .put(&format!("/{container}/blob"), &[], "x")
                .status;
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
    site.plain()
        .put(&format!("/{container}/other"), &[], "other")
        .is(201);
    for method in ["PUT", "GET", "HEAD", "DELETE"] {
        let mut connection = Connection::open(site.address());
        let token = site.token_line();
        let length = if method == "PUT" {
            "Content-Length: 1\r\n\r\nx"
        } else {
            "\r\n"
        };
        connection.send(format!(
            "{method} /{container}/{encoded} HTTP/1.1\r\nHost: localhost\r\n{token}{length}"
        ));
        let answer = if method == "HEAD" {
            connection.answer_to_head()
        } else {
            connection.answer()
        };
        assert_eq!(answer.status.as_u16(), status, "{method}: {answer:?}");
        assert!(
            method == "HEAD" || answer.text().contains("urn:ifmatch:problem:invalid-name"),
            "{method}: {answer:?}"
        );
    }
    let listing = site.plain().get(&format!("/{container}")).is(200).json();
    assert_eq!(
        listing["blobs"].as_array().map(Vec::len),
        Some(1),
        "{listing}"
    );
}
