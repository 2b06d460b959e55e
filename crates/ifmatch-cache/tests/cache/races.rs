//! Reads that overlap writes and each other: responses requested before a write aren't found after it.

use std::any::Any;

use http::StatusCode;
use ifmatch_core::problem::Problem;
use tower::Service;

use crate::support::{
    Answer, FRESH, TestBody, Unreachable, World, get, request, response, settle, spawn,
};

#[tokio::test]
async fn a_group_invalidation_covers_responses_in_flight() {
    let world = World::default();
    let fields = [("cache-control", "max-age=60"), ("cache-groups", "\"g\"")];
    let held = world.origin.will_wait();
    let before = spawn(&world, "/a", &[]);
    world.origin.reached(1).await;
    world
        .origin
        .will(204, &[("cache-group-invalidation", "\"g\"")], "");
    world.send(request("POST", "/b", &[])).await;
    let after = spawn(&world, "/a", &[]);
    settle().await;
    world.origin.will(200, &fields, "new");
    held.send(response(200, &fields, "old")).unwrap();
    assert_eq!(before.await.unwrap().text(), "old");
    assert_eq!(after.await.unwrap().text(), "new");
}

/// One request waits for the origin. A write to another resource invalidates the group and ends. A second request with the
/// same condition waits for the first one's answer, which is 304, because the origin made it before the write.
#[tokio::test]
async fn a_304_requested_before_a_group_invalidation_answers_no_later_request() {
    let world = World::default();
    let fields = [
        ("cache-control", "max-age=60"),
        ("etag", "\"1\""),
        ("cache-groups", "\"g\""),
    ];
    let condition = [("if-none-match", "\"1\"")];
    let held = world.origin.will_wait();
    let before = spawn(&world, "/a", &condition);
    world.origin.reached(1).await;
    world
        .origin
        .will(204, &[("cache-group-invalidation", "\"g\"")], "");
    world.send(request("POST", "/b", &[])).await;
    let after = spawn(&world, "/a", &condition);
    settle().await;
    world.origin.will(
        200,
        &[("cache-control", "max-age=60"), ("etag", "\"2\"")],
        "new",
    );
    held.send(response(304, &fields, "")).unwrap();
    assert_eq!(before.await.unwrap().status, 304);
    assert_eq!(after.await.unwrap().text(), "new");
}

#[tokio::test]
async fn the_response_to_a_post_during_another_write_is_not_stored() {
    let world = World::default();
    let fields = [("cache-control", "max-age=60"), ("content-location", "/")];
    let held = world.origin.will_wait();
    let post = {
        let world = world.clone();
        tokio::spawn(async move { world.send(request("POST", "/", &[])).await })
    };
    world.origin.reached(1).await;
    world.origin.will(204, &[], "");
    world.send(request("PUT", "/", &[])).await;
    held.send(response(200, &fields, "before or after?"))
        .unwrap();
    post.await.unwrap();
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn the_response_to_a_post_in_an_invalidated_group_is_not_stored() {
    let world = World::default();
    let fields = [
        ("cache-control", "max-age=60"),
        ("content-location", "/a"),
        ("cache-groups", "\"g\""),
    ];
    let held = world.origin.will_wait();
    let post = {
        let world = world.clone();
        tokio::spawn(async move { world.send(request("POST", "/a", &[])).await })
    };
    world.origin.reached(1).await;
    world
        .origin
        .will(204, &[("cache-group-invalidation", "\"g\"")], "");
    world.send(request("PUT", "/b", &[])).await;
    held.send(response(200, &fields, "before or after?"))
        .unwrap();
    post.await.unwrap();
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/a").await.text(), "new");
}

#[tokio::test]
async fn a_head_looked_up_before_a_write_restores_nothing() {
    for (written, invalidated) in [("/", "\"x\""), ("/b", "\"g\"")] {
        let world = World::default();
        world
            .origin
            .will(200, &[FRESH[0], ("cache-groups", "\"g\"")], "old");
        world.get("/").await;
        // The request is sent when the response is awaited.
        let head = world
            .cache
            .clone()
            .call(request("HEAD", "/", &[("cache-control", "no-cache")]));
        world
            .origin
            .will(204, &[("cache-group-invalidation", invalidated)], "");
        world.send(request("PUT", written, &[])).await;
        world.origin.will(200, &FRESH, "");
        head.await.unwrap();
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get("/").await.text(), "new", "{written}");
    }
}

#[tokio::test]
async fn a_response_requested_before_a_write_is_not_found_after_it() {
    // The head arrives before the write, the body after it.
    let world = World::default();
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &FRESH, "").map(|_| body));
    let reader = world.try_send(get("/", &[])).await.unwrap();
    world.origin.will(204, &[], "");
    world.send(request("PUT", "/", &[])).await;
    // A request after the write doesn't get the old body either.
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/").await.text(), "new");
    feed.send("old");
    drop(feed);
    assert_eq!(
        Answer::read(reader).await.text(),
        "old",
        "it asked before the write"
    );
    assert_eq!(world.get("/").await.text(), "new");
    assert_eq!(world.origin.count(), 3);
}

#[tokio::test]
async fn a_reload_that_began_before_a_write_is_not_joined_after_it() {
    let world = World::default();
    let held = world.origin.will_wait();
    let reload = {
        let world = world.clone();
        tokio::spawn(async move {
            world
                .try_send(get("/", &[("cache-control", "no-cache")]))
                .await
                .unwrap()
        })
    };
    world.origin.reached(1).await;
    world.origin.will(204, &[], "");
    world.send(request("PUT", "/", &[])).await;
    let (feed, body) = TestBody::live();
    held.send(response(200, &FRESH, "").map(|_| body)).unwrap();
    let reload = reload.await.unwrap();
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/").await.text(), "new");
    feed.send("old");
    drop(feed);
    assert_eq!(Answer::read(reload).await.text(), "old");
}

#[tokio::test]
async fn a_response_that_arrives_after_a_later_write_is_not_stored() {
    let world = World::default();
    let held = world.origin.will_wait();
    let reader = spawn(&world, "/", &[]);
    world.origin.reached(1).await;
    world.origin.will(204, &[], "");
    world.send(request("DELETE", "/", &[])).await;
    held.send(response(200, &FRESH, "old")).unwrap();
    assert_eq!(reader.await.unwrap().text(), "old");
    world.origin.will(404, &[], "gone");
    assert_eq!(world.get("/").await.text(), "gone");
}

#[tokio::test]
async fn a_validation_before_a_write_does_not_count_after_it() {
    let world = World::default();
    let fields = [("cache-control", "max-age=60"), ("etag", "\"1\"")];
    world.origin.will(200, &fields, "old");
    world.get("/").await;
    world.pass(61);
    let held = world.origin.will_wait();
    let reader = spawn(&world, "/", &[]);
    world.origin.reached(2).await;
    world.origin.will(204, &[], "");
    world.send(request("PUT", "/", &[])).await;
    held.send(response(304, &fields, "")).unwrap();
    assert_eq!(reader.await.unwrap().text(), "old");
    world.origin.will(200, &fields, "new");
    assert_eq!(world.get("/").await.text(), "new");
}

/// Sends a PUT to an origin that delays its response, then disconnects.
async fn leave(world: &World) -> crate::support::Held {
    world.origin.will(200, &FRESH, "old");
    world.get("/").await;
    let held = world.origin.will_wait();
    let writer = {
        let world = world.clone();
        tokio::spawn(async move { world.send(request("PUT", "/", &[])).await })
    };
    world.origin.reached(2).await;
    writer.abort();
    assert!(writer.await.is_err());
    held
}

#[tokio::test]
async fn a_write_invalidates_even_if_its_client_leaves() {
    let world = World::default();
    let held = leave(&world).await;
    assert!(world.get("/").await.is_hit(), "nothing has changed yet");
    held.send(response(204, &[], "")).unwrap();
    settle().await;
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn a_read_during_a_write_without_client_is_not_stored() {
    let world = World::default();
    let held = leave(&world).await;
    let read = world.origin.will_wait();
    let reader = spawn(&world, "/", &[("cache-control", "no-cache")]);
    world.origin.reached(3).await;
    held.send(response(204, &[], "")).unwrap();
    settle().await;
    read.send(response(200, &FRESH, "old")).unwrap();
    assert_eq!(reader.await.unwrap().text(), "old");
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn a_rejected_write_without_client_invalidates_nothing() {
    let world = World::default();
    leave(&world).await.send(response(405, &[], "")).unwrap();
    settle().await;
    assert!(world.get("/").await.is_hit());
}

#[tokio::test]
async fn a_failed_write_invalidates_unless_nothing_changed() {
    for unchanged in [false, true] {
        let world = World::with(|builder| {
            if unchanged {
                builder.unchanged_by(<dyn Any>::is::<Unreachable>)
            } else {
                builder
            }
        });
        drop(leave(&world).await);
        settle().await;
        if unchanged {
            assert!(world.get("/").await.is_hit());
        } else {
            world.origin.will(200, &FRESH, "new");
            assert_eq!(world.get("/").await.text(), "new");
        }
    }
}

/// As the layer for conditional requests does if another writer has overtaken this one.
#[tokio::test]
async fn a_write_that_a_layer_answers_with_doubt_invalidates() {
    for (name, is_in_doubt) in [("outcome-unknown", true), ("unavailable", false)] {
        let world = World::default();
        let mut answer = response(503, &[], "");
        answer
            .extensions_mut()
            .insert(Problem::new(StatusCode::SERVICE_UNAVAILABLE, name));
        leave(&world).await.send(answer).unwrap();
        settle().await;
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get("/").await.is_hit(), !is_in_doubt, "{name}");
    }
}

#[tokio::test]
async fn a_panicking_write_invalidates() {
    let world = World::default();
    world.origin.will(200, &FRESH, "old");
    world.get("/").await;
    world.origin.will_panic();
    assert_eq!(world.send(request("PUT", "/", &[])).await.status, 502);
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn an_older_response_does_not_replace_a_newer_one() {
    let world = World::default();
    let reload = [("cache-control", "no-cache")];
    let held = world.origin.will_wait();
    let slow = spawn(&world, "/", &reload);
    world.origin.reached(1).await;
    world.origin.will(200, &FRESH, "newer");
    assert_eq!(world.get_with("/", &reload).await.text(), "newer");
    held.send(response(200, &FRESH, "older")).unwrap();
    assert_eq!(slow.await.unwrap().text(), "older");
    assert_eq!(world.get("/").await.text(), "newer");
}

#[tokio::test]
async fn writes_to_other_uris_do_not_prevent_storing() {
    let world = World::default();
    let held = world.origin.will_wait();
    let reader = spawn(&world, "/", &[]);
    world.origin.reached(1).await;
    for at in 0..8_000 {
        world.origin.will(204, &[], "");
        world.send(request("PUT", &format!("/{at}"), &[])).await;
    }
    held.send(response(200, &FRESH, "the same")).unwrap();
    assert_eq!(reader.await.unwrap().text(), "the same");
    settle().await;
    assert!(world.get("/").await.is_hit());
}
