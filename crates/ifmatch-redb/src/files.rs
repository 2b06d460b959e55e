//! The storage of a database: its interface, and files that can be replaced as a whole.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use ifmatch_runtime::{folders, private_files};
use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend, StorageError};

/// A database file locked by this process.
#[derive(Debug)]
pub(crate) struct DatabaseFiles {
    path: PathBuf,
    /// The created storage, until it replaces the database.
    fresh: PathBuf,
    /// Exists while the newest commit is one that failed.
    failed: PathBuf,
    /// Lock file. The database file can't serve as the lock because it gets replaced.
    _lock: File,
}

impl DatabaseFiles {
    /// Locks the file for this process until the value is dropped. The system releases the lock when the process exits.
    pub(crate) fn lock(path: &Path) -> io::Result<Self> {
        // A symbolic link stays a link; its target is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let lock = private_files::open_or_create(&beside(&path, ".lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                fresh: beside(&path, ".new"),
                failed: beside(&path, ".failed"),
                path,
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::ResourceBusy.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Returns the folder of the file.
    fn folder(&self) -> &Path {
        let folder = self
            .path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new("."))
    }
}

impl DatabaseStorage for DatabaseFiles {
    fn open(&self) -> io::Result<Option<Box<dyn StorageBackend>>> {
        let file = match OpenOptions::new().read(true).write(true).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() == 0 {
            return Ok(None);
        }
        private_files::restrict(&self.path);
        locked(file).map(Some)
    }

    fn create(&self) -> io::Result<Box<dyn StorageBackend>> {
        remove(&self.fresh)?;
        locked(private_files::create_new(&self.fresh)?)
    }

    fn replace(&self) -> io::Result<()> {
        // Opened before the rename so that the sync reports every failure to make the rename durable.
        let folder = folders::open(self.folder())?;
        fs::rename(&self.fresh, &self.path)?;
        folder.sync_all()
    }

    fn discard(&self) {
        // On failure, the next `create` discards it.
        let _ = remove(&self.fresh);
    }

    fn remember_failure(&self, has_failed: bool) -> io::Result<()> {
        if has_failed == self.has_failed()? {
            return Ok(());
        }
        if has_failed {
            // Empty, since the disk may be full.
            private_files::create_new(&self.failed)?;
        } else {
            remove(&self.failed)?;
        }
        folders::open(self.folder())?.sync_all()
    }

    fn has_failed(&self) -> io::Result<bool> {
        self.failed.try_exists()
    }
}

/// Opens a file's backend, locked against releases that lock the file itself.
fn locked(file: File) -> io::Result<Box<dyn StorageBackend>> {
    let backend = FileBackend::new(file).map_err(as_io)?;
    match backend.try_lock_range(Bound::Unbounded, Bound::Unbounded) {
        Ok(true) | Err(BackendError::Unsupported) => Ok(Box::new(backend)),
        Ok(false) => Err(io::ErrorKind::ResourceBusy.into()),
        Err(BackendError::Io(error)) => Err(error),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Returns the system's error in an error of redb.
fn as_io(error: DatabaseError) -> io::Error {
    match error {
        DatabaseError::Storage(StorageError::Io(error)) => error,
        error => io::Error::other(error),
    }
}

/// Returns the path with a suffix.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Storage for one database, which a new database can replace atomically.
///
/// After a failed write or sync, pages in the page cache may differ from those on the disk, and a later sync may still
/// succeed. So the register never writes to such a database again: it copies the records into a new one, which
/// then replaces it. It does the same with a database that wasn't closed cleanly.
///
/// # What an implementation owes
/// - **Exclusive**: while the storage exists, no other process or register uses the database.
/// - **Honest syncs**: [`StorageBackend::sync_data`] succeeds only if everything that was written since the backend was
///   opened is durable.
/// - **Atomic**: [`DatabaseStorage::replace`] leaves either the old database or the new one, even after a loss of power.
pub trait DatabaseStorage: fmt::Debug + Send + Sync + 'static {
    /// Opens the database. Returns `None` if it doesn't exist.
    ///
    /// # Errors
    /// Fails if the system refuses, with [`io::ErrorKind::ResourceBusy`] if the database is open elsewhere.
    fn open(&self) -> io::Result<Option<Box<dyn StorageBackend>>>;

    /// Creates an empty storage next to the database, discarding any earlier one that was never swapped in.
    ///
    /// # Errors
    /// Fails if the system refuses.
    fn create(&self) -> io::Result<Box<dyn StorageBackend>>;

    /// Replaces the database with the created storage, after its content has been synced. Returns once the replacement
    /// is durable.
    ///
    /// # Errors
    /// Fails if the replacement failed, or succeeded but may not be durable.
    fn replace(&self) -> io::Result<()>;

    /// Discards the created storage to free its space.
    fn discard(&self);

    /// Remembers beside the database that its newest commit failed, or forgets it. On return, it is durable.
    ///
    /// A commit that failed may leave the database as a power loss leaves an acknowledged one. After both, only this tells the
    /// difference. By default, nothing is remembered.
    ///
    /// # Errors
    /// Fails if the system does.
    fn remember_failure(&self, _has_failed: bool) -> io::Result<()> {
        Ok(())
    }

    /// Returns `true` if a failure is remembered.
    ///
    /// # Errors
    /// Fails if the system does.
    fn has_failed(&self) -> io::Result<bool> {
        Ok(false)
    }
}

/// A database that is read as it was found.
#[derive(Debug)]
pub(crate) struct ReadOnly(pub(crate) DatabaseFiles);

impl DatabaseStorage for ReadOnly {
    fn open(&self) -> io::Result<Option<Box<dyn StorageBackend>>> {
        self.0.open()
    }

    fn create(&self) -> io::Result<Box<dyn StorageBackend>> {
        Err(io::Error::new(
            io::ErrorKind::ReadOnlyFilesystem,
            "the database was opened for reading only",
        ))
    }

    fn replace(&self) -> io::Result<()> {
        self.create().map(drop)
    }

    fn discard(&self) {}

    fn has_failed(&self) -> io::Result<bool> {
        self.0.has_failed()
    }
}
