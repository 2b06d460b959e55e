//! Bodies on disk.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use ifmatch_cache::{CacheHandle, Disk, Purge};
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock, ManualClock};
use tempfile::TempDir;

use crate::support::{
    Answer, FRESH, Streaming, TestBody, World, bodies, body_files, clock, get, letters, request,
    response,
};

/// Longer than a piece, and not a multiple of one.
const LEN: usize = 300 * 1024;

/// Creates a cache with up to 1,000 bytes of a body in memory, and this folder.
fn world(folder: &Path, bytes: u64) -> World {
    let disk = Disk::open(folder, bytes).unwrap();
    World::with(|builder| builder.capacity(1 << 20).entry_limit(1_000).disk(disk))
}

/// Creates a folder, and a cache with room for a hundred bodies.
fn roomy() -> (TempDir, World) {
    let folder = tempfile::tempdir().unwrap();
    let world = world(folder.path(), 100 * LEN as u64);
    (folder, world)
}

fn text(seed: usize) -> String {
    letters(seed, 0..LEN)
}

#[tokio::test]
async fn a_long_body_is_served_from_its_file_whole_and_in_part() {
    let (folder, world) = roomy();
    let body = text(0);
    world.origin.will(
        200,
        &[("cache-control", "max-age=60"), ("etag", "\"1\"")],
        &body,
    );
    assert_eq!(world.get("/").await.text(), body);
    assert_eq!(bodies(folder.path()), (1, LEN as u64));
    assert!(
        world.handle.metrics().stored_bytes < 5_000,
        "{:?}",
        world.handle.metrics()
    );

    let hit = world.get("/").await;
    assert!(hit.is_hit() && hit.text() == body, "{}", hit.cache_status());
    assert_eq!(hit.headers["content-length"], LEN.to_string());
    for (range, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=262143-262144", 262_143, 262_145),
        ("bytes=262144-", 262_144, LEN),
        ("bytes=-5", LEN - 5, LEN),
        ("bytes=100-299999", 100, 300_000),
    ] {
        let part = world.get_with("/", &[("range", range)]).await;
        assert_eq!(
            (part.status.as_u16(), part.text()),
            (206, &body[from..to]),
            "{range}"
        );
        assert_eq!(
            part.headers["content-range"],
            format!("bytes {from}-{}/{LEN}", to - 1)
        );
        assert_eq!(part.headers["content-length"], (to - from).to_string());
    }
    assert_eq!(
        world
            .get_with("/", &[("range", "bytes=999999-")])
            .await
            .status,
        416
    );
    assert_eq!(
        world
            .get_with("/", &[("if-none-match", "\"1\"")])
            .await
            .status,
        304
    );
    let head = world.send(request("HEAD", "/", &[])).await;
    assert_eq!(
        (
            head.headers["content-length"].to_str().unwrap(),
            head.text()
        ),
        (&*LEN.to_string(), "")
    );
    assert_eq!(world.origin.count(), 1);
}

/// A clock that acts once, when it's read for the first time after a 304 has confirmed a response: before the client's response opens the
/// body.
#[derive(Clone)]
struct ActsAfterConfirmation {
    clock: ManualClock,
    act: Arc<Mutex<Option<(CacheHandle, Act)>>>,
}

type Act = Box<dyn FnOnce(&CacheHandle) + Send>;

#[async_trait]
impl Clock for ActsAfterConfirmation {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn wall(&self) -> Timestamp {
        let mut act = self.act.lock().unwrap();
        if let Some((handle, act)) = act.take_if(|(handle, _)| handle.metrics().confirmed > 0) {
            act(&handle);
        }
        self.clock.wall()
    }

    async fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }
}

/// 1. A client's request finds a stale response in a file. 2. The origin confirms it. 3. A purge, or an eviction, deletes the file.
/// 4. The client's response begins: the file is gone, but the origin is well.
#[tokio::test]
async fn a_body_that_is_deleted_after_its_304_still_answers_the_client() {
    let purge =
        |handle: &CacheHandle| assert_eq!(handle.purge(&Purge::Prefix("http://".to_owned())), 1);
    for (name, path) in [("purge", "/"), ("deletion", "/"), ("purge", "/part")] {
        let folder = tempfile::tempdir().unwrap();
        let clock = ActsAfterConfirmation {
            clock: clock(),
            act: Arc::default(),
        };
        let disk = Disk::open(folder.path(), 100 * LEN as u64).unwrap();
        let world = World::with(|builder| {
            builder
                .capacity(1 << 20)
                .entry_limit(1_000)
                .disk(disk)
                .clock(clock.clone())
        });
        let body = text(0);
        world.origin.will(
            200,
            &[("cache-control", "no-cache"), ("etag", "\"1\"")],
            &body,
        );
        world.get(path).await;
        let at = folder.path().to_owned();
        let act: Act = if name == "purge" {
            Box::new(purge)
        } else {
            Box::new(move |_| assert_eq!(delete(&at), 1))
        };
        *clock.act.lock().unwrap() = Some((world.handle.clone(), act));
        world
            .origin
            .will(304, &[("cache-control", "no-cache"), ("etag", "\"1\"")], "");
        let range = [("range", "bytes=5-9")];
        let answer = world
            .get_with(path, if path == "/part" { &range } else { &[] })
            .await;
        let expected = if path == "/part" {
            (206, &body[5..10])
        } else {
            (200, &*body)
        };
        assert!(
            (answer.status.as_u16(), answer.text()) == expected,
            "{name}: {:?}",
            answer.headers
        );
        assert!(
            clock.act.lock().unwrap().is_none(),
            "the file was deleted in between"
        );
        assert_eq!(bodies(folder.path()).0, 0);
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get(path).await.text(), "new", "{name}");
    }
}

/// Deletes the files of bodies, and returns their number.
fn delete(folder: &Path) -> usize {
    let files = body_files(folder).into_iter();
    files.map(|path| fs::remove_file(path).unwrap()).count()
}

/// Returns a response without its random boundary.
fn without_boundary(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let kind = answer.headers["content-type"].to_str().unwrap();
    let boundary = kind
        .split_once("boundary=")
        .map_or("no boundary", |(_, boundary)| boundary);
    let plain = |text: &str| text.replace(boundary, "BOUNDARY");
    let fields = answer
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), plain(value.to_str().unwrap())));
    (
        answer.status.as_u16(),
        fields.collect(),
        plain(answer.text()),
    )
}

#[tokio::test]
async fn ranges_from_disk_equal_those_from_memory() {
    let (_folder, on_disk) = roomy();
    let in_memory = World::default();
    let fields = [
        ("cache-control", "max-age=60"),
        ("etag", "\"1\""),
        ("content-type", "text/plain"),
    ];
    for world in [&on_disk, &in_memory] {
        world.origin.will(200, &fields, &text(0));
        world.get("/").await;
    }
    let many = (0..101)
        .map(|at| format!("{}-{}", at * 7, at * 7))
        .collect::<Vec<_>>();
    let (most, too_many) = (
        format!("bytes={}", many[..100].join(",")),
        format!("bytes={}", many.join(",")),
    );
    for (expected, fields) in [
        (206, &[("range", "bytes=0-1,4-5")][..]),
        (206, &[("range", "bytes=65530-65540, 65541-65550, -7, 0-0")]),
        (206, &[("range", "bytes=300000-, 0-199999")]),
        (206, &[("range", "bytes=5-5, 999999-")]),
        (206, &[("range", &most)]),
        (200, &[("range", &too_many)]),
        (200, &[("range", "bytes=0-9,9-12")]),
        (416, &[("range", "bytes=999999-, 307200-307201")]),
        (206, &[("range", "bytes=0-1,4-5"), ("if-range", "\"1\"")]),
        (200, &[("range", "bytes=0-1,4-5"), ("if-range", "\"2\"")]),
        (200, &[("range", "bytes=0-1,4-5"), ("if-range", "W/\"1\"")]),
    ] {
        let (disk, memory) = (
            on_disk.get_with("/", fields).await,
            in_memory.get_with("/", fields).await,
        );
        assert_eq!(disk.status, expected, "{fields:?}");
        let length = disk
            .headers
            .get("content-length")
            .map(|length| length.to_str().unwrap().to_owned());
        assert!(
            expected == 416 || length == Some(disk.text().len().to_string()),
            "{fields:?}: {length:?}"
        );
        assert!(
            without_boundary(&disk) == without_boundary(&memory),
            "{fields:?}: {disk:?}"
        );
    }
    assert_eq!((on_disk.origin.count(), in_memory.origin.count()), (1, 1));
}

/// Changes a byte of the body file.
fn change(folder: &Path, at: usize) {
    let file = body_files(folder).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
}

/// Reads a body, and returns it with its end.
async fn read(response: Streaming) -> (String, Result<(), String>) {
    let (mut body, mut came) = (response.into_body(), String::new());
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => came.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap()),
            Err(error) => return (came, Err(error.to_string())),
        }
    }
    (came, Ok(()))
}

#[tokio::test]
async fn a_modified_piece_is_not_served() {
    let (folder, world) = roomy();
    let body = text(0);
    world.origin.will(200, &FRESH, &body);
    world.get("/").await;
    // In the second piece of five.
    change(folder.path(), 100_000);
    let around = world
        .get_with("/", &[("range", "bytes=0-9, 131072-131081")])
        .await;
    assert!(around.text().contains(&body[..10]) && around.text().contains(&body[131_072..131_082]));

    let ranges = [("range", "bytes=0-9, 65536-65545, 131072-131081")];
    let (came, ending) = read(world.try_send(get("/", &ranges)).await.unwrap()).await;
    assert!(
        ending.is_err(),
        "the second range is of the piece that was changed"
    );
    assert!(came.contains(&body[..10]), "{came}");
    assert!(
        came.ends_with("\r\n\r\n") && came.matches("bytes 65536-65545/307200").count() == 1,
        "{came}"
    );

    world.origin.will(200, &FRESH, &body);
    assert_eq!(world.get("/").await.text(), body);
    assert_eq!(world.origin.count(), 2);
}

/// Answers a request for a range of a body with this tag, and any other request with the whole.
fn answer_ranges(head: &http::request::Parts, tag: &str, body: &str) -> http::Response<TestBody> {
    let field = |name| head.headers.get(name).map(|value| value.to_str().unwrap());
    let fields = [("cache-control", "max-age=60"), ("etag", tag)];
    let Some(range) = field("range").filter(|_| field("if-range").is_none_or(|named| named == tag))
    else {
        return response(200, &fields, body);
    };
    let (start, end) = range.trim_start_matches("bytes=").split_once('-').unwrap();
    let (start, end) = (
        start.parse::<usize>().unwrap(),
        end.parse().unwrap_or(body.len() - 1),
    );
    let range = format!("bytes {start}-{end}/{}", body.len());
    response(
        206,
        &[&fields[..], &[("content-range", &range)]].concat(),
        &body[start..=end],
    )
}

/// A piece is damaged before a client reads it. The origin has the version, so the client gets the rest from there, also if none of
/// it was sent, and if it asked for one range. It gets no byte of another version.
#[tokio::test]
async fn the_rest_of_a_damaged_file_is_requested() {
    let whole = format!("bytes=0-{}", LEN - 1);
    for (damaged, asked, is_current, expected) in [
        (0, &[][..], true, Some("bytes=0-")),
        (100_000, &[], true, Some("bytes=65536-")),
        (LEN - 1, &[], true, Some("bytes=262144-")),
        (
            100_000,
            &[("range", "bytes=10-199999")],
            true,
            Some("bytes=65536-199999"),
        ),
        (
            0,
            &[("range", "bytes=10-199999")],
            true,
            Some("bytes=10-199999"),
        ),
        (0, &[("range", &*whole)], true, Some("bytes=0-307199")),
        (
            100_000,
            &[("range", "bytes=70000-")],
            true,
            Some("bytes=70000-307199"),
        ),
        (100_000, &[], false, Some("bytes=65536-")),
        (
            100_000,
            &[("range", "bytes=10-199999")],
            false,
            Some("bytes=65536-199999"),
        ),
        (100_000, &[("range", "bytes=0-9,70000-70009")], true, None),
    ] {
        let (folder, world) = roomy();
        let body = text(0);
        world.origin.will(
            200,
            &[("cache-control", "max-age=60"), ("etag", "\"1\"")],
            &body,
        );
        world.get("/").await;
        change(folder.path(), damaged);
        let (tag, current) = if is_current {
            ("\"1\"", text(0))
        } else {
            ("\"2\"", text(1))
        };
        world
            .origin
            .will_each(move |head| answer_ranges(head, tag, &current));
        let answer = world.get_with("/", asked).await;
        let last = world.origin.seen().last().cloned().unwrap();
        let range = last
            .headers
            .get("range")
            .map(|range| range.to_str().unwrap().to_owned());
        assert_eq!(range.as_deref(), expected, "{damaged} {asked:?}");
        match (&answer.body, is_current && expected.is_some()) {
            (Ok(came), true) => {
                let (start, end) = match asked {
                    [(_, range)] if *range == whole => (0, LEN),
                    [(_, "bytes=70000-")] => (70_000, LEN),
                    [..] if !asked.is_empty() => (10, 200_000),
                    [..] => (0, LEN),
                };
                assert!(
                    *came == body[start..end],
                    "{damaged} {asked:?}: {} bytes",
                    came.len()
                );
                assert_eq!(last.headers["if-range"], "\"1\"");
            }
            (Err(_), false) => {}
            (other, _) => panic!(
                "{damaged} {asked:?} {is_current}: {:?}",
                other.as_ref().map(String::len)
            ),
        }
    }
}

#[tokio::test]
async fn a_304_renews_a_response_with_its_body_on_disk() {
    let (_folder, world) = roomy();
    let body = text(0);
    world.origin.will(
        200,
        &[("cache-control", "max-age=60"), ("etag", "\"1\"")],
        &body,
    );
    world.get("/").await;
    world.pass(61);
    world.origin.will(304, &[], "");
    assert_eq!(world.get("/").await.text(), body);
    world.pass(59);
    assert!(world.get("/").await.is_hit());
}

#[tokio::test]
async fn a_modified_file_is_never_served_as_complete() {
    let (folder, world) = roomy();
    let body = text(0);
    world.origin.will(200, &FRESH, &body);
    world.get("/").await;
    change(folder.path(), LEN - 1);
    let broken = world.get("/").await;
    assert!(broken.body.is_err(), "the last piece has been modified");
    // The next request goes to the origin, and its response is stored.
    world.origin.will(200, &FRESH, &body);
    assert_eq!(world.get("/").await.text(), body);
    assert_eq!(world.get("/").await.text(), body);
    assert_eq!((world.origin.count(), bodies(folder.path()).0), (2, 1));
}

#[tokio::test]
async fn a_deleted_file_is_fetched_again() {
    let (folder, world) = roomy();
    let fields = [("cache-control", "max-age=60"), ("etag", "\"1\"")];
    for wait in [0, 61] {
        world.origin.will(200, &fields, &text(0));
        world.get("/").await;
        for entry in fs::read_dir(folder.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        world.pass(wait);
        world.origin.will(200, &fields, &text(1));
        assert_eq!(world.get("/").await.text(), text(1));
        assert!(
            !world
                .origin
                .seen()
                .last()
                .unwrap()
                .headers
                .contains_key("if-none-match")
        );
        world.handle.purge(&Purge::Prefix(String::new()));
    }
}

#[tokio::test]
async fn the_folder_is_bounded_and_evicts_the_oldest_unused_bodies() {
    let folder = tempfile::tempdir().unwrap();
    let most = 5 * LEN as u64;
    let world = world(folder.path(), most);
    for at in 0..12 {
        world.origin.will(200, &FRESH, &text(at));
        assert_eq!(world.get(&format!("/{at}")).await.text(), text(at));
        // A body requested repeatedly.
        assert!(world.get("/0").await.is_hit(), "after {at}");
        let (_, len) = bodies(folder.path());
        assert!(len <= most, "{len} bytes of {most}");
    }
    assert_eq!(bodies(folder.path()).0, 5);
    world.origin.will(200, &FRESH, "new");
    assert_eq!(world.get("/1").await.text(), "new", "it was evicted");
}

#[tokio::test]
async fn a_body_longer_than_its_share_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let world = world(folder.path(), 3 * LEN as u64);
    world.origin.will(200, &FRESH, &text(0));
    assert_eq!(world.get("/").await.text(), text(0));
    assert_eq!(bodies(folder.path()), (0, 0));
    world.origin.will(200, &FRESH, &text(1));
    assert_eq!(world.get("/").await.text(), text(1));
}

#[tokio::test]
async fn a_truncated_body_leaves_no_file() {
    let (folder, world) = roomy();
    let length = (LEN + 1).to_string();
    let fields = [FRESH[0], ("content-length", &*length)];
    world.origin.will_answer(response(200, &fields, &text(0)));
    assert!(world.get("/").await.body.is_err());
    assert_eq!(bodies(folder.path()), (0, 0));
    world.origin.will(200, &FRESH, &text(1));
    assert_eq!(world.get("/").await.text(), text(1));
}

#[tokio::test]
async fn a_write_deletes_the_file_and_current_readers_continue() {
    let (folder, world) = roomy();
    world.origin.will(200, &FRESH, &text(0));
    world.get("/").await;
    let reading = world.try_send(request("GET", "/", &[])).await.unwrap();
    world.origin.will(204, &[], "");
    world.send(request("PUT", "/", &[])).await;
    assert_eq!(Answer::read(reading).await.text(), text(0));
    assert_eq!(bodies(folder.path()), (0, 0));
}

#[test]
fn a_folder_without_an_index_is_emptied_and_one_in_use_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ifmatch-body-7"), "left behind").unwrap();
    fs::write(folder.path().join("notes.txt"), "not ours").unwrap();
    let disk = Disk::open(folder.path(), 1 << 20).unwrap();
    assert_eq!(bodies(folder.path()).0, 0);
    assert!(folder.path().join("notes.txt").exists());
    let error = Disk::open(folder.path(), 1 << 20).unwrap_err().to_string();
    assert!(error.contains("another process uses it"), "{error}");
    drop(disk);
    Disk::open(folder.path(), 1 << 20).unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn other_users_cannot_read_bodies_in_a_shared_folder() {
    use std::os::unix::fs::PermissionsExt;

    let (folder, world) = roomy();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    world.origin.will(200, &FRESH, &text(0));
    world.get("/").await;
    assert_eq!(bodies(folder.path()).0, 1);
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(
            entry.metadata().unwrap().permissions().mode() & 0o077,
            0,
            "{:?}",
            entry.file_name()
        );
    }
}
