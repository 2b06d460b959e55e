//! Incoming bodies: hashed and written on blocking threads, one chunk while the next one arrives.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use ifmatch_core::digest::{ContentHash, Hasher};
use ifmatch_runtime::private_files;
use tokio::task::{JoinHandle, spawn_blocking};

use super::bodies::Staged;
use super::body_files::{BodyName, Folder};
use super::error::{disk, lost};
use ifmatch_blob::store::{StoreError, StoreErrorKind};

/// A body that is being written to the disk.
///
/// The file belongs to the holder of its [`Removed`] guard. Dropping a spool, even in the middle of a step, leaves no
/// file behind.
pub(super) struct Spool {
    folder: Arc<Folder>,
    nonce: u64,
    /// The name, if it doesn't follow from the content.
    name: Option<BodyName>,
    step: JoinHandle<io::Result<Writing>>,
}

/// The file of an incoming body between two steps.
struct Writing {
    hasher: Hasher,
    file: File,
    path: Removed,
}

impl Spool {
    /// Begins a body with a unique number.
    pub(super) fn begin(folder: Arc<Folder>, nonce: u64) -> Self {
        let path = folder.incoming(nonce);
        let step = spawn_blocking(move || {
            let file = private_files::create_new(&path)?;
            Ok(Writing {
                hasher: Hasher::default(),
                file,
                path: Removed(path),
            })
        });
        Self {
            folder,
            nonce,
            name: None,
            step,
        }
    }

    /// Begins a body with this name.
    pub(super) fn begin_as(folder: Arc<Folder>, name: BodyName) -> Self {
        Self {
            name: Some(name),
            ..Self::begin(folder, name.nonce)
        }
    }

    /// Writes the next bytes. Returns once the previous ones are written.
    pub(super) async fn write(&mut self, chunk: Vec<u8>) -> Result<(), StoreError> {
        let mut writing = (&mut self.step).await.map_err(lost)?.map_err(disk)?;
        let folder = Arc::clone(&self.folder);
        self.step = spawn_blocking(move || {
            folder.check_free_space()?;
            writing.file.write_all(&chunk)?;
            writing.hasher.update(&chunk);
            Ok(writing)
        });
        Ok(())
    }

    /// Makes the body durable under its final name, if it has the declared hash.
    pub(super) async fn finish(self, promised: Option<ContentHash>) -> Result<Staged, StoreError> {
        let writing = self.step.await.map_err(lost)?.map_err(disk)?;
        let (folder, nonce, name) = (self.folder, self.nonce, self.name);
        let name = move |hash| name.unwrap_or(BodyName { hash, nonce });
        spawn_blocking(move || writing.finish(folder, name, promised))
            .await
            .map_err(lost)?
    }
}

impl Writing {
    fn finish(
        self,
        folder: Arc<Folder>,
        name: impl FnOnce(ContentHash) -> BodyName,
        promised: Option<ContentHash>,
    ) -> Result<Staged, StoreError> {
        let Self {
            hasher,
            file,
            mut path,
        } = self;
        let hash = hasher.finish();
        if promised.is_some_and(|promised| promised != hash) {
            return Err(StoreErrorKind::DigestMismatch.into());
        }
        let name = name(hash);
        folder.place(&file, &mut path.0, &name).map_err(disk)?;
        path.keep();
        Ok(Staged::new(name, folder))
    }
}

/// Gives a complete body another name. Returns `None` if it has been removed, or if there are no second names.
pub(super) async fn link(
    folder: Arc<Folder>,
    body: BodyName,
    nonce: u64,
) -> Result<Option<Staged>, StoreError> {
    let name = BodyName { nonce, ..body };
    let linked = spawn_blocking(move || {
        let file = Removed(folder.body(&name));
        if !folder.link(&body, &name)? {
            return Ok(None);
        }
        file.keep();
        Ok(Some(Staged::new(name, folder)))
    });
    linked.await.map_err(lost)?.map_err(disk)
}

/// A file that is removed on drop.
#[derive(Debug)]
pub(super) struct Removed(PathBuf);

impl Removed {
    pub(super) fn on_drop(path: PathBuf) -> Self {
        Self(path)
    }

    /// Makes the file durable under the name of a body, and keeps it.
    pub(super) fn place(mut self, folder: &Folder, file: &File, name: &BodyName) -> io::Result<()> {
        folder.place(file, &mut self.0, name)?;
        self.keep();
        Ok(())
    }

    /// Keeps the file.
    fn keep(mut self) {
        self.0 = PathBuf::new();
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // A file that can't be removed now is collected at the next start.
            let _ = fs::remove_file(&self.0);
        }
    }
}
