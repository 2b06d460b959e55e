//! Changes of the system time: they neither make responses fresh nor lengthen pauses.

use crate::support::{FRESH, World, response, settle, spawn};

const DAY: u64 = 24 * 60 * 60;

/// Its age is unknown, since the clock was wrong on arrival or is wrong now.
#[tokio::test]
async fn a_response_from_the_future_is_not_fresh() {
    let world = World::default();
    world.clock.skew_wall(DAY.cast_signed());
    world.origin.will(
        200,
        &[("cache-control", "max-age=172800"), ("etag", "\"1\"")],
        "hello",
    );
    world.get("/").await;
    assert!(world.get("/").await.is_hit());

    world.clock.skew_wall(0);
    world.origin.will(304, &[("etag", "\"1\"")], "");
    assert_eq!(world.get("/").await.text(), "hello");
    assert_eq!(
        world.origin.count(),
        2,
        "it was used for two days and the step"
    );
    assert!(
        world.get("/").await.is_hit(),
        "it arrived now, by the current clock"
    );
    assert_eq!(world.origin.count(), 2);
}

/// It may have been stale for any time.
#[tokio::test]
async fn a_response_from_the_future_is_not_used_stale() {
    let world = World::default();
    world.clock.skew_wall(DAY.cast_signed());
    world.origin.will(
        200,
        &[(
            "cache-control",
            "max-age=60, stale-while-revalidate=60, stale-if-error=60",
        )],
        "old",
    );
    world.get("/").await;
    world.clock.skew_wall(0);
    world.origin.will(503, &[], "no");
    assert_eq!(world.get("/").await.status, 503);
}

/// Two clocks of one machine may differ by a little.
#[tokio::test]
async fn a_response_less_than_a_second_ahead_is_fresh() {
    let world = World::default();
    world.clock.skew_wall(1);
    world.origin.will(200, &FRESH, "hello");
    world.get("/").await;
    world.clock.skew_wall(0);
    assert!(world.get("/").await.is_hit());
}

#[tokio::test]
async fn setting_the_clock_back_does_not_lengthen_the_pause_of_a_failed_origin() {
    let world = World::default();
    world.origin.will(
        200,
        &[("cache-control", "max-age=60, stale-if-error=172800")],
        "old",
    );
    world.get("/").await;
    world.clock.skew_wall(DAY.cast_signed());
    world.origin.will(503, &[], "no");
    assert_eq!(world.get("/").await.text(), "old");
    assert_eq!(world.origin.count(), 2);

    world.clock.skew_wall(0);
    world.pass(61);
    let held = world.origin.will_wait();
    assert_eq!(world.get("/").await.text(), "old");
    settle().await;
    assert_eq!(world.origin.count(), 3, "it is asked in the background");
    held.send(response(200, &FRESH, "new")).unwrap();
    settle().await;
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn setting_the_clock_back_does_not_keep_requests_from_collapsing() {
    let world = World::default();
    world.clock.skew_wall(DAY.cast_signed());
    world
        .origin
        .will(200, &[("cache-control", "no-store")], "for one client");
    world.get("/").await;
    world.clock.skew_wall(0);
    world.pass(60);
    let held = world.origin.will_wait();
    let first = spawn(&world, "/", &[]);
    world.origin.reached(2).await;
    let second = spawn(&world, "/", &[]);
    settle().await;
    assert_eq!(
        world.origin.count(),
        2,
        "the second one asks the origin, too"
    );
    held.send(response(200, &FRESH, "for all")).unwrap();
    assert_eq!(
        (first.await.unwrap().text(), second.await.unwrap().text()),
        ("for all", "for all")
    );
}
