//! Opening of the configured store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ifmatch_blob::BlobStore;
use ifmatch_blob::store::{BoxError, StoreError};
use ifmatch_blob_embedded::{self as embedded, EmbeddedStore};
use ifmatch_blob_objects::{self as objects, Backing, ObjectBlobs};
use ifmatch_redb::RedbRegister;
use ifmatch_register::{AnyRegister, MemoryRegister};

use crate::commands::folder;
use crate::config::Storage;
use crate::error::Error;

/// Maximum number of records in a register in memory. Evicted records are read from the object store again when needed.
const MEMORY_RECORDS: usize = 1_000_000;

/// Interval between upkeep runs.
const UPKEEP: Duration = Duration::from_hours(1);

/// Opens the store.
///
/// # Errors
/// Describes the problem with the folder or the URL, and its solution.
pub(crate) async fn open(storage: &Storage) -> Result<Arc<dyn BlobStore>, Error> {
    match storage {
        Storage::Folder(folder) => {
            folder::check("--data", folder)?;
            let store = EmbeddedStore::open(folder).await.map_err(|error| folder_error(folder, &error))?;
            let kept = store.clone();
            tokio::spawn(upkeep(async move || kept.forget_deletions().await));
            Ok(Arc::new(store))
        }
        Storage::Store { url, register } => {
            let settings = std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
            let backing = Backing::from_url(url, settings).map_err(|error| store_error(url, &error))?;
            let opened = if let Some(folder) = register {
                folder::check("--data", folder)?;
                let opened = ObjectBlobs::open_durable(backing, durable_register(folder).await?).await;
                if let Ok(store) = &opened {
                    let kept = store.clone();
                    tokio::spawn(upkeep(async move || kept.forget_idle().await.map(drop)));
                }
                opened
            } else {
                let register = MemoryRegister::with_capacity(MEMORY_RECORDS);
                ObjectBlobs::open(backing, AnyRegister::new(register)).await
            };
            Ok(Arc::new(opened.map_err(|error| store_error(url, &error))?))
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

/// Opens the register of an object store in a folder.
async fn durable_register(folder: &Path) -> Result<AnyRegister, Error> {
    let path = folder.to_owned();
    let open = move || -> Result<RedbRegister, BoxError> {
        embedded::create_folder(&path)?;
        Ok(RedbRegister::open(path.join("register.redb"))?)
    };
    let opened = tokio::task::spawn_blocking(open).await.map_err(BoxError::from).flatten();
    let register =
        opened.map_err(|error| Error::runtime(format!("cannot use --data {}: {error}", folder.display())))?;
    Ok(AnyRegister::new(register))
}

fn folder_error(folder: &Path, error: &embedded::OpenError) -> Error {
    use embedded::OpenErrorKind as Kind;
    let hint = match error.kind() {
        Kind::InUse => "another ifmatch process uses this folder: stop it, or choose another folder with --data",
        Kind::Denied => "grant this user write access, or choose another folder with --data",
        Kind::Full => "free some disk space, or choose another folder with --data",
        Kind::Unreadable => "it is damaged, or was written by a newer release: use that release, or restore a backup",
        _ => "fix the problem, or choose another folder with --data",
    };
    Error::runtime(format!("cannot use --data {}: {hint}\n({error})", folder.display()))
}

fn store_error(url: &str, error: &objects::OpenError) -> Error {
    use objects::OpenErrorKind as Kind;
    let message = format!("--store {url}: {error}");
    match error.kind() {
        Kind::Url | Kind::Settings => Error::usage(message),
        _ => Error::runtime(message),
    }
}
