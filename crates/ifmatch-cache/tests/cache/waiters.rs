//! Concurrent clients: one request to the origin, and no client gets stuck.

use std::time::Duration;

use futures_util::future::join_all;
use ifmatch_cache::Outcome;
use tokio::time::Instant;

use crate::support::{Answer, FRESH, TestBody, World, get, request, response, settle, spawn};

#[tokio::test]
async fn a_thousand_clients_cause_one_request() {
    let world = World::default();
    let held = world.origin.will_wait();
    let clients: Vec<_> = (0..1_000).map(|_| spawn(&world, "/", &[])).collect();
    world.origin.reached(1).await;
    settle().await;
    held.send(response(200, &FRESH, "hello")).unwrap();
    for answer in join_all(clients).await {
        assert_eq!(answer.unwrap().text(), "hello");
    }
    assert_eq!(world.origin.count(), 1);
    assert_eq!(world.handle.metrics().count(Outcome::Collapsed), 999);
    assert_eq!(world.handle.metrics().stored, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_clients_on_many_threads_cause_one_request() {
    for round in 0..20 {
        let world = World::default();
        world.origin.will(200, &FRESH, "hello");
        let clients: Vec<_> = (0..1_000).map(|_| spawn(&world, "/", &[])).collect();
        for answer in join_all(clients).await {
            assert_eq!(answer.unwrap().text(), "hello");
        }
        assert_eq!(world.origin.count(), 1, "round {round}");
    }
}

#[tokio::test]
async fn waiters_get_the_body_while_it_arrives() {
    let world = World::default();
    let held = world.origin.will_wait();
    let first = spawn(&world, "/", &[]);
    world.origin.reached(1).await;
    let (feed, body) = TestBody::live();
    held.send(response(200, &FRESH, "").map(|_| body)).unwrap();
    feed.send("be");
    settle().await;
    let mut late = world.try_send(get("/", &[])).await.unwrap();
    let frame = http_body_util::BodyExt::frame(late.body_mut())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        frame.into_data().unwrap(),
        "be",
        "the beginning, though the end has not come"
    );
    feed.send("gin");
    drop(feed);
    assert_eq!(first.await.unwrap().text(), "begin");
    assert_eq!(Answer::read(late).await.text(), "gin");
    assert_eq!(world.origin.count(), 1);
    assert!(world.get("/").await.is_hit());
}

#[tokio::test(start_paused = true)]
async fn a_response_that_must_be_validated_is_not_shared() {
    let start = Instant::now();
    let world = World::default();
    let fields = [("cache-control", "no-cache"), ("etag", "\"1\"")];
    let held = world.origin.will_wait();
    let leader = spawn(&world, "/", &[]);
    world.origin.reached(1).await;
    let waiters: Vec<_> = (0..3).map(|_| spawn(&world, "/", &[])).collect();
    settle().await;
    for _ in 0..3 {
        world.origin.will(200, &fields, "for another");
    }
    held.send(response(200, &fields, "for the first")).unwrap();
    assert_eq!(leader.await.unwrap().text(), "for the first");
    for answer in join_all(waiters).await {
        assert_eq!(answer.unwrap().text(), "for another");
    }
    assert!(start.elapsed().is_zero(), "a client has waited in vain");
}

#[tokio::test]
async fn a_leaving_client_does_not_cancel_the_request_for_others() {
    let world = World::default();
    let held = world.origin.will_wait();
    let leader = spawn(&world, "/", &[]);
    world.origin.reached(1).await;
    let waiter = spawn(&world, "/", &[]);
    settle().await;
    leader.abort();
    settle().await;
    held.send(response(200, &FRESH, "hello")).unwrap();
    assert_eq!(waiter.await.unwrap().text(), "hello");
    assert_eq!(world.origin.count(), 1);
}

#[tokio::test]
async fn a_client_leaving_during_the_body_does_not_cancel_it_for_others() {
    let world = World::default();
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &FRESH, "").map(|_| body));
    let leader = world.try_send(get("/", &[])).await.unwrap();
    let waiter = spawn(&world, "/", &[]);
    settle().await;
    feed.send("hel");
    drop(leader);
    settle().await;
    feed.send("lo");
    drop(feed);
    assert_eq!(waiter.await.unwrap().text(), "hello");
    assert_eq!(world.origin.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn when_the_origin_fails_one_waiter_asks_again_for_all() {
    let start = Instant::now();
    let world = World::default();
    let held = world.origin.will_wait();
    let leader = {
        let world = world.clone();
        tokio::spawn(async move { world.try_send(get("/", &[])).await.is_err() })
    };
    world.origin.reached(1).await;
    let waiters: Vec<_> = (0..3).map(|_| spawn(&world, "/", &[])).collect();
    settle().await;
    world.origin.will(200, &FRESH, "hello");
    drop(held);
    assert!(leader.await.unwrap());
    for answer in join_all(waiters).await {
        assert_eq!(answer.unwrap().text(), "hello");
    }
    assert_eq!(world.origin.count(), 2);
    assert!(start.elapsed().is_zero(), "a client has waited in vain");
}

#[tokio::test(start_paused = true)]
async fn when_the_origin_panics_each_waiter_asks_for_itself() {
    let start = Instant::now();
    let world = World::default();
    world.origin.will_panic();
    let answers = [(); 3].map(|()| world.origin.will_wait());
    let clients: Vec<_> = (0..4).map(|_| spawn(&world, "/", &[])).collect();
    world.origin.reached(4).await;
    for answer in answers {
        answer.send(response(200, &FRESH, "hello")).unwrap();
    }
    let mut texts = Vec::new();
    for client in clients {
        let response = client.await.unwrap();
        texts.push((response.status.as_u16(), response.text().to_owned()));
    }
    texts.sort();
    assert_eq!(texts[..3], vec![(200, "hello".to_owned()); 3]);
    assert_eq!(texts[3].0, 502);
    assert!(start.elapsed().is_zero(), "a client has waited in vain");
}

#[tokio::test(start_paused = true)]
async fn a_private_response_goes_to_one_client() {
    let start = Instant::now();
    for fields in [
        &[("cache-control", "private, max-age=60")][..],
        &[("cache-control", "no-store")],
        &[],
    ] {
        let world = World::default();
        let held = world.origin.will_wait();
        let leader = spawn(&world, "/", &[]);
        world.origin.reached(1).await;
        let waiters: Vec<_> = (0..3).map(|_| spawn(&world, "/", &[])).collect();
        settle().await;
        // All requests reach the origin concurrently.
        let answers: Vec<_> = (0..3).map(|_| world.origin.will_wait()).collect();
        held.send(response(200, fields, "for the first")).unwrap();
        assert_eq!(leader.await.unwrap().text(), "for the first");
        world.origin.reached(4).await;
        for answer in answers {
            answer.send(response(200, fields, "for another")).unwrap();
        }
        for answer in join_all(waiters).await {
            assert_eq!(answer.unwrap().text(), "for another");
        }
        // Later requests don't wait.
        let held = [world.origin.will_wait(), world.origin.will_wait()];
        let clients = [spawn(&world, "/", &[]), spawn(&world, "/", &[])];
        world.origin.reached(6).await;
        for held in held {
            held.send(response(200, fields, "x")).unwrap();
        }
        for answer in join_all(clients).await {
            assert_eq!(answer.unwrap().text(), "x");
        }
    }
    assert!(start.elapsed().is_zero(), "a client has waited in vain");
}

#[tokio::test(start_paused = true)]
async fn requests_wait_at_most_for_the_patience() {
    let world = World::with(|builder| builder.patience(Duration::from_secs(2)));
    let held = world.origin.will_wait();
    let leader = spawn(&world, "/", &[]);
    world.origin.reached(1).await;
    world.origin.will(200, &FRESH, "quick");
    assert_eq!(world.get("/").await.text(), "quick");
    held.send(response(200, &FRESH, "slow")).unwrap();
    assert_eq!(leader.await.unwrap().text(), "slow");
    assert_eq!(
        world.get("/").await.text(),
        "quick",
        "the later request's response stays"
    );
}

#[tokio::test(start_paused = true)]
async fn one_request_asks_in_each_round_of_waiting() {
    let world = World::with(|builder| builder.patience(Duration::from_secs(10)));
    let held: Vec<_> = (0..3).map(|_| world.origin.will_wait()).collect();
    let clients: Vec<_> = (0..50).map(|_| spawn(&world, "/", &[])).collect();
    world.origin.reached(1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let late: Vec<_> = (0..50).map(|_| spawn(&world, "/", &[])).collect();
    tokio::time::sleep(Duration::from_secs(19)).await;
    assert_eq!(
        world.origin.count(),
        3,
        "one more after ten seconds, and after twenty"
    );
    // The response to the second request is for all that wait.
    let mut held = held.into_iter();
    let (first, second) = (held.next().unwrap(), held.next().unwrap());
    second.send(response(200, &FRESH, "second")).unwrap();
    settle().await;
    let waiting = clients
        .iter()
        .chain(&late)
        .filter(|client| !client.is_finished())
        .count();
    assert_eq!(
        waiting, 2,
        "the first and the third client have requests of their own"
    );
    first.send(response(200, &FRESH, "first")).unwrap();
    held.next()
        .unwrap()
        .send(response(200, &FRESH, "third"))
        .unwrap();
    for answer in join_all(clients.into_iter().chain(late)).await {
        assert!(["first", "second", "third"].contains(&answer.unwrap().text()));
    }
    assert_eq!(world.origin.count(), 3);
}

/// Sends a request of the client with this address.
fn spawn_from(
    world: &World,
    client: u8,
    fields: &[(&str, &str)],
) -> tokio::task::JoinHandle<Answer> {
    let mut world = world.clone();
    world.cache.set_client([192, 0, 2, client].into());
    spawn(&world, "/", fields)
}

#[tokio::test]
async fn failures_of_one_client_are_not_given_to_others() {
    let world = World::default();
    let mut held: Vec<_> = (0..3).map(|_| world.origin.will_wait()).collect();
    let bad: Vec<_> = (0..6)
        .map(|_| spawn_from(&world, 1, &[("x-bad", "1")]))
        .collect();
    world.origin.reached(1).await;
    let others: Vec<_> = (2..6)
        .map(|client| spawn_from(&world, client, &[]))
        .collect();
    settle().await;
    held.remove(0).send(response(503, &[], "")).unwrap();
    // One of the client's own, and one of the others.
    world.origin.reached(3).await;
    settle().await;
    assert_eq!(world.origin.count(), 3);
    for (held, seen) in held.into_iter().zip(&world.origin.seen()[1..]) {
        let answer = if seen.headers.contains_key("x-bad") {
            response(503, &[], "")
        } else {
            response(200, &FRESH, "page")
        };
        held.send(answer).unwrap();
    }
    for answer in join_all(others).await {
        assert_eq!(answer.unwrap().text(), "page");
    }
    for answer in join_all(bad).await {
        answer.unwrap();
    }
}

#[tokio::test]
async fn failures_of_two_clients_are_given_to_all() {
    let world = World::default();
    let held = [world.origin.will_wait(), world.origin.will_wait()];
    let first = spawn_from(&world, 1, &[]);
    world.origin.reached(1).await;
    let others: Vec<_> = (2..100)
        .map(|client| spawn_from(&world, client, &[]))
        .collect();
    settle().await;
    for (count, held) in (1..).zip(held) {
        world.origin.reached(count).await;
        settle().await;
        held.send(response(503, &[], "")).unwrap();
    }
    for answer in join_all(others.into_iter().chain([first])).await {
        assert_eq!(answer.unwrap().status, 503);
    }
    assert_eq!(world.origin.count(), 2);
}

#[tokio::test]
async fn waiters_for_other_variants_ask_for_their_own() {
    let world = World::default();
    let fields = [("cache-control", "max-age=60"), ("vary", "foo")];
    let held = world.origin.will_wait();
    let one = spawn(&world, "/", &[("foo", "1")]);
    world.origin.reached(1).await;
    let others: Vec<_> = (0..10)
        .map(|_| spawn(&world, "/", &[("foo", "2")]))
        .collect();
    settle().await;
    world.origin.will(200, &fields, "two");
    held.send(response(200, &fields, "one")).unwrap();
    assert_eq!(one.await.unwrap().text(), "one");
    for answer in join_all(others).await {
        assert_eq!(answer.unwrap().text(), "two");
    }
    assert_eq!(world.origin.count(), 2, "one request for each variant");
}

#[tokio::test]
async fn a_stale_response_is_validated_once_in_the_background() {
    let world = World::default();
    let fields = [
        ("cache-control", "max-age=60, stale-while-revalidate=60"),
        ("etag", "\"1\""),
    ];
    world.origin.will(200, &fields, "old");
    world.get("/").await;
    world.pass(61);
    let held = world.origin.will_wait();
    for _ in 0..10 {
        let answer = world.get("/").await;
        assert_eq!(answer.text(), "old");
        assert!(answer.is_hit());
    }
    world.origin.reached(2).await;
    held.send(response(200, &fields, "new")).unwrap();
    settle().await;
    assert_eq!(world.get("/").await.text(), "new");
    assert_eq!(world.origin.count(), 2);
    assert_eq!(world.handle.metrics().named("stale"), 10);
}

#[tokio::test]
async fn a_background_validation_carries_no_condition_of_the_client() {
    let world = World::default();
    let fields = [("cache-control", "max-age=60, stale-while-revalidate=60")];
    world.origin.will(200, &fields, "old");
    world.get("/").await;
    world.pass(61);
    world.origin.will(200, &fields, "new");
    world
        .get_with("/", &[("if-none-match", "\"x\""), ("range", "bytes=0-0")])
        .await;
    world.origin.reached(2).await;
    settle().await;
    let seen = world.origin.seen();
    assert!(
        !seen[1].headers.contains_key("if-none-match") && !seen[1].headers.contains_key("range")
    );
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn a_head_of_a_stale_response_validates_by_get() {
    let world = World::default();
    let fields = [("cache-control", "max-age=60, stale-while-revalidate=60")];
    world.origin.will(200, &fields, "old");
    world.get("/").await;
    world.pass(61);
    world.origin.will(200, &fields, "new");
    assert!(world.send(request("HEAD", "/", &[])).await.is_hit());
    world.origin.reached(2).await;
    settle().await;
    assert_eq!(world.origin.seen()[1].method, "GET");
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn waiters_get_stale_responses_only_if_allowed() {
    let world = World::default();
    world.origin.will(200, &FRESH, "hello");
    world.get("/").await;
    world.pass(61);
    let held = world.origin.will_wait();
    let clients: Vec<_> = (0..2).map(|_| spawn(&world, "/", &[])).collect();
    world.origin.reached(2).await;
    settle().await;
    world.origin.will(503, &[], "no");
    held.send(response(503, &[], "no")).unwrap();
    for answer in join_all(clients).await {
        assert_eq!(answer.unwrap().status, 503);
    }
}

#[tokio::test]
async fn waiters_share_a_validation() {
    let world = World::default();
    let fields = [("cache-control", "max-age=60"), ("etag", "\"1\"")];
    world.origin.will(200, &fields, "hello");
    world.get("/").await;
    world.pass(61);
    let held = world.origin.will_wait();
    let clients: Vec<_> = (0..100).map(|_| spawn(&world, "/", &[])).collect();
    world.origin.reached(2).await;
    settle().await;
    held.send(response(304, &[], "")).unwrap();
    for answer in join_all(clients).await {
        assert_eq!(answer.unwrap().text(), "hello");
    }
    assert_eq!(world.origin.count(), 2);
    assert_eq!(world.handle.metrics().confirmed, 1);
}

#[tokio::test]
async fn waiters_share_a_failure_if_stale_is_allowed() {
    let world = World::default();
    world.origin.will(
        200,
        &[("cache-control", "max-age=60, stale-if-error=60")],
        "hello",
    );
    world.get("/").await;
    world.pass(61);
    let held = world.origin.will_wait();
    let clients: Vec<_> = (0..100).map(|_| spawn(&world, "/", &[])).collect();
    world.origin.reached(2).await;
    settle().await;
    held.send(response(503, &[], "no")).unwrap();
    for answer in join_all(clients).await {
        assert_eq!(answer.unwrap().text(), "hello");
    }
    assert_eq!(world.origin.count(), 2);
}

/// Sends many requests while the origin delays the response to the first one.
async fn many(
    world: &World,
    fields: &[(&str, &str)],
    answer: http::Response<TestBody>,
) -> Vec<Answer> {
    let before = world.origin.count();
    let held = world.origin.will_wait();
    let clients: Vec<_> = (0..100).map(|_| spawn(world, "/", fields)).collect();
    world.origin.reached(before + 1).await;
    settle().await;
    world.pass(2);
    held.send(answer).unwrap();
    join_all(clients)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

#[tokio::test]
async fn waiters_may_use_a_response_that_is_stale_on_arrival() {
    for fields in [
        &[("cache-control", "max-age=1")][..],
        &[
            ("cache-control", "max-age=60"),
            ("age", "100"),
            ("etag", "\"1\""),
        ],
        &[("cache-control", "max-age=1, must-revalidate")],
    ] {
        let world = World::default();
        for answer in many(&world, &[], response(200, fields, "hello")).await {
            assert_eq!(answer.text(), "hello");
        }
        assert_eq!(world.origin.count(), 1, "{fields:?}");
        // Later requests didn't wait for it.
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get("/").await.text(), "new", "{fields:?}");
    }
}

#[tokio::test]
async fn late_requests_do_not_use_a_stale_body_and_share_one_request() {
    let world = World::default();
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &[("cache-control", "max-age=1")], "").map(|_| body));
    let first = world.try_send(get("/", &[])).await.unwrap();
    world.pass(2);
    for answer in many(&world, &[], response(200, &FRESH, "new")).await {
        assert_eq!(answer.text(), "new");
    }
    assert_eq!(world.origin.count(), 2);
    feed.send("old");
    drop(feed);
    assert_eq!(Answer::read(first).await.text(), "old");
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn waiters_do_not_share_a_single_use_response() {
    for control in [
        "no-cache",
        "max-age=0",
        "s-maxage=0",
        "no-cache, max-age=60",
    ] {
        let world = World::default();
        let held = world.origin.will_wait();
        let first = spawn(&world, "/", &[]);
        world.origin.reached(1).await;
        let second = spawn(&world, "/", &[]);
        settle().await;
        world.origin.will(200, &[], "its own");
        held.send(response(
            200,
            &[("cache-control", control), ("etag", "\"1\"")],
            "the first one's",
        ))
        .unwrap();
        assert_eq!(first.await.unwrap().text(), "the first one's");
        assert_eq!(second.await.unwrap().text(), "its own", "{control}");
    }
}

#[tokio::test]
async fn a_repeated_failure_is_shared() {
    for status in [502, 503, 504] {
        let world = World::default();
        let held = world.origin.will_wait();
        world
            .origin
            .will(status, &[("set-cookie", "a=b")], "the second one's");
        let clients: Vec<_> = (0..100).map(|_| spawn(&world, "/", &[])).collect();
        world.origin.reached(1).await;
        settle().await;
        held.send(response(status, &[], "the first one's")).unwrap();
        let answers: Vec<_> = join_all(clients)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert!(answers.iter().all(|answer| answer.status == status));
        assert_eq!(world.origin.count(), 2);
        let shared: Vec<_> = answers
            .iter()
            .filter(|answer| answer.headers.contains_key("retry-after"))
            .collect();
        assert_eq!(shared.len(), 98);
        for answer in shared {
            assert!(!answer.headers.contains_key("set-cookie") && !answer.text().contains("one's"));
        }
    }
}

#[tokio::test]
async fn a_500_is_not_shared() {
    let world = World::default();
    let held = world.origin.will_wait();
    let first = spawn(&world, "/", &[]);
    world.origin.reached(1).await;
    let others: Vec<_> = (0..10).map(|_| spawn(&world, "/", &[])).collect();
    settle().await;
    (0..10).for_each(|_| world.origin.will(200, &FRESH, "hello"));
    held.send(response(500, &[], "no")).unwrap();
    assert_eq!(first.await.unwrap().status, 500);
    for answer in join_all(others).await {
        assert_eq!(answer.unwrap().text(), "hello");
    }
}

#[tokio::test]
async fn equal_conditions_share_one_request() {
    let condition = [("if-none-match", "\"1\"")];
    let fields = [("cache-control", "max-age=60"), ("etag", "\"1\"")];
    let world = World::default();
    for answer in many(&world, &condition, response(304, &fields, "")).await {
        assert_eq!(
            (
                answer.status.as_u16(),
                answer.headers["etag"].to_str().unwrap()
            ),
            (304, "\"1\"")
        );
    }
    assert_eq!(world.origin.count(), 1);
    let world = World::default();
    let answers = many(&world, &condition, response(200, &fields, "hello")).await;
    assert_eq!(
        answers.iter().filter(|answer| answer.status == 304).count(),
        99,
        "the first has the origin's answer"
    );
    assert_eq!(world.origin.count(), 1);
}

#[tokio::test]
async fn a_304_for_one_client_or_for_another_condition_is_not_shared() {
    let own = [("if-none-match", "\"1\"")];
    let base = [("etag", "\"1\"")];
    for (fields, other) in [
        (&[("cache-control", "private, max-age=60")][..], own),
        (
            &[("cache-control", "max-age=60"), ("set-cookie", "a=b")],
            own,
        ),
        (&[("cache-control", "max-age=0")], own),
        (&[], own),
        (
            &[("cache-control", "max-age=60")],
            [("if-none-match", "\"2\"")],
        ),
        (
            &[("cache-control", "max-age=60"), ("vary", "if-none-match")],
            [("if-none-match", "\"2\"")],
        ),
    ] {
        let world = World::default();
        let held = world.origin.will_wait();
        let first = spawn(&world, "/", &own);
        world.origin.reached(1).await;
        world.origin.will(200, &[], "its own");
        let second = spawn(&world, "/", &other);
        settle().await;
        held.send(response(304, &[fields, &base].concat(), ""))
            .unwrap();
        assert_eq!(first.await.unwrap().status, 304);
        assert_eq!(
            second.await.unwrap().text(),
            "its own",
            "{fields:?} {other:?}"
        );
    }
}

#[tokio::test]
async fn equal_ranges_share_one_request() {
    let fields = [
        ("cache-control", "max-age=60"),
        ("etag", "\"1\""),
        ("content-range", "bytes 0-4/10"),
    ];
    let world = World::default();
    for answer in many(
        &world,
        &[("range", "bytes=0-4")],
        response(206, &fields, "hello"),
    )
    .await
    {
        assert_eq!((answer.status.as_u16(), answer.text()), (206, "hello"));
    }
    assert_eq!(world.origin.count(), 1);
}

/// The clients wait for one validation, which turns out to be of no use, so the first client's own condition is sent.
#[tokio::test]
async fn a_304_to_the_condition_of_one_client_is_not_given_to_those_without_it() {
    let fields = [("cache-control", "max-age=60"), ("etag", "\"1\"")];
    let newer = [("cache-control", "max-age=60"), ("etag", "\"2\"")];
    let world = World::default();
    world.origin.will(200, &fields, "hello");
    world.get("/").await;
    world.pass(61);
    let held = [world.origin.will_wait(), world.origin.will_wait()];
    let leader = spawn(&world, "/", &[("if-none-match", "\"2\"")]);
    world.origin.reached(2).await;
    let others = [&[][..], &[("if-none-match", "\"1\"")]].map(|fields| spawn(&world, "/", fields));
    settle().await;
    let [validation, own] = held;
    validation.send(response(304, &newer, "")).unwrap();
    world.origin.reached(3).await;
    for _ in &others {
        world.origin.will(200, &newer, "new");
    }
    own.send(response(304, &newer, "")).unwrap();
    assert_eq!(leader.await.unwrap().status, 304);
    for answer in others {
        let answer = answer.await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "new"));
    }
}

#[tokio::test]
async fn one_validation_serves_all_conditions_and_ranges() {
    let fields = [("cache-control", "max-age=60"), ("etag", "\"1\"")];
    let world = World::default();
    world.origin.will(200, &fields, "hello");
    world.get("/").await;
    world.pass(61);
    let held = world.origin.will_wait();
    let asked = [
        (("x", "y"), 200, "hello"),
        (("if-none-match", "\"1\""), 304, ""),
        (("if-none-match", "\"2\""), 200, "hello"),
        (("range", "bytes=1-2"), 206, "el"),
    ];
    let clients: Vec<_> = (0..20)
        .flat_map(|_| asked)
        .map(|(field, ..)| spawn(&world, "/", &[field]))
        .collect();
    world.origin.reached(2).await;
    settle().await;
    held.send(response(304, &fields, "")).unwrap();
    for (answer, (field, status, text)) in join_all(clients)
        .await
        .into_iter()
        .zip((0..20).flat_map(|_| asked))
    {
        let answer = answer.unwrap();
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (status, text),
            "{field:?}"
        );
    }
    assert_eq!(world.origin.count(), 2);
}
