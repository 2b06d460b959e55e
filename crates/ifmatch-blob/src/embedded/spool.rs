//! A body on its way to the disk: hashed and written on blocking threads, one chunk while the next one arrives.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ifmatch_core::digest::{ContentHash, Hasher};
use tokio::task::{JoinHandle, spawn_blocking};

use super::error::{disk, lost};
use super::folder::{BodyName, Folder, sync_folder};
use crate::store::{StoreError, StoreErrorKind};

/// A body on its way to the disk.
///
/// The file belongs to whatever holds its [`Removed`] guard: a spool that is dropped, even in the middle of a
/// step, leaves no file behind.
pub(super) struct Spool {
    folder: Arc<Folder>,
    nonce: u64,
    step: JoinHandle<io::Result<Writing>>,
}

/// A body that is whole, durable, and not yet part of the store: dropping it removes the file.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) name: BodyName,
    file: Removed,
}

struct Writing {
    hasher: Hasher,
    file: File,
    path: Removed,
}

impl Spool {
    /// Begins a body with a number that no other body has.
    pub(super) fn begin(folder: Arc<Folder>, nonce: u64) -> Self {
        let path = folder.incoming(nonce);
        let step = spawn_blocking(move || {
            let file = File::create_new(&path)?;
            Ok(Writing { hasher: Hasher::default(), file, path: Removed::on_drop(path) })
        });
        Self { folder, nonce, step }
    }

    /// Hands over the next bytes. Returns when those before them are written.
    pub(super) async fn write(&mut self, chunk: Vec<u8>) -> Result<(), StoreError> {
        let mut writing = (&mut self.step).await.map_err(lost)?.map_err(disk)?;
        let folder = Arc::clone(&self.folder);
        self.step = spawn_blocking(move || {
            folder.room().check()?;
            writing.file.write_all(&chunk)?;
            writing.hasher.update(&chunk);
            Ok(writing)
        });
        Ok(())
    }

    /// Makes the body durable under its final name, if its hash is the promised one.
    pub(super) async fn finish(self, promised: Option<ContentHash>) -> Result<Staged, StoreError> {
        let writing = self.step.await.map_err(lost)?.map_err(disk)?;
        let (folder, nonce) = (self.folder, self.nonce);
        spawn_blocking(move || writing.finish(&folder, nonce, promised)).await.map_err(lost)?
    }
}

impl Writing {
    fn finish(self, folder: &Folder, nonce: u64, promised: Option<ContentHash>) -> Result<Staged, StoreError> {
        let Self { hasher, file, path } = self;
        let name = BodyName { hash: hasher.finish(), nonce };
        if promised.is_some_and(|promised| promised != name.hash) {
            return Err(StoreErrorKind::DigestMismatch.into());
        }
        file.sync_all().map_err(disk)?;
        let place = folder.body(&name);
        let file = path.renamed_to(place).map_err(disk)?;
        sync_folder(file.parent()).map_err(disk)?;
        Ok(Staged { name, file })
    }
}

impl Staged {
    /// Leaves the file where it is, whatever happens from now on.
    pub(super) fn keep(self) -> BodyName {
        self.file.keep();
        self.name
    }
}

/// A file that is removed on drop.
#[derive(Debug)]
struct Removed(Option<PathBuf>);

impl Removed {
    fn on_drop(path: PathBuf) -> Self {
        Self(Some(path))
    }

    fn renamed_to(mut self, place: PathBuf) -> io::Result<Self> {
        fs::rename(self.path(), &place)?;
        self.0 = Some(place);
        Ok(self)
    }

    fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    fn parent(&self) -> &Path {
        self.path().parent().unwrap_or(Path::new(""))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // What cannot be removed now is collected at the next start.
            let _ = fs::remove_file(path);
        }
    }
}
