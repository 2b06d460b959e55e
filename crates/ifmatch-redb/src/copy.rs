//! Copies a database into a new one, which then replaces it.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ifmatch_runtime::private_files;
use redb::{
    Builder, Database, ReadableDatabase, ReadableTable, StorageBackend, Table, TableError,
    TableHandle,
};

use crate::damage::{ContainedDatabase, contained, newest_commit_is_readable};
use crate::error::OpenError;
use crate::files::DatabaseStorage;
use crate::overlay::StorageOverlay;
use crate::schema::{RECORDS, TextKey, builder};

/// Cache size, in bytes, for a database opened read-only.
const VIEW_CACHE: usize = 64 * 1024 * 1024;

/// Progress of a repair between which redb discards the newest commit. It calls back with 0 before it compares anything, with 0.3 only
/// if the pages of that commit don't fit their checksums, and with 0.6 and more afterwards.
const DISCARDS: std::ops::Range<f64> = 0.1..0.5;

/// A database opened as found on disk. Repairs are kept in memory only.
#[derive(Debug)]
pub(crate) struct DatabaseView {
    pub(crate) database: ContainedDatabase,
    pub(crate) end: DatabaseEnd,
}

/// The way in which the last process left a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseEnd {
    /// It was closed, so all of it is durable.
    Closed,
    /// It wasn't closed. Its newest commit is whole.
    Open,
    /// It wasn't closed, and its newest commit isn't whole: the one before it takes its place.
    RolledBack,
    /// It wasn't closed, and its newest commit is damaged: the one before it takes its place.
    LostCommit,
}

/// Whether to open a database whose newest commit, most likely an acknowledged one, is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RollbackPolicy {
    Refuse,
    Accept,
}

/// Reason why a copy failed.
pub(crate) enum CopyError {
    /// The database can't be read.
    Read(OpenError),
    /// The copy can't be written, or can't replace the database.
    Write(OpenError),
}

impl From<CopyError> for OpenError {
    fn from(error: CopyError) -> Self {
        let (CopyError::Read(error) | CopyError::Write(error)) = error;
        error
    }
}

impl DatabaseView {
    /// Opens a database as it was found.
    pub(crate) fn open(
        found: Box<dyn StorageBackend>,
        rollback: RollbackPolicy,
    ) -> Result<Self, OpenError> {
        let is_readable = newest_commit_is_readable(&*found)?;
        if !is_readable && rollback == RollbackPolicy::Refuse {
            return Err(OpenError::newest_commit_damaged());
        }
        let end = Arc::new(Mutex::new(if is_readable {
            DatabaseEnd::Closed
        } else {
            DatabaseEnd::LostCommit
        }));
        let repaired = Arc::clone(&end);
        let overlay = StorageOverlay::new(found)?;
        let open = move || {
            Builder::new()
                .set_cache_size(VIEW_CACHE)
                .set_repair_callback(move |session| {
                    let mut end = repaired.lock().unwrap_or_else(PoisonError::into_inner);
                    *end = match *end {
                        DatabaseEnd::LostCommit => DatabaseEnd::LostCommit,
                        _ if DISCARDS.contains(&session.progress()) => DatabaseEnd::RolledBack,
                        DatabaseEnd::Closed => DatabaseEnd::Open,
                        later => later,
                    };
                })
                .create_with_backend(overlay)
        };
        let database = ContainedDatabase::new(contained(open).map_err(OpenError::damaged)??);
        let end = *end.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Self { database, end })
    }
}

/// Copies all records into a new database and replaces the old one. On return, all records are durable.
pub(crate) fn into_place(
    storage: &dyn DatabaseStorage,
    from: Option<&Database>,
) -> Result<Database, CopyError> {
    let copied = into_new(storage, from).and_then(|(database, is_cut_off)| {
        storage.replace().map_err(|error| {
            // A copy that may not be durable must not look like a cleanly closed database.
            is_cut_off.store(true, Ordering::SeqCst);
            CopyError::Write(error.into())
        })?;
        Ok(database)
    });
    if copied.is_err() {
        storage.discard();
    }
    copied
}

/// Copies the records of one moment into a new file, which must not exist. On return, they are durable, apart from the
/// file's name. An incomplete copy is removed.
pub(crate) fn into_file(from: &Database, path: &Path) -> Result<(), CopyError> {
    let file = private_files::create_new(path).map_err(|error| CopyError::Write(error.into()))?;
    let copied = into_empty(from, file);
    if copied.is_err() {
        // If that fails, too, the first error tells why.
        let _ = fs::remove_file(path);
    }
    copied
}

/// Copies the records into an empty file.
fn into_empty(from: &Database, file: File) -> Result<(), CopyError> {
    let write = |error: redb::Error| CopyError::Write(error.into());
    let database = builder()
        .create_file(file)
        .map_err(|error| CopyError::Write(error.into()))?;
    let transaction = database
        .begin_write()
        .map_err(|error| write(error.into()))?;
    copy_records(
        from,
        &mut transaction
            .open_table(RECORDS)
            .map_err(|error| write(error.into()))?,
    )?;
    transaction.commit().map_err(|error| write(error.into()))
}

/// Copies the records into a new storage beside the database. Returns the copy, and the flag that cuts its writes off.
fn into_new(
    storage: &dyn DatabaseStorage,
    from: Option<&Database>,
) -> Result<(Database, Arc<AtomicBool>), CopyError> {
    let write = |error: redb::Error| CopyError::Write(error.into());
    let is_cut_off = Arc::new(AtomicBool::new(false));
    let created = storage
        .create()
        .map_err(|error| CopyError::Write(error.into()))?;
    let backend = CutOff {
        is_cut_off: Arc::clone(&is_cut_off),
        ..CutOff::new(created)
    };
    let database = builder()
        .create_with_backend(backend)
        .map_err(|error| CopyError::Write(error.into()))?;
    let transaction = database
        .begin_write()
        .map_err(|error| write(error.into()))?;
    {
        let mut table = transaction
            .open_table(RECORDS)
            .map_err(|error| write(error.into()))?;
        if let Some(from) = from {
            copy_records(from, &mut table)?;
        }
    }
    transaction.commit().map_err(|error| write(error.into()))?;
    Ok((database, is_cut_off))
}

/// Copies the records into a table.
fn copy_records(
    from: &Database,
    to: &mut Table<'_, TextKey, (u64, &'static [u8])>,
) -> Result<(), CopyError> {
    contained(|| copy_readable(from, to))
        .unwrap_or_else(|page| Err(CopyError::Read(OpenError::damaged(page))))
}

/// Copies the records, and may panic at a damaged page.
fn copy_readable(
    from: &Database,
    to: &mut Table<'_, TextKey, (u64, &'static [u8])>,
) -> Result<(), CopyError> {
    let read = |error: redb::Error| CopyError::Read(error.into());
    let transaction = from.begin_read().map_err(|error| read(error.into()))?;
    let mut names = transaction
        .list_tables()
        .map_err(|error| read(error.into()))?;
    let mut multimaps = transaction
        .list_multimap_tables()
        .map_err(|error| read(error.into()))?;
    if names.any(|table| table.name() != RECORDS.name()) || multimaps.next().is_some() {
        return Err(CopyError::Read(OpenError::unknown_tables()));
    }
    let records = match transaction.open_table(RECORDS) {
        Ok(records) => records,
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        Err(error) => return Err(read(error.into())),
    };
    for record in records.iter().map_err(|error| read(error.into()))? {
        let (key, value) = record.map_err(|error| read(error.into()))?;
        to.insert(key.value(), value.value())
            .map_err(|error| CopyError::Write(redb::Error::from(error).into()))?;
    }
    Ok(())
}

/// A storage backend with writes that can be cut off.
#[derive(Debug)]
pub(crate) struct CutOff {
    storage: Box<dyn StorageBackend>,
    is_cut_off: Arc<AtomicBool>,
}

impl CutOff {
    pub(crate) fn new(storage: Box<dyn StorageBackend>) -> Self {
        Self {
            storage,
            is_cut_off: Arc::default(),
        }
    }

    /// Fails once writes are cut off.
    fn check(&self) -> io::Result<()> {
        if self.is_cut_off.load(Ordering::SeqCst) {
            Err(io::ErrorKind::BrokenPipe.into())
        } else {
            Ok(())
        }
    }
}

impl StorageBackend for CutOff {
    fn len(&self) -> io::Result<u64> {
        self.storage.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.storage.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.storage.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.storage.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.storage.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.storage.close()
    }
}

#[cfg(test)]
mod tests {
    use redb::TableDefinition;

    use super::*;

    #[test]
    fn a_copy_that_fails_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let from = builder().create(folder.path().join("from")).unwrap();
        let write = from.begin_write().unwrap();
        let unknown: TableDefinition<'_, u64, u64> = TableDefinition::new("unknown");
        write.open_table(unknown).unwrap();
        write.commit().unwrap();
        let to = folder.path().join("to");
        for _ in 0..2 {
            assert!(matches!(into_file(&from, &to), Err(CopyError::Read(_))));
            assert!(
                !to.exists(),
                "it would look like a register without records"
            );
        }
    }
}
