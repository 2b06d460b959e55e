//! A cache that can't know the purges of others validates what it has, until it knows them again.

use std::time::Duration;

use ifmatch_cache::Purge;
use ifmatch_runtime::Clock;

use crate::support::{World, get, response, settle, spawn};

const TAGGED: [(&str, &str); 2] = [
    (
        "cache-control",
        "max-age=60, stale-while-revalidate=60, stale-if-error=60",
    ),
    ("etag", "\"1\""),
];

/// Returns a world with a stored response, which is trusted for two seconds.
async fn world() -> World {
    let world = World::default();
    world
        .handle
        .trust_until(world.clock.now().saturating_add(Duration::from_secs(2)));
    world.origin.will(200, &TAGGED, "old");
    world.get("/").await;
    world
}

#[tokio::test]
async fn a_stored_response_is_used_until_then_and_validated_afterwards() {
    let world = world().await;
    world.pass(1);
    assert!(world.get("/").await.is_hit());
    world.pass(1);
    for _ in 0..2 {
        world.origin.will(304, &TAGGED, "");
        assert_eq!(
            world.get("/").await.cache_status(),
            "ifmatch; fwd=stale; fwd-status=304; ttl=60"
        );
    }
    world
        .handle
        .trust_until(world.clock.now().saturating_add(Duration::from_secs(1)));
    assert!(world.get("/").await.is_hit());
}

#[tokio::test]
async fn no_stale_response_is_used() {
    let world = world().await;
    world.pass(61);
    world.origin.will(500, &[], "no");
    assert_eq!(
        world
            .get_with("/", &[("cache-control", "max-stale")])
            .await
            .text(),
        "no"
    );
    world.origin.will_fail();
    assert!(world.try_send(get("/", &[])).await.is_err());
    assert_eq!(
        world
            .get_with("/", &[("cache-control", "only-if-cached")])
            .await
            .status,
        504
    );
}

/// A response that was requested earlier may be older than a purge by another cache:
///
/// ```text
///   this cache, cut off            another cache            origin
///   asks for / ──────────────────────────────────────────▶  version 1
///                                  purges /                 version 2
///   a client asks for /, and must not get version 1
/// ```
#[tokio::test]
async fn no_request_waits_for_an_earlier_one() {
    let world = World::default();
    world.handle.trust_until(world.clock.now());
    let held = world.origin.will_wait();
    let first = spawn(&world, "/", &[]);
    world.origin.reached(1).await;
    world.origin.will(200, &TAGGED, "new");
    let second = spawn(&world, "/", &[]);
    settle().await;
    held.send(response(200, &TAGGED, "old")).unwrap();
    assert_eq!(
        (first.await.unwrap().text(), second.await.unwrap().text()),
        ("old", "new")
    );
}

/// What was found while the cache wasn't trusted stays untrusted:
///
/// ```text
///   request                        the purges of others
///   finds the old response, which is to be validated
///                                  are known again: the old response is removed
///   the origin fails: the old response must not be used
/// ```
#[tokio::test]
async fn a_response_found_without_trust_is_not_used_after_it_returns() {
    for is_error in [false, true] {
        let world = world().await;
        world.pass(61);
        let held = world.origin.will_wait();
        let request = tokio::spawn({
            let world = world.clone();
            async move {
                world
                    .try_send(get("/", &[]))
                    .await
                    .map(|response| response.status().as_u16())
            }
        });
        world.origin.reached(2).await;
        world
            .handle
            .purge(&Purge::Url("http://origin.example/".to_owned()));
        world
            .handle
            .trust_until(world.clock.now().saturating_add(Duration::from_secs(2)));
        if is_error {
            held.send(response(500, &[], "no")).unwrap();
        } else {
            drop(held);
        }
        let status = request.await.unwrap();
        assert!(
            matches!(status, Err(_) | Ok(500)),
            "a stale response with status {status:?}"
        );
    }
}
