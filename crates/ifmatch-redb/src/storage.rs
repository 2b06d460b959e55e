//! The seam between a database and the system: a storage that can be replaced as a whole.

use std::fmt;
use std::io;

use redb::StorageBackend;

/// The place of a database, in which a whole new database can take the place of the one before.
///
/// After a failed write or sync the pages in the system's cache may differ from those on the disk, and a later sync may
/// succeed all the same. So the register never writes to such a database again: it copies the records into a new one, and
/// puts that in its place. It does the same with a database that was not closed in order.
///
/// # What an implementation owes
/// - **Exclusive**: while it exists, no other process and no other register uses the database.
/// - **Honest syncs**: [`StorageBackend::sync_data`] succeeds only if everything that was written since the backend was
///   opened is durable.
/// - **Atomic**: [`Storage::replace`] leaves the old database or the new one under all circumstances, loss of power
///   included.
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// Opens the database. None: there is none yet.
    ///
    /// # Errors
    /// The system refuses. [`io::ErrorKind::ResourceBusy`] says that somebody else has it open.
    fn open(&self) -> io::Result<Option<Box<dyn StorageBackend>>>;

    /// Creates an empty storage beside the database, and discards an earlier one that has not replaced it.
    ///
    /// # Errors
    /// The system refuses.
    fn create(&self) -> io::Result<Box<dyn StorageBackend>>;

    /// Replaces the database with the created storage, whose content has been synced. Returns when that is durable.
    ///
    /// # Errors
    /// The replacement has failed, or has taken place but may not be durable.
    fn replace(&self) -> io::Result<()>;

    /// Discards the created storage, to give its room back.
    fn discard(&self);
}
