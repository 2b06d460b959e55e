//! The open database and its replacement after a failure.
//!
//! After a failed write or sync, reading doesn't reveal the state of the disk: the page cache may show pages that were
//! never written, and a later sync may succeed without them. So a failure retires the database. Its records are
//! copied into a new one before any further decision, and the old one is read-only until then. All records except those
//! in the failed commit are durable and unaffected by it.

use std::collections::HashSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::{fmt, io};

use ifmatch_core::record::Record;
use ifmatch_register::{Key, RegisterError, RegisterErrorKind, Scan};
use redb::{Database, ReadableDatabase, ReadableTable};

use crate::copy::{
    CopyError, CutOff, DatabaseEnd, DatabaseView, RollbackPolicy, into_file, into_place,
};
use crate::damage::{ContainedDatabase, contained};
use crate::error::{OpenError, unavailable, unavailable_now};
use crate::files::DatabaseStorage;
use crate::record_cache::CachedRecord;
use crate::schema::{RECORDS, TextKey, builder};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A database, its storage, and what is in doubt after a failure.
pub(crate) struct SharedDatabase {
    /// `None` if the caller opened the database, in which case it can't be replaced.
    storage: Option<Box<dyn DatabaseStorage>>,
    current: RwLock<Current>,
    /// Keys of the commit in progress or of a failed commit.
    doubtful: Mutex<HashSet<Key>>,
    /// `true` once the log has said that nothing can be changed: it isn't said again for each refused change.
    is_told: AtomicBool,
}

/// The state of the database, by number.
struct Current {
    /// Generation number of the current state, so a failure retires only the state in which it occurred.
    number: u64,
    state: DatabaseState,
}

/// The state of the database.
enum DatabaseState {
    InUse(ContainedDatabase),
    /// A failure retired the database. Its durable part is readable once reopened.
    Failed(Option<DatabaseView>),
}

/// Number of bytes after which a page of a scan ends, although more records follow.
const PAGE: usize = 128 * 1024;

impl SharedDatabase {
    /// Opens the database in a storage, or creates it.
    pub(crate) fn open(
        storage: Box<dyn DatabaseStorage>,
        rollback: RollbackPolicy,
    ) -> Result<Self, OpenError> {
        // A commit that failed wasn't acknowledged, so it may be incomplete, and nothing is missing without it.
        let has_failed = storage.has_failed()?;
        let rollback = if has_failed {
            RollbackPolicy::Accept
        } else {
            rollback
        };
        let found = storage
            .open()?
            .map(|found| DatabaseView::open(found, rollback))
            .transpose()?;
        let database = match found {
            Some(DatabaseView {
                end: DatabaseEnd::Closed,
                database,
            }) => {
                drop(database);
                let backend = CutOff::new(storage.open()?.ok_or_else(OpenError::removed)?);
                contained(|| builder().create_with_backend(backend))
                    .map_err(OpenError::damaged)??
            }
            found => {
                match found.as_ref().map(|found| found.end) {
                    Some(DatabaseEnd::LostCommit | DatabaseEnd::RolledBack) if has_failed => {
                        tracing::info!(
                            "the last commit in the index failed, was refused to its clients, and is left out: copying all other records \
                         into a new file"
                        );
                    }
                    Some(DatabaseEnd::LostCommit) => {
                        tracing::warn!(
                            "the newest commit in the index is damaged, and left out: the last write is lost"
                        );
                    }
                    Some(DatabaseEnd::RolledBack) => tracing::warn!(
                        "the newest commit in the index is incomplete and isn't used; if the machine didn't lose power, \
                         an acknowledged write is missing: run `ifmatch verify`, and restore a backup if in doubt"
                    ),
                    Some(_) => tracing::info!(
                        "the index wasn't closed cleanly: copying its records into a new file"
                    ),
                    None => {}
                }
                into_place(&*storage, found.as_ref().map(|found| &*found.database))?
            }
        };
        // Before any other commit, which would be an acknowledged one.
        storage.remember_failure(false)?;
        Ok(Self {
            storage: Some(storage),
            ..Self::around(database)?
        })
    }

    /// Reads a database as it was found. Nothing can be changed in this storage, so nothing takes its place.
    pub(crate) fn viewing(storage: Box<dyn DatabaseStorage>) -> Result<Self, OpenError> {
        let rollback = if storage.has_failed()? {
            RollbackPolicy::Accept
        } else {
            RollbackPolicy::Refuse
        };
        let view = DatabaseView::open(storage.open()?.ok_or_else(OpenError::removed)?, rollback)?;
        let current = Current {
            number: 0,
            state: DatabaseState::Failed(Some(view)),
        };
        Ok(Self {
            storage: Some(storage),
            current: RwLock::new(current),
            doubtful: Mutex::default(),
            is_told: AtomicBool::default(),
        })
    }

    /// Uses a database that can't be replaced.
    pub(crate) fn around(database: Database) -> Result<Self, OpenError> {
        let database = ContainedDatabase::new(database);
        contained(|| create_table(&database)).map_err(OpenError::damaged)??;
        let current = Current {
            number: 0,
            state: DatabaseState::InUse(database),
        };
        Ok(Self {
            storage: None,
            current: RwLock::new(current),
            doubtful: Mutex::default(),
            is_told: AtomicBool::default(),
        })
    }

    /// Commits the changes to these keys. Only one thread may call this at a time.
    ///
    /// After a failure, copies the records immediately so that the next load shows the result.
    pub(crate) fn write<'a, T>(
        &self,
        keys: impl Iterator<Item = &'a Key>,
        commit: impl FnOnce(&Database) -> Result<T, RegisterError>,
    ) -> Result<T, RegisterError> {
        self.mend()?;
        // While this is held, no read can retire the state: an acknowledged commit must not count as one in doubt then.
        let current = self.current();
        let DatabaseState::InUse(database) = &current.state else {
            return Err(RegisterErrorKind::Unavailable.into());
        };
        *self.doubtful() = keys.cloned().collect();
        let result = contained(|| commit(database));
        let result = result
            .unwrap_or_else(|page| Err(RegisterError::new(RegisterErrorKind::Ambiguous, page)));
        let failed = result.as_ref().err().map(RegisterError::kind);
        if failed != Some(RegisterErrorKind::Ambiguous) {
            self.doubtful().clear();
        }
        let number = current.number;
        drop(current);
        if failed.is_some_and(|kind| kind != RegisterErrorKind::Unreadable) {
            self.fail(number);
            // If the process ends before the copy succeeds, the next one must know that the incomplete commit was refused. If this fails,
            // it says that an acknowledged one may be missing.
            if let Some(storage) = &self.storage
                && let Err(error) = storage.remember_failure(true)
            {
                tracing::debug!(%error, "cannot note that a commit failed");
            }
            // The reason is told there.
            let _ = self.mend();
        }
        result
    }

    /// Loads a record.
    pub(crate) fn load(&self, key: &Key) -> Result<Option<CachedRecord>, RegisterError> {
        let is_in_doubt = || self.is_in_doubt(key);
        self.read(is_in_doubt, |database| {
            let transaction = database.begin_read().map_err(unavailable)?;
            let table = transaction.open_table(RECORDS).map_err(unavailable)?;
            read(&table, key)
        })
    }

    /// Reads a page of records, which ends after [`PAGE`] bytes.
    pub(crate) fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let start = match scan.after {
            Some(after) if after >= scan.prefix => Bound::Excluded(after.as_bytes()),
            _ => Bound::Included(scan.prefix.as_bytes()),
        };
        let is_in_doubt = || self.doubtful_below(scan.prefix).is_some();
        self.read(is_in_doubt, |database| {
            let transaction = database.begin_read().map_err(unavailable)?;
            let table = transaction.open_table(RECORDS).map_err(unavailable)?;
            let range = table
                .range::<&[u8]>((start, Bound::Unbounded))
                .map_err(unavailable)?;
            let mut page: Vec<(Key, Record)> = Vec::new();
            let mut bytes = 0;
            for entry in range {
                let (key, value) = entry.map_err(unavailable)?;
                if page.len() >= scan.limit
                    || bytes >= PAGE
                    || !key.value().starts_with(scan.prefix.as_bytes())
                {
                    break;
                }
                let key = as_key(key.value())?;
                // In a damaged tree. A scan that continued after such a key would have no end.
                if page
                    .last()
                    .map(|(last, _)| last.as_str())
                    .or(scan.after)
                    .is_some_and(|last| key.as_str() <= last)
                {
                    let error = format!("the record {key} is out of order: the index is damaged");
                    return Err(RegisterError::new(RegisterErrorKind::Unreadable, error));
                }
                let record = value.value().1;
                bytes += key.as_str().len() + record.len();
                page.push((key, Record::decode(record)?));
            }
            Ok(page)
        })
    }

    /// Copies the records of one moment into a new file, while others go on.
    pub(crate) fn copy_to(&self, path: &Path) -> Result<(), OpenError> {
        let current = self.current();
        let DatabaseState::InUse(database) = &current.state else {
            return Err(OpenError::other(io::Error::other(
                "the index has failed, and is copied before the next change",
            )));
        };
        Ok(into_file(database, path)?)
    }

    /// Returns `true` if a failed commit may have changed the record of this key.
    pub(crate) fn is_in_doubt(&self, key: &Key) -> bool {
        self.doubtful().contains(key)
    }

    /// Returns a key with this prefix that a failed commit may have changed.
    pub(crate) fn doubtful_below(&self, prefix: &str) -> Option<Key> {
        self.doubtful()
            .iter()
            .find(|key| key.as_str().starts_with(prefix))
            .cloned()
    }

    /// Reads the database, or its remains after a failure unless they are in doubt.
    fn read<T>(
        &self,
        is_in_doubt: impl Fn() -> bool,
        work: impl Fn(&Database) -> Result<T, RegisterError>,
    ) -> Result<T, RegisterError> {
        let work = |database: &Database| {
            let damaged = |page| Err(RegisterError::new(RegisterErrorKind::Unreadable, page));
            contained(|| work(database)).unwrap_or_else(damaged)
        };
        loop {
            let current = self.current();
            let result = match &current.state {
                DatabaseState::InUse(database) => work(database),
                DatabaseState::Failed(_) if is_in_doubt() => {
                    let error = "the index has failed, and the durable state of the last change is not known yet";
                    return Err(unavailable_now(error));
                }
                DatabaseState::Failed(Some(view)) => work(&view.database),
                DatabaseState::Failed(None) => {
                    drop(current);
                    self.open_view()?;
                    continue;
                }
            };
            let number = current.number;
            drop(current);
            if result
                .as_ref()
                .is_err_and(|error| error.kind() != RegisterErrorKind::Unreadable)
            {
                self.fail(number);
            }
            return result;
        }
    }

    /// Retires the state in which a failure occurred. Later reads come from the disk and the page cache.
    fn fail(&self, number: u64) {
        let mut current = self.current_mut();
        if current.number == number {
            *current = Current {
                number: number + 1,
                state: DatabaseState::Failed(None),
            };
        }
    }

    /// Opens the durable part of a database that has failed.
    fn open_view(&self) -> Result<(), RegisterError> {
        let storage = self.storage()?;
        let mut current = self.current_mut();
        if matches!(current.state, DatabaseState::Failed(None)) {
            let found = storage
                .open()
                .and_then(|found| found.ok_or_else(|| std::io::ErrorKind::NotFound.into()));
            // A commit that failed wasn't acknowledged, so it may be lost. After a failed read, nothing may be.
            let rollback = if self.doubtful().is_empty() {
                RollbackPolicy::Refuse
            } else {
                RollbackPolicy::Accept
            };
            let view = DatabaseView::open(found.map_err(unavailable_now)?, rollback)
                .map_err(unavailable_now)?;
            if rollback == RollbackPolicy::Refuse && view.end == DatabaseEnd::RolledBack {
                tracing::error!(
                    "the newest commit in the index can't be read any more: restore a backup"
                );
                return Err(unavailable_now("the newest commit in the index is damaged"));
            }
            *current = Current {
                number: current.number + 1,
                state: DatabaseState::Failed(Some(view)),
            };
        }
        Ok(())
    }

    /// Copies the records into a new database after a failure. Only one thread may call this at a time.
    fn mend(&self) -> Result<(), RegisterError> {
        let mended = self.try_mend();
        match &mended {
            Ok(()) => self.is_told.store(false, Relaxed),
            Err(error) if !self.is_told.swap(true, Relaxed) => {
                tracing::error!(%error, "the index has failed and cannot be copied yet: nothing can be changed");
            }
            Err(_) => {}
        }
        mended
    }

    /// Copies the records once, or as often as reading them finds another failure.
    fn try_mend(&self) -> Result<(), RegisterError> {
        loop {
            let current = self.current();
            let view = match &current.state {
                DatabaseState::InUse(_) => return Ok(()),
                DatabaseState::Failed(Some(view)) => view,
                DatabaseState::Failed(None) => {
                    drop(current);
                    self.open_view()?;
                    continue;
                }
            };
            let storage = self.storage()?;
            // Forgotten before the next commit, which is acknowledged: its loss must not look like this failure.
            let copied = into_place(storage, Some(&view.database)).and_then(|database| {
                storage
                    .remember_failure(false)
                    .map_err(|error| CopyError::Write(error.into()))?;
                Ok(database)
            });
            let number = current.number;
            drop(current);
            match copied {
                Ok(database) => {
                    let state = DatabaseState::InUse(ContainedDatabase::new(database));
                    let mut current = self.current_mut();
                    *current = Current {
                        number: number + 1,
                        state,
                    };
                    self.doubtful().clear();
                    drop(current);
                    tracing::warn!("the index has failed; its records were copied into a new file");
                    return Ok(());
                }
                Err(CopyError::Read(error)) => {
                    self.fail(number);
                    return Err(unavailable_now(error));
                }
                Err(CopyError::Write(error)) => return Err(unavailable_now(error)),
            }
        }
    }

    /// Returns the storage in which a new database can be created.
    fn storage(&self) -> Result<&dyn DatabaseStorage, RegisterError> {
        let error =
            "the database has failed, and nothing can take its place: open the register anew";
        self.storage
            .as_deref()
            .ok_or_else(|| unavailable_now(error))
    }

    fn current(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn current_mut(&self) -> RwLockWriteGuard<'_, Current> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn doubtful(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedDatabase")
            .field("storage", &self.storage)
            .finish_non_exhaustive()
    }
}

/// Reads the record under a key.
pub(crate) fn read(
    table: &impl ReadableTable<TextKey, (u64, &'static [u8])>,
    key: &Key,
) -> Result<Option<CachedRecord>, RegisterError> {
    let Some(value) = table.get(key.as_str().as_bytes()).map_err(unavailable)? else {
        return Ok(None);
    };
    let (_, bytes) = value.value();
    Ok(Some(CachedRecord {
        record: Record::decode(bytes)?,
        size: bytes.len(),
    }))
}

/// Returns a stored key.
fn as_key(bytes: &[u8]) -> Result<Key, RegisterError> {
    let unreadable = |error: BoxError| RegisterError::new(RegisterErrorKind::Unreadable, error);
    let text = std::str::from_utf8(bytes).map_err(|error| unreadable(error.into()))?;
    Key::new(text).map_err(|error| unreadable(error.into()))
}

/// Creates the table of the records, unless it is there.
fn create_table(database: &Database) -> Result<(), OpenError> {
    let create = || -> Result<(), redb::Error> {
        // A full disk must not keep readers out.
        if database.begin_read()?.open_table(RECORDS).is_ok() {
            return Ok(());
        }
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.commit()?;
        Ok(())
    };
    Ok(create()?)
}
