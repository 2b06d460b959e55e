//! Conditions by method and state: the cases of `ifmatch check --suite`, and the rows of `conditions.txt`.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;
use support::{eventually, run};

use crate::http::{Http, Reply};
use crate::site::Site;
use crate::suite::{Suite, borrowed, fields, rows};

const OLD: &str = "the first version";
const NEW: &str = "the second, longer version";
const WRITTEN: &str = "what is written";

/// The state before a case.
pub(crate) struct Blob {
    pub(crate) path: String,
    pub(crate) tag: String,
    old: String,
    pub(crate) date: String,
}

pub(crate) fn add(suite: &mut Suite) {
    suite.case(
        "check: every result of `ifmatch check --suite` is yes",
        checked,
    );
    for row in rows(include_str!("../../data/blackbox/conditions.txt")) {
        let [methods, state, fields, status] = row.try_into().expect("four columns");
        for method in methods.split(' ').map(str::to_owned) {
            let name = format!("condition: {method} {state}, {fields}");
            let (state, fields, status) = (state.clone(), fields.clone(), status.clone());
            suite.case(name, move |site| {
                check(site, &method, &state, &fields, &status);
            });
        }
    }
}

fn checked(site: &Site) {
    let url = site.plain_url(&format!("/{}", site.name()));
    let token = site
        .token()
        .into_iter()
        .flat_map(|token| ["--token", token]);
    let end = run(["check", "--suite", "--json", &url]
        .into_iter()
        .chain(token));
    let report: Value = serde_json::from_str(&end.stdout).unwrap_or_else(|_| panic!("{end:#?}"));
    let checks = report["checks"].as_array().expect("a list of checks");
    let wrong: Vec<&Value> = checks
        .iter()
        .filter(|check| check["result"] != "yes")
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for section in [
        "8.8.3", "13.1.1", "13.1.2", "13.1.3", "13.1.4", "13.1.5", "13.2.2", "14.2",
    ] {
        assert!(
            checks.iter().any(|check| check["section"] == section),
            "{section}"
        );
    }
    assert_eq!(end.status.code(), Some(0), "{end:#?}");
}

fn check(site: &Site, method: &str, state: &str, text: &str, status: &str) {
    let mut http = site.plain();
    let present = state == "present";
    let blob = if present {
        written(&mut http, site, text.contains("since: {"), NEW.as_bytes())
    } else {
        absent(site)
    };
    let fields = fields(&meaning(text, &blob));
    let content = if method == "PUT" { WRITTEN } else { "" };
    let reply = http.send(method, &blob.path, &borrowed(&fields), content);
    let expected = match (status, method, present) {
        ("ok", "PUT", false) => 201,
        ("ok", "DELETE", true) => 204,
        ("ok", "DELETE", false) => 404,
        ("ok", ..) => 200,
        (status, ..) => status.parse().expect("a status"),
    };
    let reply = reply.is(expected);
    let read = http.get(&blob.path);
    match (status, method) {
        ("ok", "PUT") => {
            let read = read.is(200);
            assert_eq!(
                (read.etag(), read.text()),
                (reply.etag(), WRITTEN),
                "the blob has the written content"
            );
            assert!(
                reply.etag() != blob.tag && reply.etag() != blob.old,
                "a new tag"
            );
        }
        ("ok", "DELETE") => drop(read.is(404)),
        _ if present => {
            let read = read.is(200);
            assert_eq!(
                (read.etag(), read.text()),
                (blob.tag.as_str(), NEW),
                "nothing was changed"
            );
            told(&reply, method, &blob);
        }
        _ => drop(read.is(404)),
    }
}

/// Checks the headers of responses about an existing blob.
fn told(reply: &Reply, method: &str, blob: &Blob) {
    match (reply.status.as_u16(), method) {
        (200, "GET") => assert_eq!((reply.etag(), reply.text()), (blob.tag.as_str(), NEW)),
        (200, _) => assert_eq!(
            (reply.etag(), reply.field("content-length")),
            (blob.tag.as_str(), NEW.len().to_string().as_str())
        ),
        // Lets the client fetch, merge and retry.
        (412, _) => assert_eq!(reply.etag(), blob.tag),
        (304, _) => {
            assert_eq!(reply.etag(), blob.tag);
            for name in [
                "content-type",
                "content-length",
                "last-modified",
                "repr-digest",
                "content-range",
            ] {
                assert!(!reply.headers.contains_key(name), "a 304 has no {name}");
            }
        }
        (204 | 405, _) => assert!(reply.field("allow").contains("GET, HEAD, PUT, DELETE")),
        _ => reply.fail("another status"),
    }
}

/// Writes a blob twice; if `dated`, waits until its date is in the past.
pub(crate) fn written(http: &mut Http<'_>, site: &Site, dated: bool, content: &[u8]) -> Blob {
    let path = format!("/{}/blob", site.name());
    let old = http.put(&path, &[], OLD).is(201).etag().to_owned();
    let tag = http.put(&path, &[], content).is(200).etag().to_owned();
    let come = |http: &mut Http<'_>| {
        let date = http.head(&path).is(200).field("last-modified").to_owned();
        Some(date).filter(|date| !date.is_empty())
    };
    let date = if dated {
        eventually("a modification date", || come(http))
    } else {
        String::new()
    };
    Blob {
        path,
        tag,
        old,
        date,
    }
}

fn absent(site: &Site) -> Blob {
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(1_600_000_000));
    Blob {
        path: format!("/{}/blob", site.name()),
        tag: "\"x\"".to_owned(),
        old: "\"y\"".to_owned(),
        date,
    }
}

/// Substitutes the words in the headers of a row.
pub(crate) fn meaning(text: &str, blob: &Blob) -> String {
    let bare = blob.tag.trim_matches('"');
    let mut text = text
        .replace("{tag}", &blob.tag)
        .replace("{old}", &blob.old)
        .replace("{bare}", bare);
    text = text.replace("{weak}", &format!("W/{}", blob.tag));
    text = text.replace("{most}", &format!("{}{}", "\"x\",".repeat(999), blob.tag));
    text = text.replace("{many}", &format!("{}{}", "\"x\",".repeat(1_000), blob.tag));
    if let Ok(date) = httpdate::parse_http_date(&blob.date) {
        let hour = Duration::from_hours(1);
        text = text.replace("{date}", &blob.date);
        text = text.replace("{before}", &httpdate::fmt_http_date(date - hour));
        text = text.replace("{after}", &httpdate::fmt_http_date(date + hour));
    }
    text
}
