//! Origins that fail while a stale response may be used.

use std::any::Any;
use std::time::Duration;

use futures_util::future::join_all;

use crate::support::{FRESH, Unreachable, World, get, response, settle};

/// A cache whose inner service fails before it asks the origin.
fn refusing() -> World {
    World::with(|builder| builder.unasked_by(<dyn Any>::is::<Unreachable>))
}

#[tokio::test]
async fn requests_do_not_wait_for_a_failed_origin() {
    for unreachable in [false, true] {
        let world = World::default();
        let control = if unreachable {
            "max-age=60"
        } else {
            "max-age=60, stale-if-error=600"
        };
        world.origin.will(200, &[("cache-control", control)], "old");
        world.get("/").await;
        world.pass(61);
        if unreachable {
            world.origin.will_fail();
        } else {
            world.origin.will(503, &[], "no");
        }
        assert_eq!(world.get("/").await.text(), "old");
        for _ in 0..10 {
            assert!(world.get("/").await.is_hit());
        }
        assert_eq!(world.origin.count(), 2);
        // A background request is made later, and no client waits for it.
        world.pass(5);
        let held = world.origin.will_wait();
        for _ in 0..10 {
            assert_eq!(world.get("/").await.text(), "old");
        }
        world.origin.reached(3).await;
        held.send(response(200, &FRESH, "new")).unwrap();
        settle().await;
        assert_eq!(world.get("/").await.text(), "new");
        assert_eq!(world.origin.count(), 3);
    }
}

#[tokio::test]
async fn a_failed_origin_is_asked_if_nothing_stale_may_be_used() {
    for (control, fields) in [
        (
            "max-age=60, stale-if-error=600",
            &[("cache-control", "no-cache")][..],
        ),
        ("max-age=60", &[]),
        ("max-age=60, must-revalidate, stale-if-error=600", &[]),
    ] {
        let world = World::default();
        world.origin.will(200, &[("cache-control", control)], "old");
        world.get("/").await;
        world.pass(61);
        world.origin.will(503, &[], "no");
        world.get("/").await;
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get_with("/", fields).await.text(), "new", "{control}");
    }
}

#[tokio::test]
async fn an_unstored_response_ends_the_failure() {
    let world = World::default();
    world.origin.will(
        200,
        &[("cache-control", "max-age=60, stale-if-error=600")],
        "old",
    );
    world.get("/").await;
    world.pass(61);
    world.origin.will(503, &[], "no");
    world.get("/").await;
    world
        .origin
        .will(200, &[("cache-control", "max-age=60")], "own");
    assert_eq!(
        world
            .get_with(
                "/",
                &[("authorization", "x"), ("cache-control", "no-cache")]
            )
            .await
            .text(),
        "own"
    );
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/").await.text(), "new");
}

/// A client has too many requests under way, so its next one isn't sent. It may use a stale response, and the others still ask
/// the origin.
#[tokio::test]
async fn a_request_that_was_not_sent_says_nothing_about_the_origin() {
    let world = refusing();
    world.origin.will(200, &FRESH, "old");
    world.get("/").await;
    world.pass(61);
    world.origin.will_fail();
    assert_eq!(world.get("/").await.text(), "old");
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/").await.text(), "new");
}

/// Two clients have too many requests under way, and each of them was to ask on behalf of all.
#[tokio::test]
async fn nobody_gets_the_failure_of_a_request_that_was_not_sent() {
    let world = refusing();
    let held = [world.origin.will_wait(), world.origin.will_wait()];
    world.origin.will(200, &FRESH, "new");
    let clients: Vec<_> = (1..=6)
        .map(|number| {
            let mut world = world.clone();
            world.cache.set_client([192, 0, 2, number].into());
            tokio::spawn(async move {
                world
                    .try_send(get("/", &[]))
                    .await
                    .map(|response| response.status())
            })
        })
        .collect();
    for (asked, held) in held.into_iter().enumerate() {
        world.origin.reached(asked + 1).await;
        settle().await;
        drop(held);
    }
    let answers: Vec<_> = join_all(clients)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        answers.iter().filter(|answer| answer.is_err()).count(),
        2,
        "{answers:?}"
    );
    assert!(
        answers.iter().flatten().all(|status| *status == 200),
        "{answers:?}"
    );
    assert_eq!(world.origin.count(), 3);
}

#[tokio::test]
async fn a_failed_revalidation_in_the_background_is_not_repeated_at_once() {
    for unreachable in [true, false] {
        let world = World::with(|builder| builder.stale_while_revalidate(Duration::from_secs(30)));
        world.origin.will(200, &FRESH, "old");
        world.get("/").await;
        world.pass(61);
        for round in 1..=2 {
            if unreachable {
                world.origin.will_fail();
            } else {
                world.origin.will(503, &[], "");
            }
            for _ in 0..5 {
                assert_eq!(world.get("/").await.text(), "old");
                settle().await;
            }
            assert_eq!(
                world.origin.count(),
                1 + round,
                "one attempt within five seconds"
            );
            world.pass(6);
        }
        world.origin.will(200, &FRESH, "new");
        world.get("/").await;
        settle().await;
        assert_eq!(
            (world.get("/").await.text(), world.origin.count()),
            ("new", 4)
        );
    }
}
