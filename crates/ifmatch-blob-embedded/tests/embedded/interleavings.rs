//! Every pair of changes with one between the other's computation and its swap, by means of a register that lets the
//! one go first.

use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::BodyExt;
use ifmatch_blob::BlobStore;
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    BlobInfo, Delete, HeaderChange, LeaseRequest, ListQuery, MissingContainer, Put, Reading, SetHeaders, StoreErrorKind,
};
use ifmatch_blob_embedded::EmbeddedStore;
use ifmatch_blob_embedded::OpenErrorKind;
use ifmatch_core::lease::LeaseFailure;
use ifmatch_core::record::Revision;
use ifmatch_register::faulty::FaultyRegister;
use ifmatch_register::{Driver, Register, Scan};
use tempfile::TempDir;

use crate::collected::bodies;
use ifmatch_blob::conformance::headers::set;
use ifmatch_blob::conformance::leases::acquire;
use ifmatch_blob::conformance::{blob, if_match, kind, pattern, put};
use ifmatch_blob::test_util::reopen;

type Store = EmbeddedStore;

struct Fixture {
    folder: TempDir,
    register: FaultyRegister,
    store: Store,
    blob: BlobPath,
}

/// A store with one blob in a file.
async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let register = FaultyRegister::default();
    let store = EmbeddedStore::with_driver(folder.path(), Driver::new(register.clone())).await.unwrap();
    let blob = blob("c", "b");
    store.put(&blob, put(pattern(10_000))).await.unwrap();
    Fixture { folder, register, store, blob }
}

impl Fixture {
    /// Runs this right before the next swap of a blob's record.
    fn before_next_swap<F>(&self, other: impl FnOnce(Store, BlobPath) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let other = other(self.store.clone(), self.blob.clone());
        self.register.before_swap("b/", other);
    }

    async fn read(&self) -> Option<(BlobInfo, Bytes)> {
        let mut opened = self.store.open(&self.blob, Reading::WHOLE).await.expect("readable")?;
        let body = opened.source.read(None).await.expect("readable");
        Some((opened.info, body.collect().await.expect("readable").to_bytes()))
    }

    fn happened(&self) -> bool {
        !self.register.waits_for_swap()
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn owner(value: &str) -> SetHeaders {
    set(HeaderChange::Metadata([("owner".into(), FieldText::new(value).unwrap())].into()))
}

#[tokio::test]
async fn a_write_before_a_change_of_fields_keeps_its_bytes() {
    let fixture = fixture().await;
    fixture.before_next_swap(|store, blob| async move {
        store.put(&blob, put(pattern(20_000))).await.unwrap();
    });
    let changed = fixture.store.set_headers(&fixture.blob, owner("me")).await.unwrap();
    assert!(fixture.happened());
    let (info, bytes) = fixture.read().await.unwrap();
    assert_eq!((info.tag, info.length, bytes), (changed.tag, 20_000, pattern(20_000)));
    assert_eq!(info.headers.metadata["owner"].as_str(), "me");
    assert_eq!(bodies(fixture.folder()), 1);
}

#[tokio::test]
async fn a_change_of_fields_before_a_write_leaves_no_file() {
    let fixture = fixture().await;
    let created = fixture.read().await.unwrap().0.created;
    fixture.before_next_swap(|store, blob| async move {
        store.set_headers(&blob, owner("me")).await.unwrap();
    });
    let written = fixture.store.put(&fixture.blob, put(pattern(20_000))).await.unwrap();
    assert!(fixture.happened() && !written.created);
    let (info, bytes) = fixture.read().await.unwrap();
    assert_eq!((info.tag, info.headers, bytes), (written.tag, BlobHeaders::default(), pattern(20_000)));
    assert_eq!((info.created, bodies(fixture.folder())), (created, 1));
}

#[tokio::test]
async fn a_change_of_fields_before_another_is_part_of_it() {
    let fixture = fixture().await;
    fixture.before_next_swap(|store, blob| async move {
        store.set_headers(&blob, owner("me")).await.unwrap();
    });
    let fields = BlobHeaders { content_type: Some(FieldText::new("text/plain").unwrap()), ..BlobHeaders::default() };
    fixture.store.set_headers(&fixture.blob, set(HeaderChange::Fields(fields.clone().into()))).await.unwrap();
    let headers = fixture.read().await.unwrap().0.headers;
    assert_eq!(headers.content_type, fields.content_type);
    assert_eq!(headers.metadata["owner"].as_str(), "me");
}

#[tokio::test]
async fn a_creation_before_an_unconditional_write_is_overwritten() {
    let fixture = Fixture { blob: blob("c", "new"), ..fixture().await };
    fixture.before_next_swap(|store, blob| async move {
        assert!(store.put(&blob, put(pattern(5_000))).await.unwrap().created);
    });
    let written = fixture.store.put(&fixture.blob, put(pattern(6_000))).await.unwrap();
    assert!(fixture.happened() && !written.created);
    let (info, bytes) = fixture.read().await.unwrap();
    assert_eq!((info.tag, bytes), (written.tag, pattern(6_000)));
    assert!(info.created < info.generation.map(Revision::timestamp), "the blob is the one that was created");
    assert_eq!(bodies(fixture.folder()), 2);
}

#[tokio::test]
async fn a_deletion_before_a_change_of_fields_refuses_the_change() {
    let fixture = fixture().await;
    fixture.before_next_swap(|store, blob| async move { store.delete(&blob, Delete::default()).await.unwrap() });
    assert_eq!(kind(fixture.store.set_headers(&fixture.blob, owner("me")).await), StoreErrorKind::NotFound);
    assert!(fixture.read().await.is_none());
    assert_eq!(bodies(fixture.folder()), 0);
}

#[tokio::test]
async fn a_lease_before_a_swap_stops_it() {
    for what in ["put", "delete", "set_headers", "matching put"] {
        let fixture = fixture().await;
        let tag = fixture.read().await.unwrap().0.tag.unwrap();
        fixture.before_next_swap(|store, blob| async move { drop(store.lease(&blob, acquire(1)).await.unwrap()) });
        let preconditions = if_match(&tag);
        let (store, blob) = (&fixture.store, &fixture.blob);
        let refused = match what {
            "put" => kind(store.put(blob, put(pattern(5_000))).await),
            "delete" => kind(store.delete(blob, Delete::default()).await),
            "set_headers" => kind(store.set_headers(blob, owner("me")).await),
            _ => kind(store.put(blob, Put { preconditions, ..put(pattern(5_000)) }).await),
        };
        assert_eq!(refused, StoreErrorKind::LeaseFailed(LeaseFailure::IdMissing), "{what}");
        let (info, bytes) = fixture.read().await.unwrap();
        assert_eq!((info.tag, bytes), (Some(tag), pattern(10_000)), "{what}");
        assert_eq!(bodies(fixture.folder()), 1, "{what}");
    }
}

#[tokio::test]
async fn a_deletion_before_a_lease_leaves_nothing_to_lease() {
    let fixture = fixture().await;
    fixture.before_next_swap(|store, blob| async move { store.delete(&blob, Delete::default()).await.unwrap() });
    assert_eq!(kind(fixture.store.lease(&fixture.blob, acquire(1)).await), StoreErrorKind::NotFound);
    assert!(fixture.store.put(&fixture.blob, put("x")).await.unwrap().created);
}

#[tokio::test]
async fn a_write_before_a_conditional_lease_stops_it() {
    let fixture = fixture().await;
    let tag = fixture.read().await.unwrap().0.tag.unwrap();
    fixture.before_next_swap(|store, blob| async move { drop(store.put(&blob, put("other")).await.unwrap()) });
    let request = LeaseRequest { preconditions: if_match(&tag), ..acquire(1) };
    let refused = kind(fixture.store.lease(&fixture.blob, request).await);
    assert!(matches!(refused, StoreErrorKind::PreconditionFailed { .. }), "{refused:?}");
    assert_eq!(fixture.read().await.unwrap().0.lease, None);
}

/// The container is deleted and created again after the write has looked it up for the last time.
#[tokio::test]
async fn a_write_overtaken_by_a_deletion_is_not_in_the_next_container() {
    for missing in [MissingContainer::Refuse, MissingContainer::Create] {
        let fixture = fixture().await;
        fixture.before_next_swap(|store, blob| async move {
            store.delete_container(&blob.container, Delete::default()).await.unwrap();
            store.create_container(&blob.container, BlobHeaders::default()).await.unwrap();
        });
        let late = Put { container: missing, ..put(pattern(6_000)) };
        // The write counts as the last one before the deletion.
        fixture.store.put(&fixture.blob, late).await.unwrap();
        assert!(fixture.happened());
        assert!(fixture.read().await.is_none());
        let query = ListQuery::first(10);
        let listed = fixture.store.list(&fixture.blob.container, &query).await.unwrap().unwrap();
        assert_eq!(listed.items, []);
        fixture.store.put(&fixture.blob, put(pattern(7_000))).await.unwrap();
        fixture.store.forget_deletions().await.unwrap();
        let scan = Scan { prefix: "b/", after: None, limit: 10 };
        assert_eq!(fixture.register.records().scan(&scan).await.unwrap().len(), 1, "only what can be reached is kept");
        assert_eq!(fixture.read().await.unwrap().1, pattern(7_000));
        assert_eq!(bodies(fixture.folder()), 1);
    }
}

/// Opening a store collects unreferenced bodies, and this body has no record yet.
#[tokio::test]
async fn a_second_store_does_not_open_the_folder_between_a_body_and_its_record() {
    let fixture = fixture().await;
    let (folder, register) = (fixture.folder().to_owned(), fixture.register.clone());
    fixture.before_next_swap(|_, _| async move {
        let second = EmbeddedStore::with_driver(folder, Driver::new(register)).await;
        assert_eq!(second.map(drop).unwrap_err().kind(), OpenErrorKind::InUse);
    });
    fixture.store.put(&fixture.blob, put(pattern(20_000))).await.unwrap();
    assert!(fixture.happened());
    assert_eq!(fixture.read().await.unwrap().1, pattern(20_000));

    let Fixture { folder, register, store, blob } = fixture;
    drop(store);
    let store = reopen(async || EmbeddedStore::with_driver(folder.path(), Driver::new(register.clone())).await).await;
    assert_eq!(Fixture { folder, register, store, blob }.read().await.unwrap().1, pattern(20_000));
}

/// The write has looked up its container when the deletion begins.
#[tokio::test]
async fn the_deletion_of_an_empty_container_waits_for_a_write() {
    let fixture = fixture().await;
    fixture.store.delete(&fixture.blob, Delete::default()).await.unwrap();
    let deleting = Arc::new(Mutex::new(None));
    let begun = Arc::clone(&deleting);
    fixture.before_next_swap(|store, blob| async move {
        let deleted =
            tokio::spawn(async move { store.delete_empty_container(&blob.container, Delete::default()).await });
        *begun.lock().unwrap() = Some(deleted);
        // Time enough for the deletion, if it did not wait.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
    fixture.store.put(&fixture.blob, put("1")).await.expect("it began before");
    assert!(fixture.happened());
    let deleting = deleting.lock().unwrap().take().expect("it began");
    assert_eq!(kind(deleting.await.unwrap()), StoreErrorKind::ContainerNotEmpty);
    assert_eq!(fixture.read().await.expect("it was acknowledged").1, "1");
}
