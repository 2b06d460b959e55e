//! The open database: reading it, and opening it anew after it closed itself.

use std::fmt;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use ifmatch_core::record::Record;
use ifmatch_store::Key;
use ifmatch_store::register::{RegisterError, RegisterErrorKind, Scan};
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};

use crate::error::{OpenError, unavailable};
use crate::key_text::KeyText;
use crate::recent::Stored;

/// Key, revision and encoded record.
pub(crate) const RECORDS: TableDefinition<'_, KeyText, (u64, &[u8])> = TableDefinition::new("records");

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

pub(crate) struct Shared {
    opener: Opener,
    database: RwLock<Option<Database>>,
}

impl Shared {
    pub(crate) fn open(opener: Opener) -> Result<Self, OpenError> {
        let database = open(&opener)?;
        Ok(Self { opener, database: RwLock::new(Some(database)) })
    }

    /// Runs `work` on the database. After a failure of the disk the database is closed, since redb ends for good
    /// with it, and the next caller opens it anew.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, RegisterError>) -> Result<T, RegisterError> {
        let guard = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = &*guard else {
            drop(guard);
            return self.with_reopened(work);
        };
        let result = work(database);
        drop(guard);
        let failed = result.as_ref().err().map(RegisterError::kind);
        if failed.is_some_and(|kind| kind != RegisterErrorKind::Unreadable) {
            *self.database.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        result
    }

    fn with_reopened<T>(&self, work: impl FnOnce(&Database) -> Result<T, RegisterError>) -> Result<T, RegisterError> {
        let mut slot = self.database.write().unwrap_or_else(PoisonError::into_inner);
        let database = match slot.take() {
            Some(database) => database,
            None => open(&self.opener).map_err(|error| RegisterError::new(RegisterErrorKind::Unavailable, error))?,
        };
        work(slot.insert(database))
    }

    pub(crate) fn load(&self, key: &Key) -> Result<Option<Stored>, RegisterError> {
        self.with(|database| {
            let transaction = database.begin_read().map_err(unavailable)?;
            let table = transaction.open_table(RECORDS).map_err(unavailable)?;
            read(&table, key)
        })
    }

    pub(crate) fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let start = match scan.after {
            Some(after) if after >= scan.prefix => Bound::Excluded(after.as_bytes()),
            _ => Bound::Included(scan.prefix.as_bytes()),
        };
        self.with(|database| {
            let transaction = database.begin_read().map_err(unavailable)?;
            let table = transaction.open_table(RECORDS).map_err(unavailable)?;
            let range = table.range::<&[u8]>((start, Bound::Unbounded)).map_err(unavailable)?;
            let mut page = Vec::new();
            for entry in range {
                let (key, value) = entry.map_err(unavailable)?;
                if page.len() >= scan.limit || !key.value().starts_with(scan.prefix.as_bytes()) {
                    break;
                }
                page.push((as_key(key.value())?, Record::decode(value.value().1)?));
            }
            Ok(page)
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("database", &self.database).finish_non_exhaustive()
    }
}

/// The record under a key.
pub(crate) fn read(
    table: &impl ReadableTable<KeyText, (u64, &'static [u8])>,
    key: &Key,
) -> Result<Option<Stored>, RegisterError> {
    let Some(value) = table.get(key.as_str().as_bytes()).map_err(unavailable)? else { return Ok(None) };
    let (_, bytes) = value.value();
    Ok(Some(Stored { record: Record::decode(bytes)?, size: bytes.len() }))
}

fn as_key(bytes: &[u8]) -> Result<Key, RegisterError> {
    let unreadable = |error: BoxError| RegisterError::new(RegisterErrorKind::Unreadable, error);
    let text = std::str::from_utf8(bytes).map_err(|error| unreadable(error.into()))?;
    Key::new(text).map_err(|error| unreadable(error.into()))
}

fn open(opener: &Opener) -> Result<Database, OpenError> {
    let database = opener()?;
    let create_table = || -> Result<(), redb::Error> {
        // A full disk must not keep readers out.
        if database.begin_read()?.open_table(RECORDS).is_ok() {
            return Ok(());
        }
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.commit()?;
        Ok(())
    };
    create_table()?;
    Ok(database)
}
