//! Clients that read one long body at different paces: none waits for another, and none is cut off.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::HeaderMap;
use http::request::Parts;
use http_body_util::BodyExt;
use ifmatch_cache::{Disk, Purge};
use tempfile::TempDir;

use crate::support::{
    Answer, FRESH, Feed, Streaming, TAGGED, TestBody, World, get, letters, response, settle, until,
};

/// Length of a chunk, which divides no unit of reading or writing.
const CHUNK: usize = 50_000;
const LEN: usize = 40 * CHUNK;

/// Creates a cache with up to 1,000 bytes of a body in memory, and longer ones on disk.
fn with_files(bytes: usize) -> (TempDir, World) {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), bytes as u64).unwrap();
    let world = World::with(|builder| builder.entry_limit(1_000).disk(disk));
    (folder, world)
}

fn without_files() -> World {
    World::with(|builder| builder.entry_limit(1_000))
}

/// Returns a section of the body.
fn text(start: usize, end: usize) -> String {
    letters(0, start..end)
}

/// Sends a section of the body.
fn send(feed: &Feed, start: usize, end: usize) {
    for at in (start..end).step_by(CHUNK) {
        feed.send(text(at, at + CHUNK));
    }
}

/// A client that has read a part of the body and paused.
struct Stalled(Streaming, Bytes);

impl Stalled {
    async fn rest(self) -> Answer {
        let Self(response, first) = self;
        let mut answer = Answer::read(response).await;
        answer.body = answer
            .body
            .map(|rest| String::from_utf8(first.into()).unwrap() + &rest);
        answer
    }
}

/// Starts a client that pauses after the first chunk, and another one that reads everything.
async fn two_clients(
    world: &World,
    fields: &[(&str, &str)],
) -> (Feed, Stalled, tokio::task::JoinHandle<Answer>) {
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, fields, "").map(|_| body));
    let mut stalled = world.try_send(get("/", &[])).await.unwrap();
    let fast = tokio::spawn(Answer::read(world.try_send(get("/", &[])).await.unwrap()));
    send(&feed, 0, CHUNK);
    let first = stalled
        .body_mut()
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_data()
        .unwrap();
    (feed, Stalled(stalled, first), fast)
}

/// Returns the origin's response to a request for the rest.
fn rest(start: usize, total: usize, tag: &str) -> http::Response<TestBody> {
    let range = format!("bytes {start}-{}/{total}", total - 1);
    response(
        206,
        &[FRESH[0], ("etag", tag), ("content-range", &range)],
        &text(start, total),
    )
}

/// Returns the requested rest, or the whole body.
fn requested_rest(head: &Parts) -> http::Response<TestBody> {
    let Some(range) = head.headers.get("range") else {
        return response(200, &TAGGED, &text(0, LEN));
    };
    let start = range
        .to_str()
        .unwrap()
        .trim_start_matches("bytes=")
        .trim_end_matches('-')
        .parse()
        .unwrap();
    rest(start, LEN, "\"1\"")
}

#[tokio::test]
async fn on_disk_each_client_reads_at_its_own_pace() {
    let (_folder, world) = with_files(10 * LEN);
    let (feed, stalled, fast) = two_clients(&world, &FRESH).await;
    send(&feed, CHUNK, LEN);
    drop(feed);
    assert!(fast.await.unwrap().text() == text(0, LEN));
    assert!(
        world.get("/").await.is_hit(),
        "it is stored though one client still reads it"
    );
    assert!(stalled.rest().await.text() == text(0, LEN));
    assert_eq!(world.origin.count(), 1);
}

#[tokio::test]
async fn on_disk_the_origin_waits_for_no_reader() {
    let (_folder, world) = with_files(10 * LEN);
    let (feed, stalled, fast) = two_clients(&world, &FRESH).await;
    fast.abort();
    send(&feed, CHUNK, LEN);
    drop(feed);
    until("a stored body", || world.handle.metrics().stored == 1).await;
    assert!(stalled.rest().await.text() == text(0, LEN));
}

#[tokio::test]
async fn a_late_client_reads_a_growing_file_from_the_beginning() {
    let (_folder, world) = with_files(10 * LEN);
    let (feed, stalled, fast) = two_clients(&world, &FRESH).await;
    send(&feed, CHUNK, LEN / 2);
    until("the arrival of a half", || feed.waiting() == 0).await;
    let late = world.try_send(get("/", &[])).await.unwrap();
    assert!(
        late.headers()["cache-status"]
            .to_str()
            .unwrap()
            .contains("; collapsed")
    );
    let late = tokio::spawn(Answer::read(late));
    send(&feed, LEN / 2, LEN);
    drop(feed);
    for answer in [
        late.await.unwrap(),
        fast.await.unwrap(),
        stalled.rest().await,
    ] {
        assert!(answer.text() == text(0, LEN));
    }
    assert_eq!(world.origin.count(), 1);
}

#[tokio::test]
async fn readers_of_a_purged_or_evicted_file_reach_its_end() {
    // Room for four of these, and a purge.
    for purge in [true, false] {
        let (folder, world) = with_files(4 * LEN);
        let (feed, stalled, fast) = two_clients(&world, &FRESH).await;
        send(&feed, CHUNK, LEN);
        drop(feed);
        fast.await.unwrap();
        if purge {
            world.handle.purge(&Purge::Prefix(String::new()));
        }
        for at in 0..5 {
            world.origin.will(200, &FRESH, &text(0, LEN));
            world.get(&format!("/{at}")).await;
        }
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert!(
            left <= 6 + usize::from(purge),
            "{left} files, two of which are the lock and the index"
        );
        assert!(
            stalled.rest().await.text() == text(0, LEN),
            "purged: {purge}"
        );
    }
}

#[tokio::test]
async fn a_truncated_body_is_truncated_for_all() {
    let (_folder, world) = with_files(10 * LEN);
    let (feed, stalled, fast) = two_clients(&world, &FRESH).await;
    send(&feed, CHUNK, LEN);
    feed.fail();
    assert!(fast.await.unwrap().body.is_err());
    assert!(stalled.rest().await.body.is_err());
    assert_eq!(world.handle.metrics().stored, 0);
}

#[tokio::test]
async fn a_body_too_long_for_the_disk_continues_from_the_origin() {
    // A file may take up to a quarter of this.
    let (_folder, world) = with_files(2 * LEN);
    let (feed, stalled, fast) = two_clients(&world, &TAGGED).await;
    send(&feed, CHUNK, LEN);
    drop(feed);
    assert!(
        fast.await.unwrap().text() == text(0, LEN),
        "it has not waited for the other client"
    );
    world.origin.will_each(requested_rest);
    assert!(stalled.rest().await.text() == text(0, LEN));
    let asked = world.origin.seen()[1].headers["range"]
        .to_str()
        .unwrap()
        .to_owned();
    let start: usize = asked
        .trim_start_matches("bytes=")
        .trim_end_matches('-')
        .parse()
        .unwrap();
    assert!(
        start > LEN / 4 && start <= LEN / 2,
        "the file has the beginning, but not the part from {start}"
    );
}

#[tokio::test]
async fn a_single_client_without_a_tag_gets_a_body_too_long_for_the_disk() {
    let (_folder, world) = with_files(2 * LEN);
    let (feed, stalled, fast) = two_clients(&world, &FRESH).await;
    fast.abort();
    send(&feed, CHUNK, LEN);
    drop(feed);
    settle().await;
    assert!(stalled.rest().await.text() == text(0, LEN));
    assert_eq!(world.origin.count(), 1);
}

#[tokio::test]
async fn without_disk_a_slow_client_requests_the_rest() {
    let world = without_files();
    let (feed, stalled, fast) = two_clients(&world, &TAGGED).await;
    send(&feed, CHUNK, LEN);
    drop(feed);
    assert!(
        fast.await.unwrap().text() == text(0, LEN),
        "it has not waited for the other client"
    );
    world.origin.will_answer(rest(CHUNK, LEN, "\"1\""));
    let answer = stalled.rest().await;
    assert!(answer.text() == text(0, LEN));
    let seen = world.origin.seen();
    assert_eq!(
        (
            seen.len(),
            &seen[1].headers["range"],
            &seen[1].headers["if-range"]
        ),
        (
            2,
            &"bytes=50000-".parse().unwrap(),
            &"\"1\"".parse().unwrap()
        )
    );
}

#[tokio::test]
async fn the_rest_of_another_version_is_not_served() {
    for answer in [
        Some(response(200, &TAGGED, &text(0, LEN))),
        Some(response(412, &TAGGED, "")),
        Some(rest(CHUNK, LEN, "\"2\"")),
        Some(rest(CHUNK, LEN, "W/\"1\"")),
        Some(rest(CHUNK + 1, LEN, "\"1\"")),
        None,
    ] {
        let world = without_files();
        let (feed, stalled, fast) = two_clients(&world, &TAGGED).await;
        send(&feed, CHUNK, LEN);
        drop(feed);
        fast.await.unwrap();
        match answer {
            Some(answer) => world.origin.will_answer(answer),
            None => world.origin.will_fail(),
        }
        assert!(stalled.rest().await.body.is_err());
        assert_eq!(world.origin.count(), 2);
    }
}

#[tokio::test]
async fn client_conditions_do_not_apply_to_the_rest() {
    let world = without_files();
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &TAGGED, "").map(|_| body));
    let fields = [
        ("if-none-match", "\"0\""),
        ("if-modified-since", "Mon, 02 Nov 2026 00:00:00 GMT"),
    ];
    let [slow, fast] = [(); 2].map(|()| world.try_send(get("/", &fields)));
    let slow = slow.await.unwrap();
    let fast = tokio::spawn(Answer::read(fast.await.unwrap()));
    send(&feed, 0, LEN);
    drop(feed);
    assert!(fast.await.unwrap().text() == text(0, LEN));
    world.origin.will_answer(rest(0, LEN, "\"1\""));
    assert!(Answer::read(slow).await.text() == text(0, LEN));
    let headers: HeaderMap = world.origin.seen()[1].headers.clone();
    assert!(
        !headers.contains_key("if-none-match") && !headers.contains_key("if-modified-since"),
        "{headers:?}"
    );
}

/// Slow, leaving and late clients on several threads. A lost wake-up shows as a test that doesn't end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_clients_at_different_paces_get_the_same_body() {
    for (round, files) in (0..9).zip([Some(10 * LEN), Some(LEN), None].into_iter().cycle()) {
        let folder = files.map(with_files);
        let world = folder
            .as_ref()
            .map_or_else(without_files, |(_, world)| world.clone());
        let (feed, body) = TestBody::live();
        world
            .origin
            .will_answer(response(200, &TAGGED, "").map(|_| body));
        let first = world.try_send(get("/", &[])).await.unwrap();
        world.origin.will_each(requested_rest);
        let clients = (0..12).map(|nr| {
            let world = world.clone();
            tokio::spawn(async move { client(&world, nr).await })
        });
        let clients: Vec<_> = clients.collect();
        let writer = tokio::spawn(async move {
            for at in (0..LEN).step_by(CHUNK) {
                send(&feed, at, at + CHUNK);
                tokio::task::yield_now().await;
            }
        });
        let all = join_all(clients.into_iter().chain([tokio::spawn(async move {
            assert!(Answer::read(first).await.text() == text(0, LEN));
        })]));
        let all = tokio::time::timeout(Duration::from_mins(2), all)
            .await
            .expect("a client waits forever");
        assert!(
            all.into_iter().all(|client| client.is_ok()),
            "round {round}"
        );
        writer.await.unwrap();
    }
}

/// Reads the body with pauses, or leaves before its end.
async fn client(world: &World, nr: usize) {
    for _ in 0..nr * 3 {
        tokio::task::yield_now().await;
    }
    let mut response = world.try_send(get("/", &[])).await.unwrap();
    let mut came = Vec::new();
    while let Some(frame) = response.body_mut().frame().await {
        came.extend_from_slice(&frame.unwrap().into_data().unwrap());
        if nr % 4 == 1 && came.len() > LEN / 4 {
            return;
        }
        for _ in 0..nr % 4 * 20 {
            tokio::task::yield_now().await;
        }
    }
    assert!(
        came == text(0, LEN).as_bytes(),
        "client {nr} got {} bytes",
        came.len()
    );
}

/// Starts a client of a stored body that is too long to be kept for it, purges the body after the first piece, and returns
/// the response to the client.
async fn purged_while_read(
    fields: &[(&str, &str)],
    origin: impl Fn(&Parts) -> http::Response<TestBody> + Send + 'static,
) -> (World, Answer) {
    let world = World::with(|builder| builder.capacity(8 << 20).entry_limit(4 << 20));
    world.origin.will(200, &TAGGED, &text(0, LEN));
    assert!(world.get("/").await.text() == text(0, LEN));
    world.origin.will_each(origin);
    let mut hit = world.try_send(get("/", fields)).await.unwrap();
    assert!(
        hit.headers()["cache-status"]
            .to_str()
            .unwrap()
            .contains("hit")
    );
    let first = hit
        .body_mut()
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_data()
        .unwrap();
    assert_eq!(world.handle.purge(&Purge::Prefix(String::new())), 1);
    let answer = Stalled(hit, first).rest().await;
    (world, answer)
}

#[tokio::test]
async fn a_slow_client_gets_the_rest_of_an_evicted_body_from_the_origin() {
    let (world, answer) = purged_while_read(&[], requested_rest).await;
    assert!(answer.text() == text(0, LEN));
    let seen = world.origin.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].headers["range"], "bytes=65536-");
    assert_eq!(seen[1].headers["if-range"], "\"1\"");
}

#[tokio::test]
async fn a_slow_client_of_an_evicted_body_never_gets_bytes_of_another_version() {
    let (_, answer) = purged_while_read(&[], |_| rest(65_536, LEN, "\"2\"")).await;
    assert!(answer.body.unwrap_err().contains("new version"));
    let (_, answer) = purged_while_read(&[], |_| response(200, &TAGGED, &text(0, LEN))).await;
    assert!(answer.body.is_err());
    let range = [("range", "bytes=10-999999")];
    let part = |tag: &'static str, end: usize| {
        move |_: &Parts| {
            let range = format!("bytes 65546-{}/{LEN}", end - 1);
            response(
                206,
                &[("etag", tag), ("content-range", &range)],
                &text(65_546, end),
            )
        }
    };
    for (tag, end) in [("\"2\"", 1_000_000), ("W/\"1\"", 1_000_000), ("\"1\"", LEN)] {
        let (_, answer) = purged_while_read(&range, part(tag, end)).await;
        assert!(answer.status == 206 && answer.body.is_err(), "{tag} {end}");
    }
    let (world, answer) = purged_while_read(&range, part("\"1\"", 1_000_000)).await;
    assert!(answer.text() == text(10, 1_000_000));
    assert_eq!(
        world.origin.seen()[1].headers["range"],
        "bytes=65546-999999"
    );
}

#[tokio::test]
async fn ranges_of_a_body_that_is_not_kept_are_exact() {
    let world = World::with(|builder| builder.capacity(8 << 20).entry_limit(4 << 20));
    world.origin.will(200, &TAGGED, &text(0, LEN));
    world.get("/").await;
    for (start, end) in [(0, 1), (524_280, 1_048_600), (10, LEN)] {
        let answer = world
            .get_with("/", &[("range", &format!("bytes={start}-{}", end - 1))])
            .await;
        assert!(answer.is_hit() && answer.text() == text(start, end));
        assert_eq!(answer.headers["content-length"], (end - start).to_string());
    }
    // Several ranges would have to be kept.
    let answer = world.get_with("/", &[("range", "bytes=0-9,20-29")]).await;
    assert!((answer.status.as_u16(), answer.text()) == (200, &text(0, LEN)));
    assert_eq!(world.origin.count(), 1);
}
