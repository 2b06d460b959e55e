//! Soft purges: responses become stale, and no response requested before is fresh afterwards.

use ifmatch_cache::Purge;
use tower::Service;

use crate::support::{Answer, FRESH, TestBody, World, get, request, response, settle, spawn};

const TAGGED: [(&str, &str); 3] = [
    ("cache-control", "max-age=60"),
    ("etag", "\"1\""),
    ("cache-groups", "\"g\""),
];

/// All kinds of purges, of a set that contains `/`.
fn purges() -> [Purge; 3] {
    [
        Purge::Url("http://origin.example/".to_owned()),
        Purge::Prefix("http://origin".to_owned()),
        Purge::Group {
            origin: "http://origin.example".to_owned(),
            name: "g".to_owned(),
        },
    ]
}

/// Returns a world with a response to `/`.
async fn world_with(fields: &[(&str, &str)]) -> World {
    let world = World::default();
    world.origin.will(200, fields, "old");
    world.get("/").await;
    assert!(world.get("/").await.is_hit());
    world
}

#[tokio::test]
async fn a_purged_response_is_revalidated_before_use() {
    for purge in purges() {
        let world = world_with(&TAGGED).await;
        assert_eq!(world.handle.soft_purge(&purge), 1, "{purge:?}");
        assert_eq!(world.handle.soft_purge(&purge), 0, "{purge:?}");
        world.origin.will(304, &TAGGED, "");
        let answer = world.get("/").await;
        assert_eq!(answer.text(), "old");
        assert_eq!(
            answer.cache_status(),
            "ifmatch; fwd=stale; fwd-status=304; ttl=60",
            "{purge:?}"
        );
        assert!(world.get("/").await.is_hit(), "{purge:?}");
        assert_eq!(world.handle.soft_purge(&purge), 1, "{purge:?}");
    }
}

#[tokio::test]
async fn other_responses_stay_fresh() {
    let world = world_with(&TAGGED).await;
    for purge in [
        Purge::Url("http://origin.example/a".to_owned()),
        Purge::Prefix("http://origin.example/a".to_owned()),
        Purge::Group {
            origin: "http://origin.example".to_owned(),
            name: "h".to_owned(),
        },
        Purge::Group {
            origin: "http://other.example".to_owned(),
            name: "g".to_owned(),
        },
    ] {
        assert_eq!(world.handle.soft_purge(&purge), 0, "{purge:?}");
        assert!(world.get("/").await.is_hit(), "{purge:?}");
    }
}

#[tokio::test]
async fn a_purge_does_not_end_with_a_clock_that_goes_back() {
    let world = World::default();
    world.clock.skew_wall(30);
    world.origin.will(200, &FRESH, "old");
    world.get("/").await;
    world.pass(5);
    world.clock.skew_wall(0);
    world.handle.soft_purge(&purges()[0]);
    world.pass(27);
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn the_time_for_stale_responses_begins_with_the_purge() {
    let world = world_with(&[("cache-control", "max-age=60, stale-while-revalidate=10")]).await;
    world.pass(20);
    world.handle.soft_purge(&purges()[0]);
    world.pass(9);
    let held = world.origin.will_wait();
    let answer = world.get("/").await;
    assert_eq!(
        (answer.text(), answer.cache_status()),
        ("old", "ifmatch; hit; ttl=-9")
    );
    world.origin.reached(2).await;
    held.send(response(200, &FRESH, "new")).unwrap();
    settle().await;
    assert_eq!(world.get("/").await.text(), "new");
    // After that time, the response isn't used.
    let world = world_with(&[("cache-control", "max-age=60, stale-while-revalidate=10")]).await;
    world.handle.soft_purge(&purges()[0]);
    world.pass(10);
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn a_purged_response_is_used_if_the_origin_fails() {
    for (control, unreachable, expected) in [
        ("max-age=60, stale-if-error=10", false, "old"),
        ("max-age=60", false, "no"),
        ("max-age=60", true, "old"),
        (
            "max-age=60, must-revalidate, stale-if-error=10",
            false,
            "no",
        ),
    ] {
        for purge in &purges()[..2] {
            let world = world_with(&[("cache-control", control)]).await;
            world.handle.soft_purge(purge);
            if unreachable {
                world.origin.will_fail();
            } else {
                world.origin.will(503, &[], "no");
            }
            assert_eq!(world.get("/").await.text(), expected, "{control}");
        }
    }
}

#[tokio::test]
async fn a_response_in_flight_is_not_stored_as_fresh() {
    for purge in purges() {
        // The request begins, then the purge happens, then the response arrives.
        let world = World::default();
        let held = world.origin.will_wait();
        let reader = spawn(&world, "/", &[]);
        world.origin.reached(1).await;
        assert_eq!(world.handle.soft_purge(&purge), 0);
        held.send(response(200, &TAGGED, "old")).unwrap();
        assert_eq!(reader.await.unwrap().text(), "old");
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get("/").await.text(), "new", "{purge:?}");
    }
}

#[tokio::test]
async fn a_body_in_flight_is_neither_joined_nor_stored() {
    for purge in purges() {
        // The head arrives before the purge, the body after it.
        let world = World::default();
        let (feed, body) = TestBody::live();
        world
            .origin
            .will_answer(response(200, &TAGGED, "").map(|_| body));
        let reader = world.try_send(get("/", &[])).await.unwrap();
        world.handle.soft_purge(&purge);
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get("/").await.text(), "new", "{purge:?}");
        feed.send("old");
        drop(feed);
        assert_eq!(
            Answer::read(reader).await.text(),
            "old",
            "it asked before the purge"
        );
        assert_eq!(world.get("/").await.text(), "new", "{purge:?}");
        assert_eq!(world.origin.count(), 2, "{purge:?}");
    }
}

#[tokio::test]
async fn a_validation_before_a_purge_does_not_count_after_it() {
    for purge in purges() {
        let world = world_with(&TAGGED).await;
        world.pass(61);
        let held = world.origin.will_wait();
        let reader = spawn(&world, "/", &[]);
        world.origin.reached(2).await;
        assert_eq!(world.handle.soft_purge(&purge), 1);
        held.send(response(304, &TAGGED, "")).unwrap();
        assert_eq!(reader.await.unwrap().text(), "old");
        world.origin.will(200, &TAGGED, "new");
        assert_eq!(world.get("/").await.text(), "new", "{purge:?}");
        assert!(world.get("/").await.is_hit(), "{purge:?}");
    }
}

#[tokio::test]
async fn a_head_before_a_purge_does_not_freshen_the_response() {
    for purge in purges() {
        let world = world_with(&TAGGED).await;
        // The request is sent when the response is awaited.
        let head = world
            .cache
            .clone()
            .call(request("HEAD", "/", &[("cache-control", "no-cache")]));
        world.handle.soft_purge(&purge);
        world.origin.will(200, &TAGGED, "");
        head.await.unwrap();
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get("/").await.text(), "new", "{purge:?}");
    }
}

#[tokio::test]
async fn a_purge_removes_what_a_soft_purge_has_kept() {
    for purge in purges() {
        let world = world_with(&TAGGED).await;
        world.handle.soft_purge(&purge);
        assert_eq!(world.handle.purge(&purge), 1, "{purge:?}");
        world.origin.will(200, &FRESH, "new");
        let answer = world.get("/").await;
        assert!(
            answer.cache_status().contains("fwd=uri-miss"),
            "{purge:?}: {}",
            answer.cache_status()
        );
    }
}
