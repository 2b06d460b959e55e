//! Every pair of changes of which one arrives while the other's swap is under way, or waits in the same group, by means of a
//! register that stops before a swap. And changes of other records before a swap.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ifmatch_blob::BlobStore;
use ifmatch_blob::conformance::headers::set;
use ifmatch_blob::conformance::leases::acquire;
use ifmatch_blob::conformance::{blob, if_match, kind, pattern, put};
use ifmatch_blob::headers::{Append, BlobHeaders, FieldText};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    AppendBlock, BlobInfo, ContentChange, Current, Delete, HeaderChange, LeaseRequest, ListQuery,
    MissingContainer, Put, Reading, StoreErrorKind, Update, Updated, Written,
};
use ifmatch_blob::test_util::reopen;
use ifmatch_blob_indexed::{IndexedStore, OpenErrorKind};
use ifmatch_core::EntityTag;
use ifmatch_core::lease::LeaseFailure;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Revision;
use ifmatch_register::faulty::FaultyRegister;
use ifmatch_register::{Driver, Register, Scan};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::support::{bodies, bytes};

type Store = IndexedStore;

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
    let store = IndexedStore::with_driver(folder.path(), Driver::new(register.clone()))
        .await
        .unwrap();
    let blob = blob("c", "b");
    store.put(&blob, put(pattern(10_000))).await.unwrap();
    Fixture {
        folder,
        register,
        store,
        blob,
    }
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

    /// Performs the first act. The second one arrives while its swap is under way.
    async fn perform(
        &self,
        first: Act,
        second: Act,
        tag: Option<&EntityTag>,
    ) -> Result<(), StoreErrorKind> {
        let (sent, is_sent) = oneshot::channel();
        let expected = tag.cloned();
        self.before_next_swap(move |store, blob| async move {
            let second = async move { second.perform(&store, &blob, expected.as_ref()).await };
            sent.send(tokio::spawn(second)).unwrap();
            // Time enough to arrive. If it takes longer, it begins later, with the same result.
            tokio::time::sleep(Duration::from_millis(10)).await;
        });
        first.perform(&self.store, &self.blob, tag).await.unwrap();
        is_sent.await.unwrap().await.unwrap()
    }

    async fn read(&self) -> Option<(BlobInfo, Bytes)> {
        let mut opened = self
            .store
            .open(&self.blob, Reading::WHOLE)
            .await
            .expect("readable")?;
        let bytes = bytes(&mut opened).await;
        Some((opened.info, bytes))
    }

    fn happened(&self) -> bool {
        !self.register.waits_for_swap()
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// A request for the blob. One that matches requires the version that was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Writes this number of bytes.
    Put(usize),
    PutMatching(usize),
    SetOwner,
    SetType,
    Delete,
    Lease,
    LeaseMatching,
}

impl Act {
    async fn perform(
        self,
        store: &Store,
        blob: &BlobPath,
        tag: Option<&EntityTag>,
    ) -> Result<(), StoreErrorKind> {
        let (owner, media_type) = (
            FieldText::new("me").unwrap(),
            FieldText::new("text/plain").unwrap(),
        );
        let fields = BlobHeaders {
            content_type: Some(media_type),
            ..BlobHeaders::default()
        };
        let preconditions = Preconditions::unchanged(tag);
        let ended = match self {
            Self::Put(length) => store.put(blob, put(pattern(length))).await.map(drop),
            Self::PutMatching(length) => store
                .put(
                    blob,
                    Put {
                        preconditions,
                        ..put(pattern(length))
                    },
                )
                .await
                .map(drop),
            Self::SetOwner => store
                .set_headers(
                    blob,
                    set(HeaderChange::Metadata([("owner".into(), owner)].into())),
                )
                .await
                .map(drop),
            Self::SetType => store
                .set_headers(blob, set(HeaderChange::Fields(fields.into())))
                .await
                .map(drop),
            Self::Delete => store.delete(blob, Delete::default()).await,
            Self::Lease => store.lease(blob, acquire(1)).await.map(drop),
            Self::LeaseMatching => store
                .lease(
                    blob,
                    LeaseRequest {
                        preconditions,
                        ..acquire(1)
                    },
                )
                .await
                .map(drop),
        };
        ended.map_err(|error| error.kind().clone())
    }
}

/// The blob afterwards: its length, whether it has an owner, its type, and its lease.
type End = Option<(u64, bool, bool, bool)>;

/// Each request, another one before it, its error, and the end. The blob has 10,000 bytes before. The other one's swap is under way
/// when the request arrives.
#[tokio::test]
async fn a_request_is_decided_on_the_version_that_it_replaces() {
    use Act::{Delete, Lease, LeaseMatching, Put, PutMatching, SetOwner, SetType};
    let leased = || Some(StoreErrorKind::LeaseFailed(LeaseFailure::IdMissing));
    let gone = || Some(StoreErrorKind::NotFound);
    let rows: [(Act, Act, Option<StoreErrorKind>, End); 12] = [
        (
            SetOwner,
            Put(20_000),
            None,
            Some((20_000, true, false, false)),
        ),
        (
            Put(20_000),
            SetOwner,
            None,
            Some((20_000, false, false, false)),
        ),
        (SetType, SetOwner, None, Some((10_000, true, true, false))),
        (Put(6_000), Delete, None, Some((6_000, false, false, false))),
        (SetOwner, Delete, gone(), None),
        (Lease, Delete, gone(), None),
        (Delete, Delete, gone(), None),
        (
            Put(5_000),
            Lease,
            leased(),
            Some((10_000, false, false, true)),
        ),
        (
            PutMatching(5_000),
            Lease,
            leased(),
            Some((10_000, false, false, true)),
        ),
        (
            SetOwner,
            Lease,
            leased(),
            Some((10_000, false, false, true)),
        ),
        (Delete, Lease, leased(), Some((10_000, false, false, true))),
        (Lease, Put(5_000), None, Some((5_000, false, false, true))),
    ];
    for (act, other, error, end) in rows {
        let row = format!("{act:?}, {other:?} before");
        let fixture = fixture().await;
        let before = fixture.read().await.unwrap().0;
        let ended = fixture.perform(other, act, before.tag.as_ref()).await;
        assert_eq!(ended.err(), error, "{row}");
        let (info, bytes) = fixture.read().await.unzip();
        assert_eq!(
            bytes.map(|bytes| bytes == pattern(bytes.len())),
            end.map(|_| true),
            "{row}"
        );
        let found = info.as_ref().map(|info| {
            let headers = &info.headers;
            (
                info.length,
                headers.metadata.contains_key("owner"),
                headers.content_type.is_some(),
                info.lease.is_some(),
            )
        });
        assert_eq!(found, end, "{row}");
        let is_same = other != Act::Delete;
        assert!(
            info.is_none_or(|info| (info.created == before.created) == is_same),
            "{row}"
        );
        assert_eq!(
            bodies(fixture.folder()),
            usize::from(end.is_some()),
            "{row}: files"
        );
    }
    // Another version than the expected one.
    for act in [PutMatching(5_000), LeaseMatching] {
        let fixture = fixture().await;
        let tag = fixture.read().await.unwrap().0.tag;
        let refused = fixture.perform(Put(7_000), act, tag.as_ref()).await;
        assert!(
            matches!(refused, Err(StoreErrorKind::PreconditionFailed { .. })),
            "{act:?}: {refused:?}"
        );
        let info = fixture.read().await.unwrap().0;
        assert_eq!(
            (info.length, info.lease, bodies(fixture.folder())),
            (7_000, None, 1),
            "{act:?}"
        );
    }
}

#[tokio::test]
async fn a_creation_before_an_unconditional_write_is_overwritten() {
    let fixture = Fixture {
        blob: blob("c", "new"),
        ..fixture().await
    };
    fixture
        .perform(Act::Put(5_000), Act::Put(6_000), None)
        .await
        .unwrap();
    let (info, bytes) = fixture.read().await.unwrap();
    assert_eq!(bytes, pattern(6_000));
    assert!(
        info.created < info.generation.map(Revision::timestamp),
        "the blob is the one that was created"
    );
    assert_eq!(bodies(fixture.folder()), 2);
}

/// Many writes of one blob wait while a swap is under way, and share the next ones. Only the last version of each swap is stored.
#[tokio::test]
async fn the_bodies_of_skipped_versions_are_removed() {
    let fixture = fixture().await;
    let (sent, is_sent) = oneshot::channel();
    fixture.before_next_swap(move |store, blob| async move {
        let write = |length| {
            let (store, blob) = (store.clone(), blob.clone());
            tokio::spawn(async move {
                (
                    length,
                    store.put(&blob, put(pattern(length))).await.unwrap(),
                )
            })
        };
        sent.send((5_001..5_021).map(write).collect::<Vec<_>>())
            .unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    });
    Act::Put(5_000)
        .perform(&fixture.store, &fixture.blob, None)
        .await
        .unwrap();
    let mut written = Vec::new();
    for write in is_sent.await.unwrap() {
        written.push(write.await.unwrap());
    }
    let (length, last) = written
        .iter()
        .max_by_key(|(_, written)| written.generation)
        .unwrap();
    let (info, bytes) = fixture.read().await.unwrap();
    assert_eq!((info.tag, bytes), (last.tag.clone(), pattern(*length)));
    assert_eq!(bodies(fixture.folder()), 1);
    let dates = |written: &Written| written.last_modified;
    assert!(
        written
            .iter()
            .all(|(at, other)| at == length || dates(other) < dates(last)),
        "{written:?}"
    );
}

/// A group of changes returns to earlier content. Only the body in between is removed.
#[tokio::test]
async fn content_that_returns_within_a_group_keeps_its_body() {
    let fixture = fixture().await;
    let (store, blob) = (&fixture.store, &fixture.blob);
    let update = |length| {
        let replace = move |_: Option<&Current>| ContentChange::Replace(pattern(length));
        store.update(blob, Update::new(replace))
    };
    let updated = futures_util::join!(update(5_000), update(6_000), update(5_000));
    assert!(matches!(
        updated,
        (
            Ok(Updated::Replaced(_)),
            Ok(Updated::Replaced(_)),
            Ok(Updated::Replaced(_))
        )
    ));
    assert_eq!(fixture.read().await.unwrap().1, pattern(5_000));
    assert_eq!(bodies(fixture.folder()), 1);

    store.delete(blob, Delete::default()).await.unwrap();
    let empty = || {
        let headers = BlobHeaders {
            append: Some(Append::default()),
            ..BlobHeaders::default()
        };
        store.put(blob, Put { headers, ..put("") })
    };
    let append = || store.append(blob, AppendBlock::new(pattern(5_000)));
    empty().await.unwrap();
    let (first, emptied, second) = futures_util::join!(append(), empty(), append());
    assert_eq!((first.unwrap().offset, second.unwrap().offset), (0, 0));
    emptied.unwrap();
    assert_eq!(fixture.read().await.unwrap().1, pattern(5_000));
    assert_eq!(bodies(fixture.folder()), 1);
}

/// An append that is refused proposed a file. The deletion behind it doesn't write that file.
#[tokio::test]
async fn a_refused_append_leaves_no_body_to_a_deletion_in_its_group() {
    let fixture = fixture().await;
    let (store, blob) = (&fixture.store, &fixture.blob);
    let headers = BlobHeaders {
        append: Some(Append::default()),
        ..BlobHeaders::default()
    };
    let created = store.put(blob, Put { headers, ..put("") }).await.unwrap();
    let (sent, is_sent) = oneshot::channel();
    fixture.before_next_swap(move |store, blob| async move {
        let append = AppendBlock {
            preconditions: if_match(&created.tag.unwrap()),
            ..AppendBlock::new(pattern(5_000))
        };
        let (other, path) = (store.clone(), blob.clone());
        let append = tokio::spawn(async move { other.append(&path, append).await });
        let arrives = async || {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        };
        arrives().await;
        let deletion = Update::new(|_| ContentChange::Delete);
        let deletion = tokio::spawn(async move { store.update(&blob, deletion).await });
        arrives().await;
        sent.send((append, deletion)).unwrap();
    });
    let change = HeaderChange::Metadata([("n".into(), FieldText::new("v").unwrap())].into());
    store.set_headers(blob, set(change)).await.unwrap();
    let (append, deletion) = is_sent.await.unwrap();
    assert!(matches!(
        kind(append.await.unwrap()),
        StoreErrorKind::PreconditionFailed { .. }
    ));
    assert_eq!(deletion.await.unwrap().unwrap(), Updated::Deleted);
    assert_eq!(bodies(fixture.folder()), 0);
}

/// Changes that wait for one record have limits of their own. The blob has 10,000 bytes.
#[tokio::test]
async fn the_limit_of_an_update_holds_for_no_other_change() {
    let fixture = fixture().await;
    let update = |limit, length| {
        let replace = move |_: Option<&Current>| ContentChange::Replace(pattern(length));
        let update = Update::new(replace);
        fixture
            .store
            .update(&fixture.blob, Update { limit, ..update })
    };
    let (small, large, last) =
        futures_util::join!(update(5_000, 1), update(20_000, 9_000), update(8_000, 2));
    assert_eq!(kind(small), StoreErrorKind::TooLarge { limit: 5_000 });
    large.expect("its limit is larger");
    assert_eq!(kind(last), StoreErrorKind::TooLarge { limit: 8_000 });
    assert_eq!(fixture.read().await.unwrap().1, pattern(9_000));
}

/// The container is deleted and created again after the write has looked it up for the last time.
#[tokio::test]
async fn a_write_overtaken_by_a_deletion_is_not_in_the_next_container() {
    for missing in [MissingContainer::Refuse, MissingContainer::Create] {
        let fixture = fixture().await;
        fixture.before_next_swap(|store, blob| async move {
            store
                .delete_container(&blob.container, Delete::default())
                .await
                .unwrap();
            store
                .create_container(&blob.container, BlobHeaders::default())
                .await
                .unwrap();
        });
        let late = Put {
            container: missing,
            ..put(pattern(6_000))
        };
        // The write counts as the last one before the deletion.
        fixture.store.put(&fixture.blob, late).await.unwrap();
        assert!(fixture.happened());
        assert!(fixture.read().await.is_none());
        let query = ListQuery::first(10);
        let listed = fixture
            .store
            .list(&fixture.blob.container, &query)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(listed.items, []);
        fixture
            .store
            .put(&fixture.blob, put(pattern(7_000)))
            .await
            .unwrap();
        fixture.store.forget_deletions().await.unwrap();
        let scan = Scan {
            prefix: "b/",
            after: None,
            limit: 10,
        };
        assert_eq!(
            fixture.register.records().scan(&scan).await.unwrap().len(),
            1,
            "only what can be reached is kept"
        );
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
        let second = IndexedStore::with_driver(folder, Driver::new(register)).await;
        assert_eq!(second.map(drop).unwrap_err().kind(), OpenErrorKind::InUse);
    });
    fixture
        .store
        .put(&fixture.blob, put(pattern(20_000)))
        .await
        .unwrap();
    assert!(fixture.happened());
    assert_eq!(fixture.read().await.unwrap().1, pattern(20_000));

    let Fixture {
        folder,
        register,
        store,
        blob,
    } = fixture;
    drop(store);
    let store = reopen(async || {
        IndexedStore::with_driver(folder.path(), Driver::new(register.clone())).await
    })
    .await;
    assert_eq!(
        Fixture {
            folder,
            register,
            store,
            blob
        }
        .read()
        .await
        .unwrap()
        .1,
        pattern(20_000)
    );
}

/// The write has looked up its container when the deletion begins.
#[tokio::test]
async fn the_deletion_of_an_empty_container_waits_for_a_write() {
    let fixture = fixture().await;
    fixture
        .store
        .delete(&fixture.blob, Delete::default())
        .await
        .unwrap();
    let deleting = Arc::new(Mutex::new(None));
    let begun = Arc::clone(&deleting);
    fixture.before_next_swap(|store, blob| async move {
        let deleted = tokio::spawn(async move {
            store
                .delete_empty_container(&blob.container, Delete::default())
                .await
        });
        *begun.lock().unwrap() = Some(deleted);
        // Time enough for the deletion, if it didn't wait.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
    fixture
        .store
        .put(&fixture.blob, put("1"))
        .await
        .expect("it began before");
    assert!(fixture.happened());
    let deleting = deleting.lock().unwrap().take().expect("it began");
    assert_eq!(
        kind(deleting.await.unwrap()),
        StoreErrorKind::ContainerNotEmpty
    );
    assert_eq!(fixture.read().await.expect("it was acknowledged").1, "1");
}
