//! Counters whose clients read, add one, and write on the condition that nobody else did: the sum is exact.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::thread::sleep;
use std::time::Duration;

use crate::azure::container;
use crate::http::Http;
use crate::races::{path, race};
use crate::site::Site;
use crate::suite::Suite;

const CLIENTS: usize = 32;
const INCREMENTS: usize = 50;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("counter: 32 clients add 50 each", |site| {
        let path = path(site);
        site.plain().put(&path, &[], "0").is(201);
        count(site, &path, CLIENTS, INCREMENTS, |_| site.plain());
    });
    suite.case("counter: in both dialects", |site| {
        let path = format!("{}/a", container(&mut site.azure(), site));
        site.plain().put(&path, &[], "0").is(201);
        count(site, &path, 8, 15, |client| if client.is_multiple_of(2) { site.plain() } else { site.azure() });
    });
}

fn count<'a>(site: &'a Site, path: &str, clients: usize, increments: usize, http: impl Fn(usize) -> Http<'a> + Sync) {
    race(clients, |client| {
        let mut http = http(client);
        for _ in 0..increments {
            increment(&mut http, path);
        }
    });
    assert_eq!(site.plain().get(path).is(200).text(), (clients * increments).to_string());
}

fn increment(http: &mut Http<'_>, path: &str) {
    let mut pause = 2;
    loop {
        let read = http.get(path).is(200);
        let next = read.text().parse::<usize>().expect("a number") + 1;
        let fields = [("x-ms-blob-type", "BlockBlob"), ("if-match", read.etag())];
        let reply = http.put(path, &fields, next.to_string());
        if reply.status.is_success() {
            return;
        }
        if !reply.changed_nothing() {
            reply.fail("success, or a refusal");
        }
        backoff(&mut pause);
    }
}

/// Waits at random, and longer each time, so that all come to their turn.
pub(crate) fn backoff(pause: &mut u64) {
    let random = RandomState::new().build_hasher().finish();
    sleep(Duration::from_millis(random % *pause));
    *pause = (*pause * 2).min(400);
}
