//! Every lease operation and every use in every lease state, from the tables of the SDK suites.

use std::time::Instant;

use crate::azure::expired::{Expired, state, target};
use crate::azure::{A, B, C, acquire, blob, container};
use crate::http::{Http, Reply};
use crate::rows::words;
use crate::site::Site;
use crate::suite::Suite;

/// A row: an action, the state before, the outcome, and the state afterwards.
#[derive(Clone)]
struct Row {
    action: String,
    before: String,
    status: String,
    code: String,
    after: String,
}

pub(crate) fn add(suite: &mut Suite, prepare: bool) {
    let expired = Expired::default();
    for row in table(include_str!("../../sdk/cases/lease-operations.txt")) {
        for is_container in [false, true] {
            let on = if is_container { "container lease" } else { "lease" };
            add_row(
                suite,
                &expired,
                format!("{on}: {} {}", row.action, row.before),
                row.clone(),
                is_container,
                operate,
            );
        }
    }
    for row in table(include_str!("../../sdk/cases/lease-uses.txt")) {
        let is_container = row.action.starts_with("container-");
        add_row(suite, &expired, format!("lease: {} {}", row.action, row.before), row, is_container, attempt);
    }
    suite.case("lease: ids are compared as GUIDs", forms);
    suite.case("lease: an infinite lease breaks immediately", infinite);
    suite.case("lease: another break can only shorten the period", shortened);
    suite.case("lease: checked before the conditions", before_conditions);
    suite.case("lease: protects against the plain dialect", plain);
    suite.case("lease: shown in properties", told);
    if prepare {
        expired.prepare(suite.site());
    }
}

fn table(text: &str) -> Vec<Row> {
    let row = |words: Vec<String>| {
        let [action, before, status, code, after] = words.try_into().expect("five columns");
        Row { action, before, status, code, after }
    };
    words(text).into_iter().map(row).collect()
}

fn add_row(
    suite: &mut Suite,
    expired: &Expired,
    name: String,
    row: Row,
    is_container: bool,
    run: fn(&mut Http<'_>, &str, &Row, bool),
) {
    if row.before == "expired" {
        expired.announce(&name, is_container);
    }
    let (expired, case) = (expired.clone(), name.clone());
    suite.case(name, move |site| {
        let path =
            if row.before == "expired" { expired.path(&case) } else { in_state(site, &row.before, is_container) };
        let mut http = site.azure();
        run(&mut http, &path, &row, is_container);
        assert_eq!(state(&mut http, &target(&path, is_container)), row.after, "the state afterwards");
    });
}

/// Creates a resource in a state that needs no waiting.
fn in_state(site: &Site, state: &str, is_container: bool) -> String {
    let mut http = site.azure();
    let path = if is_container { container(&mut http, site) } else { blob(&mut http, site) };
    let on = target(&path, is_container);
    if state != "available" {
        acquire(&mut http, &on, A, -1).is(201);
    }
    let period = [("breaking", "60"), ("broken", "0")].into_iter().find(|(name, _)| *name == state);
    if let Some((_, period)) = period {
        http.lease(&on, "break", &[("x-ms-lease-break-period", period)]).is(202);
    }
    path
}

/// Performs a lease operation, which changes neither tag nor date.
fn operate(http: &mut Http<'_>, path: &str, row: &Row, is_container: bool) {
    let on = target(path, is_container);
    let before = http.head(&on).is(200);
    let words: Vec<&str> = row.action.split('-').collect();
    let reply = match words[..] {
        ["acquire", "none"] => http.lease(&on, "acquire", &[("x-ms-lease-duration", "60")]),
        ["acquire", id] => acquire(http, &on, id_of(id), 60),
        ["change", from, to] => {
            http.lease(&on, "change", &[("x-ms-lease-id", id_of(from)), ("x-ms-proposed-lease-id", id_of(to))])
        }
        ["break", period] => http.lease(&on, "break", &[("x-ms-lease-break-period", period)]),
        [action, id] => http.lease(&on, action, &[("x-ms-lease-id", id_of(id))]),
        _ => panic!("{}", row.action),
    };
    checked(reply, row);
    let after = http.head(&on).is(200);
    for name in ["etag", "last-modified"] {
        assert_eq!(before.header(name), after.header(name), "a lease operation changed {name}");
    }
}

/// Uses a leased resource, with or without an id.
fn attempt(http: &mut Http<'_>, path: &str, row: &Row, _is_container: bool) {
    let (what, id) = match row.action.rsplit_once('-') {
        Some((what, id @ ("a" | "b"))) => (what, Some(id_of(id))),
        _ => (row.action.as_str(), None),
    };
    let id: Vec<(&str, &str)> = id.map(|id| ("x-ms-lease-id", id)).into_iter().collect();
    let with = |more: &[(&'static str, &'static str)]| [&id[..], more].concat();
    let reply = match what {
        "write" => http.put(&format!("{path}?comp=metadata"), &with(&[("x-ms-meta-colour", "red")]), ""),
        "put" => http.upload(path, &id, "second"),
        "create" => http.upload(path, &with(&[("if-none-match", "*")]), "second"),
        "delete" => http.delete(path, &id),
        "read" => http.send("GET", path, &id, ""),
        "container-delete" => http.delete(&format!("{path}?restype=container"), &id),
        "container-write" => http.upload(&format!("{path}/another"), &id, "x"),
        "container-read" => http.send("GET", &format!("{path}?restype=container&comp=list"), &id, ""),
        _ => panic!("{what}"),
    };
    checked(reply, row);
}

fn checked(reply: Reply, row: &Row) {
    match (row.status.as_str(), row.code.as_str()) {
        ("ok", _) if reply.status.is_success() => {}
        ("ok", _) => reply.fail("success"),
        (status, "-" | "any") => drop(reply.is(status.parse().expect("a status"))),
        (status, code) => reply.refused(status.parse().expect("a status"), code),
    }
}

fn id_of(word: &str) -> &'static str {
    match word {
        "a" => A,
        "b" => B,
        "c" => C,
        _ => panic!("no id: {word}"),
    }
}

fn forms(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    acquire(&mut http, &path, A, -1).is(201);
    let digits = A.replace('-', "");
    let hexadecimal = "{0xa0000000,0x0000,0x4000,{0x80,0x00,0x00,0x00,0x00,0x00,0x00,0x0a}}".to_owned();
    let braced = [format!("{{{A}}}"), format!("({A})"), hexadecimal];
    for form in [A.to_uppercase(), digits.clone(), digits.to_uppercase()].into_iter().chain(braced) {
        http.lease(&path, "renew", &[("x-ms-lease-id", &form)]).is(200);
        http.upload(&path, &[("x-ms-lease-id", &form)], "second").is(201);
    }
}

fn infinite(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    acquire(&mut http, &path, A, -1).is(201);
    assert_eq!(http.head(&path).is(200).header("x-ms-lease-duration"), "infinite");
    assert_eq!(http.lease(&path, "break", &[]).is(202).header("x-ms-lease-time"), "0");
    assert_eq!(state(&mut http, &path), "broken");
}

#[expect(clippy::disallowed_methods, reason = "the server counts in real time")]
fn shortened(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    acquire(&mut http, &path, A, -1).is(201);
    let (begun, mut left) = (Instant::now(), u64::MAX);
    for (period, most) in [("59", 59_u64), ("60", 59), ("50", 50), ("60", 50)] {
        let reply = http.lease(&path, "break", &[("x-ms-lease-break-period", period)]).is(202);
        let seconds: u64 = reply.header("x-ms-lease-time").parse().expect("seconds");
        // Time has passed since the first break, and the server counts whole seconds.
        let least = most.saturating_sub(begun.elapsed().as_secs() + 2);
        assert!((least..=most.min(left)).contains(&seconds), "{seconds} s after a break in {period} s");
        left = seconds;
    }
    acquire(&mut http, &path, B, 60).refused(409, "LeaseAlreadyPresent");
}

fn before_conditions(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    acquire(&mut http, &path, A, -1).is(201);
    let later = ("if-modified-since", "Sun, 13 Sep 2093 12:26:40 GMT");
    for condition in [("if-none-match", "*"), ("if-match", "\"stale\""), later] {
        http.upload(&path, &[condition], "second").refused(412, "LeaseIdMissing");
    }
    http.upload(&path, &[("x-ms-lease-id", A), ("if-match", "\"stale\"")], "second").refused(412, "ConditionNotMet");
}

fn plain(site: &Site) {
    let (mut azure, mut http) = (site.azure(), site.plain());
    let path = blob(&mut azure, site);
    acquire(&mut azure, &path, A, -1).is(201);
    let tag = http.get(&path).is(200).etag().to_owned();
    let reply = http.put(&path, &[("if-match", &tag)], "second").is(412);
    assert_eq!(reply.header("x-ms-error-code"), "LeaseIdMissing");
    http.delete(&path, &[]).is(412);
    http.delete(&path, &[("x-ms-lease-id", B)]).is(412);
    http.send("GET", &path, &[("x-ms-lease-id", B)], "").is(412);
    let written = http.put(&path, &[("if-match", &tag), ("x-ms-lease-id", A)], "second").is(200);
    assert_eq!(azure.get(&path).is(200).etag(), written.etag());
    http.delete(&path, &[("x-ms-lease-id", A)]).is(204);
}

fn told(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let shown = |http: &mut Http<'_>| {
        let reply = http.head(&path).is(200);
        ["x-ms-lease-state", "x-ms-lease-status", "x-ms-lease-duration"].map(|name| reply.field(name).to_owned())
    };
    assert_eq!(shown(&mut http), ["available", "unlocked", ""]);
    let acquired = acquire(&mut http, &path, A, 60).is(201);
    assert_eq!((acquired.header("x-ms-lease-id"), acquired.etag()), (A, http.head(&path).is(200).etag()));
    assert_eq!(shown(&mut http), ["leased", "locked", "fixed"]);
    let changed = http.lease(&path, "change", &[("x-ms-lease-id", A), ("x-ms-proposed-lease-id", B)]).is(200);
    assert_eq!(changed.header("x-ms-lease-id"), B);
    assert_eq!(http.lease(&path, "release", &[("x-ms-lease-id", B)]).is(200).field("x-ms-lease-id"), "");
    assert_eq!(shown(&mut http), ["available", "unlocked", ""]);
    let drawn = http.lease(&path, "acquire", &[("x-ms-lease-duration", "15")]).is(201);
    assert_eq!(drawn.header("x-ms-lease-id").len(), 36, "the server generates an id if none is proposed");
}
