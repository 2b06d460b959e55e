//! Long ranges of an object that isn't stored as a whole, in files.

use std::fs;

use http::request::Parts;
use ifmatch_cache::{Disk, Purge};
use tempfile::TempDir;

use crate::support::{
    Answer, FRESH, TestBody, World, bodies, body_files, crashed, letters, request, response,
};

/// Length of the object.
const TOTAL: usize = 1_000_000;

fn world(bytes: u64) -> (TempDir, World) {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), bytes).unwrap();
    let world = World::with(|builder| builder.capacity(1 << 20).entry_limit(1_000).disk(disk));
    world.origin.will_each(|head| part(head, "\"1\"", 0));
    (folder, world)
}

fn text(seed: usize) -> String {
    letters(seed, 0..TOTAL)
}

/// Returns the requested range of a version.
fn part(head: &Parts, tag: &str, seed: usize) -> http::Response<TestBody> {
    let Some(range) = head.headers.get("range") else {
        return response(200, &[FRESH[0], ("etag", tag)], &text(seed));
    };
    let range = range.to_str().unwrap().trim_start_matches("bytes=");
    let (first, last) = range.split_once('-').unwrap();
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap_or(TOTAL - 1));
    let range = format!("bytes {first}-{last}/{TOTAL}");
    response(
        206,
        &[FRESH[0], ("etag", tag), ("content-range", &range)],
        &text(seed)[first..=last],
    )
}

async fn get(world: &World, first: usize, last: usize) -> Answer {
    world
        .get_with("/", &[("range", &format!("bytes={first}-{last}"))])
        .await
}

#[tokio::test]
async fn a_long_range_is_a_hit_at_the_second_go() {
    let (folder, world) = world(10 * TOTAL as u64);
    let whole = text(0);
    for (first, last) in [(100_000, 299_999), (500_000, 799_999)] {
        let answer = get(&world, first, last).await;
        assert!(!answer.is_hit() && answer.text() == &whole[first..=last]);
    }
    assert_eq!((bodies(folder.path()).0, world.origin.count()), (2, 2));
    for (first, last) in [
        (100_000, 299_999),
        (500_000, 799_999),
        (165_530, 165_545),
        (299_999, 299_999),
        (500_000, 500_000),
    ] {
        let answer = get(&world, first, last).await;
        assert!(
            answer.is_hit() && answer.status == 206 && answer.text() == &whole[first..=last],
            "{first}"
        );
        assert_eq!(
            answer.headers["content-range"],
            format!("bytes {first}-{last}/{TOTAL}")
        );
        assert_eq!(
            answer.headers["content-length"],
            (last - first + 1).to_string()
        );
    }
    assert_eq!(
        world
            .get_with("/", &[("range", "bytes=2000000-")])
            .await
            .status,
        416
    );
    assert_eq!(world.origin.count(), 2);
    // Bytes that aren't stored, or in two files.
    for (first, last) in [(99_999, 100_000), (299_999, 300_000), (200_000, 600_000)] {
        let answer = get(&world, first, last).await;
        assert!(!answer.is_hit() && answer.text() == &whole[first..=last]);
    }
    assert!(world.get("/").await.text() == whole);
    assert!(world.get("/").await.is_hit() && get(&world, 5, 9).await.is_hit());
}

#[tokio::test]
async fn short_and_long_ranges_are_stored_together() {
    let (_folder, world) = world(10 * TOTAL as u64);
    let ranges = [
        (0, 99),
        (100_000, 299_999),
        (999_900, 999_999),
        (400_000, 600_000),
        (50, 120),
    ];
    for hit in [false, true] {
        for (first, last) in ranges {
            let answer = get(&world, first, last).await;
            assert!(
                answer.is_hit() == hit && answer.text() == &text(0)[first..=last],
                "{first}, to be a hit: {hit}"
            );
        }
    }
}

#[tokio::test]
async fn a_range_of_another_version_replaces_all_others() {
    for tags in [["\"1\"", "\"2\""], ["W/\"1\"", "W/\"1\""]] {
        let (folder, world) = world(10 * TOTAL as u64);
        world.origin.will_each(move |head| part(head, tags[0], 0));
        get(&world, 0, 199_999).await;
        world.origin.will_each(move |head| part(head, tags[1], 1));
        assert!(get(&world, 500_000, 699_999).await.text() == &text(1)[500_000..700_000]);
        assert_eq!(bodies(folder.path()), (1, 200_000), "{tags:?}");
        let first = get(&world, 0, 199_999).await;
        assert!(
            !first.is_hit() && first.text() == &text(1)[..200_000],
            "{tags:?}"
        );
    }
}

#[tokio::test]
async fn a_range_of_all_bytes_is_the_whole() {
    let (_folder, world) = world(10 * TOTAL as u64);
    assert_eq!(
        world.get_with("/", &[("range", "bytes=0-")]).await.status,
        206
    );
    let whole = world.get("/").await;
    assert!(whole.is_hit() && whole.status == 200 && whole.text() == text(0));
    assert!(get(&world, 7, 70_000).await.is_hit());
}

#[tokio::test]
async fn files_of_ranges_are_bounded_and_purged() {
    let most = 1_000_000;
    let (folder, world) = world(most);
    for at in 0..12 {
        let (first, last) = (at * 80_000, at * 80_000 + 199_999);
        assert!(
            get(&world, first, last.min(TOTAL - 1)).await.text()
                == &text(0)[first..=last.min(TOTAL - 1)]
        );
        assert!(get(&world, first, first + 9).await.is_hit(), "{at}");
        assert!(bodies(folder.path()).1 <= most && world.handle.metrics().disk_bytes <= most);
    }
    // Evicted files are requested again.
    assert!(get(&world, 0, 199_999).await.text() == &text(0)[..200_000]);
    assert_eq!(world.handle.purge(&Purge::Prefix(String::new())), 1);
    assert_eq!(
        (bodies(folder.path()), world.handle.metrics().disk_bytes),
        ((0, 0), 0)
    );
    get(&world, 0, 199_999).await;
    world.origin.will(204, &[], "");
    world.send(request("PUT", "/", &[])).await;
    assert_eq!(bodies(folder.path()), (0, 0));
    assert!(!get(&world, 0, 199_999).await.is_hit());
}

#[tokio::test]
async fn an_object_has_at_most_64_files_and_loses_the_oldest() {
    let (folder, world) = world(10 * TOTAL as u64);
    let ask = async |at: usize| get(&world, at * 10_000, at * 10_000 + 9_999).await;
    for at in 0..70 {
        ask(at).await;
    }
    assert_eq!(bodies(folder.path()), (64, 640_000));
    for at in 6..70 {
        assert!(ask(at).await.is_hit(), "{at}");
    }
    for at in 0..6 {
        assert!(!ask(at).await.is_hit(), "{at}");
    }
}

#[tokio::test]
async fn a_truncated_range_is_not_stored() {
    let (folder, world) = world(10 * TOTAL as u64);
    let fields = [
        FRESH[0],
        ("etag", "\"1\""),
        ("content-range", "bytes 0-199999/1000000"),
    ];
    world
        .origin
        .will_answer(response(206, &fields, &text(0)[..100_000]));
    assert!(get(&world, 0, 199_999).await.body.is_err());
    world.origin.will_answer(
        response(206, &fields, "").map(|_| TestBody::from(&text(0)[..100_000]).and_break()),
    );
    assert!(get(&world, 0, 199_999).await.body.is_err());
    assert_eq!(bodies(folder.path()), (0, 0));
    assert!(get(&world, 0, 199_999).await.text() == &text(0)[..200_000]);
}

#[tokio::test]
async fn a_modified_range_is_not_served() {
    let (folder, world) = world(10 * TOTAL as u64);
    get(&world, 100_000, 299_999).await;
    for file in body_files(folder.path()) {
        let mut bytes = fs::read(&file).unwrap();
        bytes[5] ^= 1;
        fs::write(&file, bytes).unwrap();
    }
    let before = world.origin.count();
    let part = get(&world, 100_000, 100_009).await;
    assert!(
        part.text() == &text(0)[100_000..100_010] && world.origin.count() == before + 1,
        "it is requested again"
    );
    let again = get(&world, 100_000, 100_009).await;
    assert!(!again.is_hit() && again.text() == &text(0)[100_000..100_010]);
}

#[tokio::test]
async fn ranges_do_not_outlive_the_process() {
    let (folder, world) = world(10 * TOTAL as u64);
    get(&world, 0, 199_999).await;
    let copy = crashed(folder.path());
    drop(world);
    for path in [folder.path(), copy.path()] {
        let disk = Disk::open(path, 10 * TOTAL as u64).unwrap();
        let world = World::with(|builder| builder.capacity(1 << 20).entry_limit(1_000).disk(disk));
        world.origin.will_each(|head| part(head, "\"2\"", 1));
        assert!(get(&world, 0, 199_999).await.text() == &text(1)[..200_000]);
        assert!(
            world.origin.seen()[0]
                .headers
                .get("if-none-match")
                .is_none()
        );
    }
}
