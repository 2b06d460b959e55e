//! Limits on the store, on single bodies, and on bodies that are still arriving.

use tower::{Layer, ServiceExt};

use crate::support::{Answer, FRESH, TestBody, World, get, response, settle};

#[tokio::test]
async fn the_store_stays_within_its_capacity() {
    let capacity = 1 << 20;
    let world = World::with(|builder| builder.capacity(capacity));
    let body = "x".repeat(10_000);
    for at in 0..500 {
        world.origin.will(200, &FRESH, &body);
        assert_eq!(world.get(&format!("/{at}")).await.text().len(), body.len());
        let metrics = world.handle.metrics();
        assert!(
            metrics.stored_bytes <= capacity,
            "{} after {at}",
            metrics.stored_bytes
        );
    }
    let metrics = world.handle.metrics();
    assert!(metrics.evictions >= 390, "{metrics:?}");
    assert!(metrics.stored_bytes >= capacity / 2, "{metrics:?}");
}

#[tokio::test]
async fn stored_responses_are_served_while_the_origin_is_busy() {
    let world = World::default();
    let limit = tower::limit::ConcurrencyLimitLayer::new(1);
    let layer = ifmatch_cache::CacheLayer::new();
    let cache = layer.layer(limit.layer(world.origin.clone()));
    world.origin.will(200, &FRESH, "hello");
    let send = |path: &str| cache.clone().oneshot(get(path, &[]));
    assert_eq!(Answer::read(send("/").await.unwrap()).await.text(), "hello");
    let held = world.origin.will_wait();
    let busy = tokio::spawn(send("/busy"));
    world.origin.reached(2).await;
    assert!(Answer::read(send("/").await.unwrap()).await.is_hit());
    world.origin.will(200, &FRESH, "later");
    let queued = tokio::spawn(send("/later"));
    settle().await;
    assert_eq!(world.origin.count(), 2);
    held.send(response(200, &FRESH, "now")).unwrap();
    assert_eq!(
        Answer::read(busy.await.unwrap().unwrap()).await.text(),
        "now"
    );
    assert_eq!(
        Answer::read(queued.await.unwrap().unwrap()).await.text(),
        "later"
    );
}

#[tokio::test]
async fn header_fields_count_towards_the_capacity() {
    let capacity = 1 << 20;
    let world = World::with(|builder| builder.capacity(capacity));
    let field = "y".repeat(5_000);
    for at in 0..300 {
        world
            .origin
            .will(200, &[("cache-control", "max-age=60"), ("x-a", &field)], "");
        world.get(&format!("/{at}")).await;
    }
    assert!(world.handle.metrics().evictions > 50);
    assert!(world.handle.metrics().stored_bytes <= capacity);
}

#[tokio::test]
async fn a_site_with_many_variants_keeps_them() {
    let world = World::default();
    for round in 0..2 {
        for at in 0..100 {
            if round == 0 {
                world.origin.will(
                    200,
                    &[("cache-control", "max-age=60"), ("vary", "foo")],
                    "hello",
                );
            }
            assert_eq!(
                world
                    .get_with("/", &[("foo", &at.to_string())])
                    .await
                    .is_hit(),
                round > 0,
                "{at}"
            );
        }
    }
}

#[tokio::test]
async fn variants_beyond_the_capacity_are_evicted() {
    let world = World::with(|builder| builder.capacity(1 << 20).entry_limit(100_000));
    let body = "x".repeat(90_000);
    for at in 0..30 {
        world.origin.will(
            200,
            &[("cache-control", "max-age=60"), ("vary", "foo")],
            &body,
        );
        world.get_with("/", &[("foo", &at.to_string())]).await;
        assert!(
            world
                .get_with("/", &[("foo", &at.to_string())])
                .await
                .is_hit(),
            "{at}"
        );
    }
    assert!(world.handle.metrics().stored_bytes <= 1 << 20);
    assert!(world.get_with("/", &[("foo", "27")]).await.is_hit());
}

#[tokio::test]
async fn variants_are_bounded_and_unused_ones_evicted() {
    let world = World::default();
    for at in 0..600 {
        world.origin.will(
            200,
            &[("cache-control", "max-age=60"), ("vary", "foo")],
            "hello",
        );
        world.get_with("/", &[("foo", &at.to_string())]).await;
    }
    assert!(world.get_with("/", &[("foo", "599")]).await.is_hit());
    assert_eq!(
        world.get_with("/", &[("foo", "0")]).await.status,
        599,
        "asked again"
    );
}

#[tokio::test]
async fn parts_of_one_object_take_no_more_than_a_whole_body() {
    let world = World::with(|builder| builder.entry_limit(10_000));
    let ask = |at: usize| {
        [(
            "range",
            format!("bytes={}-{}", at * 1_000, at * 1_000 + 999),
        )]
    };
    for at in 0..40 {
        let range = format!("bytes {}-{}/100000", at * 1_000, at * 1_000 + 999);
        let fields = [
            ("cache-control", "max-age=60"),
            ("etag", "\"1\""),
            ("content-range", &*range),
        ];
        world.origin.will(206, &fields, &"x".repeat(1_000));
        let [(name, value)] = ask(at);
        assert_eq!(
            world.get_with("/", &[(name, &*value)]).await.text().len(),
            1_000
        );
        assert!(
            world.get_with("/", &[(name, &*value)]).await.is_hit(),
            "{at}"
        );
    }
    let stored = world.handle.metrics().stored_bytes;
    assert!(stored < 30_000, "{stored}");
}

#[tokio::test]
async fn a_long_body_is_not_stored() {
    let world = World::with(|builder| builder.entry_limit(1_000));
    let body = "x".repeat(1_001);
    for _ in 0..2 {
        world.origin.will(
            200,
            &[("cache-control", "max-age=60"), ("content-length", "1001")],
            &body,
        );
        assert_eq!(world.get("/told").await.text(), body);
        world.origin.will(200, &FRESH, &body);
        assert_eq!(world.get("/untold").await.text(), body);
    }
    assert_eq!(world.origin.count(), 4);
    assert_eq!(world.handle.metrics().stored, 0);
    world.origin.will(200, &FRESH, &body[1..]);
    world.get("/fits").await;
    assert!(world.get("/fits").await.is_hit());
}

#[tokio::test]
async fn a_body_that_proves_too_long_continues_for_current_readers() {
    let world = World::with(|builder| builder.entry_limit(100_000));
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &FRESH, "").map(|_| body));
    let first = world.try_send(get("/", &[])).await.unwrap();
    let second = world.try_send(get("/", &[])).await.unwrap();
    let readers = [first, second].map(|reader| tokio::spawn(Answer::read(reader)));
    let chunk = "z".repeat(50_000);
    for _ in 0..20 {
        assert!(feed.send(chunk.clone()));
        settle().await;
    }
    // Later requests go to the origin.
    world.origin.will(200, &FRESH, "short");
    assert_eq!(world.get("/").await.text(), "short");
    drop(feed);
    for reader in readers {
        assert_eq!(reader.await.unwrap().text().len(), 1_000_000);
    }
    assert_eq!(world.get("/").await.text(), "short");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_reader_holds_up_others_only_for_the_patience() {
    let world = World::with(|builder| builder.entry_limit(1_000));
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &FRESH, "").map(|_| body));
    let stalled = world.try_send(get("/", &[])).await.unwrap();
    let reader = tokio::spawn(Answer::read(world.try_send(get("/", &[])).await.unwrap()));
    for _ in 0..100 {
        feed.send("z".repeat(50_000));
    }
    drop(feed);
    assert_eq!(reader.await.unwrap().text().len(), 5_000_000);
    assert!(
        Answer::read(stalled).await.body.is_err(),
        "its part was dropped, so its response breaks off"
    );
}

#[tokio::test]
async fn an_unstored_body_waits_for_its_reader() {
    let world = World::with(|builder| builder.entry_limit(1_000));
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &FRESH, "").map(|_| body));
    let reader = world.try_send(get("/", &[])).await.unwrap();
    for _ in 0..100 {
        feed.send("z".repeat(100_000));
    }
    settle().await;
    let left = feed.waiting();
    assert!(left >= 90, "only {left} of 100 pieces wait at the origin");
    drop(feed);
    assert_eq!(Answer::read(reader).await.text().len(), 10_000_000);
}

#[tokio::test(start_paused = true)]
async fn a_single_reader_may_stall() {
    let world = World::with(|builder| builder.entry_limit(1_000));
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &FRESH, "").map(|_| body));
    let reader = world.try_send(get("/", &[])).await.unwrap();
    for _ in 0..100 {
        feed.send("z".repeat(50_000));
    }
    drop(feed);
    tokio::time::sleep(std::time::Duration::from_hours(1)).await;
    assert_eq!(Answer::read(reader).await.text().len(), 5_000_000);
}

#[tokio::test]
async fn an_endless_body_ends_with_its_last_reader() {
    let world = World::with(|builder| builder.entry_limit(1_000));
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &FRESH, "").map(|_| body));
    let reader = world.try_send(get("/", &[])).await.unwrap();
    for _ in 0..10 {
        feed.send("z".repeat(50_000));
    }
    settle().await;
    drop(reader);
    settle().await;
    assert!(!feed.send("z"), "the origin learns that no client reads");
}

#[tokio::test]
async fn arriving_bodies_share_a_budget() {
    let world = World::with(|builder| builder.entry_limit(100_000).capacity(400_000));
    // A quarter of the capacity has no room for two incomplete bodies of 60,000 bytes.
    let feeds: Vec<_> = (0..2)
        .map(|_| {
            let (feed, body) = TestBody::live();
            world
                .origin
                .will_answer(response(200, &FRESH, "").map(|_| body));
            feed
        })
        .collect();
    let first = world.try_send(get("/a", &[])).await.unwrap();
    let second = world.try_send(get("/b", &[])).await.unwrap();
    for feed in &feeds {
        feed.send("x".repeat(60_000));
        settle().await;
    }
    drop(feeds);
    assert_eq!(Answer::read(first).await.text().len(), 60_000);
    assert_eq!(Answer::read(second).await.text().len(), 60_000);
    assert_eq!(world.handle.metrics().stored, 1);
    assert!(world.get("/a").await.is_hit());
}

#[tokio::test]
async fn long_bodies_without_a_reader_leave_room_for_others() {
    let world = World::with(|builder| builder.capacity(64 << 20).entry_limit(4 << 20));
    let mut slow = Vec::new();
    for at in 0..20 {
        let (feed, body) = TestBody::live();
        world
            .origin
            .will_answer(response(200, &FRESH, "").map(|_| body));
        slow.push((
            world
                .try_send(get(&format!("/slow{at}"), &[]))
                .await
                .unwrap(),
            feed.clone(),
        ));
        for _ in 0..50 {
            feed.send("z".repeat(100_000));
        }
    }
    settle().await;
    for len in [1_000, 100_000, 1_000_000] {
        let fields = [FRESH[0], ("content-length", &*len.to_string())];
        world.origin.will(200, &fields, &"x".repeat(len));
        let path = format!("/{len}");
        assert!(world.get(&path).await.cache_status().contains("; stored"));
        assert!(world.get(&path).await.is_hit(), "{len}");
    }
    assert!(
        slow.iter().all(|(_, feed)| feed.waiting() >= 40),
        "the origin waits for slow clients"
    );
}

#[tokio::test]
async fn a_stored_body_with_readers_uses_no_budget() {
    let world = World::with(|builder| builder.entry_limit(90_000).capacity(1 << 20));
    // The budget has room for three of these at a time.
    let mut slow = Vec::new();
    for at in 0..8 {
        let fields = [FRESH[0], ("content-length", "90000")];
        world.origin.will(200, &fields, &"x".repeat(90_000));
        slow.push(world.try_send(get(&format!("/{at}"), &[])).await.unwrap());
        settle().await;
        assert_eq!(world.handle.metrics().stored, at + 1);
    }
    for response in slow {
        assert_eq!(Answer::read(response).await.text().len(), 90_000);
    }
}

#[tokio::test]
async fn cache_status_is_not_stored_without_room() {
    let world = World::with(|builder| builder.entry_limit(90_000).capacity(400_000));
    let fields = [FRESH[0], ("content-length", "90000")];
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &fields, "").map(|_| body));
    let first = world.try_send(get("/first", &[])).await.unwrap();
    world.origin.will(200, &fields, &"x".repeat(90_000));
    let second = world.get("/second").await;
    assert_eq!(
        (second.cache_status(), second.text().len()),
        ("ifmatch; fwd=uri-miss; ttl=60", 90_000)
    );
    feed.send("x".repeat(90_000));
    drop(feed);
    let first = Answer::read(first).await;
    assert_eq!(
        (first.cache_status(), first.text().len()),
        ("ifmatch; fwd=uri-miss; stored; ttl=60", 90_000)
    );
    world.origin.will(200, &fields, &"x".repeat(90_000));
    assert_eq!(
        world.get("/second").await.cache_status(),
        "ifmatch; fwd=uri-miss; stored; ttl=60",
        "there is room again"
    );
    assert!(world.get("/first").await.is_hit() && world.get("/second").await.is_hit());
}
