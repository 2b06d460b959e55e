//! Clients that compete: one of twenty wins, and no increment of a counter is lost.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::thread::sleep;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use support::azure::Form;

use crate::azure::{acquire, blob, container};
use crate::http::{Http, Reply};
use crate::races::{RACERS, path, race};
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    for round in 0..3 {
        suite.case(format!("race: twenty create, round {round}"), creators);
        suite.case(
            format!("race: twenty create in Azure's dialect, round {round}"),
            azure_creators,
        );
        suite.case(
            format!("race: twenty replace the same version, round {round}"),
            replacers,
        );
        suite.case(format!("race: twenty acquire, round {round}"), acquirers);
        suite.case(
            format!("race: twenty delete and replace the same version, round {round}"),
            deleters,
        );
    }
    suite.case("race: twenty create a container", containers);
    suite.case(
        "race: twenty write without a condition, and each gets its own tag",
        writers,
    );
    suite.case("race: twenty commit the same blocks", committers);
    suite.case("race: block lists of four writers", lists);
    suite.case(
        "race: twenty send the same request with the same key",
        retriers,
    );
}

/// Returns the winner and its index. All others must have been rejected.
fn winner(replies: Vec<Reply>, success: u16) -> (usize, Reply) {
    let (won, lost): (Vec<_>, Vec<_>) = replies
        .into_iter()
        .enumerate()
        .partition(|(_, reply)| reply.status == success);
    for (_, reply) in lost {
        // Block lists may find their blocks already committed.
        if !reply.changed_nothing() && reply.code() != "InvalidBlockList" {
            reply.fail(&format!("{success}, or a rejection"));
        }
    }
    let mut won = won.into_iter();
    match (won.next(), won.next()) {
        (Some(winner), None) => winner,
        (None, _) => panic!("no winner"),
        (Some((_, one)), Some((_, two))) => {
            panic!("two won: {} and {}", one.field("etag"), two.field("etag"))
        }
    }
}

fn creators(site: &Site) {
    let path = path(site);
    let create = |racer: usize| {
        site.plain()
            .put(&path, &[("if-none-match", "*")], format!("by {racer}"))
    };
    let (number, won) = winner(race(RACERS, create), 201);
    let read = site.plain().get(&path).is(200);
    assert_eq!(
        (read.text(), read.etag()),
        (format!("by {number}").as_str(), won.etag())
    );
}

fn azure_creators(site: &Site) {
    let path = format!("{}/a", container(&mut site.azure(), site));
    let create = |racer: usize| {
        site.azure()
            .upload(&path, &[("if-none-match", "*")], format!("by {racer}"))
    };
    let (number, won) = winner(race(RACERS, create), 201);
    let read = site.azure().get(&path).is(200);
    assert_eq!(
        (read.text(), read.etag()),
        (format!("by {number}").as_str(), won.etag())
    );
}

fn replacers(site: &Site) {
    let path = path(site);
    let tag = site
        .plain()
        .put(&path, &[], "first")
        .is(201)
        .etag()
        .to_owned();
    let replace = |racer: usize| {
        site.plain()
            .put(&path, &[("if-match", &tag)], format!("by {racer}"))
    };
    let (number, won) = winner(race(RACERS, replace), 200);
    let read = site.plain().get(&path).is(200);
    assert_eq!(
        (read.text(), read.etag()),
        (format!("by {number}").as_str(), won.etag())
    );
}

/// A deletion and a replacement of the same version exclude each other as well.
fn deleters(site: &Site) {
    let path = path(site);
    let tag = site
        .plain()
        .put(&path, &[], "first")
        .is(201)
        .etag()
        .to_owned();
    let run = |racer: usize| match racer % 2 {
        0 => site.plain().delete(&path, &[("if-match", &tag)]),
        _ => site
            .plain()
            .put(&path, &[("if-match", &tag)], format!("by {racer}")),
    };
    let replies = race(RACERS, run);
    let successes = replies
        .iter()
        .filter(|reply| reply.status.is_success())
        .count();
    assert_eq!(
        successes,
        1,
        "{:?}",
        replies
            .iter()
            .map(|reply| reply.status.as_u16())
            .collect::<Vec<_>>()
    );
    let deleted = replies.iter().any(|reply| reply.status == 204);
    for reply in replies.iter().filter(|reply| !reply.status.is_success()) {
        if reply.status != 404 && !reply.changed_nothing() {
            reply.fail("404, or a rejection");
        }
    }
    site.plain().get(&path).is(if deleted { 404 } else { 200 });
}

fn acquirers(site: &Site) {
    let path = blob(&mut site.azure(), site);
    let id = |racer: usize| format!("a0000000-0000-4000-8000-{racer:012}");
    let (number, won) = winner(
        race(RACERS, |racer| {
            acquire(&mut site.azure(), &path, &id(racer), -1)
        }),
        201,
    );
    assert_eq!(won.header("x-ms-lease-id"), id(number));
    for racer in 0..RACERS {
        let reply = site
            .azure()
            .upload(&path, &[("x-ms-lease-id", &id(racer))], "held");
        reply.is(if racer == number { 201 } else { 412 });
    }
}

fn containers(site: &Site) {
    let path = format!("/{}?restype=container", site.name());
    let create = |racer: usize| {
        site.azure()
            .put(&path, &[("x-ms-meta-by", &racer.to_string())], "")
    };
    let (number, won) = winner(race(RACERS, create), 201);
    let read = site.azure().get(&path).is(200);
    assert_eq!(
        (read.header("x-ms-meta-by"), read.etag()),
        (number.to_string().as_str(), won.etag())
    );
}

fn writers(site: &Site) {
    let path = path(site);
    let replies = race(RACERS, |racer| {
        site.plain().put(&path, &[], format!("by {racer}"))
    });
    let created = replies.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(created, 1, "one of the writes creates the blob");
    let mut tags: Vec<&str> = replies.iter().map(|reply| reply.etag()).collect();
    let read = site.plain().get(&path).is(200);
    let last = tags
        .iter()
        .position(|tag| *tag == read.etag())
        .expect("the tag of one of the writes");
    assert_eq!(read.text(), format!("by {last}"));
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), RACERS);
}

fn committers(site: &Site) {
    let path = blob(&mut site.azure(), site);
    let tag = site.azure().head(&path).is(200).etag().to_owned();
    site.azure()
        .put(&format!("{path}?comp=block&blockid=AA%3D%3D"), &[], "block")
        .is(201);
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    let commit = |_| {
        site.azure().put(
            &format!("{path}?comp=blocklist"),
            &[("if-match", &tag)],
            list,
        )
    };
    winner(race(RACERS, commit), 201);
    assert_eq!(site.azure().get(&path).is(200).text(), "block");
}

/// Each version consists of the blocks of a single writer.
fn lists(site: &Site) {
    let path = format!("{}/a", container(&mut site.azure(), site));
    let run = |writer: usize| {
        let (mut http, mut committed) = (site.azure(), 0);
        for round in 0..10 {
            let ids: Vec<String> = (0..5)
                .map(|block| STANDARD.encode(format!("{writer}{block:02}")))
                .collect();
            for id in &ids {
                http.put(
                    &format!("{path}?comp=block&blockid={id}"),
                    &[],
                    format!("{writer}:{round} "),
                )
                .is(201);
            }
            let list = format!(
                "<BlockList><Latest>{}</Latest></BlockList>",
                ids.join("</Latest><Latest>")
            );
            let reply = http.put(&format!("{path}?comp=blocklist"), &[], list);
            match reply.status.as_u16() {
                201 => committed += 1,
                // Another list may have discarded the staged blocks.
                _ if reply.changed_nothing() || reply.code() == "InvalidBlockList" => {}
                _ => reply.fail("201, or a rejection"),
            }
            let read = http.get(&path);
            if read.status == 200 {
                let writers: Vec<_> = read
                    .text()
                    .split_whitespace()
                    .map(|part| part.split(':').next())
                    .collect();
                assert_eq!(writers, [writers[0]; 5], "{}", read.text());
            }
        }
        committed
    };
    let committed: usize = race(4, run).into_iter().sum();
    assert!(committed > 0);
}

/// Twenty clients send the same signed request, like one client that retries.
fn retriers(site: &Site) {
    let path = format!("{}/a", container(&mut site.azure(), site));
    let fields = [
        ("x-ms-client-request-id", "one request"),
        ("x-ms-blob-type", "BlockBlob"),
        ("if-none-match", "*"),
    ];
    let mut request = site.azure().request("PUT", &path, &fields, b"once");
    site.signer.sign(Form::Blob, &mut request);
    let replies = race(RACERS, |_| {
        site.azure().exchange(&request).is(201).etag().to_owned()
    });
    assert!(
        replies.iter().all(|tag| *tag == replies[0]),
        "one write and one response: {replies:?}"
    );
    assert_eq!(site.azure().get(&path).is(200).etag(), replies[0]);
}

const CLIENTS: usize = 32;
const INCREMENTS: usize = 50;

pub(crate) fn add_counter(suite: &mut Suite) {
    suite.case("counter: 32 clients add 50 each", |site| {
        let path = path(site);
        site.plain().put(&path, &[], "0").is(201);
        count(site, &path, CLIENTS, INCREMENTS, |_| site.plain());
    });
    suite.case("counter: by block lists", block_lists);
    suite.case("counter: in both dialects", |site| {
        let path = format!("{}/a", container(&mut site.azure(), site));
        site.plain().put(&path, &[], "0").is(201);
        count(site, &path, 8, 15, |client| {
            if client.is_multiple_of(2) {
                site.plain()
            } else {
                site.azure()
            }
        });
    });
}

fn count<'a>(
    site: &'a Site,
    path: &str,
    clients: usize,
    increments: usize,
    http: impl Fn(usize) -> Http<'a> + Sync,
) {
    race(clients, |client| {
        let mut http = http(client);
        let mut backoff = Backoff::default();
        for _ in 0..increments {
            increment(&mut http, path, &mut backoff);
            backoff.succeeded();
        }
    });
    assert_eq!(
        site.plain().get(path).is(200).text(),
        (clients * increments).to_string()
    );
}

/// Each client stages its own block and commits it under `If-Match`.
fn block_lists(site: &Site) {
    let path = format!("{}/a", container(&mut site.azure(), site));
    site.plain().put(&path, &[], "0").is(201);
    race(4, |client| {
        let (mut http, id) = (
            site.azure(),
            ["MDA%3D", "MDE%3D", "MDI%3D", "MDM%3D"][client],
        );
        let list = format!(
            "<BlockList><Uncommitted>{}</Uncommitted></BlockList>",
            id.replace("%3D", "=")
        );
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            loop {
                let read = http.get(&path).is(200);
                let next = read.text().parse::<usize>().expect("a number") + 1;
                http.put(
                    &format!("{path}?comp=block&blockid={id}"),
                    &[],
                    next.to_string(),
                )
                .is(201);
                let reply = http.put(
                    &format!("{path}?comp=blocklist"),
                    &[("if-match", read.etag())],
                    &list,
                );
                if reply.status == 201 {
                    break;
                }
                // Another list may have discarded the block.
                if !reply.changed_nothing() && reply.code() != "InvalidBlockList" {
                    reply.fail("201, or a rejection");
                }
                backoff.wait();
            }
        }
    });
    assert_eq!(site.plain().get(&path).is(200).text(), "20");
}

fn increment(http: &mut Http<'_>, path: &str, backoff: &mut Backoff) {
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
        backoff.wait();
    }
}

/// Retries until it succeeds. Each failure must state that nothing was changed.
pub(crate) fn until_done(mut attempt: impl FnMut() -> Reply) {
    let mut backoff = Backoff::default();
    loop {
        let reply = attempt();
        if reply.status.is_success() {
            return;
        }
        if !reply.changed_nothing() {
            reply.fail("success, or a rejection");
        }
        backoff.wait();
    }
}

/// Attempts until a client gives up, which take ten minutes.
const ATTEMPTS: u32 = 3_000;

/// The pauses of a client between its attempts: random, and longer after each failure.
pub(crate) struct Backoff {
    /// In milliseconds.
    longest: u64,
    failures: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            longest: 2,
            failures: 0,
        }
    }
}

impl Backoff {
    pub(crate) fn wait(&mut self) {
        assert!(self.failures < ATTEMPTS, "{ATTEMPTS} attempts have failed");
        self.failures += 1;
        let random = RandomState::new().build_hasher().finish();
        sleep(Duration::from_millis(random % self.longest));
        self.longest = (self.longest * 2).min(400);
    }

    /// Shortens the next pause.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.longest = (self.longest / 2).max(2);
    }
}
