//! The folder of bodies: `tmp/` for what is on its way in, `bodies/00` to `bodies/ff` for what is whole. All
//! functions here block.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ifmatch_core::digest::ContentHash;

use super::disk::Disk;
use super::{private, room};

/// The data folder of a store, held by this process: whatever the index is, the process that collects what a crash has left
/// must be the only one that writes. The system lets go of it when the process ends.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    _lock: File,
}

impl Root {
    /// Takes a folder, and creates it if need be. [`io::ErrorKind::ResourceBusy`]: another process has it.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        create_folder(path)?;
        let lock = private::open_or_create(&path.join("lock"))?;
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
        // Nobody else may look into those of an earlier release.
        private::tighten(&folder.bodies);
        private::tighten(&folder.temporary);
        // The mark is made when all the others are durable, so that it need not be.
        let mark = folder.root.path.join("laid-out");
        let is_whole = folder.shards().all(|shard| shard.is_dir()) && folder.temporary.is_dir();
        if !is_whole || !mark.exists() {
            let _ = fs::remove_file(&mark);
            folder.lay_out()?;
            let _ = private::create_file(&mark);
        }
        Ok(folder)
    }

    /// Makes all folders. One that is empty is made anew: a sync that failed may have left its name in the system's cache only.
    fn lay_out(&self) -> io::Result<()> {
        for emptied in self.shards().chain([self.bodies.clone()]) {
            // One that is not empty stays, and so does a link to a folder elsewhere.
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

    /// Refuses what would take of the room that is left free on the disk.
    pub(super) fn check_room(&self) -> io::Result<()> {
        room::check(&*self.disk, &self.root.path)
    }

    /// Makes a file durable that is on its way in, and gives it the name of a body, durably. An error leaves it where it is,
    /// or under the new name; `from` tells.
    pub(super) fn place(&self, file: &File, from: &mut PathBuf, name: &BodyName) -> io::Result<()> {
        self.disk.sync_file(file)?;
        let to = self.body(name);
        // Opened before the change, it reports the failure of a sync for another body that takes this one's name with it.
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
/// ifmatch_blob::embedded::create_folder(&root.path().join("new/folder"))?;
/// assert!(root.path().join("new/folder").is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_folder(folder: &Path) -> io::Result<()> {
    let above = match folder.parent() {
        None => return Ok(()),
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
    };
    let created = match private::create(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(above)?;
            private::create(folder)
        }
        created => created,
    };
    match created {
        // Made anew another time: a later sync could succeed without it.
        Ok(()) => sync_folder(above).inspect_err(|_| drop(fs::remove_dir(folder))),
        // A process that ended before it had synced may have created it.
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

/// Creates a folder that is missing.
fn ensure(folder: &Path) -> io::Result<()> {
    match private::create(folder) {
        Err(_) if folder.is_dir() => Ok(()),
        created => created,
    }
}
