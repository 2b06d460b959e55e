//! Snapshots of a store in use: a copy of the index at one moment, and hard links to the bodies that it refers to.
//!
//! A body is complete before a record refers to it, and is removed after none does. So removals are postponed
//! before the index is copied, and carried out after the links exist.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifmatch_core::date::Timestamp;
use ifmatch_redb::RedbRegister;
use ifmatch_runtime::private_files;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::body_files::{BodyName, Folder, discard, sync_folder};
use super::error::OpenError;
use super::key;
use super::payload::Payload;
use ifmatch_blob::records::next_page;

/// Folder of the snapshot in the data folder.
const SNAPSHOT: &str = "snapshot";
/// Folder of a snapshot that isn't complete.
const INCOMPLETE: &str = "snapshot.new";
/// Folder of a snapshot that is being removed.
const REMOVED: &str = "snapshot.old";

/// A complete snapshot: a data folder of its own.
///
/// Its bodies are hard links to the store's, which never change. They keep their space after the store has removed
/// its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The folder of the snapshot.
    pub folder: PathBuf,
    /// Number of bodies, including those in the index.
    pub bodies: u64,
    /// Sum of their lengths, in bytes.
    pub bytes: u64,
}

/// Removals of bodies and of snapshots.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// Bodies to remove after the snapshot in progress, or `None` if there is none in progress.
    postponed: Mutex<Option<Vec<BodyName>>>,
    /// Held while a snapshot is removed.
    snapshot: Mutex<()>,
}

impl Removals {
    /// Postpones the removal of a body. Returns `false` if it can be removed now.
    pub(super) fn postpone(&self, body: BodyName) -> bool {
        self.postponed()
            .as_mut()
            .map(|bodies| bodies.push(body))
            .is_some()
    }

    fn postponed(&self) -> MutexGuard<'_, Option<Vec<BodyName>>> {
        lock(&self.postponed)
    }
}

/// Postpones removals until it is dropped.
struct Postponing<'a>(&'a Folder);

impl<'a> Postponing<'a> {
    /// Returns `None` if a snapshot is in progress.
    fn start(folder: &'a Folder) -> Option<Self> {
        let mut postponed = folder.removals().postponed();
        if postponed.is_some() {
            return None;
        }
        *postponed = Some(Vec::new());
        Some(Self(folder))
    }
}

impl Drop for Postponing<'_> {
    fn drop(&mut self) {
        let bodies = self.0.removals().postponed().take();
        for body in bodies.unwrap_or_default() {
            discard(&self.0.body(&body));
        }
    }
}

/// A store in a folder: its bodies and its index, of which a snapshot is made.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) folder: Arc<Folder>,
    /// The index in the folder, unless it is a custom one.
    pub(super) index: Option<Arc<RedbRegister>>,
}

impl Local {
    /// Replaces the snapshot, while reads and writes go on. `now` is the time of the index.
    pub(super) async fn snapshot(self: Arc<Self>, now: Timestamp) -> Result<Snapshot, OpenError> {
        let runtime = Handle::current();
        let take = move || {
            let Some(_postponing) = Postponing::start(&self.folder) else {
                return Err(OpenError::folder(
                    self.folder.root(),
                    ErrorKind::ResourceBusy.into(),
                ));
            };
            let incomplete = self.folder.root().join(INCOMPLETE);
            let taken = self.take(&incomplete, &runtime, now);
            if taken.is_err() {
                // The next snapshot removes what remains.
                drop(remove(&incomplete));
            }
            taken
        };
        spawn_blocking(take).await.map_err(OpenError::other)?
    }

    fn take(&self, folder: &Path, runtime: &Handle, now: Timestamp) -> Result<Snapshot, OpenError> {
        let failed = |error| OpenError::folder(folder, error);
        self.folder.check_free_space().map_err(failed)?;
        remove(folder).map_err(failed)?;
        let bodies = folder.join("bodies");
        private_files::create_dir(folder)
            .and_then(|()| private_files::create_dir(&bodies))
            .map_err(failed)?;
        let index = folder.join("index.redb");
        let register = self.index.as_ref().ok_or_else(OpenError::custom_index)?;
        register
            .copy_to(&index)
            .map_err(|error| OpenError::index(&index, error))?;
        let mut snapshot = Snapshot {
            folder: self.folder.root().join(SNAPSHOT),
            bodies: 0,
            bytes: 0,
        };
        // In a block, since the copy must be closed before its folder is renamed.
        {
            let copy =
                RedbRegister::open(&index).map_err(|error| OpenError::index(&index, error))?;
            let mut after = None;
            while let Some(records) = runtime
                .block_on(next_page(&copy, key::BLOBS, &mut after))
                .map_err(OpenError::register)?
            {
                for (key, record) in records {
                    let Some(version) = record.state(now).version() else {
                        continue;
                    };
                    let payload = Payload::decode(version.payload());
                    let payload =
                        payload.map_err(|error| OpenError::record(key.as_str(), error))?;
                    if let Some(body) = payload.file() {
                        self.link(&body, &bodies).map_err(failed)?;
                    }
                    snapshot.bodies += 1;
                    snapshot.bytes += payload.length;
                }
            }
        }
        sync(folder)
            .and_then(|()| self.put_in_place(folder, &snapshot.folder))
            .map_err(failed)?;
        Ok(snapshot)
    }

    /// Links a body, or copies it if the file system has no links or the body too many.
    fn link(&self, body: &BodyName, bodies: &Path) -> io::Result<()> {
        let from = self.folder.body(body);
        let (Some(shard), Some(name)) = (from.parent().and_then(Path::file_name), from.file_name())
        else {
            return Err(ErrorKind::InvalidFilename.into());
        };
        let shard = bodies.join(shard);
        if !shard.is_dir() {
            private_files::create_dir(&shard)?;
        }
        let to = shard.join(name);
        match fs::hard_link(&from, &to) {
            // A copy onto a link to the same body would truncate it.
            Err(error)
                if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) =>
            {
                fs::copy(&from, &to)?;
                // Windows syncs only what may be written.
                OpenOptions::new().write(true).open(&to)?.sync_all()
            }
            linked => linked,
        }
    }

    fn put_in_place(&self, complete: &Path, snapshot: &Path) -> io::Result<()> {
        self.discard_snapshot()?;
        fs::rename(complete, snapshot)?;
        sync_folder(self.folder.root())
    }

    /// Removes the snapshot. Returns `false` if there is none.
    pub(super) async fn remove_snapshot(self: Arc<Self>) -> Result<bool, OpenError> {
        let discard = move || {
            self.discard_snapshot()
                .map_err(|error| OpenError::folder(self.folder.root(), error))
        };
        spawn_blocking(discard).await.map_err(OpenError::other)?
    }

    /// Removes the snapshot. Returns `false` if there is none.
    ///
    /// It gets another name first, so nothing copies a part of it: as long as a copier finds the same file under
    /// the snapshot's name, the snapshot is complete.
    fn discard_snapshot(&self) -> io::Result<bool> {
        let _alone = lock(&self.folder.removals().snapshot);
        let removed = self.folder.root().join(REMOVED);
        // A crash may have left one.
        remove(&removed)?;
        match fs::rename(self.folder.root().join(SNAPSHOT), &removed) {
            Ok(()) => remove(&removed),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the names in a snapshot durable. Its files are durable.
fn sync(folder: &Path) -> io::Result<()> {
    for shard in fs::read_dir(folder.join("bodies"))? {
        sync_folder(&shard?.path())?;
    }
    sync_folder(&folder.join("bodies"))?;
    sync_folder(folder)
}

/// Removes a folder with its content. Returns `false` if there is none.
fn remove(folder: &Path) -> io::Result<bool> {
    match fs::remove_dir_all(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use ifmatch_core::digest::ContentHash;

    use super::*;
    use crate::body_files::Root;
    use crate::disk::System;

    #[test]
    fn a_second_link_to_a_body_is_refused_and_leaves_its_bytes() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::take(place.path()).unwrap();
        let local = Local {
            folder: Arc::new(Folder::create(root, Arc::new(System)).unwrap()),
            index: None,
        };
        let body = BodyName {
            hash: ContentHash::of(b"bytes"),
            nonce: 1,
        };
        let (path, bodies) = (local.folder.body(&body), place.path().join(INCOMPLETE));
        fs::write(&path, "bytes").unwrap();
        fs::create_dir(&bodies).unwrap();
        local.link(&body, &bodies).unwrap();
        let again = local.link(&body, &bodies).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"bytes");
    }
}
