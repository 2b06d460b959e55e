//! The object store adapter on a folder and in memory: the conformance suite, and faults.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use faults::Faulty;
use futures_util::StreamExt;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Put, StoreErrorKind};
use ifmatch_blob::{BlobStore, conformance};
use ifmatch_blob_objects::{
    BackingStore, ConditionSupport, ObjectBlobs, ObjectRegister, OpenErrorKind, StoreCapabilities,
};
use ifmatch_core::lease::LeaseFailure;
use ifmatch_core::precondition::Preconditions;
use ifmatch_redb::RedbRegister;
use ifmatch_register::conformance::{RaceSize, run, run_shared};
use ifmatch_register::{MemoryRegister, Register};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

/// Length of a body that is sent in parts: more than fits into one request.
const LONG: usize = 8 * 1024 * 1024 + 1;

mod bounded;
mod clocks;
mod containers;
mod direct;
mod faults;
mod foreign;
mod hanging;
mod known;
mod links;
mod owners;
mod records;
mod registers;
mod schedules;
mod strays;
mod unclear;

async fn durable(store: &Arc<Faulty>) -> conformance::Subject {
    durable_on(store, register()).await
}

/// The blobs as seen by another process that shares the register.
async fn durable_on(store: &Arc<Faulty>, register: Arc<dyn Register>) -> conformance::Subject {
    let backing = BackingStore::new(Arc::clone(store) as Arc<dyn ObjectStore>);
    subject(
        ObjectBlobs::open_durable(backing, register)
            .await
            .expect("the store can be used"),
    )
}

fn register() -> Arc<dyn Register> {
    Arc::new(MemoryRegister::unbounded())
}

async fn open(backing: BackingStore) -> ObjectBlobs {
    ObjectBlobs::open(backing, register())
        .await
        .expect("the store can be used")
}

fn subject(store: impl BlobStore) -> conformance::Subject {
    conformance::Subject {
        store: Arc::new(store),
        keeps_headers: true,
        changes_tags: false,
        knows_retries: true,
        remembers_deletions: false,
        leases: false,
        nests: true,
        writers: 8,
    }
}

fn memory() -> BackingStore {
    BackingStore::from_url("memory:///some/prefix", []).expect("a valid URL")
}

fn folder(at: &std::path::Path) -> BackingStore {
    BackingStore::from_url(url::Url::from_file_path(at).expect("absolute").as_str(), [])
        .expect("a valid URL")
}

/// Returns the object store of a folder.
fn objects(at: &std::path::Path) -> Arc<dyn ObjectStore> {
    let mut objects = None;
    let _ = folder(at).map(|inner| Arc::clone(objects.insert(inner)));
    objects.expect("the folder's store")
}

/// Writes once nothing keeps the write away: no lease without its id, and nothing under way.
async fn write_soon(subject: &conformance::Subject, blob: &BlobPath, put: impl Fn() -> Put) {
    within("a write succeeds", async {
        while let Err(error) = subject.store.put(blob, put()).await {
            assert!(
                matches!(
                    error.kind(),
                    StoreErrorKind::InFlight { .. }
                        | StoreErrorKind::LeaseFailed(LeaseFailure::IdMissing)
                ),
                "{error}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn within<T>(name: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(10), wait)
        .await
        .unwrap_or_else(|_| panic!("{name}: not within ten minutes"))
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_conforms() {
    let blobs = open(memory()).await;
    assert!(blobs.capability().is_native());
    conformance::check(&subject(blobs)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_register_provides_leases() {
    for in_memory in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let register = RedbRegister::open(root.path().join("register.redb")).unwrap();
        let backing = if in_memory {
            memory()
        } else {
            folder(&root.path().join("blobs"))
        };
        let blobs = ObjectBlobs::open_durable(backing, Arc::new(register))
            .await
            .expect("opens");
        conformance::check(&conformance::Subject {
            leases: true,
            keeps_headers: in_memory,
            knows_retries: in_memory,
            nests: in_memory,
            ..subject(blobs)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_conforms() {
    let root = tempfile::tempdir().unwrap();
    let blobs = open(folder(&root.path().join("new/folder"))).await;
    let (create, update) = (ConditionSupport::Native, ConditionSupport::Unsupported);
    let expected = StoreCapabilities {
        create,
        update,
        metadata: false,
        unique_tags: true,
    };
    assert_eq!(blobs.capability(), expected);
    let subject = subject(blobs);
    conformance::check(&conformance::Subject {
        keeps_headers: false,
        knows_retries: false,
        nests: false,
        ..subject
    })
    .await;
}

#[tokio::test]
async fn names_are_file_names() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("photos/2026")).unwrap();
    fs::write(root.path().join("photos/2026/a b.txt"), "before").unwrap();
    let subject = subject(open(folder(root.path())).await);
    assert_eq!(
        subject
            .read(&conformance::blob("photos", "2026/a b.txt"))
            .await
            .unwrap()
            .1,
        "before"
    );
    subject
        .write(&conformance::blob("photos", "2026/ü 100%.txt"), "after")
        .await;
    assert_eq!(
        fs::read_to_string(root.path().join("photos/2026/ü 100%.txt")).unwrap(),
        "after"
    );
    let names = |folder: &str| {
        let entries = fs::read_dir(root.path().join(folder)).unwrap();
        let names: std::collections::BTreeSet<_> =
            entries.map(|entry| entry.unwrap().file_name()).collect();
        names.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(names(""), ["-ifmatch", "photos"]);
    assert_eq!(names("-ifmatch"), ["owner"], "the probe's object is gone");
}

/// The tag of a file consists of its inode, time and size. An inode is reused once it is free, so the time must differ.
#[tokio::test]
async fn a_file_is_replaced_only_after_the_clock_has_advanced() {
    let root = tempfile::tempdir().unwrap();
    let subject = subject(open(folder(root.path())).await);
    let blob = conformance::blob("c", "b");
    let clock_step = Duration::from_millis(10);
    let mut before = None;
    for bytes in ["a", "b", "c", "d"] {
        if bytes == "c" {
            subject
                .delete_if(&blob, Preconditions::default())
                .await
                .unwrap();
        }
        subject.write(&blob, bytes).await;
        let written = fs::metadata(root.path().join("c/b"))
            .unwrap()
            .modified()
            .unwrap();
        assert!(
            before.is_none_or(|before| written >= before + clock_step),
            "{before:?} {written:?}"
        );
        before = Some(written);
    }
}

#[tokio::test]
async fn names_that_a_folder_cannot_keep_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let subject = subject(open(folder(root.path())).await);
    subject.write(&conformance::blob("c", "a"), "x").await;
    let long = "x".repeat(300);
    for name in ["a/b", "a/b/c", "b#1", &long] {
        let blob = conformance::blob("c", name);
        let error = subject
            .store
            .put(&blob, conformance::put("y"))
            .await
            .expect_err(name);
        assert_eq!(
            error.kind(),
            &StoreErrorKind::Unsupported,
            "{name}: {error}"
        );
    }
    assert!(subject.read(&conformance::blob("c", "a/b")).await.is_none());
    assert_eq!(
        subject.read(&conformance::blob("c", "a")).await.unwrap().1,
        "x"
    );
}

#[tokio::test]
async fn a_walk_lists_all_files_and_the_top_level_folders() {
    let root = tempfile::tempdir().unwrap();
    let objects = objects(root.path());
    for number in 0..1200 {
        let path = root.path().join(format!("c/{}/{number}", number % 7));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    objects
        .put(&"top".into(), PutPayload::from_static(b"12345"))
        .await
        .unwrap();
    fs::write(root.path().join("c/0/unfinished#1"), "x").unwrap();
    let listed: Vec<_> = objects.list(Some(&"c".into())).collect().await;
    assert_eq!(listed.iter().filter(|meta| meta.is_ok()).count(), 1200);
    assert_eq!(listed.len(), 1200);
    let first = objects.list_with_delimiter(None).await.unwrap();
    assert_eq!(first.common_prefixes, [Path::from("c")]);
    assert_eq!(
        first
            .objects
            .iter()
            .map(|meta| (meta.location.as_ref(), meta.size))
            .collect::<Vec<_>>(),
        [("top", 5)]
    );
    let after = objects.list_with_offset(Some(&"c/6".into()), &"c/6/1175".into());
    assert!(after.count().await < 1200 / 7);
    assert_eq!(objects.list(Some(&"none".into())).count().await, 0);
}

#[tokio::test]
async fn an_unusable_store_is_refused_with_advice() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    for (url, kind, advice) in [
        ("nonsense", OpenErrorKind::Url, "Use file:///folder"),
        ("ftp://host/x", OpenErrorKind::Url, "Use file:///folder"),
        ("https://host/x", OpenErrorKind::Url, "Use file:///folder"),
        (
            &format!("file://{}/below", file.display()),
            OpenErrorKind::Folder,
            "Check the path",
        ),
        (
            &format!("file://{}", file.display()),
            OpenErrorKind::Folder,
            "Check the path",
        ),
    ] {
        let error = BackingStore::from_url(url, []).expect_err(url);
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(advice), "{error}");
    }
    let gone = folder(&root.path().join("gone"));
    fs::remove_dir(root.path().join("gone")).unwrap();
    fs::write(root.path().join("gone"), "").unwrap();
    let error = ObjectBlobs::open(gone, register())
        .await
        .expect_err("a file is in the folder's place");
    assert_eq!(error.kind(), OpenErrorKind::Unusable, "{error}");
}

fn size() -> RaceSize {
    RaceSize::new(8, 5)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_register_conforms() {
    let register = ObjectRegister::open(BackingStore::new(Arc::new(InMemory::new())))
        .await
        .unwrap();
    run(register, size()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_register_conforms_through_two_handles() {
    let objects = Arc::new(InMemory::new());
    let open = async || {
        ObjectRegister::open(BackingStore::new(objects.clone()).with_prefix("a/b".into()))
            .await
            .unwrap()
    };
    run_shared(open, size()).await;
}

#[tokio::test]
async fn an_object_register_refuses_a_store_without_conditional_writes() {
    let folder = tempfile::tempdir().unwrap();
    let error = ObjectRegister::connect(&format!("file://{}", folder.path().display()), [])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Unusable);
    assert!(error.to_string().contains("conditional writes"), "{error}");
}
