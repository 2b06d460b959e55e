//! Counters: clients read, add one, and write under a condition. The sum must be exact.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::thread::sleep;
use std::time::Duration;

use crate::azure::container;
use crate::http::{Http, Reply};
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
    suite.case("counter: by block lists", block_lists);
    suite.case("counter: in both dialects", |site| {
        let path = format!("{}/a", container(&mut site.azure(), site));
        site.plain().put(&path, &[], "0").is(201);
        count(site, &path, 8, 15, |client| if client.is_multiple_of(2) { site.plain() } else { site.azure() });
    });
}

fn count<'a>(site: &'a Site, path: &str, clients: usize, increments: usize, http: impl Fn(usize) -> Http<'a> + Sync) {
    race(clients, |client| {
        let mut http = http(client);
        let mut pause = 2;
        for _ in 0..increments {
            increment(&mut http, path, &mut pause);
            // A success shortens the next pause.
            pause = (pause / 2).max(2);
        }
    });
    assert_eq!(site.plain().get(path).is(200).text(), (clients * increments).to_string());
}

/// Each client stages its own block and commits it under `If-Match`.
fn block_lists(site: &Site) {
    let path = format!("{}/a", container(&mut site.azure(), site));
    site.plain().put(&path, &[], "0").is(201);
    race(4, |client| {
        let (mut http, id) = (site.azure(), ["MDA%3D", "MDE%3D", "MDI%3D", "MDM%3D"][client]);
        let list = format!("<BlockList><Uncommitted>{}</Uncommitted></BlockList>", id.replace("%3D", "="));
        let mut pause = 2;
        for _ in 0..5 {
            loop {
                let read = http.get(&path).is(200);
                let next = read.text().parse::<usize>().expect("a number") + 1;
                http.put(&format!("{path}?comp=block&blockid={id}"), &[], next.to_string()).is(201);
                let reply = http.put(&format!("{path}?comp=blocklist"), &[("if-match", read.etag())], &list);
                if reply.status == 201 {
                    break;
                }
                // Another list may have discarded the block.
                if !reply.changed_nothing() && reply.code() != "InvalidBlockList" {
                    reply.fail("201, or a rejection");
                }
                backoff(&mut pause);
            }
        }
    });
    assert_eq!(site.plain().get(&path).is(200).text(), "20");
}

fn increment(http: &mut Http<'_>, path: &str, pause: &mut u64) {
    loop {
        let read = http.get(path).is(200);
        let next = read.text().parse::<usize>().expect("a number") + 1;
        let fields = [("x-ms-blob-type", "BlockBlob"), ("if-match", read.etag())];
        let reply = http.put(path, &fields, next.to_string());
        if reply.status.is_success() {
            return;
        }
        if !reply.changed_nothing() {
            reply.fail("success, or a rejection");
        }
        backoff(pause);
    }
}

/// Retries until it succeeds. Each failure must state that nothing was changed.
pub(crate) fn until_done(mut attempt: impl FnMut() -> Reply) {
    let mut pause = 4;
    loop {
        let reply = attempt();
        if reply.status.is_success() {
            return;
        }
        if !reply.changed_nothing() {
            reply.fail("success, or a rejection");
        }
        backoff(&mut pause);
    }
}

/// Waits for a random, increasing time.
pub(crate) fn backoff(pause: &mut u64) {
    let random = RandomState::new().build_hasher().finish();
    sleep(Duration::from_millis(random % *pause));
    *pause = (*pause * 2).min(400);
}
