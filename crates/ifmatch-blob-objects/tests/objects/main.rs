//! The object store adapter on a folder and in memory: the conformance suite, and faults.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use faults::Faulty;
use ifmatch_blob::{BlobStore, conformance};
use ifmatch_blob_objects::{
    BackingStore, ConditionSupport, ObjectBlobs, ObjectRegister, OpenErrorKind, StoreCapabilities,
};
use ifmatch_core::precondition::Preconditions;
use ifmatch_redb::RedbRegister;
use ifmatch_register::conformance::{RaceSize, run, run_shared};
use ifmatch_register::{MemoryRegister, Register};
use object_store::ObjectStore;
use object_store::memory::InMemory;

mod bounded;
mod containers;
mod direct;
mod faults;
mod foreign;
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

#[tokio::test(flavor = "multi_thread")]
async fn memory_conforms() {
    let blobs = open(memory()).await;
    assert!(blobs.capability().is_native());
    conformance::check(&subject(blobs)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_register_provides_leases() {
    for url in ["memory:///some/prefix", "folder"] {
        let root = tempfile::tempdir().unwrap();
        let register = RedbRegister::open(root.path().join("register.redb")).unwrap();
        let in_memory = url.starts_with("memory");
        let backing = if in_memory {
            memory()
        } else {
            folder(&root.path().join("blobs"))
        };
        let blobs = ObjectBlobs::open_durable(backing, Arc::new(register))
            .await
            .expect("opens");
        let subject = conformance::Subject {
            leases: true,
            ..subject(blobs)
        };
        let (keeps_headers, knows_retries, nests) = (in_memory, in_memory, in_memory);
        conformance::check(&conformance::Subject {
            keeps_headers,
            knows_retries,
            nests,
            ..subject
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
    std::fs::create_dir_all(root.path().join("photos/2026")).unwrap();
    std::fs::write(root.path().join("photos/2026/a b.txt"), "before").unwrap();
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
        std::fs::read_to_string(root.path().join("photos/2026/ü 100%.txt")).unwrap(),
        "after"
    );
    let names = |folder: &str| {
        let entries = std::fs::read_dir(root.path().join(folder)).unwrap();
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
    let clock_step = std::time::Duration::from_millis(10);
    let mut before = None;
    for bytes in ["a", "b", "c", "d"] {
        if bytes == "c" {
            subject
                .delete_if(&blob, Preconditions::default())
                .await
                .unwrap();
        }
        subject.write(&blob, bytes).await;
        let written = std::fs::metadata(root.path().join("c/b"))
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
            &ifmatch_blob::store::StoreErrorKind::Unsupported,
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
async fn an_unusable_store_is_refused_with_advice() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, "").unwrap();
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
    std::fs::remove_dir(root.path().join("gone")).unwrap();
    std::fs::write(root.path().join("gone"), "").unwrap();
    let error = ObjectBlobs::open(gone, register())
        .await
        .expect_err("a file is in the folder's place");
    assert_eq!(error.kind(), OpenErrorKind::Unusable, "{error}");
}

fn size() -> RaceSize {
    RaceSize::new(8, 5)
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_in_memory() {
    let register = ObjectRegister::open(BackingStore::new(Arc::new(InMemory::new())))
        .await
        .unwrap();
    run(register, size()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_through_two_handles() {
    let objects = Arc::new(InMemory::new());
    let open = async || {
        ObjectRegister::open(BackingStore::new(objects.clone()).with_prefix("a/b".into()))
            .await
            .unwrap()
    };
    run_shared(open, size()).await;
}

#[tokio::test]
async fn a_store_without_conditional_writes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = ObjectRegister::connect(&format!("file://{}", folder.path().display()), [])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Unusable);
    assert!(error.to_string().contains("conditional writes"), "{error}");
}
