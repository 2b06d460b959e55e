//! Requests with credentials: their responses are private, and they don't affect other clients.

use futures_util::future::join_all;

use crate::support::{FRESH, World, request, response, settle, spawn};

const COOKIE: [(&str, &str); 1] = [("cookie", "a=b")];

#[tokio::test]
async fn requests_with_credentials_wait_once_for_unshared_responses() {
    let world = World::default();
    let held = world.origin.will_wait();
    let first = spawn(&world, "/", &COOKIE);
    world.origin.reached(1).await;
    let second = spawn(&world, "/", &COOKIE);
    settle().await;
    let other = world.origin.will_wait();
    held.send(response(200, &[("etag", "\"1\"")], "one's own"))
        .unwrap();
    assert_eq!(first.await.unwrap().text(), "one's own");
    world.origin.reached(2).await;
    other
        .send(response(200, &[("etag", "\"1\"")], "another's"))
        .unwrap();
    assert_eq!(second.await.unwrap().text(), "another's");
    // From now on, all requests reach the origin concurrently.
    let held: Vec<_> = (0..3).map(|_| world.origin.will_wait()).collect();
    let clients: Vec<_> = (0..3).map(|_| spawn(&world, "/", &COOKIE)).collect();
    world.origin.reached(5).await;
    for held in held {
        held.send(response(200, &[], "x")).unwrap();
    }
    join_all(clients).await;
    // Requests without a credential still wait for each other.
    let held = world.origin.will_wait();
    let clients: Vec<_> = (0..10).map(|_| spawn(&world, "/", &[])).collect();
    world.origin.reached(6).await;
    settle().await;
    held.send(response(200, &FRESH, "for all")).unwrap();
    for answer in join_all(clients).await {
        assert_eq!(answer.unwrap().text(), "for all");
    }
    assert_eq!(world.origin.count(), 6);
}

#[tokio::test]
async fn a_head_of_one_client_does_not_affect_others() {
    for own in [
        ("cookie", "a=b"),
        ("authorization", "x"),
        ("x-api-key", "x"),
        ("cache-control", "no-store"),
    ] {
        for tag in ["\"1\"", "\"2\""] {
            let world = World::default();
            let modified = world.date(-6_000);
            let fields = [("last-modified", &*modified), ("etag", "\"1\"")];
            world.origin.will(200, &fields, "hello");
            world.get("/").await;
            world.origin.will(200, &[("etag", tag)], "");
            let head = [own, ("cache-control", "no-cache")];
            world.send(request("HEAD", "/", &head)).await;
            assert!(world.get("/").await.is_hit(), "{own:?} {tag}");
        }
    }
}

/// A client forces a request, and the origin refuses it, or answers with something for this client. The stored response is still
/// fresh, so it stays for the others.
#[tokio::test]
async fn what_the_origin_tells_one_client_does_not_remove_a_fresh_response() {
    let fields = [("cache-control", "max-age=60"), ("etag", "\"1\"")];
    let cookie = ("set-cookie", "s=1");
    for method in ["GET", "HEAD"] {
        for status in [302, 303, 307, 400, 401, 403, 406, 417, 429, 431, 200, 304] {
            for own in [&[cookie, fields[0]][..], &[("cache-control", "private")]] {
                let world = World::default();
                world.origin.will(200, &fields, "hello");
                world.get("/").await;
                world.origin.will(status, own, "");
                world
                    .send(request(method, "/", &[("cache-control", "no-cache")]))
                    .await;
                assert!(world.get("/").await.is_hit(), "{method} {status} {own:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_missing_resource_is_news_for_all() {
    for status in [404, 410] {
        let world = World::default();
        world.origin.will(200, &FRESH, "hello");
        world.get("/").await;
        world
            .origin
            .will(status, &[("cache-control", "no-store")], "");
        world.get_with("/", &[("cache-control", "no-cache")]).await;
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get("/").await.text(), "new", "{status}");
    }
}

/// The response is stale, and one client keeps on forcing requests that fail.
#[tokio::test]
async fn a_client_that_forces_failing_requests_does_not_keep_a_response_stale() {
    let world = World::default();
    let fields = [("cache-control", "max-age=60, stale-if-error=600")];
    world.origin.will(200, &fields, "old");
    world.get("/").await;
    world.pass(61);
    world.origin.will(503, &[], "");
    world.get_with("/", &[("cache-control", "no-cache")]).await;
    world.origin.will(200, &fields, "new");
    assert_eq!(world.get("/").await.text(), "new");
}

#[tokio::test]
async fn a_304_that_sets_a_cookie_is_for_one_client() {
    for method in ["GET", "HEAD"] {
        let world = World::default();
        world.origin.will(
            200,
            &[("cache-control", "max-age=60"), ("etag", "\"1\"")],
            "hello",
        );
        world.get("/").await;
        world.pass(61);
        let status = if method == "GET" { 304 } else { 200 };
        world
            .origin
            .will(status, &[("set-cookie", "c=d"), ("etag", "\"1\"")], "");
        let first = world.send(request(method, "/", &[])).await;
        assert_eq!(first.headers["set-cookie"], "c=d");
        world.origin.will(200, &[], "once more");
        let second = world.get("/").await;
        assert_eq!(
            (second.text(), second.headers.get("set-cookie")),
            ("once more", None),
            "{method}"
        );
    }
}
