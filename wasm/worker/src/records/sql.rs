//! The `SQLite` tables of an object. Statements without an await between them form one transaction.

use std::cell::Cell;

use worker::{Error, Result, SqlStorage, SqlStorageValue};

use super::wire::{Kept, NoteNumber, RecordEntry};

/// The record of an object. The table is created with its row, so a lookup leaves nothing behind.
pub(super) struct RecordTable {
    sql: SqlStorage,
    exists: Cell<bool>,
}

/// The names of a group.
pub(super) struct GroupNames {
    sql: SqlStorage,
    exists: Cell<bool>,
}

impl RecordTable {
    pub(super) fn new(sql: SqlStorage) -> Self {
        Self {
            sql,
            exists: Cell::new(false),
        }
    }

    /// Returns the record.
    pub(super) fn load(&self) -> Result<Option<RecordEntry>> {
        if !exists(&self.sql, &self.exists, "record")? {
            return Ok(None);
        }
        match row(&self.sql, "SELECT revision, record FROM record", Vec::new())?.as_deref() {
            None => Ok(None),
            Some(
                [
                    SqlStorageValue::String(revision),
                    SqlStorageValue::Blob(record),
                ],
            ) => {
                let revision = u64::from_str_radix(revision, 16).map_err(|_| damaged())?;
                Ok(Some(RecordEntry {
                    revision,
                    record: record.clone(),
                }))
            }
            Some(_) => Err(damaged()),
        }
    }

    /// Returns the key of the record, and its retention.
    pub(super) fn kept(&self) -> Result<Option<(String, Kept)>> {
        if !exists(&self.sql, &self.exists, "record")? {
            return Ok(None);
        }
        match row(&self.sql, "SELECT key, kept FROM record", Vec::new())?.as_deref() {
            None => Ok(None),
            Some([SqlStorageValue::String(key), SqlStorageValue::Integer(kept)]) => {
                Ok(Some((key.clone(), Kept::of(*kept))))
            }
            Some(_) => Err(damaged()),
        }
    }

    /// Replaces the record.
    pub(super) fn store(&self, key: &str, entry: RecordEntry, kept: Kept) -> Result<()> {
        if !exists(&self.sql, &self.exists, "record")? {
            // With row numbers, each write would be billed as two rows: the row, and the entry in the index of keys.
            let create = "CREATE TABLE record \
                          (key TEXT PRIMARY KEY, revision TEXT NOT NULL, record BLOB NOT NULL, kept INTEGER NOT NULL) \
                          WITHOUT ROWID";
            self.sql.exec(create, None)?;
        }
        let row = vec![
            key.into(),
            hex(entry.revision),
            entry.record.into(),
            kept.number().into(),
        ];
        self.sql.exec(
            "INSERT OR REPLACE INTO record (key, revision, record, kept) VALUES (?, ?, ?, ?)",
            row,
        )?;
        self.exists.set(true);
        Ok(())
    }

    /// Resets the cached state after the database was deleted.
    pub(super) fn deleted(&self) {
        self.exists.set(false);
    }
}

impl GroupNames {
    pub(super) fn new(sql: SqlStorage) -> Self {
        Self {
            sql,
            exists: Cell::new(false),
        }
    }

    /// Registers a name, or replaces its note.
    pub(super) fn note(&self, name: &str, note: NoteNumber) -> Result<()> {
        if !exists(&self.sql, &self.exists, "names")? {
            self.sql.exec(
                "CREATE TABLE names (name TEXT PRIMARY KEY, note TEXT NOT NULL) WITHOUT ROWID",
                None,
            )?;
        }
        let row = vec![name.into(), hex(note)];
        self.sql.exec(
            "INSERT OR REPLACE INTO names (name, note) VALUES (?, ?)",
            row,
        )?;
        self.exists.set(true);
        Ok(())
    }

    /// Returns the note of a name.
    pub(super) fn noted(&self, name: &str) -> Result<Option<NoteNumber>> {
        if !exists(&self.sql, &self.exists, "names")? {
            return Ok(None);
        }
        match row(
            &self.sql,
            "SELECT note FROM names WHERE name = ?",
            vec![name.into()],
        )?
        .as_deref()
        {
            None => Ok(None),
            Some([SqlStorageValue::String(note)]) => u64::from_str_radix(note, 16)
                .map(Some)
                .map_err(|_| damaged()),
            Some(_) => Err(damaged()),
        }
    }

    /// Removes a name with this note. Returns `true` if no names are left.
    pub(super) fn remove(&self, name: &str, note: NoteNumber) -> Result<bool> {
        if !exists(&self.sql, &self.exists, "names")? {
            return Ok(false);
        }
        self.sql.exec(
            "DELETE FROM names WHERE name = ? AND note = ?",
            vec![name.into(), hex(note)],
        )?;
        Ok(row(&self.sql, "SELECT 1 FROM names LIMIT 1", Vec::new())?.is_none())
    }

    /// Resets the cached state after the database was deleted.
    pub(super) fn deleted(&self) {
        self.exists.set(false);
    }

    /// Returns names with a prefix, in the order of their bytes.
    pub(super) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<String>> {
        if !exists(&self.sql, &self.exists, "names")? {
            return Ok(Vec::new());
        }
        // SQLite compares texts by their bytes, and so does this comparison of the prefix.
        let query = "SELECT name FROM names WHERE name >= ?1 AND name > ?2 AND substr(name, 1, length(?1)) = ?1 \
                     ORDER BY name LIMIT ?3";
        let asked = vec![
            prefix.into(),
            after.unwrap_or_default().into(),
            i64::from(limit).into(),
        ];
        let names = self
            .sql
            .exec(query, asked)?
            .raw()
            .map(|row| match row?.as_slice() {
                [SqlStorageValue::String(name)] => Ok(name.clone()),
                _ => Err(damaged()),
            });
        names.collect()
    }
}

/// Returns `true` if a table exists. A positive result is cached.
fn exists(sql: &SqlStorage, known: &Cell<bool>, table: &str) -> Result<bool> {
    if !known.get() {
        let query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?";
        known.set(row(sql, query, vec![table.into()])?.is_some());
    }
    Ok(known.get())
}

fn row(
    sql: &SqlStorage,
    query: &str,
    bindings: Vec<SqlStorageValue>,
) -> Result<Option<Vec<SqlStorageValue>>> {
    sql.exec(query, bindings)?.raw().next().transpose()
}

/// Returns a number as text, since JavaScript's numbers lack the precision.
fn hex(number: u64) -> SqlStorageValue {
    format!("{number:016x}").into()
}

fn damaged() -> Error {
    Error::RustError("the object's table is damaged, or was written by a newer release".to_owned())
}
