//! Leases that end during an operation, and dates, by a manual clock.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_blob::BlobStore;
use ifmatch_blob::conformance::headers::set;
use ifmatch_blob::conformance::leases::{id, request};
use ifmatch_blob::conformance::{blob, gated, kind, put};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Delete, HeaderChange, LeaseRequest, Put, Reading, StoreErrorKind};
use ifmatch_blob::test_util::{ManualClock, reopen};
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_core::lease::{
    LeaseAction, LeaseConflict, LeaseDuration, LeaseFailure, LeaseState, LeaseUse,
};
use ifmatch_register::{Driver, MemoryRegister};
use tempfile::TempDir;

use crate::support::read;

struct Fixture {
    _folder: TempDir,
    clock: ManualClock,
    store: IndexedStore,
}

async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::default().with_timers();
    let driver = Driver::with_clock(MemoryRegister::unbounded(), clock.clone());
    let store = IndexedStore::with_driver(folder.path(), driver)
        .await
        .unwrap();
    Fixture {
        _folder: folder,
        clock,
        store,
    }
}

fn for_15_seconds(number: u8) -> LeaseRequest {
    let duration = LeaseDuration::from_seconds(15).unwrap();
    request(LeaseAction::Acquire {
        id: id(number),
        duration,
        holder: None,
    })
}

fn with(number: u8) -> LeaseUse {
    LeaseUse::Write(Some(id(number)))
}

impl Fixture {
    async fn leased(&self, name: &str) -> BlobPath {
        let blob = blob("times", name);
        self.store.put(&blob, put("before")).await.unwrap();
        self.store.lease(&blob, for_15_seconds(1)).await.unwrap();
        blob
    }

    /// Uploads with a lease, and runs something while the body arrives.
    async fn upload(
        &self,
        blob: &BlobPath,
        meanwhile: impl AsyncFnOnce(),
    ) -> Result<(), StoreErrorKind> {
        let (body, asked, open) = gated("holder");
        let upload = self.store.put(
            blob,
            Put {
                lease: with(1),
                body,
                ..put("")
            },
        );
        let (result, ()) = futures_util::join!(upload, async {
            asked.await.unwrap();
            meanwhile().await;
            open.send(()).unwrap();
        });
        result.map(drop).map_err(|error| error.kind().clone())
    }
}

#[tokio::test]
async fn a_lease_that_ends_during_an_upload_stops_it() {
    let fixture = fixture().await;
    let blob = fixture.leased("ends").await;
    let ended = fixture
        .upload(&blob, async || {
            fixture.clock.advance(Duration::from_secs(15));
        })
        .await;
    assert_eq!(ended, Err(StoreErrorKind::LeaseFailed(LeaseFailure::Lost)));
    assert_eq!(read(&fixture.store, &blob).await, "before");
}

#[tokio::test]
async fn an_upload_continues_if_its_lease_is_renewed() {
    let fixture = fixture().await;
    let blob = fixture.leased("renewed").await;
    let renewed = fixture.upload(&blob, async || {
        fixture.clock.advance(Duration::from_secs(14));
        fixture
            .store
            .lease(&blob, request(LeaseAction::Renew(id(1))))
            .await
            .unwrap();
        fixture.clock.advance(Duration::from_secs(14));
    });
    assert_eq!(renewed.await, Ok(()));
    assert_eq!(read(&fixture.store, &blob).await, "holder");
}

#[tokio::test]
async fn a_holder_replaced_during_an_upload_writes_nothing() {
    let fixture = fixture().await;
    let blob = fixture.leased("replaced").await;
    let replaced = fixture.upload(&blob, async || {
        fixture.clock.advance(Duration::from_secs(15));
        fixture.store.lease(&blob, for_15_seconds(2)).await.unwrap();
        fixture
            .store
            .put(
                &blob,
                Put {
                    lease: with(2),
                    ..put("successor")
                },
            )
            .await
            .unwrap();
    });
    assert_eq!(
        replaced.await,
        Err(StoreErrorKind::LeaseFailed(LeaseFailure::IdMismatch))
    );
    assert_eq!(read(&fixture.store, &blob).await, "successor");
}

#[tokio::test]
async fn an_expired_lease_can_be_renewed_until_the_next_write() {
    let fixture = fixture().await;
    let blob = fixture.leased("expired").await;
    let renew = || request(LeaseAction::Renew(id(1)));
    fixture.clock.advance(Duration::from_mins(1));
    fixture.store.lease(&blob, renew()).await.unwrap();
    fixture.clock.advance(Duration::from_secs(15));
    fixture.store.put(&blob, put("somebody")).await.unwrap();
    let refused = kind(fixture.store.lease(&blob, renew()).await);
    assert_eq!(
        refused,
        StoreErrorKind::LeaseConflict(LeaseConflict::IdMismatch)
    );
}

#[tokio::test]
async fn an_expired_lease_of_a_container_can_be_renewed_after_writes() {
    let fixture = fixture().await;
    let blob = blob("times-container", "x");
    fixture.store.put(&blob, put("1")).await.unwrap();
    fixture
        .store
        .lease_container(&blob.container, for_15_seconds(1))
        .await
        .unwrap();
    fixture.clock.advance(Duration::from_secs(15));
    fixture.store.put(&blob, put("2")).await.unwrap();
    let change = HeaderChange::Metadata([].into());
    fixture
        .store
        .set_container(&blob.container, set(change))
        .await
        .unwrap();
    fixture
        .store
        .lease_container(&blob.container, request(LeaseAction::Renew(id(1))))
        .await
        .unwrap();
    let delete = || {
        fixture
            .store
            .delete_container(&blob.container, Delete::default())
    };
    assert_eq!(
        kind(delete().await),
        StoreErrorKind::LeaseFailed(LeaseFailure::IdMissing)
    );
    fixture.clock.advance(Duration::from_secs(15));
    delete().await.unwrap();
}

/// The container's record stays decoded in memory.
#[tokio::test]
async fn a_container_in_memory_shows_that_its_lease_has_ended() {
    let fixture = fixture().await;
    let container = blob("times-shown", "x").container;
    fixture
        .store
        .create_container(&container, BlobHeaders::default())
        .await
        .unwrap();
    fixture
        .store
        .lease_container(&container, for_15_seconds(1))
        .await
        .unwrap();
    let state = async || {
        fixture
            .store
            .container(&container)
            .await
            .unwrap()
            .unwrap()
            .lease
            .unwrap()
            .state()
    };
    assert_eq!(
        (state().await, state().await),
        (LeaseState::Leased, LeaseState::Leased)
    );
    fixture.clock.advance(Duration::from_secs(15));
    assert_eq!(state().await, LeaseState::Expired);
}

/// A client with a recurring date would overwrite a version that it has never seen.
#[tokio::test]
async fn no_date_recurs_after_a_restart_with_a_clock_set_back() {
    let (folder, register) = (
        tempfile::tempdir().unwrap(),
        Arc::new(MemoryRegister::unbounded()),
    );
    let (late, early) = (
        ManualClock::default().with_timers(),
        ManualClock::default().with_timers(),
    );
    late.advance(Duration::from_secs(10));
    let blob = blob("times", "dates");
    let mut dates = Vec::new();
    for clock in [late, early] {
        let driver = || Driver::with_clock(Arc::clone(&register), clock.clone());
        let store = reopen(async || IndexedStore::with_driver(folder.path(), driver()).await).await;
        for text in ["one", "two"] {
            let written = store.put(&blob, put(text)).await.unwrap();
            let shown = store
                .open(&blob, Reading::HEAD)
                .await
                .unwrap()
                .unwrap()
                .info;
            assert_eq!(written.last_modified, shown.last_modified);
            dates.push(shown.last_modified);
        }
        store.delete(&blob, Delete::default()).await.unwrap();
        drop(store);
    }
    assert!(
        dates.is_sorted_by(|before, after| before < after),
        "{dates:?}"
    );
}
