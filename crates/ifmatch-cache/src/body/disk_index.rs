//! The index of the bodies on disk, in a redb database: one row per stored response, which names its file.
//!
//! A row is put, replaced and removed in one transaction, so it never names another response's file. The files are
//! written before and deleted after, so a crash leaves files without rows, which the next start removes, or rows
//! without files, which are dropped when they are used. Names of files are never used twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ifmatch_runtime::private_files;
use redb::{
    Builder, Database, Durability, Error, ReadableDatabase, ReadableTable, Table, TableDefinition,
};
use serde::{Deserialize, Serialize};

/// Rows by URI and variant.
const ROWS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("rows-1");
/// Keys of rows in the order of eviction.
const QUEUE: TableDefinition<'_, u64, &str> = TableDefinition::new("queue");
/// Groups with the keys of their rows.
const GROUPS: TableDefinition<'_, &str, ()> = TableDefinition::new("groups");
/// The numbers with the names below.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// Number of processes that have opened the index.
const RUN: &str = "run";
/// Next position in the queue.
const NEXT: &str = "next";
/// Total length of all bodies.
const BYTES: &str = "bytes";

/// Size of the database's own cache, in bytes.
const CACHE: usize = 8 << 20;

/// The name of a body's file: the number of the process, and a number within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct FileId {
    pub(crate) run: u64,
    pub(crate) number: u64,
}

/// A response's row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DiskRow {
    /// Position in the queue, set when it is put.
    pub(crate) at: u64,
    /// The process that wrote it.
    pub(crate) run: u64,
    /// Ordinal of the request to the origin, in that process.
    pub(crate) began: u64,
    pub(crate) file: FileId,
    /// Length of the body.
    pub(crate) len: u64,
    pub(crate) groups: Vec<String>,
    /// The response, without its body.
    pub(crate) head: Vec<u8>,
}

/// The index. Once it can't be read or written, it isn't used again.
#[derive(Debug)]
pub(crate) struct DiskIndex {
    database: Database,
    path: PathBuf,
    broken: AtomicBool,
    /// The number of this process.
    pub(crate) run: u64,
}

impl DiskIndex {
    /// Opens the index in a file. Begins with an empty one if it can't be read.
    ///
    /// # Errors
    /// Fails if the file can't be created or written.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let opened = Self::try_open(path);
        if opened.is_ok() {
            return opened;
        }
        drop(fs::remove_file(path));
        Self::try_open(path)
    }

    fn try_open(path: &Path) -> Result<Self, Error> {
        let database = Builder::new()
            .set_cache_size(CACHE)
            .create_file(private_files::open_or_create(path)?)?;
        let transaction = database.begin_write()?;
        let run = {
            transaction.open_table(ROWS)?;
            transaction.open_table(QUEUE)?;
            transaction.open_table(GROUPS)?;
            let mut numbers = transaction.open_table(NUMBERS)?;
            let run = numbers.get(RUN)?.map_or(0, |run| run.value()) + 1;
            numbers.insert(RUN, run)?;
            run
        };
        transaction.commit()?;
        Ok(Self {
            database,
            path: path.to_owned(),
            broken: AtomicBool::new(false),
            run,
        })
    }

    /// Returns the total length of all bodies.
    pub(crate) fn bytes(&self) -> u64 {
        let read = || -> Result<u64, Error> {
            let numbers = self.database.begin_read()?.open_table(NUMBERS)?;
            Ok(numbers.get(BYTES)?.map_or(0, |bytes| bytes.value()))
        };
        self.checked(read()).unwrap_or_default()
    }

    /// Returns the rows with keys that begin with this prefix.
    pub(crate) fn rows(&self, prefix: &str) -> Vec<(String, DiskRow)> {
        let read = || -> Result<Vec<(String, DiskRow)>, Error> {
            let rows = self.database.begin_read()?.open_table(ROWS)?;
            let mut found = Vec::new();
            for row in rows.range(prefix..)? {
                let (key, row) = row?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                found.extend(decode(row.value()).map(|row| (key.value().to_owned(), row)));
            }
            Ok(found)
        };
        if self.is_broken() {
            Vec::new()
        } else {
            self.checked(read()).unwrap_or_default()
        }
    }

    /// Returns the row with this key.
    pub(crate) fn row(&self, key: &str) -> Option<DiskRow> {
        let read = || -> Result<Option<DiskRow>, Error> {
            let rows = self.database.begin_read()?.open_table(ROWS)?;
            Ok(rows.get(key)?.and_then(|row| decode(row.value())))
        };
        if self.is_broken() {
            None
        } else {
            self.checked(read()).flatten()
        }
    }

    /// Returns the files of all rows. Returns `None` if the index is broken.
    pub(crate) fn files(&self) -> Option<Vec<FileId>> {
        let read = || -> Result<Vec<FileId>, Error> {
            let rows = self.database.begin_read()?.open_table(ROWS)?;
            let mut files = Vec::new();
            for row in rows.iter()? {
                files.extend(decode(row?.1.value()).map(|row| row.file));
            }
            Ok(files)
        };
        self.checked(read())
    }

    /// Changes rows in one transaction, which excludes all others. Returns the files to delete, with their lengths, or `None` if the
    /// index is broken. With `durable`, the change survives a crash.
    pub(crate) fn change(
        &self,
        durable: bool,
        change: impl FnOnce(&mut IndexTransaction<'_>) -> Result<(), Error>,
    ) -> Option<Vec<(FileId, u64)>> {
        if self.is_broken() {
            return None;
        }
        self.checked(self.try_change(durable, change))
    }

    fn try_change(
        &self,
        durable: bool,
        change: impl FnOnce(&mut IndexTransaction<'_>) -> Result<(), Error>,
    ) -> Result<Vec<(FileId, u64)>, Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(if durable {
            Durability::Immediate
        } else {
            Durability::None
        })?;
        let (gone, changed) = {
            let mut tables = IndexTransaction {
                rows: transaction.open_table(ROWS)?,
                queue: transaction.open_table(QUEUE)?,
                groups: transaction.open_table(GROUPS)?,
                numbers: transaction.open_table(NUMBERS)?,
                gone: Vec::new(),
                changed: false,
            };
            change(&mut tables)?;
            (tables.gone, tables.changed)
        };
        if changed {
            transaction.commit()?;
        } else {
            transaction.abort()?;
        }
        Ok(gone)
    }

    /// Makes all changes durable.
    pub(crate) fn sync(&self) {
        self.change(true, |change| {
            change.changed = true;
            Ok(())
        });
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// After an error, an invalidation may be missing. The file is deleted, so the next process begins with an
    /// empty index.
    fn checked<T>(&self, result: Result<T, Error>) -> Option<T> {
        if result.is_err() {
            self.broken.store(true, Ordering::Release);
            drop(fs::remove_file(&self.path));
        }
        result.ok()
    }
}

fn decode(row: &[u8]) -> Option<DiskRow> {
    postcard::from_bytes(row).ok()
}

/// A transaction that changes rows.
pub(crate) struct IndexTransaction<'t> {
    rows: Table<'t, &'static str, &'static [u8]>,
    queue: Table<'t, u64, &'static str>,
    groups: Table<'t, &'static str, ()>,
    numbers: Table<'t, &'static str, u64>,
    /// Files that have lost their row, with their lengths.
    gone: Vec<(FileId, u64)>,
    changed: bool,
}

impl IndexTransaction<'_> {
    /// Returns the row with this key.
    pub(crate) fn get(&self, key: &str) -> Result<Option<DiskRow>, Error> {
        Ok(self.rows.get(key)?.and_then(|row| decode(row.value())))
    }

    /// Puts a row at the end of the queue, in place of the one with this key.
    pub(crate) fn put(&mut self, key: &str, row: DiskRow) -> Result<(), Error> {
        let file = row.file;
        self.remove(key)?;
        // An update keeps the file.
        self.gone.retain(|(gone, _)| *gone != file);
        let at = self.numbers.get(NEXT)?.map_or(1, |next| next.value());
        self.numbers.insert(NEXT, at + 1)?;
        let row = DiskRow { at, ..row };
        let bytes = self.bytes()? + row.len;
        self.numbers.insert(BYTES, bytes)?;
        self.queue.insert(at, key)?;
        for group in &row.groups {
            self.groups.insert(&*member(group, key), ())?;
        }
        // Encoding to memory doesn't fail.
        let encoded = postcard::to_allocvec(&row).unwrap_or_default();
        self.rows.insert(key, &*encoded)?;
        self.changed = true;
        Ok(())
    }

    /// Removes the row with this key. Returns `true` if there was one.
    pub(crate) fn remove(&mut self, key: &str) -> Result<bool, Error> {
        let Some(row) = self.rows.remove(key)?.map(|row| decode(row.value())) else {
            return Ok(false);
        };
        self.changed = true;
        // A row of another format names no file, which is then removed at the next start.
        let Some(row) = row else { return Ok(true) };
        self.queue.remove(row.at)?;
        for group in &row.groups {
            self.groups.remove(&*member(group, key))?;
        }
        let bytes = self.bytes()?.saturating_sub(row.len);
        self.numbers.insert(BYTES, bytes)?;
        self.gone.push((row.file, row.len));
        Ok(true)
    }

    /// Returns the keys with this prefix.
    pub(crate) fn keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        keys(&self.rows, prefix)
    }

    /// Returns the keys of the rows in a group.
    pub(crate) fn members(&self, group: &str) -> Result<Vec<String>, Error> {
        let prefix = member(group, "");
        let members = keys(&self.groups, &prefix)?;
        Ok(members
            .iter()
            .filter_map(|member| member.strip_prefix(&prefix))
            .map(str::to_owned)
            .collect())
    }

    /// Returns the first row in the queue. Removes positions without a row.
    pub(crate) fn first(&mut self) -> Result<Option<(String, DiskRow)>, Error> {
        loop {
            let Some((at, key)) = self
                .queue
                .first()?
                .map(|(at, key)| (at.value(), key.value().to_owned()))
            else {
                return Ok(None);
            };
            match self.get(&key)?.filter(|row| row.at == at) {
                Some(row) => return Ok(Some((key, row))),
                None => drop(self.queue.remove(at)?),
            }
        }
    }

    fn bytes(&self) -> Result<u64, Error> {
        Ok(self.numbers.get(BYTES)?.map_or(0, |bytes| bytes.value()))
    }
}

/// Returns the key of a member of a group.
fn member(group: &str, key: &str) -> String {
    format!("{group}\0{key}")
}

fn keys<V: redb::Value + 'static>(
    table: &impl ReadableTable<&'static str, V>,
    prefix: &str,
) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for entry in table.range(prefix..)? {
        let (key, _) = entry?;
        if !key.value().starts_with(prefix) {
            break;
        }
        found.push(key.value().to_owned());
    }
    Ok(found)
}
