//! Opens the store that the configuration names.

use std::path::Path;
use std::time::Duration;

use std::sync::Arc;

use ifmatch_blob::BlobStore;
use ifmatch_blob::store::{BoxError, StoreError};
use ifmatch_blob_embedded::{self as embedded, EmbeddedStore};
use ifmatch_blob_objects::{self as objects, Backing, ObjectBlobs};
use ifmatch_redb::RedbRegister;
use ifmatch_register::{AnyRegister, MemoryRegister};

use crate::config::Place;
use crate::error::Error;
use crate::folder;

/// Blobs whose state is kept in memory where there is no folder for it. An older state is read from the object
/// store again when needed.
const REMEMBERED: usize = 1_000_000;

/// How often is forgotten what is of no more use.
const UPKEEP: Duration = Duration::from_hours(1);

/// Opens the store.
///
/// # Errors
/// Says what is wrong with the folder or the URL, and what to do.
pub(crate) async fn open(place: &Place) -> Result<Arc<dyn BlobStore>, Error> {
    match place {
        Place::Folder(folder) => {
            folder::check("--data", folder)?;
            let store = EmbeddedStore::open(folder).await.map_err(|error| unusable_folder(folder, &error))?;
            let kept = store.clone();
            tokio::spawn(keep_small(async move || kept.forget_deletions().await));
            Ok(Arc::new(store))
        }
        Place::Store { url, register } => {
            let settings = std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
            let backing = Backing::from_url(url, settings).map_err(|error| unusable_store(url, &error))?;
            let opened = if let Some(folder) = register {
                folder::check("--data", folder)?;
                let opened = ObjectBlobs::open_durable(backing, durable(folder).await?).await;
                if let Ok(store) = &opened {
                    let kept = store.clone();
                    tokio::spawn(keep_small(async move || kept.forget_idle().await.map(drop)));
                }
                opened
            } else {
                let register = MemoryRegister::with_capacity(REMEMBERED);
                ObjectBlobs::open(backing, AnyRegister::new(register)).await
            };
            Ok(Arc::new(opened.map_err(|error| unusable_store(url, &error))?))
        }
    }
}

/// Has what is of no more use forgotten from time to time, as long as the program runs.
async fn keep_small(forget: impl AsyncFn() -> Result<(), StoreError>) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        if let Err(error) = forget().await {
            tracing::warn!(%error, "what is of no more use is still remembered");
        }
    }
}

/// The register of an object store, kept in a folder.
async fn durable(folder: &Path) -> Result<AnyRegister, Error> {
    let path = folder.to_owned();
    let open = move || -> Result<RedbRegister, BoxError> {
        embedded::create_folder(&path)?;
        Ok(RedbRegister::open(path.join("register.redb"))?)
    };
    let opened = tokio::task::spawn_blocking(open).await.map_err(BoxError::from).flatten();
    let register =
        opened.map_err(|error| Error::runtime(format!("--data {} cannot be used: {error}", folder.display())))?;
    Ok(AnyRegister::new(register))
}

fn unusable_folder(folder: &Path, error: &embedded::OpenError) -> Error {
    use embedded::OpenErrorKind as Kind;
    let hint = match error.kind() {
        Kind::InUse => "another ifmatch uses this folder: stop it, or choose another folder with --data",
        Kind::Denied => "give this user the right to write there, or choose another folder with --data",
        Kind::Full => "make room on that disk, or choose another folder with --data",
        Kind::Unreadable => "it is damaged, or a newer release wrote it: use that release, or restore a backup",
        _ => "choose another folder with --data if this one cannot be mended",
    };
    Error::runtime(format!("--data {} cannot be used: {hint}\n({error})", folder.display()))
}

fn unusable_store(url: &str, error: &objects::OpenError) -> Error {
    use objects::OpenErrorKind as Kind;
    let message = format!("--store {url}: {error}");
    match error.kind() {
        Kind::Url | Kind::Settings => Error::usage(message),
        _ => Error::runtime(message),
    }
}
