//! Listings as JSON: complete, ordered and paged.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::http::Http;
use crate::site::{Site, eventually};
use crate::suite::Suite;

/// Characters that are percent-encoded in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/');
const NAMES: [&str; 9] = ["a!", "a-", "a/1", "a/2", "a/b/c", "a0", "b", "B", "é"];

pub(crate) fn add(suite: &mut Suite) {
    for limit in [1, 2, 3, 8, 9, 10, 1000] {
        suite.case(format!("list: in pages of {limit}"), move |site| pages(site, limit));
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
    suite.case("list: deleted blobs disappear, and the container remains", deleted);
    suite.case("list: an unknown container", |site| drop(site.plain().get(&format!("/{}", site.name())).is(404)));
    suite.case("list: the containers", containers);
    suite.case("list: HEAD", |site| {
        let (container, mut http) = (filled(site), site.plain());
        let (get, head) = (http.get(&format!("/{container}")).is(200), http.head(&format!("/{container}")).is(200));
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
    ("", &["B", "a!", "a-", "a/1", "a/2", "a/b/c", "a0", "b", "é"]),
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

/// Returns the names in all pages.
fn walk(http: &mut Http<'_>, container: &str, prefix: &str, limit: usize) -> Vec<String> {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = http.get(&format!("/{container}?prefix={}&limit={limit}{after}", encode(prefix))).is(200).json();
        let blobs = page["blobs"].as_array().expect("blobs");
        assert!(blobs.len() <= limit, "{page}");
        names.extend(blobs.iter().map(|blob| blob["name"].as_str().expect("a name").to_owned()));
        let Some(next) = page["next"].as_str() else { return names };
        assert!(!blobs.is_empty(), "a page before the last one has names: {page}");
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
    let tag = http.put(&path, &[("content-type", "text/plain"), ("x-meta-owner", "me")], "hello").is(201);
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
    let listing = site.plain().get(&format!("/{container}?after=a%2F15&prefix=a")).is(200).json();
    let names: Vec<_> = listing["blobs"].as_array().expect("blobs").iter().map(|blob| &blob["name"]).collect();
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
        let page = http.get(&format!("/?limit=2&prefix={prefix}{after}")).is(200).json();
        let containers = page["containers"].as_array().expect("containers");
        names.extend(containers.iter().map(|one| one["name"].as_str().expect("a name").replace(&prefix, "")));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(names, ["x", "x-y", "z"]);
}
