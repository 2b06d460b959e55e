//! Outcomes: every request counts exactly once, and `stored` is never claimed for a response that isn't stored.

use ifmatch_cache::{Disk, Invalidation, NotStored, Outcome, Purge};

use crate::support::{
    Answer, FRESH, TAGGED, TestBody, World, get, request, response, settle, spawn,
};

/// Returns the number of requests with each outcome that occurred.
fn counts(world: &World) -> Vec<(Outcome, u64)> {
    let metrics = world.handle.metrics();
    let all = Outcome::ALL.map(|outcome| (outcome, metrics.count(outcome)));
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Checks that one request was counted since, with this outcome.
#[track_caller]
fn expect(before: &[(Outcome, u64)], world: &World, outcome: Outcome) {
    let known = |list: &[(Outcome, u64)], outcome| {
        list.iter()
            .find(|(of, _)| *of == outcome)
            .map_or(0, |(_, n)| *n)
    };
    let after = counts(world);
    for of in Outcome::ALL {
        let added = known(&after, of) - known(before, of);
        assert_eq!(
            added,
            u64::from(of == outcome),
            "{of:?} for a request that is to be {outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_response_that_is_passed_states_why() {
    for (outcome, asked, status, answered) in [
        (Outcome::Miss, &[][..], 200, &FRESH[..]),
        (Outcome::PassRequest, &[("if-match", "*")], 200, &FRESH),
        (
            Outcome::PassAuthorization,
            &[("authorization", "Basic eDp5")],
            200,
            &FRESH,
        ),
        (
            Outcome::PassCredential,
            &[("cookie", "a=b")],
            200,
            &[("etag", "\"1\"")],
        ),
        (
            Outcome::PassCookie,
            &[],
            200,
            &[FRESH[0], ("set-cookie", "a=b")],
        ),
        (
            Outcome::PassNoStore,
            &[],
            200,
            &[("cache-control", "no-store")],
        ),
        (
            Outcome::PassNoStore,
            &[("cache-control", "no-store")],
            200,
            &FRESH,
        ),
        (
            Outcome::PassPrivate,
            &[],
            200,
            &[("cache-control", "private, max-age=60")],
        ),
        (Outcome::PassVary, &[], 200, &[FRESH[0], ("vary", "*")]),
        (Outcome::PassStatus, &[], 418, &[]),
        (
            Outcome::PassStatus,
            &[("if-none-match", "\"1\"")],
            304,
            &TAGGED,
        ),
        (Outcome::PassLifetime, &[], 200, &[]),
        (
            Outcome::PassTooLarge,
            &[],
            200,
            &[FRESH[0], ("content-length", "99999999999")],
        ),
        (
            Outcome::PassMalformed,
            &[],
            200,
            &[FRESH[0], ("content-length", "x")],
        ),
        (Outcome::ErrorStatus, &[], 503, &[]),
        (Outcome::ErrorUnusable, &[], 304, &[]),
        (
            Outcome::OnlyIfCached,
            &[("cache-control", "only-if-cached")],
            200,
            &FRESH,
        ),
    ] {
        let world = World::default();
        world.origin.will(status, answered, "");
        world.get_with("/", asked).await;
        assert_eq!(
            counts(&world),
            [(outcome, 1)],
            "{asked:?} {status} {answered:?}"
        );
    }
}

#[tokio::test]
async fn each_request_has_one_outcome() {
    let world = World::default();
    let step = async |outcome, fields: &[(&str, &str)]| {
        let before = counts(&world);
        let answer = world.get_with("/", fields).await;
        expect(&before, &world, outcome);
        answer
    };
    world.origin.will(200, &TAGGED, "hello");
    step(Outcome::Miss, &[]).await;
    step(Outcome::Hit, &[]).await;
    step(Outcome::Hit, &[("if-none-match", "\"1\"")]).await;
    world.origin.will(200, &TAGGED, "hello");
    step(Outcome::MissRequest, &[("cache-control", "no-cache")]).await;
    world.pass(61);
    step(Outcome::StaleAccepted, &[("cache-control", "max-stale")]).await;
    world.origin.will(304, &[], "");
    step(Outcome::Revalidated, &[]).await;
    world.pass(61);
    world.origin.will_fail();
    step(Outcome::StaleUnreachable, &[]).await;
    step(Outcome::StaleUnreachable, &[]).await;
    world.pass(10);
    world.origin.will(
        200,
        &[
            ("cache-control", "max-age=1, stale-if-error=60"),
            ("etag", "\"2\""),
        ],
        "new",
    );
    step(Outcome::StaleUnreachable, &[]).await;
    settle().await;
    step(Outcome::Hit, &[]).await;
    world.pass(2);
    world.origin.will(503, &[], "");
    step(Outcome::StaleError, &[]).await;
    world.handle.purge(&Purge::Prefix(String::new()));
    world.origin.will_fail();
    let before = counts(&world);
    assert!(world.try_send(get("/", &[])).await.is_err());
    expect(&before, &world, Outcome::ErrorUnreachable);
    world.origin.will(200, &[FRESH[0], ("vary", "a")], "one");
    step(Outcome::Miss, &[("a", "1")]).await;
    world.origin.will(200, &[FRESH[0], ("vary", "a")], "two");
    step(Outcome::MissVariant, &[("a", "2")]).await;
    world.pass(61);
    world.origin.will(
        200,
        &[
            ("cache-control", "max-age=1, stale-while-revalidate=60"),
            ("vary", "a"),
        ],
        "three",
    );
    step(Outcome::MissStale, &[("a", "2")]).await;
    world.pass(2);
    world.origin.will(200, &[FRESH[0], ("vary", "a")], "four");
    step(Outcome::StaleWhileRevalidate, &[("a", "2")]).await;
    settle().await;
    for (method, outcome) in [
        ("HEAD", Outcome::Hit),
        ("OPTIONS", Outcome::PassMethod),
        ("PUT", Outcome::Write),
    ] {
        world.origin.will(200, &[], "");
        let before = counts(&world);
        world.send(request(method, "/", &[("a", "2")])).await;
        expect(&before, &world, outcome);
    }
    assert_eq!(world.handle.metrics().requests(), 19);
}

#[tokio::test]
async fn a_completed_part_counts_once() {
    let world = World::default();
    world.origin.will(
        206,
        &[TAGGED[0], TAGGED[1], ("content-range", "bytes 0-1/5")],
        "he",
    );
    world.get_with("/", &[("range", "bytes=0-1")]).await;
    world.origin.will(
        206,
        &[TAGGED[0], TAGGED[1], ("content-range", "bytes 2-4/5")],
        "llo",
    );
    assert_eq!(world.get("/").await.text(), "hello");
    assert_eq!(
        counts(&world),
        [(Outcome::Miss, 1), (Outcome::MissPartial, 1)]
    );
}

#[tokio::test]
async fn a_request_that_waited_counts_once() {
    let world = World::default();
    let held = world.origin.will_wait();
    let waiting = [0; 5].map(|_| spawn(&world, "/", &[]));
    world.origin.reached(1).await;
    settle().await;
    let abandoned = spawn(&world, "/", &[]);
    settle().await;
    abandoned.abort();
    assert!(abandoned.await.is_err());
    held.send(response(200, &FRESH, "hello")).unwrap();
    for answer in waiting {
        assert_eq!(answer.await.unwrap().text(), "hello");
    }
    let metrics = world.handle.metrics();
    assert_eq!(
        (
            metrics.named("miss"),
            metrics.named("hit"),
            metrics.named("abandoned")
        ),
        (1, 4, 1)
    );
    assert_eq!(metrics.requests(), 6);
}

#[tokio::test]
async fn an_abandoned_write_is_a_write() {
    let world = World::default();
    let held = world.origin.will_wait();
    let (cache, writing) = (world.clone(), request("PUT", "/", &[]));
    let write = tokio::spawn(async move { cache.send(writing).await });
    world.origin.reached(1).await;
    write.abort();
    assert!(write.await.is_err());
    held.send(response(204, &[], "")).unwrap();
    settle().await;
    assert_eq!(counts(&world), [(Outcome::Write, 1)]);
}

#[tokio::test]
async fn a_response_counts_as_stored_only_when_it_is() {
    for (reason, fields, body, purged) in [
        (None, &FRESH[..], TestBody::from("hello"), false),
        (
            Some(NotStored::Broken),
            &FRESH,
            TestBody::from("hel").and_break(),
            false,
        ),
        (
            Some(NotStored::Broken),
            &[FRESH[0], ("content-length", "6")],
            TestBody::from("hello"),
            false,
        ),
        (
            Some(NotStored::TooLarge),
            &FRESH,
            TestBody::from(&*"x".repeat(2_000)),
            false,
        ),
        (
            Some(NotStored::Invalidated),
            &FRESH,
            TestBody::from("hello"),
            true,
        ),
    ] {
        let world = World::with(|builder| builder.capacity(1 << 20).entry_limit(1_000));
        let held = world.origin.will_wait();
        let asking = spawn(&world, "/", &[]);
        world.origin.reached(1).await;
        if purged {
            world.handle.purge(&Purge::Prefix(String::new()));
        }
        held.send(response(200, fields, "").map(|_| body)).unwrap();
        asking.await.unwrap();
        settle().await;
        let metrics = world.handle.metrics();
        assert_eq!(metrics.stored, u64::from(reason.is_none()), "{reason:?}");
        for of in NotStored::ALL {
            assert_eq!(
                metrics.not_stored(of),
                u64::from(reason == Some(of)),
                "{of:?}, to be {reason:?}"
            );
        }
    }
}

#[tokio::test]
async fn cache_status_claims_storage_only_of_reserved_room() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), 400_000).unwrap();
    let world = World::with(|builder| builder.capacity(1 << 20).entry_limit(1_000).disk(disk));
    let is_claimed = async |path: &str, body: &str, declares: bool| {
        let length = body.len().to_string();
        let fields = [FRESH[0], ("content-length", &*length)];
        world
            .origin
            .will(200, if declares { &fields } else { &fields[..1] }, body);
        let answer = world.get(path).await;
        settle().await;
        answer.cache_status().contains("; stored")
    };
    let (long, too_long) = ("x".repeat(90_000), "x".repeat(110_000));
    assert!(is_claimed("/short", "hello", true).await, "in memory");
    assert!(
        !is_claimed("/unknown", "hello", false).await,
        "it may be of any length"
    );
    assert!(is_claimed("/long", &long, true).await, "on disk");
    assert!(!is_claimed("/longer", &too_long, true).await);
    // Four bodies that are still arriving take all of the disk.
    let mut arriving = Vec::new();
    for at in 0..4 {
        let (feed, body) = TestBody::live();
        world.origin.will_answer(
            response(200, &[FRESH[0], ("content-length", "100000")], "").map(|_| body),
        );
        let answer = world.try_send(get(&format!("/{at}"), &[])).await.unwrap();
        assert!(
            answer.headers()["cache-status"]
                .to_str()
                .unwrap()
                .contains("; stored"),
            "{at}"
        );
        arriving.push((feed, answer));
    }
    assert!(
        !is_claimed("/more", &long, true).await,
        "the disk is reserved"
    );
    for (at, (feed, answer)) in arriving.into_iter().enumerate() {
        feed.send("x".repeat(100_000));
        drop(feed);
        assert_eq!(Answer::read(answer).await.text().len(), 100_000);
        assert!(world.get(&format!("/{at}")).await.is_hit());
    }
    assert!(is_claimed("/more", &long, true).await && world.get("/more").await.is_hit());
}

#[tokio::test]
async fn the_counters_count() {
    let world = World::default();
    world.origin.will(
        200,
        &[("cache-control", "max-age=60"), ("etag", "\"1\"")],
        "hello",
    );
    world.get("/").await;
    world.get("/").await;
    world.pass(61);
    world.origin.will(304, &[], "");
    world.get("/").await;
    world.get_with("/", &[("cache-control", "max-stale")]).await;
    world.origin.will(200, &[], "");
    world.send(request("OPTIONS", "/", &[])).await;
    world.origin.will(200, &[], "");
    world.send(request("PUT", "/", &[])).await;
    let metrics = world.handle.metrics();
    let counts = ["miss", "hit", "revalidated", "pass", "write"].map(|name| metrics.named(name));
    assert_eq!((counts, metrics.requests()), ([1, 2, 1, 1, 1], 6));
    assert_eq!(
        (metrics.confirmed, metrics.stored, metrics.bytes),
        (1, 1, 15)
    );
    assert_eq!(
        Invalidation::ALL.map(|cause| metrics.invalidated(cause)),
        [1, 0, 0]
    );
    assert_eq!(metrics.stored_bytes, 0);
}
