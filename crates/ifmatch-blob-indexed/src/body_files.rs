//! The folder of bodies: `tmp/` for incoming ones, `bodies/00` to `bodies/ff` for complete ones. All functions here
//! block.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ifmatch_blob::records::nonce;
use ifmatch_blob::store::StoreError;
use ifmatch_core::digest::ContentHash;
use ifmatch_runtime::{folders, private_files};

use super::disk::{self, Disk};
use super::snapshot::Removals;

/// Marker file: the folder has all subfolders of a store, and its index exists.
const LAID_OUT: &str = "laid-out";

/// A store's data folder, locked by this process. Only one process may write, since it also collects the remains of a
/// crash; this doesn't depend on the index. The system releases the lock when the process exits.
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
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                _lock: lock,
            }),
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
    removals: Removals,
}

/// The name of a body: its hash and a unique number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BodyName {
    pub(super) hash: ContentHash,
    pub(super) nonce: u64,
}

impl BodyName {
    /// The highest bit of the number, which a random one doesn't have. A bucket marks its long bodies with it.
    pub(super) const MARK: u64 = 1 << 63;

    /// Returns a random number.
    pub(super) fn number() -> Result<u64, StoreError> {
        Ok(nonce()? & !Self::MARK)
    }
}

impl Folder {
    /// Durably creates missing folders.
    pub(super) fn create(root: Root, disk: Arc<dyn Disk>) -> io::Result<Self> {
        let (bodies, temporary) = (root.path.join("bodies"), root.path.join("tmp"));
        let folder = Self {
            root,
            bodies,
            temporary,
            disk,
            removals: Removals::default(),
        };
        // A restored backup may have left them open to other users.
        private_files::restrict(&folder.bodies);
        private_files::restrict(&folder.temporary);
        // The marker is created after all the others are durable, so it needn't be durable itself.
        let mark = folder.root.path.join(LAID_OUT);
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
            // A folder with content stays, and so does a link to another folder.
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

    /// Returns the path of the data folder.
    pub(super) fn root(&self) -> &Path {
        &self.root.path
    }

    /// Returns the removals of bodies and of snapshots.
    pub(super) fn removals(&self) -> &Removals {
        &self.removals
    }

    /// Rejects a write that would use the reserved disk space.
    pub(super) fn check_free_space(&self) -> io::Result<()> {
        disk::check_free_space(&*self.disk, &self.root.path)
    }

    /// Makes a file's content durable.
    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        self.disk.sync_file(file)
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

    /// Durably gives a complete body a second name. Returns `false` if the body has been removed, or if the disk has no second names.
    pub(super) fn link(&self, body: &BodyName, name: &BodyName) -> io::Result<bool> {
        let to = self.body(name);
        let shard = self.disk.open_folder(to.parent().unwrap_or(&self.bodies))?;
        if fs::hard_link(self.body(body), &to).is_err() {
            return Ok(false);
        }
        self.disk.sync_folder(&shard)?;
        Ok(true)
    }

    /// Returns the path of a complete body.
    pub(super) fn body(&self, name: &BodyName) -> PathBuf {
        let hex = name.hash.hex();
        self.bodies
            .join(&hex[..2])
            .join(format!("{hex}-{:016x}", name.nonce))
    }

    /// Returns the path of an incoming body.
    pub(super) fn incoming(&self, nonce: u64) -> PathBuf {
        self.temporary.join(format!("{nonce:016x}"))
    }

    /// Returns the folder of incoming bodies.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Returns the folders of complete bodies.
    pub(super) fn shards(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (0..=u8::MAX).map(|shard| self.bodies.join(format!("{shard:02x}")))
    }
}

/// Removes a body, if it was ever written: the versions that a group of changes skips weren't.
pub(super) fn discard(body: &Path) {
    match fs::remove_file(body) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let body = body.display();
            tracing::warn!(%error, %body, "a body remains; the next start collects it");
        }
        _ => {}
    }
}

/// Returns `true` if this is the file name of an incoming body.
pub(super) fn is_incoming(file_name: &str) -> bool {
    file_name.len() == 16 && file_name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the number in a body's file name, or `None` if it isn't a body's.
pub(super) fn nonce_of(file_name: &str) -> Option<u64> {
    let (hash, nonce) = file_name.split_once('-')?;
    let is_body = hash.len() == 64 && nonce.len() == 16;
    is_body
        .then(|| u64::from_str_radix(nonce, 16).ok())
        .flatten()
}

/// Returns the files in a folder with these names.
pub(super) fn files(folder: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&wanted) && entry.file_type()?.is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Returns `true` if a file is missing or empty.
pub(super) fn is_missing(file: &Path) -> bool {
    match fs::metadata(file) {
        Ok(found) => found.len() == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Returns `true` if a folder belongs to a store that was open before, and so had an index.
pub(super) fn was_in_use(root: &Path) -> bool {
    root.join(LAID_OUT).exists() || has_bodies(root)
}

/// Warns before a store is created among files that aren't its own: the user may expect that they are served.
pub(super) fn warn_of_foreign_files(root: &Path) {
    let own = |name: &str| {
        name.starts_with('.')
            || [
                "index.redb",
                "lock",
                "bodies",
                "tmp",
                "snapshot",
                "lost+found",
            ]
            .iter()
            .any(|own| name.starts_with(own))
    };
    let names = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    let foreign = names
        .map(|name| name.to_string_lossy().into_owned())
        .find(|name| !own(name));
    if let Some(name) = foreign {
        let folder = root.display();
        tracing::warn!(%folder, %name, "the data folder has other files, which are not served: upload them, for instance with rclone");
    }
}

fn has_bodies(root: &Path) -> bool {
    let shards = fs::read_dir(root.join("bodies"))
        .into_iter()
        .flatten()
        .flatten();
    let mut files = shards
        .filter_map(|shard| fs::read_dir(shard.path()).ok())
        .flatten()
        .flatten();
    files.any(|file| {
        file.file_name()
            .to_str()
            .is_some_and(|name| nonce_of(name).is_some())
    })
}

/// Durably creates a folder and its missing parents, inaccessible to other users of the machine. Leaves an existing
/// folder unchanged. Blocks.
///
/// # Errors
/// Fails if the system does.
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

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    folders::open(folder)?.sync_all()
}

/// Creates a missing folder.
fn ensure(folder: &Path) -> io::Result<()> {
    match private_files::create_dir(folder) {
        Err(_) if folder.is_dir() => Ok(()),
        created => created,
    }
}
