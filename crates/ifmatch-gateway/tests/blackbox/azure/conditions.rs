//! Conditions and rejected requests, row by row.

use std::time::Duration;

use crate::azure::{A, container};
use crate::http::{Http, Reply};
use crate::site::Site;
use crate::suite::{Suite, borrowed, fields, rows};

const LIST: &str = "<BlockList><Latest>AA==</Latest></BlockList>";

pub(crate) fn add(suite: &mut Suite) {
    for row in rows(include_str!("../../data/blackbox/azure-conditions.txt")) {
        let [operations, fields, status, code] = row.try_into().expect("four columns");
        for operation in operations.split(' ').map(str::to_owned) {
            let name = format!("azure condition: {operation} {fields}");
            let (fields, status, code) = (fields.clone(), status.clone(), code.clone());
            suite.case(name, move |site| {
                check(site, &operation, &fields, &status, &code);
            });
        }
    }
}

fn check(site: &Site, operation: &str, fields: &str, status: &str, code: &str) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let (on, what) = operation.split_once('-').unwrap_or(("there", operation));
    http.upload(&format!("{own}/there"), &[], "first").is(201);
    http.upload(&format!("{own}/source"), &[], "source").is(201);
    if on == "log" {
        http.put(
            &format!("{own}/log"),
            &[("x-ms-blob-type", "AppendBlob")],
            "",
        )
        .is(201);
        http.put(&format!("{own}/log?comp=appendblock"), &[], "first")
            .is(201);
    }
    if what == "list" && on != "log" {
        http.put(
            &format!("{own}/{on}?comp=block&blockid=AA=="),
            &[],
            "second",
        )
        .is(201);
    }
    let target = if on == "container" {
        format!("{own}?restype=container")
    } else {
        format!("{own}/{on}")
    };
    let before = http.head(&target);
    let fields = meaning(fields, &before);
    let from = site.url(&format!("{own}/source"));
    let there = site.url(&target);
    let copied = format!("{own}/copied");
    let reply = match what {
        "copy" => http.put(
            &target,
            &[&[("x-ms-copy-source", &*from)], &*borrowed(&fields)].concat(),
            "",
        ),
        "upload" => http.upload(
            &target,
            &[&[("x-ms-copy-source", &*from)], &*borrowed(&fields)].concat(),
            "",
        ),
        "copied" => http.put(
            &copied,
            &[&[("x-ms-copy-source", &*there)], &*borrowed(&fields)].concat(),
            "",
        ),
        _ => send(&mut http, what, &target, &borrowed(&fields)),
    };
    if status == "ok" {
        if !reply.status.is_success() {
            reply.fail("success");
        }
        return;
    }
    let bodiless = reply.status == 304;
    let tag = reply.field("etag").to_owned();
    reply.refused(status.parse().expect("a status"), code);
    assert!(!bodiless || tag == before.etag(), "a 304 carries the tag");
    let after = http.head(&target);
    assert_eq!(after.status, before.status);
    for name in [
        "etag",
        "last-modified",
        "x-ms-lease-state",
        "content-length",
        "content-type",
    ] {
        assert_eq!(
            after.field(name),
            before.field(name),
            "{name} changed by a rejected request"
        );
    }
}

/// Returns the headers of a row for a resource in state `before`.
fn meaning(text: &str, before: &Reply) -> Vec<(String, String)> {
    let tag = Some(before.field("etag"))
        .filter(|tag| !tag.is_empty())
        .unwrap_or("\"none\"");
    let hour = Duration::from_hours(1);
    let modified = httpdate::parse_http_date(before.field("last-modified"));
    // A missing resource has none: any date will do.
    let modified = modified.unwrap_or(std::time::UNIX_EPOCH + hour * 400_000);
    let value = |word: &str| match word {
        "current" => tag.to_owned(),
        "bare" => tag.trim_matches('"').to_owned(),
        "weak" => format!("W/{tag}"),
        "stale" => "\"stale\"".to_owned(),
        "before" => httpdate::fmt_http_date(modified - hour),
        "same" => httpdate::fmt_http_date(modified),
        "after" => httpdate::fmt_http_date(modified + hour),
        other => other.to_owned(),
    };
    let field = |field: &str| {
        let (name, words) = field.split_once('=').expect("a name and a value");
        (
            name.to_owned(),
            words.split(',').map(value).collect::<Vec<_>>().join(", "),
        )
    };
    text.split(' ').map(field).collect()
}

fn send(http: &mut Http<'_>, what: &str, target: &str, fields: &[(&str, &str)]) -> Reply {
    let also = if target.contains('?') { '&' } else { '?' };
    let with = |parameters: &str| format!("{target}{also}{parameters}");
    let leasing = [("x-ms-lease-duration", "15"), ("x-ms-proposed-lease-id", A)];
    match what {
        "get" => http.send("GET", target, fields, ""),
        "head" => http.send("HEAD", target, fields, ""),
        "put" => http.upload(target, fields, "second"),
        "list" => http.put(&with("comp=blocklist"), fields, LIST),
        "metadata" => http.put(&with("comp=metadata"), fields, ""),
        "properties" => http.put(&with("comp=properties"), fields, ""),
        "delete" => http.delete(target, fields),
        "acquire" => http.lease(target, "acquire", &[&leasing, fields].concat()),
        "create" => http.put(target, fields, ""),
        "block" => http.put(&with("comp=block&blockid=AQ=="), fields, "x"),
        "append" => http.put(&with("comp=appendblock"), fields, "xy"),
        "seal" => http.put(&with("comp=seal"), fields, ""),
        "blocks" => http.send("GET", &with("comp=blocklist"), fields, ""),
        _ => panic!("no such operation: {what}"),
    }
}

pub(crate) fn add_rejections(suite: &mut Suite) {
    for row in rows(include_str!("../../data/blackbox/azure-rejections.txt")) {
        let [request, fields, status, code] = row.try_into().expect("four columns");
        let fields: Vec<(String, String)> = fields
            .split_whitespace()
            .map(|field| field.split_once('=').expect("a name and a value"))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        suite.case(
            format!("azure rejection: {request} {fields:?}"),
            move |site| {
                check_rejections(site, &request, &fields, "", &status, &code);
            },
        );
    }
    for row in rows(include_str!(
        "../../data/blackbox/azure-rejections-with-bodies.txt"
    )) {
        let [name, request, lines, body, status, code] = row.try_into().expect("six columns");
        suite.case(format!("azure rejection: {name}"), move |site| {
            check_rejections(site, &request, &fields(&lines), &body, &status, &code);
        });
    }
}

/// In the rows, `/box` is a container with a blob `a`, and `/new` doesn't exist.
fn check_rejections(
    site: &Site,
    request: &str,
    fields: &[(String, String)],
    body: &str,
    status: &str,
    code: &str,
) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let blob = format!("{own}/a");
    http.upload(&blob, &[("x-ms-meta-a", "1")], "first").is(201);
    let (method, target) = request.split_once(' ').expect("a method and a target");
    let new = format!("/{}", site.name());
    let target = target.replace("/box", &own).replace("/new", &new);
    let before = http.get(&blob).is(200);
    let reply = http.send(method, &target, &borrowed(fields), body);
    reply.refused(status.parse().expect("a status"), code);
    let after = http.get(&blob).is(200);
    for name in [
        "etag",
        "last-modified",
        "content-type",
        "x-ms-lease-state",
        "x-ms-meta-a",
    ] {
        assert_eq!(after.field(name), before.field(name), "{name}");
    }
    assert_eq!(after.text(), "first");
    let listed = http
        .get(&format!("{own}?restype=container&comp=list"))
        .is(200);
    assert_eq!(listed.all("Name"), ["a"]);
    http.get(&format!("{new}?restype=container")).is(404);
}
