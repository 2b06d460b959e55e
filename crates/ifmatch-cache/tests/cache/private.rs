//! The cache of one user.

use ifmatch_cache::{Builder, Disk};

use crate::support::{FRESH, World, request, response};

type Fields = &'static [(&'static str, &'static str)];

fn world() -> World {
    World::with(Builder::private)
}

#[tokio::test]
async fn what_a_shared_cache_must_not_store_is_stored() {
    let cases: [(Fields, Fields); 5] = [
        (&[], &[("cache-control", "private, max-age=60")]),
        (
            &[],
            &[("cache-control", "max-age=60, s-maxage=0, proxy-revalidate")],
        ),
        (
            &[],
            &[
                ("cache-control", "max-age=60"),
                ("cdn-cache-control", "no-store"),
            ],
        ),
        (&[("authorization", "Bearer x")], &FRESH),
        (
            &[("cookie", "a=b")],
            &[("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT")],
        ),
    ];
    for (asked, answered) in cases {
        let [shared, private] = [World::default(), world()];
        for world in [&shared, &private] {
            world.origin.will(200, answered, "first");
            world.get_with("/", asked).await;
            world.origin.will(200, answered, "second");
        }
        assert!(
            !shared.get_with("/", asked).await.is_hit(),
            "{asked:?} {answered:?}"
        );
        let again = private.get_with("/", asked).await;
        assert!(
            again.is_hit() && again.text() == "first",
            "{asked:?} {answered:?}"
        );
    }
}

#[tokio::test]
async fn fields_of_the_only_user_are_stored() {
    let world = world();
    world.origin.will(
        200,
        &[
            ("cache-control", "private=\"etag\", max-age=60"),
            ("etag", "\"1\""),
        ],
        "hello",
    );
    world.get("/").await;
    let again = world.get("/").await;
    assert!(again.is_hit() && again.headers["etag"] == "\"1\"");
}

#[tokio::test]
async fn restrictions_for_all_caches_hold() {
    for fields in [
        &[("cache-control", "no-store, max-age=60")][..],
        &[("cache-control", "max-age=60"), ("vary", "*")],
        &[("cache-control", "no-cache, max-age=60"), ("etag", "\"1\"")],
    ] {
        let world = world();
        world.origin.will(200, fields, "first");
        world.get("/").await;
        world.origin.will(200, fields, "second");
        assert_eq!(world.get("/").await.text(), "second", "{fields:?}");
    }
}

#[tokio::test]
async fn a_response_is_only_for_the_authorization_that_it_was_sent_for() {
    let world = world();
    let users = [
        &[("authorization", "Bearer x")][..],
        &[("authorization", "Bearer y")],
        &[],
    ];
    for (user, text) in users.iter().zip(["of x", "of y", "of nobody"]) {
        world.origin.will(200, &FRESH, text);
        assert_eq!(world.get_with("/", user).await.text(), text);
    }
    for (user, text) in users.iter().zip(["of x", "of y", "of nobody"]) {
        let again = world.get_with("/", user).await;
        assert!(again.is_hit() && again.text() == text, "{user:?}");
    }
    // A write of one user changes the resource for all.
    world.origin.will(204, &[], "");
    world.send(request("PUT", "/", users[0])).await;
    for user in users {
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get_with("/", user).await.text(), "new", "{user:?}");
    }
}

#[tokio::test]
async fn a_cookie_is_set_once() {
    let world = world();
    world
        .origin
        .will(200, &[FRESH[0], ("set-cookie", "a=b")], "hello");
    assert_eq!(world.get("/").await.headers["set-cookie"], "a=b");
    let again = world.get("/").await;
    assert!(again.is_hit() && !again.headers.contains_key("set-cookie"));
}

#[tokio::test]
async fn a_shared_cache_on_the_same_folder_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let long = "private".repeat(10_000);
    let open = |set: fn(Builder) -> Builder| {
        let disk = Disk::open(folder.path(), 10 << 20).unwrap();
        World::with(|builder| set(builder.capacity(1 << 20).entry_limit(1_000).disk(disk)))
    };
    let fields = [("cache-control", "private, max-age=60"), ("etag", "\"1\"")];
    let private = open(Builder::private);
    private.origin.will(200, &fields, &long);
    private.get("/").await;
    assert!(private.get("/").await.is_hit());
    drop(private);
    let shared = open(|builder| builder);
    shared.origin.will_each(|head| {
        assert!(
            !head.headers.contains_key("if-none-match"),
            "the shared cache has found the response"
        );
        response(200, &FRESH, "for all")
    });
    assert_eq!(shared.get("/").await.text(), "for all");
    drop(shared);
    // The owner finds it again, and has it confirmed.
    let private = open(Builder::private);
    private.origin.will_each(|head| {
        assert_eq!(head.headers["if-none-match"], "\"1\"");
        response(304, &FRESH, "")
    });
    assert!(private.get("/").await.text() == long);
}
