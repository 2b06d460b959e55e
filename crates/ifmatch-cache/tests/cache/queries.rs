//! Rules for queries: requests, writes and purges agree about the key, and the origin sees the same query.

use ifmatch_cache::policy::query::{QueryFilter, QueryRules};
use ifmatch_cache::{Outcome, Purge};

use crate::support::{FRESH, World, get, request, response, settle, spawn};

/// Creates a cache that sorts queries and drops `utm_*`.
fn world() -> World {
    let filter = QueryFilter::Drop(vec!["utm_*".to_owned()]);
    World::with(|builder| builder.query(QueryRules { sort: true, filter }))
}

fn last_target(world: &World) -> String {
    world.origin.seen().last().unwrap().uri.to_string()
}

#[tokio::test]
async fn requests_that_differ_in_irrelevant_parameters_share_a_response() {
    let world = world();
    world.origin.will(200, &FRESH, "hello");
    world.get("/x?b=2&utm_source=mail&a=1").await;
    assert_eq!(last_target(&world), "/x?a=1&b=2");
    for path in [
        "/x?a=1&b=2",
        "/x?b=2&a=1",
        "/x?utm_a&b=2&&a=1&utm%5Fb=3",
        "http://origin.example/x?b=2&a=1",
    ] {
        assert!(world.get(path).await.is_hit(), "{path}");
    }
    for path in [
        "/x?a=1&b=3",
        "/x?a=1&a=2&b=2",
        "/x?a=2&a=1&b=2",
        "/x?b=2&%61=1",
        "/x?a=1",
        "/x",
    ] {
        world.origin.will(200, &FRESH, path);
        assert_eq!(world.get(path).await.text(), path, "another resource");
        assert!(world.get(path).await.is_hit(), "{path}");
    }
    world.origin.will(200, &FRESH, "");
    world.get("/y?utm_x=1").await;
    assert_eq!(last_target(&world), "/y", "an empty query is removed");
}

#[tokio::test]
async fn every_method_gets_the_same_query() {
    let world = world();
    for (method, fields) in [
        ("GET", &[][..]),
        ("HEAD", &[]),
        ("PUT", &[]),
        ("OPTIONS", &[]),
        ("GET", &[("if-match", "*")]),
    ] {
        world.origin.will(200, &[], "");
        world
            .send(request(method, "/x?b=2&utm_x=1&a=1", fields))
            .await;
        assert_eq!(last_target(&world), "/x?a=1&b=2", "{method} {fields:?}");
    }
}

#[tokio::test]
async fn concurrent_requests_with_equivalent_queries_collapse() {
    let world = world();
    let held = world.origin.will_wait();
    let waiting = ["/?a&b", "/?b&a", "/?b&a&utm_x"].map(|path| spawn(&world, path, &[]));
    world.origin.reached(1).await;
    settle().await;
    held.send(response(200, &FRESH, "hello")).unwrap();
    for answer in waiting {
        assert_eq!(answer.await.unwrap().text(), "hello");
    }
    assert_eq!(
        (
            world.origin.count(),
            world.handle.metrics().count(Outcome::Collapsed)
        ),
        (1, 2)
    );
}

/// Stores a response, and expects another one after this.
async fn invalidates(what: &str, act: impl AsyncFnOnce(&World)) {
    let world = world();
    world.origin.will(200, &FRESH, "old");
    world.get("/x?a=1&b=2&c").await;
    act(&world).await;
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/x?c&b=2&a=1").await.text(), "new", "{what}");
}

#[tokio::test]
async fn writes_with_equivalent_queries_invalidate() {
    for (path, fields) in [
        ("/x?utm_x&c&b=2&a=1", &[][..]),
        ("/other", &[("location", "/x?c&b=2&a=1&utm_x=1")]),
        ("/o", &[("content-location", "/x?%63&b=2&a=1")]),
    ] {
        let write = async |world: &World| {
            world.origin.will(204, fields, "");
            world.send(request("PUT", path, &[])).await;
        };
        invalidates(path, write).await;
    }
}

#[tokio::test]
async fn purges_with_equivalent_queries_invalidate() {
    for path in [
        "/x?c&b=2&a=1",
        "/x?b=2&utm_x&c&a=1#top",
        "/x?%63&%62=2&a=1",
        "/./x?c&a=1&b=2",
    ] {
        let url = Purge::Url(format!("http://origin.example{path}"));
        let hard = async |world: &World| assert_eq!(world.handle.purge(&url), 1, "{path}");
        invalidates(path, hard).await;
        let soft = async |world: &World| assert_eq!(world.handle.soft_purge(&url), 1, "{path}");
        invalidates(path, soft).await;
    }
    for path in ["/x?c&b", "/x?z", "/x", "/"] {
        let prefix = Purge::Prefix(format!("http://origin.example{path}"));
        let purge = async |world: &World| assert_eq!(world.handle.purge(&prefix), 1, "{path}");
        invalidates(path, purge).await;
    }
}

#[tokio::test]
async fn only_the_named_parameters_are_kept() {
    let filter = QueryFilter::Keep(vec!["id".to_owned()]);
    let world = World::with(|builder| {
        builder.query(QueryRules {
            sort: false,
            filter,
        })
    });
    world.origin.will(200, &FRESH, "hello");
    world.get("/?session=1&id=2&id=1&x").await;
    assert_eq!(last_target(&world), "/?id=2&id=1");
    assert!(world.send(get("/?id=2&y&id=1", &[])).await.is_hit());
    world.origin.will(200, &FRESH, "other");
    assert_eq!(
        world.get("/?id=1&id=2").await.text(),
        "other",
        "their order is kept"
    );
}
