//! Failing disks and indexes: a clear response, the old blob intact, nothing left over.

use std::fs;
use std::future::ready;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Full;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use ifmatch_blob::store::{Delete, Put, StoreError, StoreErrorKind, Upload, Wrapper};
use ifmatch_blob::sweep::{self, IsUsed};
use ifmatch_blob::test_util::reopen;
use ifmatch_blob::{BlobService, BlobStore};
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_register::faulty::{Fault, FaultyRegister};
use ifmatch_register::{Driver, RegisterErrorKind};

use crate::support::{bytes, files_in, fixture, request, send};

/// Set in the process that may only write short files.
const LIMITED: &str = "IFMATCH_TEST_FILE_SIZE_LIMITED";

/// A limit on file sizes simulates a full disk: the system rejects the write in the middle of a body.
#[test]
fn a_full_disk_gives_507_and_keeps_the_old_blob() {
    let this = std::env::current_exe().expect("a path");
    let script = "trap '' XFSZ; ulimit -f 8192; exec \"$0\" --exact faults::in_the_limited_process --nocapture";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(this)
        .env(LIMITED, "1")
        .output()
        .expect("sh runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed") && text.contains("the disk was full"),
        "{output:?}"
    );
}

#[tokio::test]
async fn in_the_limited_process() {
    let limited = std::env::var_os(LIMITED).is_some();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let service = BlobService::new(Arc::new(
        IndexedStore::open(folder.path()).await.expect("opens"),
    ));
    let old = send(
        &service,
        request(Method::PUT, "/c/b", &[], bytes(1_000_000, 1)),
    )
    .await;
    let put = send(
        &service,
        request(Method::PUT, "/c/b", &[], bytes(9_000_000, 2)),
    )
    .await;
    if limited {
        assert_eq!(
            (put.status.as_u16(), put.problem().as_str()),
            (507, "insufficient-storage")
        );
        let got = send(&service, request(Method::GET, "/c/b", &[], "")).await;
        assert_eq!((got.tag(), got.body.len()), (old.tag(), 1_000_000));
        println!("the disk was full");
    } else {
        assert_eq!(put.status, StatusCode::OK);
    }
    assert_eq!(
        files_in(&folder.path().join("tmp")) + files_in(&folder.path().join("bodies")),
        1
    );
    assert_eq!(
        send(&service, request(Method::PUT, "/c/b", &[], "small"))
            .await
            .status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn an_unwritable_folder_gives_503_and_reads_continue() {
    let fixture = fixture().await;
    let tag = fixture.put("/c/b", bytes(10_000, 1)).await.tag();
    let temporary = fixture.folder.path().join("tmp");
    fs::remove_dir(&temporary).expect("removed");
    fs::write(&temporary, "no folder").expect("written");
    let put = fixture.put("/c/b", bytes(10_000, 2)).await;
    assert_eq!(
        (put.status.as_u16(), put.problem().as_str()),
        (503, "unavailable")
    );
    assert_eq!(put.header("retry-after"), "1");
    assert_eq!(fixture.get("/c/b").await.tag(), tag);
    assert_eq!(
        fixture.put("/c/small", "needs no file").await.status,
        StatusCode::CREATED
    );
}

#[tokio::test]
async fn a_failed_rename_leaves_nothing_behind() {
    let fixture = fixture().await;
    for shard in fs::read_dir(fixture.folder.path().join("bodies")).expect("a folder") {
        fs::remove_dir(shard.expect("an entry").path()).expect("removed");
    }
    assert_eq!(
        fixture.put("/c/b", bytes(10_000, 1)).await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(fixture.files(), 0);
    assert_eq!(fixture.get("/c/b").await.status, StatusCode::NOT_FOUND);
}

/// A store that deletes nothing.
struct Undeletable(IndexedStore);

#[async_trait]
impl Wrapper for Undeletable {
    fn inner(&self) -> &dyn BlobStore {
        &self.0
    }

    async fn delete(&self, _: &BlobPath, _: Delete) -> Result<(), StoreError> {
        Err(StoreErrorKind::Unavailable.into())
    }
}

#[tokio::test]
async fn a_sweep_reports_a_store_that_fails() {
    let fixture = fixture().await;
    let container = ContainerName::internal("left").expect("valid");
    let left = BlobPath {
        container: container.clone(),
        name: BlobName::new("b").expect("valid"),
    };
    let put = Put::new(Upload::new(Full::<Bytes>::from("x")));
    fixture.store.put(&left, put).await.expect("written");
    fixture.clock.advance(Duration::from_hours(2));
    let sweep = async |store: Arc<dyn BlobStore>| {
        let service = BlobService::with_clock(store, fixture.clock.clone());
        let is_unused: IsUsed = |_, _| Box::pin(ready(Ok(false)));
        let containers = [(&container, is_unused)];
        sweep::remove_old(
            service.context(),
            "test",
            Duration::from_hours(1),
            &containers,
        )
        .await
    };
    let failed = sweep(Arc::new(Undeletable(fixture.store.clone()))).await;
    assert_eq!(
        failed.expect_err("it can't delete").kind(),
        &StoreErrorKind::Unavailable
    );
    let swept = sweep(Arc::new(fixture.store.clone())).await;
    assert_eq!(swept.expect("it can delete"), 1);
}

/// Returns the response to an overwrite with a failing swap, the blob in a working index, and the number of bodies.
async fn overwrite(fault: Fault) -> (StatusCode, String, u64, usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let register = FaultyRegister::default();
    let inner = Arc::clone(register.records());
    // The container, and the blob's first version.
    register.schedule([Fault::None, Fault::None]);
    register.schedule([fault; 100]);
    let store = IndexedStore::with_driver(folder.path(), Driver::new(register))
        .await
        .expect("opens");
    let service = BlobService::new(Arc::new(store));
    let old = send(
        &service,
        request(Method::PUT, "/c/b", &[], bytes(10_000, 1)),
    )
    .await;
    assert_eq!(old.status, StatusCode::CREATED);
    let put = send(
        &service,
        request(Method::PUT, "/c/b", &[], bytes(20_000, 2)),
    )
    .await;
    let problem = if put.status.is_success() {
        String::new()
    } else {
        put.problem()
    };
    drop(service);
    let open =
        async || IndexedStore::with_driver(folder.path(), Driver::new(Arc::clone(&inner))).await;
    let working = reopen(open).await;
    let got = send(
        &BlobService::new(Arc::new(working)),
        request(Method::GET, "/c/b", &[], ""),
    )
    .await;
    assert_eq!(got.status, StatusCode::OK, "an acknowledged blob is gone");
    (
        put.status,
        problem,
        got.body.len() as u64,
        files_in(&folder.path().join("bodies")),
    )
}

#[tokio::test]
async fn an_index_failure_before_the_swap_keeps_the_old_blob() {
    for (kind, status, problem) in [
        (
            RegisterErrorKind::Unavailable,
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
        ),
        (
            RegisterErrorKind::Full,
            StatusCode::INSUFFICIENT_STORAGE,
            "insufficient-storage",
        ),
    ] {
        assert_eq!(
            overwrite(Fault::Failed(kind)).await,
            (status, problem.to_owned(), 10_000, 1)
        );
    }
}

/// The process doesn't know which of the two bodies is in use, so neither may be removed.
#[tokio::test]
async fn the_current_version_is_readable_after_a_swap_without_an_answer() {
    let unknown = (
        StatusCode::SERVICE_UNAVAILABLE,
        "outcome-unknown".to_owned(),
    );
    for (takes_effect, length) in [(true, 20_000), (false, 10_000)] {
        let (status, problem, got, files) = overwrite(Fault::Unanswered {
            done: takes_effect,
            then_cut: true,
        })
        .await;
        assert_eq!(
            ((status, problem), got, files),
            (unknown.clone(), length, 1)
        );
    }
}

#[tokio::test]
async fn a_swap_without_an_answer_succeeds_if_it_took_effect() {
    let found = overwrite(Fault::Unanswered {
        done: true,
        then_cut: false,
    })
    .await;
    assert_eq!(found, (StatusCode::OK, String::new(), 20_000, 1));
}
