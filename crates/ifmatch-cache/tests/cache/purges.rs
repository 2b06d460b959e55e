//! Purges: what they match, however it is written, and responses in flight.

use ifmatch_cache::Purge;

use crate::support::{FRESH, World, response, spawn};

async fn fill(world: &World, paths: &[&str]) {
    for path in paths {
        world.origin.will(
            200,
            &[("cache-control", "max-age=60"), ("cache-groups", "\"g\"")],
            path,
        );
        world.get(path).await;
    }
}

#[tokio::test]
async fn a_url_is_purged() {
    let world = World::default();
    fill(&world, &["/a", "/b"]).await;
    assert_eq!(
        world
            .handle
            .purge(&Purge::Url("HTTP://Origin.example:80/a#x".to_owned())),
        1
    );
    assert_eq!(
        world
            .handle
            .purge(&Purge::Url("http://origin.example/a".to_owned())),
        0
    );
    assert_eq!(world.handle.purge(&Purge::Url("no url".to_owned())), 0);
    assert!(world.get("/b").await.is_hit());
    assert!(!world.get("/a").await.is_hit());
}

#[tokio::test]
async fn a_prefix_is_purged() {
    let world = World::default();
    fill(&world, &["/a/1", "/a/2", "/b"]).await;
    assert_eq!(
        world
            .handle
            .purge(&Purge::Prefix("http://origin.example/a/".to_owned())),
        2
    );
    assert!(world.get("/b").await.is_hit());
    assert!(!world.get("/a/1").await.is_hit());
    assert_eq!(world.handle.purge(&Purge::Prefix(String::new())), 1);
}

#[tokio::test]
async fn a_prefix_may_have_the_host_as_clients_write_it() {
    for prefix in [
        "HTTP://Origin.Example/a",
        "http://origin.example:80/a/",
        "http://ORIGIN.ex",
        "Http://",
    ] {
        let world = World::default();
        fill(&world, &["/a/1"]).await;
        assert_eq!(
            world.handle.purge(&Purge::Prefix(prefix.to_owned())),
            1,
            "{prefix}"
        );
    }
}

#[test]
fn a_purge_that_can_match_nothing_is_known() {
    let group = |origin: &str| Purge::Group {
        origin: origin.to_owned(),
        name: "g".to_owned(),
    };
    let url = |text: &str| Purge::Url(text.to_owned());
    let prefix = |text: &str| Purge::Prefix(text.to_owned());
    for sound in ["http://a", "https://a/b?c", "HTTP://A:80/", "http://[::1]/"] {
        for purge in [url(sound), prefix(sound), group(sound)] {
            assert_eq!(purge.not_a_url(), None, "{purge:?}");
        }
    }
    for beginning in ["", "http://", "https://a.exa"] {
        assert_eq!(prefix(beginning).not_a_url(), None, "{beginning}");
    }
    for wrong in [
        "x",
        "products/1",
        "/products/",
        "a.example/x",
        "products:1",
        "ftp://a/",
        "http:///x",
        "http:a",
        "//a/x",
    ] {
        for purge in [url(wrong), prefix(wrong), group(wrong)] {
            assert_eq!(purge.not_a_url(), Some(wrong), "{purge:?}");
        }
    }
    for no_url in ["", "http://"] {
        assert_eq!(
            (url(no_url).not_a_url(), group(no_url).not_a_url()),
            (Some(no_url), Some(no_url))
        );
    }
}

#[tokio::test]
async fn all_equivalent_urls_are_purged() {
    let spellings = [
        "/a/{b}",
        "/a/%7Bb%7D",
        "/a/%7bb%7d",
        "/x/../a/%7B%62}",
        "/%61/./{b}",
    ];
    let others = ["/A/{b}", "/a/{B}", "/a%2F{b}", "/a/{b}?"];
    let purge = |world: &World, purge: Purge| world.handle.purge(&purge);
    for what in [
        Purge::Url("http://origin.example/a/{b}".to_owned()),
        Purge::Url("http://origin.example/%61/%7bb%7d".to_owned()),
        Purge::Url("http://origin.example/y/..\\a/{b}#c".to_owned()),
    ] {
        let world = World::default();
        fill(&world, &spellings).await;
        fill(&world, &others).await;
        assert_eq!(purge(&world, what.clone()), 1, "{what:?}");
        for path in others {
            assert!(world.get(path).await.is_hit(), "{what:?} {path}");
        }
        for path in spellings {
            assert!(!world.get(path).await.is_hit(), "{what:?} {path}");
        }
    }
    for prefix in ["/a/{", "/a/%7", "/a/%7b", "/x/../a/", "/%61/%7Bb%", "/a/."] {
        let world = World::default();
        fill(&world, &spellings).await;
        fill(&world, &["/b"]).await;
        assert_eq!(
            purge(
                &world,
                Purge::Prefix(format!("http://origin.example{prefix}"))
            ),
            1,
            "{prefix}"
        );
        assert!(world.get("/b").await.is_hit());
        for path in spellings {
            assert!(!world.get(path).await.is_hit(), "{prefix} {path}");
        }
    }
}

#[tokio::test]
async fn a_purge_accepts_the_host_as_clients_write_it() {
    let world = World::default();
    for host in ["127.1", "[0::1]:8080", "a.example."] {
        world.origin.will(200, &FRESH, "hello");
        world.get_with("/", &[("host", host)]).await;
        assert_eq!(
            world.handle.purge(&Purge::Url(format!("http://{host}/"))),
            1,
            "{host}"
        );
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get_with("/", &[("host", host)]).await.text(), "new");
    }
}

#[tokio::test]
async fn a_group_is_purged() {
    let world = World::default();
    fill(&world, &["/a", "/b"]).await;
    let group = |name: &str| Purge::Group {
        origin: "http://origin.example".to_owned(),
        name: name.to_owned(),
    };
    world.handle.purge(&group("other"));
    assert!(world.get("/a").await.is_hit());
    world.handle.purge(&group("g"));
    assert!(!world.get("/a").await.is_hit());
    assert!(!world.get("/b").await.is_hit());
}

#[tokio::test]
async fn responses_in_flight_are_purged() {
    let purges = [
        Purge::Url("http://origin.example/".to_owned()),
        Purge::Prefix("http://origin".to_owned()),
        Purge::Group {
            origin: "http://origin.example".to_owned(),
            name: "g".to_owned(),
        },
    ];
    for purge in purges {
        let world = World::default();
        let held = world.origin.will_wait();
        let reader = spawn(&world, "/", &[]);
        world.origin.reached(1).await;
        world.handle.purge(&purge);
        held.send(response(
            200,
            &[("cache-control", "max-age=60"), ("cache-groups", "\"g\"")],
            "old",
        ))
        .unwrap();
        assert_eq!(reader.await.unwrap().text(), "old");
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get("/").await.text(), "new", "{purge:?}");
    }
}
