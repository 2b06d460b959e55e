//! The folder of bodies: `tmp/` for what is on its way in, `bodies/00` to `bodies/ff` for what is whole. All
//! functions here block.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ifmatch_core::digest::ContentHash;
use ifmatch_runtime::private_files;

use super::disk::Disk;
use super::free_space;

/// A store's data folder, locked by this process. Only one process may write, since it also collects the remains of a
/// crash; this does not depend on the index. The system releases the lock when the process exits.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    _lock: File,
}

impl Root {
    /// Locks a folder, creating it if necessary. Fails with [`io::ErrorKind::ResourceBusy`] if another process has
    /// locked it.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        create_folder(path)?;
        let lock = private_files::open_or_create(&path.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::ResourceBusy.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A folder of bodies.
#[derive(Debug)]
pub(super) struct Folder {
    root: Root,
    bodies: PathBuf,
    temporary: PathBuf,
    disk: Arc<dyn Disk>,
}

/// The name of a body: its hash, and a number that no other body has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BodyName {
    pub(super) hash: ContentHash,
    pub(super) nonce: u64,
}

impl Folder {
    /// Makes the folders that are missing, durably.
    pub(super) fn create(root: Root, disk: Arc<dyn Disk>) -> io::Result<Self> {
        let (bodies, temporary) = (root.path.join("bodies"), root.path.join("tmp"));
        let folder = Self { root, bodies, temporary, disk };
        // Restricts folders created by an earlier release to the current user.
        private_files::restrict(&folder.bodies);
        private_files::restrict(&folder.temporary);
        // The marker is created after all the others are durable, so it need not be durable itself.
        let mark = folder.root.path.join("laid-out");
        let is_whole = folder.shards().all(|shard| shard.is_dir()) && folder.temporary.is_dir();
        if !is_whole || !mark.exists() {
            let _ = fs::remove_file(&mark);
            folder.lay_out()?;
            let _ = private_files::create_new(&mark);
        }
        Ok(folder)
    }

    /// Creates all folders. Recreates empty ones, since a failed sync may have left their names only in the page cache.
    fn lay_out(&self) -> io::Result<()> {
        for emptied in self.shards().chain([self.bodies.clone()]) {
            // A folder with content stays, and so does a link to a folder elsewhere.
            let _ = fs::remove_dir(emptied);
        }
        let root = self.disk.open_folder(&self.root.path)?;
        ensure(&self.bodies)?;
        ensure(&self.temporary)?;
        let bodies = self.disk.open_folder(&self.bodies)?;
        for shard in self.shards() {
            ensure(&shard)?;
        }
        self.disk.sync_folder(&bodies)?;
        self.disk.sync_folder(&root)
    }

    /// Rejects a write that would use the reserved disk space.
    pub(super) fn check_free_space(&self) -> io::Result<()> {
        free_space::check(&*self.disk, &self.root.path)
    }

    /// Makes a spooled file durable and durably renames it to its body's name. After an error the file is at `from`,
    /// under its old name or the new one.
    pub(super) fn place(&self, file: &File, from: &mut PathBuf, name: &BodyName) -> io::Result<()> {
        self.disk.sync_file(file)?;
        let to = self.body(name);
        // Opened before the rename: it also reports a failed sync of another body, which may lose this name too.
        let shard = self.disk.open_folder(to.parent().unwrap_or(&self.bodies))?;
        fs::rename(&*from, &to)?;
        from.clone_from(&to);
        self.disk.sync_folder(&shard)
    }

    /// Where a body is that is whole.
    pub(super) fn body(&self, name: &BodyName) -> PathBuf {
        let hex = name.hash.hex();
        self.bodies.join(&hex[..2]).join(format!("{hex}-{:016x}", name.nonce))
    }

    /// Where a body is on its way in.
    pub(super) fn incoming(&self, nonce: u64) -> PathBuf {
        self.temporary.join(format!("{nonce:016x}"))
    }

    /// The folder of the bodies on their way in.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// The folders of the bodies that are whole.
    pub(super) fn shards(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (0..=u8::MAX).map(|shard| self.bodies.join(format!("{shard:02x}")))
    }
}

/// Whether a file has the name of a body on its way in.
pub(super) fn is_incoming(file_name: &str) -> bool {
    file_name.len() == 16 && file_name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The number in a body's file name; none if it is no body's name.
pub(super) fn nonce_of(file_name: &str) -> Option<u64> {
    let (hash, nonce) = file_name.split_once('-')?;
    let is_body = hash.len() == 64 && nonce.len() == 16;
    is_body.then(|| u64::from_str_radix(nonce, 16).ok()).flatten()
}

/// Whether there is no file, or an empty one.
pub(super) fn is_missing(file: &Path) -> bool {
    match fs::metadata(file) {
        Ok(found) => found.len() == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether there is any whole body in the folder of a store.
pub(super) fn has_bodies(root: &Path) -> bool {
    let shards = fs::read_dir(root.join("bodies")).into_iter().flatten().flatten();
    let mut files = shards.filter_map(|shard| fs::read_dir(shard.path()).ok()).flatten().flatten();
    files.any(|file| file.file_name().to_str().is_some_and(|name| nonce_of(name).is_some()))
}

/// Creates a folder and those above it that are missing, each durably. Other users of the machine cannot look into them;
/// one that is there stays as it is. Blocks.
///
/// # Errors
/// The system refuses.
///
/// ```
/// # let root = tempfile::tempdir()?;
/// ifmatch_blob_embedded::create_folder(&root.path().join("new/folder"))?;
/// assert!(root.path().join("new/folder").is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_folder(folder: &Path) -> io::Result<()> {
    let above = match folder.parent() {
        None => return Ok(()),
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
    };
    let created = match private_files::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(above)?;
            private_files::create_dir(folder)
        }
        created => created,
    };
    match created {
        // Removed so that the next attempt recreates it: a later sync could succeed without its name.
        Ok(()) => sync_folder(above).inspect_err(|_| drop(fs::remove_dir(folder))),
        // A process that exited before its sync may have created it.
        Err(_) if folder.is_dir() => match sync_folder(above) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        },
        Err(error) => Err(error),
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Creates a missing folder.
fn ensure(folder: &Path) -> io::Result<()> {
    match private_files::create_dir(folder) {
        Err(_) if folder.is_dir() => Ok(()),
        created => created,
    }
}
