//! The remains of a crash, records of a newer release, and other users of the folder.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use ifmatch_blob::BlobService;
use ifmatch_blob::test_util;
use ifmatch_blob_indexed::{IndexedStore, OpenErrorKind};
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, MemoryRegister, Register, Scan};
use ifmatch_runtime::Clock;
use tempfile::TempDir;

use crate::support::{Fixture, ManualClock, Service, bytes, fixture, reopen, request, send};

/// State left in a store by a process that has ended.
struct Closed {
    folder: TempDir,
    register: Arc<MemoryRegister>,
    clock: ManualClock,
}

impl Closed {
    async fn reopened(&self) -> Result<Service, OpenErrorKind> {
        let store = reopen(self.folder.path(), &self.register, &self.clock)
            .await
            .map_err(|error| error.kind())?;
        Ok(BlobService::with_clock(Arc::new(store), self.clock.clone()))
    }
}

impl Fixture {
    fn close(self) -> Closed {
        Closed {
            folder: self.folder,
            register: self.register,
            clock: self.clock,
        }
    }

    /// Returns the key prefix of the blobs in the container `c`, once it exists.
    async fn prefix(&self) -> String {
        let records = self
            .register
            .scan(&Scan {
                prefix: "b/c/",
                after: None,
                limit: 1,
            })
            .await
            .expect("scanned");
        let (key, _) = records.first().expect("there is a blob");
        key.as_str().rsplit_once('/').expect("a path").0.to_owned()
    }

    /// Writes a blob's record into the index as another release would.
    async fn write_record(&self, name: &str, payload: &[u8]) {
        let write = Write::new(
            &Method::PUT,
            &Preconditions::NONE,
            Content::Hashed {
                hash: ContentHash::of(b""),
                payload: payload.to_vec().into(),
            },
            1,
        );
        let next = Record::absent()
            .apply(&Command::Write(write), self.clock.now())
            .next;
        let key = Key::new(format!("{}/{name}", self.prefix().await)).expect("valid");
        self.register
            .compare_and_swap(&key, Revision::NONE, next.as_ref())
            .await
            .expect("swapped");
    }
}

#[tokio::test]
async fn a_start_collects_unreferenced_bodies_and_nothing_else() {
    let fixture = fixture().await;
    let kept = bytes(10_000, 1);
    fixture.put("/c/b", kept.clone()).await;
    let fixture = fixture.close();
    let root = fixture.folder.path();
    let hash = ContentHash::of(b"lost").hex();
    let lost = root
        .join("bodies")
        .join(&hash[..2])
        .join(format!("{hash}-00000000000000ff"));
    let half = root.join("tmp/00000000000000aa");
    // A folder of another program may contain such folders.
    let foreign = [
        root.join("bodies/00/README"),
        root.join("tmp/notes.txt"),
        root.join("tmp/00000000000000a"),
    ];
    for path in foreign.iter().chain([&lost, &half]) {
        fs::write(path, "left over").expect("written");
    }
    let service = fixture.reopened().await.expect("opens");
    assert!(!lost.exists() && !half.exists());
    assert!(
        foreign.iter().all(|path| path.exists()),
        "another program's file was removed"
    );
    assert_eq!(
        send(&service, request(Method::GET, "/c/b", &[], ""))
            .await
            .body,
        kept
    );
}

#[tokio::test]
async fn a_newer_payload_prevents_opening_and_keeps_every_file() {
    let fixture = fixture().await;
    fixture.put("/c/b", bytes(10_000, 1)).await;
    fixture.write_record("newer", &[99, 1, 2, 3]).await;
    let fixture = fixture.close();
    let half = fixture.folder.path().join("tmp/00000000000000aa");
    fs::write(&half, "left over").expect("written");
    assert_eq!(
        fixture.reopened().await.err(),
        Some(OpenErrorKind::Unreadable)
    );
    assert!(half.exists());
    let error = reopen(fixture.folder.path(), &fixture.register, &fixture.clock)
        .await
        .expect_err("refused");
    assert!(
        error.to_string().contains("/newer ") && error.to_string().contains("newer release"),
        "{error}"
    );
}

#[tokio::test]
async fn a_damaged_payload_affects_only_its_blob() {
    let fixture = fixture().await;
    fixture.put("/c/b", bytes(10_000, 1)).await;
    fixture.write_record("damaged", &[1, 2, 3]).await;
    let fixture = fixture.close();
    let hash = ContentHash::of(b"perhaps its own").hex();
    let body = fixture
        .folder
        .path()
        .join("bodies")
        .join(&hash[..2])
        .join(format!("{hash}-00000000000000ff"));
    fs::write(&body, "perhaps its own").expect("written");
    let service = fixture.reopened().await.expect("opens");
    assert!(body.exists(), "the damaged record's body may be this one");
    let damaged = send(&service, request(Method::GET, "/c/damaged", &[], "")).await;
    assert_eq!(
        (damaged.status.as_u16(), damaged.problem().as_str()),
        (500, "unreadable")
    );
    assert_eq!(
        send(&service, request(Method::GET, "/c/b", &[], ""))
            .await
            .status,
        StatusCode::OK
    );
    assert_eq!(
        send(&service, request(Method::PUT, "/c/damaged", &[], "mended"))
            .await
            .status,
        StatusCode::OK
    );
    assert_eq!(
        send(&service, request(Method::GET, "/c/damaged", &[], ""))
            .await
            .body,
        "mended"
    );
}

#[tokio::test]
async fn a_lost_or_shortened_file_is_an_error() {
    let fixture = fixture().await;
    fixture.put("/c/b", bytes(10_000, 1)).await;
    let shards = fs::read_dir(fixture.folder.path().join("bodies")).expect("a folder");
    let files =
        shards.flat_map(|shard| fs::read_dir(shard.expect("an entry").path()).expect("a folder"));
    let file = files
        .map(|file| file.expect("an entry").path())
        .next()
        .expect("a body");
    fs::write(&file, &bytes(10_000, 1)[..9_999]).expect("written");
    assert_eq!(fixture.get("/c/b").await.problem(), "unreadable");
    fs::remove_file(&file).expect("removed");
    assert_eq!(fixture.get("/c/b").await.problem(), "unreadable");
    assert_eq!(fixture.put("/c/b", "mended").await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_record_of_a_deleted_blob_is_forgotten_after_a_day() {
    let fixture = fixture().await;
    let tag = fixture.put("/c/b", "x").await.tag();
    fixture.send(request(Method::DELETE, "/c/b", &[], "")).await;
    let fixture = fixture.close();
    let records = async || {
        let scan = Scan {
            prefix: "b/",
            after: None,
            limit: 10,
        };
        fixture.register.scan(&scan).await.expect("scanned").len()
    };
    fixture.clock.advance(Duration::from_hours(24));
    fixture.reopened().await.expect("opens");
    assert_eq!(records().await, 1);
    fixture.clock.advance(Duration::from_secs(1));
    let service = fixture.reopened().await.expect("opens");
    assert_eq!(records().await, 0);
    let created = send(&service, request(Method::PUT, "/c/b", &[], "x")).await;
    assert_eq!(created.status, StatusCode::CREATED);
    assert_ne!(created.tag(), tag, "a tag was reused");
}

#[tokio::test]
async fn old_deletions_are_forgotten_during_reads_and_writes() {
    let fixture = fixture().await;
    for name in ["deleted", "written_again", "kept"] {
        fixture.put(&format!("/c/{name}"), "x").await;
    }
    for name in ["deleted", "written_again"] {
        fixture
            .send(request(Method::DELETE, &format!("/c/{name}"), &[], ""))
            .await;
    }
    fixture.put("/c/written_again", "y").await;
    fixture.clock.advance(Duration::from_hours(25));
    fixture
        .store
        .forget_deletions()
        .await
        .expect("the index answers");
    let scan = Scan {
        prefix: "b/",
        after: None,
        limit: 10,
    };
    let records = fixture.register.scan(&scan).await.expect("scanned");
    let names: Vec<_> = records
        .iter()
        .filter_map(|(key, _)| Some(key.as_str().rsplit_once('/')?.1))
        .collect();
    assert_eq!(names, ["kept", "written_again"]);
    assert_eq!(fixture.get("/c/written_again").await.body, "y");
}

#[tokio::test]
async fn everything_survives_a_restart() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let folder = temporary.path().join("two/levels/down/");
    let mut tags = Vec::new();
    {
        let service = BlobService::new(Arc::new(IndexedStore::open(&folder).await.expect("opens")));
        for (name, size) in [("small", 10), ("large", 100_000)] {
            let put = request(
                Method::PUT,
                &format!("/c/{name}"),
                &[("x-meta-a", "1")],
                bytes(size, 1),
            );
            tags.push((name, size, send(&service, put).await.tag()));
        }
    }
    let service = BlobService::new(Arc::new(
        test_util::reopen(async || IndexedStore::open(&folder).await).await,
    ));
    for (name, size, tag) in tags {
        let got = send(
            &service,
            request(Method::GET, &format!("/c/{name}"), &[], ""),
        )
        .await;
        assert_eq!(
            (got.tag(), got.header("x-meta-a"), &got.body),
            (tag, "1", &bytes(size, 1))
        );
    }
}

#[tokio::test]
async fn a_folder_with_bodies_but_no_index_is_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (index, away) = (folder.path().join("index.redb"), folder.path().join("away"));
    let service = BlobService::new(Arc::new(
        IndexedStore::open(folder.path()).await.expect("opens"),
    ));
    send(
        &service,
        request(Method::PUT, "/c/b", &[], bytes(10_000, 1)),
    )
    .await;
    drop(service);
    fs::rename(&index, &away).expect("renamed");
    for is_empty in [false, true] {
        if is_empty {
            fs::write(&index, "").expect("written");
        }
        let error = IndexedStore::open(folder.path())
            .await
            .expect_err("there is no index");
        assert_eq!(error.kind(), OpenErrorKind::Unreadable, "{error}");
        assert!(error.to_string().contains("Restore it"), "{error}");
    }
    fs::rename(&away, &index).expect("renamed");
    let service = BlobService::new(Arc::new(
        test_util::reopen(async || IndexedStore::open(folder.path()).await).await,
    ));
    assert_eq!(
        send(&service, request(Method::GET, "/c/b", &[], ""))
            .await
            .body,
        bytes(10_000, 1)
    );
    send(&service, request(Method::DELETE, "/c/b", &[], "")).await;
    drop(service);
    fs::remove_file(&index).expect("removed");
    // Small bodies are in the index, so an empty folder of bodies proves nothing.
    let refused = test_util::reopen(async || match IndexedStore::open(folder.path()).await {
        Err(error) if error.kind() == OpenErrorKind::Unreadable => Ok(error),
        other => Err(other.map(drop)),
    });
    let refused = refused.await;
    assert!(refused.to_string().contains("Restore it"), "{refused}");
}

#[tokio::test]
async fn an_unusable_folder_is_reported_with_advice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let _open = IndexedStore::open(folder.path()).await.expect("opens");
    let second = IndexedStore::open(folder.path()).await.expect_err("in use");
    assert_eq!(second.kind(), OpenErrorKind::InUse);
    assert!(second.to_string().contains("Stop it"), "{second}");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    for path in [file.clone(), file.join("below")] {
        let error = IndexedStore::open(&path).await.expect_err("no folder");
        assert_eq!(error.kind(), OpenErrorKind::Denied, "{error}");
        assert!(
            error.to_string().contains(path.to_str().expect("UTF-8")),
            "{error}"
        );
    }
    let damaged = tempfile::tempdir().expect("a temporary folder");
    fs::write(damaged.path().join("index.redb"), bytes(10_000, 1)).expect("written");
    let error = IndexedStore::open(damaged.path())
        .await
        .expect_err("no database");
    assert_eq!(error.kind(), OpenErrorKind::Unreadable, "{error}");
}
