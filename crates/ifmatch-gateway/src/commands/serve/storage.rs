//! Opening of the configured store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ifmatch_blob::BlobStore;
use ifmatch_blob::store::StoreError;
use ifmatch_blob_indexed::{self as indexed, IndexedStore};
use ifmatch_blob_objects::ObjectBlobs;
use ifmatch_gateway_commands::store_url::{self, check_folder};
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::register_url::RegisterUrl;
use ifmatch_gateway_config::shown_url::without_secrets;
use ifmatch_gateway_config::{Config, Records, Storage};
use ifmatch_gateway_service::metrics::register::MeteredRegister;
use ifmatch_register::{Guarantee, Register};

use crate::commands::register::AcceptLosses;
use crate::commands::{bucket, register};

/// Average interval between sweeps.
const SWEEP: Duration = Duration::from_hours(24);
/// Interval between upkeep runs.
const UPKEEP: Duration = Duration::from_hours(1);

/// An open store.
pub(crate) struct OpenedStore {
    pub(crate) store: Arc<dyn BlobStore>,
    /// The store, if it is a folder and can take snapshots.
    pub(crate) folder: Option<IndexedStore>,
    /// The register of an object store.
    pub(crate) register: Option<Arc<dyn Register>>,
}

impl OpenedStore {
    fn new(store: impl BlobStore) -> Self {
        Self {
            store: Arc::new(store),
            folder: None,
            register: None,
        }
    }
}

/// Opens the store.
///
/// # Errors
/// Describes the problem with the folder or the URL, and its solution.
pub(crate) async fn open(config: &Config) -> Result<OpenedStore, Error> {
    match &config.storage {
        Storage::Folder(folder) => {
            check_folder("--data", folder)?;
            let store = IndexedStore::open(folder)
                .await
                .map_err(|error| folder_error(folder, &error))?;
            let kept = store.clone();
            tokio::spawn(upkeep(async move || kept.forget_deletions().await));
            Ok(OpenedStore {
                folder: Some(store.clone()),
                ..OpenedStore::new(store)
            })
        }
        Storage::Bucket { url, register } => open_bucket(url, register).await,
        Storage::Store { url, records } => {
            open_objects(url, records, config.server.settings.register_may_lose).await
        }
    }
}

/// Opens an object store with its records. `may_lose`: their register may lose acknowledged changes.
async fn open_objects(url: &str, records: &Records, may_lose: bool) -> Result<OpenedStore, Error> {
    let name = format!("--store {}", without_secrets(url));
    let backing = store_url::open(&name, url)?;
    let register = match records {
        Records::Memory => register::memory(),
        Records::Folder(folder) => {
            check_folder("--data", folder)?;
            register::in_folder(folder).await?
        }
        Records::Register(url) => lasting(register::open(url).await?, may_lose)?,
    };
    // For checks of readiness, whose swaps always conflict.
    let unmetered = Some(Arc::clone(&register));
    let register = Arc::new(MeteredRegister::new(register));
    let store_error = |error| store_url::failed(&name, &error);
    if register.engine().guarantee == Guarantee::Process {
        let store = ObjectBlobs::open(backing, register)
            .await
            .map_err(store_error)?;
        return Ok(OpenedStore {
            register: unmetered,
            ..OpenedStore::new(store)
        });
    }
    let store = ObjectBlobs::open_durable(backing, register)
        .await
        .map_err(store_error)?;
    if let Records::Folder(_) = records {
        // No other process can open the folder.
        tokio::spawn(settle(store.settle_earlier_writes()));
    }
    let kept = store.clone();
    tokio::spawn(upkeep(async move || kept.forget_idle().await.map(drop)));
    Ok(OpenedStore {
        register: unmetered,
        ..OpenedStore::new(store)
    })
}

async fn open_bucket(url: &str, register: &RegisterUrl) -> Result<OpenedStore, Error> {
    let (store, register) = bucket::open(url, register).await?;
    let kept = store.clone();
    tokio::spawn(upkeep(async move || kept.forget_deletions().await));
    tokio::spawn(sweep(store.clone()));
    Ok(OpenedStore {
        register: Some(register),
        ..OpenedStore::new(store)
    })
}

/// Removes what killed processes left in a bucket, once a day at random times, so gateways that start together take turns.
async fn sweep(store: IndexedStore) {
    loop {
        // In thousandths.
        let share = ifmatch_runtime::nonce().map_or(1_000, |nonce| 1 + nonce % 2_000);
        tokio::time::sleep(SWEEP * u32::try_from(share).unwrap_or(1_000) / 1_000).await;
        match store.sweep().await {
            Ok(0) => {}
            Ok(bodies) => {
                tracing::info!(bodies, "removed what killed processes left in the bucket");
            }
            Err(error) => tracing::warn!(%error, "the sweep failed; retrying later"),
        }
    }
}

/// Refuses a register that may lose acknowledged changes, unless the operator accepts that.
fn lasting(register: Arc<dyn Register>, may_lose: bool) -> Result<Arc<dyn Register>, Error> {
    match (register.engine().guarantee.may_lose_swaps(), may_lose) {
        (false, _) => Ok(register),
        (true, true) => Ok(Arc::new(AcceptLosses(register))),
        (true, false) => Err(Error::usage(
            "this --register may lose acknowledged changes in a failover, and with them leases and deletions of containers. \
             Use PostgreSQL, or accept the risk with --register-may-lose.",
        )),
    }
}

/// Ends what a killed process left behind.
async fn settle(work: impl Future<Output = Result<u64, StoreError>>) {
    match work.await {
        Ok(0) => {}
        Ok(count) => {
            tracing::info!(
                count,
                "an earlier process ended during writes. Their blobs can be written again soon"
            );
        }
        Err(error) => {
            tracing::warn!(%error, "writes of an earlier process may block others for up to a minute");
        }
    }
}

/// Runs `forget` at each interval, until the process ends.
async fn upkeep(forget: impl AsyncFn() -> Result<(), StoreError>) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        if let Err(error) = forget().await {
            tracing::warn!(%error, "upkeep failed; retrying later");
        }
    }
}

/// Returns the error of a data folder that can't be used.
pub(crate) fn folder_error(folder: &Path, error: &indexed::OpenError) -> Error {
    use indexed::OpenErrorKind as Kind;
    let hint = match error.kind() {
        Kind::InUse => {
            "Another ifmatch process uses this folder. Stop it, or choose another folder."
        }
        Kind::Denied => "Grant this user write access, or choose another folder.",
        Kind::Full => "Free some disk space, or choose another folder.",
        Kind::Unreadable => {
            "It is damaged, or a newer release wrote it. Restore a backup, or run that release."
        }
        _ => "Correct the cause, or choose another folder.",
    };
    // The hint says it all if the folder is in use.
    let cause = if error.kind() == Kind::InUse {
        String::new()
    } else {
        format!("\nCause: {error}")
    };
    let message = format!("can't use --data {}. {hint}{cause}", folder.display());
    match error.kind() {
        Kind::InUse => Error::in_use(message),
        Kind::Unreadable => Error::damaged(message),
        _ => Error::runtime(message),
    }
}
