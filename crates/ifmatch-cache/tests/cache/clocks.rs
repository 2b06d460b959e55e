//! The time of day, which an operator may set: no response is fresh because of it, and no pause lasts the longer.

use crate::support::{FRESH, World, response, settle, spawn};

const DAY: u64 = 24 * 60 * 60;

/// Its age is not known: the clock that it came by was wrong, or the one that is asked now is.
#[tokio::test]
async fn a_response_from_the_future_is_not_fresh() {
    let world = World::default();
    world.clock.set_ahead(DAY);
    world.origin.will(200, &[("cache-control", "max-age=172800"), ("etag", "\"1\"")], "hello");
    world.get("/").await;
    assert!(world.get("/").await.is_hit());

    world.clock.set_ahead(0);
    world.origin.will(304, &[("etag", "\"1\"")], "");
    assert_eq!(world.get("/").await.text(), "hello");
    assert_eq!(world.origin.count(), 2, "it was used for two days and the step");
    assert!(world.get("/").await.is_hit(), "it came now, by the clock as it is");
    assert_eq!(world.origin.count(), 2);
}

/// Nor is it a little stale: for how long it has been may be any time.
#[tokio::test]
async fn a_response_from_the_future_is_not_used_stale() {
    let world = World::default();
    world.clock.set_ahead(DAY);
    world.origin.will(200, &[("cache-control", "max-age=60, stale-while-revalidate=60, stale-if-error=60")], "old");
    world.get("/").await;
    world.clock.set_ahead(0);
    world.origin.will(503, &[], "no");
    assert_eq!(world.get("/").await.status, 503);
}

/// Two clocks of one machine may differ by a little.
#[tokio::test]
async fn a_response_of_a_moment_ahead_is_as_good_as_new() {
    let world = World::default();
    world.clock.set_ahead(1);
    world.origin.will(200, &FRESH, "hello");
    world.get("/").await;
    world.clock.set_ahead(0);
    assert!(world.get("/").await.is_hit());
}

#[tokio::test]
async fn an_origin_that_failed_rests_no_longer_because_the_clock_was_set_back() {
    let world = World::default();
    world.origin.will(200, &[("cache-control", "max-age=60, stale-if-error=172800")], "old");
    world.get("/").await;
    world.clock.set_ahead(DAY);
    world.origin.will(503, &[], "no");
    assert_eq!(world.get("/").await.text(), "old");
    assert_eq!(world.origin.count(), 2);

    world.clock.set_ahead(0);
    world.clock.advance(61);
    let held = world.origin.will_wait();
    assert_eq!(world.get("/").await.text(), "old");
    settle().await;
    assert_eq!(world.origin.count(), 3, "it is asked in the background");
    held.send(response(200, &FRESH, "new")).unwrap();
    settle().await;
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn requests_wait_for_each_other_again_although_the_clock_was_set_back() {
    let world = World::default();
    world.clock.set_ahead(DAY);
    world.origin.will(200, &[("cache-control", "no-store")], "for nobody else");
    world.get("/").await;
    world.clock.set_ahead(0);
    world.clock.advance(60);
    let held = world.origin.will_wait();
    let first = spawn(&world, "/", &[]);
    world.origin.reached(2).await;
    let second = spawn(&world, "/", &[]);
    settle().await;
    assert_eq!(world.origin.count(), 2, "the second one asks the origin, too");
    held.send(response(200, &FRESH, "for all")).unwrap();
    assert_eq!((first.await.unwrap().text(), second.await.unwrap().text()), ("for all", "for all"));
}
