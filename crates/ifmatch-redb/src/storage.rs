//! The interface between a database and the system: a storage that can be replaced as a whole.

use std::fmt;
use std::io;

use redb::StorageBackend;

/// Storage for one database, which a new database can replace atomically.
///
/// After a failed write or sync, pages in the page cache may differ from those on the disk, and a later sync may still
/// succeed. The register therefore never writes to such a database again: it copies the records into a new one, which
/// then replaces it. It does the same with a database that was not closed cleanly.
///
/// # What an implementation owes
/// - **Exclusive**: while the storage exists, no other process or register uses the database.
/// - **Honest syncs**: [`StorageBackend::sync_data`] succeeds only if everything that was written since the backend was
///   opened is durable.
/// - **Atomic**: [`Storage::replace`] leaves either the old database or the new one, even after a loss of power.
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// Opens the database. Returns `None` if it does not exist.
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
}
