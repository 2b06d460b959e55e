//! Bodies on disk after an eviction, a restart or a crash. A copy of the folder is what a killed process leaves behind.

use std::fs;
use std::path::Path;

use ifmatch_cache::{Disk, Outcome, Purge};

use crate::support::{
    Answer, FRESH, TAGGED, TestBody, World, bodies, body_files, crashed, get, letters, request,
    response, settle, spawn, until,
};

/// Longer than what the memory takes, and not a multiple of a piece.
const LEN: usize = 200_000;

fn text(seed: usize) -> String {
    letters(seed, 0..LEN)
}

/// Opens a cache with this folder.
fn open(folder: &Path) -> World {
    let disk = Disk::open(folder, 20 * LEN as u64).unwrap();
    World::with(|builder| builder.capacity(1 << 20).entry_limit(10_000).disk(disk))
}

/// Stores a tagged body for each path.
async fn filled(folder: &Path, paths: &[&str]) -> World {
    let world = open(folder);
    for (seed, path) in paths.iter().enumerate() {
        let tag = format!("\"{path}\"");
        world.origin.will(
            200,
            &[FRESH[0], ("etag", &tag), ("cache-groups", "\"g\"")],
            &text(seed),
        );
        assert!(world.get(path).await.text() == text(seed));
    }
    world
}

/// Requests a path of which a response may be stored. The origin confirms it if asked, and otherwise responds with `new`.
async fn confirmed(world: &World, path: &str) -> Answer {
    world
        .origin
        .will_each(|head| match head.headers.get("if-none-match") {
            Some(_) => response(304, &[FRESH[0]], ""),
            None => response(200, &FRESH, "new"),
        });
    world.get(path).await
}

#[tokio::test]
async fn a_response_outlives_the_process_and_is_validated_once() {
    let folder = tempfile::tempdir().unwrap();
    let world = filled(folder.path(), &["/a"]).await;
    let copy = crashed(folder.path());
    drop(world);
    for folder in [folder, copy] {
        let world = open(folder.path());
        let answer = confirmed(&world, "/a").await;
        assert!(answer.text() == text(0) && answer.headers["etag"] == "\"/a\"");
        assert_eq!(world.origin.seen()[0].headers["if-none-match"], "\"/a\"");
        assert_eq!(world.handle.metrics().count(Outcome::Revalidated), 1);
        let part = world
            .get_with("/a", &[("range", "bytes=65530-65545")])
            .await;
        assert!(part.is_hit() && part.text() == &text(0)[65_530..=65_545]);
        assert_eq!(world.origin.count(), 1);
        world.pass(61);
        assert!(confirmed(&world, "/a").await.text() == text(0));
    }
}

#[tokio::test]
async fn a_response_of_an_earlier_process_is_never_used_unvalidated() {
    let folder = tempfile::tempdir().unwrap();
    let world = open(folder.path());
    let control = "max-age=60, stale-while-revalidate=600, stale-if-error=600";
    world.origin.will(
        200,
        &[("cache-control", control), ("etag", "\"1\"")],
        &text(0),
    );
    world.get("/").await;
    drop(world);
    for fields in [
        &[][..],
        &[("cache-control", "max-stale")],
        &[("range", "bytes=0-9")],
    ] {
        let copy = crashed(folder.path());
        let world = open(copy.path());
        world.origin.will_fail();
        assert!(
            world.try_send(get("/", fields)).await.is_err(),
            "{fields:?}"
        );
        world.origin.will(200, &TAGGED, "new");
        assert_eq!(world.get("/").await.text(), "new");
    }
}

#[tokio::test]
async fn a_response_without_a_validator_does_not_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let world = open(folder.path());
    world.origin.will(200, &FRESH, &text(0));
    world.get("/").await;
    drop(world);
    let world = open(folder.path());
    assert_eq!(confirmed(&world, "/").await.text(), "new");
    assert_eq!(bodies(folder.path()).0, 0);
}

#[tokio::test]
async fn concurrent_clients_validate_once_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path(), &["/a"]).await);
    let world = open(folder.path());
    let held = world.origin.will_wait();
    let waiting = [0; 20].map(|_| spawn(&world, "/a", &[]));
    world.origin.reached(1).await;
    settle().await;
    held.send(response(304, &FRESH, "")).unwrap();
    for answer in waiting {
        assert!(answer.await.unwrap().text() == text(0));
    }
    assert_eq!(world.origin.count(), 1);
}

/// Does something to the stored response for `/a`.
type Change = fn(World) -> std::pin::Pin<Box<dyn Future<Output = ()>>>;

#[tokio::test]
async fn an_invalidation_outlives_a_crash() {
    fn purge(world: &World, what: &Purge) {
        assert_eq!(world.handle.purge(what), 1, "{what:?}");
    }
    let changes: [(&str, Change); 6] = [
        ("url", |world| {
            Box::pin(
                async move { purge(&world, &Purge::Url("http://origin.example/a".to_owned())) },
            )
        }),
        ("prefix", |world| {
            Box::pin(
                async move { purge(&world, &Purge::Prefix("http://origin.example/".to_owned())) },
            )
        }),
        ("group", |world| {
            Box::pin(async move {
                let origin = "http://origin.example".to_owned();
                purge(
                    &world,
                    &Purge::Group {
                        origin,
                        name: "g".to_owned(),
                    },
                );
            })
        }),
        ("write", |world| {
            Box::pin(async move {
                world.origin.will(204, &[], "");
                world.send(request("PUT", "/a", &[])).await;
            })
        }),
        ("location", |world| {
            Box::pin(async move {
                world.origin.will(
                    201,
                    &[("location", "/a"), ("cache-group-invalidation", "\"x\"")],
                    "",
                );
                world.send(request("POST", "/other", &[])).await;
            })
        }),
        ("failed write", |world| {
            Box::pin(async move {
                world.origin.will_fail();
                assert!(world.try_send(request("PUT", "/a", &[])).await.is_err());
            })
        }),
    ];
    for (what, change) in changes {
        // The response is in memory and on disk, or on disk only.
        for in_memory in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let mut world = filled(folder.path(), &["/a"]).await;
            if !in_memory {
                drop(world);
                world = open(folder.path());
            }
            change(world.clone()).await;
            let copy = crashed(folder.path());
            assert_eq!(bodies(folder.path()).0, 0, "{what}");
            drop(world);
            for folder in [&folder, &copy] {
                let world = open(folder.path());
                assert_eq!(
                    confirmed(&world, "/a").await.text(),
                    "new",
                    "{what}, in memory: {in_memory}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_new_version_replaces_the_one_on_disk() {
    // In memory, on disk, or not stored.
    for (fields, body) in [
        (&[FRESH[0], ("etag", "\"2\"")][..], "short".to_owned()),
        (&[FRESH[0], ("etag", "\"2\"")], text(9)),
        (&[("cache-control", "no-store")], text(9)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let world = filled(folder.path(), &["/a"]).await;
        world.origin.will(200, fields, &body);
        assert!(
            world
                .get_with("/a", &[("cache-control", "no-cache")])
                .await
                .text()
                == body
        );
        let copy = crashed(folder.path());
        let world = open(copy.path());
        world.origin.will(200, &FRESH, "new");
        world.get("/a").await;
        let asked = world.origin.seen()[0].headers.get("if-none-match").cloned();
        assert!(
            asked.is_none_or(|tag| tag == "\"2\""),
            "the old version is gone"
        );
    }
}

#[tokio::test]
async fn a_damaged_file_is_never_served() {
    for damage in ["truncated", "longer", "swapped", "deleted", "changed"] {
        let folder = tempfile::tempdir().unwrap();
        drop(filled(folder.path(), &["/a", "/b"]).await);
        let files = body_files(folder.path());
        let [a, b] = &files[..] else {
            panic!("{files:?}")
        };
        match damage {
            "truncated" => fs::write(a, &fs::read(a).unwrap()[..65_536]).unwrap(),
            "longer" => fs::write(a, [fs::read(a).unwrap(), b"x".to_vec()].concat()).unwrap(),
            "swapped" => {
                let (left, right) = (fs::read(a).unwrap(), fs::read(b).unwrap());
                fs::write(a, right).unwrap();
                fs::write(b, left).unwrap();
            }
            "deleted" => fs::remove_file(a).unwrap(),
            _ => {
                let mut bytes = fs::read(a).unwrap();
                bytes[LEN - 1] ^= 1;
                fs::write(a, bytes).unwrap();
            }
        }
        let world = open(folder.path());
        assert_eq!(confirmed(&world, "/a").await.text(), "new", "{damage}");
        let other = confirmed(&world, "/b").await;
        assert!(
            other.text()
                == if damage == "swapped" {
                    "new".to_owned()
                } else {
                    text(1)
                },
            "{damage}"
        );
    }
}

#[tokio::test]
async fn a_crash_during_a_body_leaves_the_old_version() {
    let folder = tempfile::tempdir().unwrap();
    let world = filled(folder.path(), &["/a"]).await;
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &[FRESH[0], ("etag", "\"2\"")], "").map(|_| body));
    let arriving = world
        .try_send(get("/a", &[("cache-control", "no-cache")]))
        .await
        .unwrap();
    feed.send(text(1));
    until("a second file", || bodies(folder.path()).0 == 2).await;
    let copy = crashed(folder.path());
    drop(arriving);
    let crashed = open(copy.path());
    assert!(
        confirmed(&crashed, "/a").await.text() == text(0),
        "with the tag of the old version"
    );
    assert_eq!(crashed.origin.seen()[0].headers["if-none-match"], "\"/a\"");
    // The file without a row is removed in the background.
    until("one file", || bodies(copy.path()).0 == 1).await;
}

#[tokio::test]
async fn a_damaged_index_begins_empty() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path(), &["/a"]).await);
    let index = folder.path().join("ifmatch-cache.redb");
    fs::write(&index, b"not a database").unwrap();
    let world = open(folder.path());
    assert_eq!(
        (
            bodies(folder.path()).0,
            confirmed(&world, "/a").await.text()
        ),
        (0, "new")
    );
    world.origin.will(200, &TAGGED, &text(3));
    assert!(world.get("/b").await.text() == text(3));
    assert!(world.get("/b").await.is_hit());
}

/// Waits until evicted responses are on disk.
async fn written(world: &World) {
    let is_written = || world.handle.metrics().evicted_bytes == 0;
    until("evicted responses on disk", is_written).await;
}

#[tokio::test]
async fn evicted_responses_are_hits_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let world = open(folder.path());
    let body = |at: usize| format!("{at}-{}", "x".repeat(5_000));
    for at in 0..400 {
        world.origin.will(200, &FRESH, &body(at));
        world.get(&format!("/{at}")).await;
        written(&world).await;
    }
    let metrics = world.handle.metrics();
    assert!(
        metrics.evictions > 100 && metrics.stored_bytes <= 1 << 20,
        "{metrics:?}"
    );
    for at in 0..400 {
        let answer = world.get(&format!("/{at}")).await;
        assert!(
            answer.is_hit() && answer.text() == body(at),
            "{at}: {}",
            answer.cache_status()
        );
        written(&world).await;
    }
    assert_eq!(
        (
            world.origin.count(),
            world.handle.metrics().count(Outcome::Hit)
        ),
        (400, 400)
    );
    // An eviction isn't a way around a purge.
    assert_eq!(world.handle.purge(&Purge::Prefix(String::new())), 400);
    world.origin.will_each(|_| response(200, &FRESH, "new"));
    for at in 0..400 {
        assert_eq!(world.get(&format!("/{at}")).await.text(), "new", "{at}");
    }
}

#[tokio::test]
async fn the_bound_of_the_disk_holds_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let most = 20 * LEN as u64;
    for round in 0..3 {
        let world = open(folder.path());
        for at in 0..15 {
            world.origin.will(200, &TAGGED, &text(at));
            world.get(&format!("/{round}/{at}")).await;
            let (_, taken) = bodies(folder.path());
            assert!(taken <= most, "{taken} of {most} bytes");
            assert_eq!(world.handle.metrics().disk_bytes, taken);
        }
    }
    assert!(bodies(folder.path()).0 >= 19);
}

#[tokio::test]
async fn a_soft_purge_reaches_responses_on_disk_only() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path(), &["/a", "/b"]).await);
    let world = open(folder.path());
    let url = Purge::Url("http://origin.example/a".to_owned());
    assert_eq!(
        (world.handle.soft_purge(&url), world.handle.soft_purge(&url)),
        (1, 0)
    );
    let everything = Purge::Prefix(String::new());
    assert_eq!(
        (
            world.handle.soft_purge(&everything),
            world.handle.soft_purge(&everything)
        ),
        (1, 0)
    );
    assert!(
        confirmed(&world, "/a").await.text() == text(0),
        "it is kept for validation"
    );
}
