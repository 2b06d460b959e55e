//! Rejected requests: `azure-rejections*.txt`, row by row. None of them changes anything.

use crate::azure::container;
use crate::rows::{borrowed, fields, rows};
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    for row in rows(include_str!("../../data/blackbox/azure-rejections.txt")) {
        let [request, fields, status, code] = row.try_into().expect("four columns");
        let fields: Vec<(String, String)> = fields
            .split_whitespace()
            .map(|field| field.split_once('=').expect("a name and a value"))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        suite.case(format!("azure rejection: {request} {fields:?}"), move |site| {
            check(site, &request, &fields, "", &status, &code);
        });
    }
    for row in rows(include_str!("../../data/blackbox/azure-rejections-with-bodies.txt")) {
        let [name, request, lines, body, status, code] = row.try_into().expect("six columns");
        suite.case(format!("azure rejection: {name}"), move |site| {
            check(site, &request, &fields(&lines), &body, &status, &code);
        });
    }
}

/// In the rows, `/box` is a container with a blob `a`, and `/new` does not exist.
fn check(site: &Site, request: &str, fields: &[(String, String)], body: &str, status: &str, code: &str) {
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
    for name in ["etag", "last-modified", "content-type", "x-ms-lease-state", "x-ms-meta-a"] {
        assert_eq!(after.field(name), before.field(name), "{name}");
    }
    assert_eq!(after.text(), "first");
    let listed = http.get(&format!("{own}?restype=container&comp=list")).is(200);
    assert_eq!(listed.all("Name"), ["a"]);
    http.get(&format!("{new}?restype=container")).is(404);
}
