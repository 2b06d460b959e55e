//! Stored responses on disk: those with a body in a file, also after the memory has evicted their head.
//!
//! The index excludes stale responses in three ways. A response is put only if its resource wasn't invalidated since its
//! request, which is checked within the transaction. An invalidation changes first the memory, so no later
//! transaction puts an old response; then the index; then the memory again, for a response that was read from the index
//! before. And a response that was read enters the memory only if the index still has it, which is checked under the lock
//! that the last step takes.
//!
//! A response of an earlier process may be outdated, because that process may have crashed during a write. It is validated
//! before its first use.

use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use ifmatch_core::date::Timestamp;
use redb::Error;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::body::disk_index::{DiskRow, FileId, IndexTransaction};
use crate::body::folder::CacheFolder;
use crate::body::on_disk::DiskBody;
use crate::request::key::CacheKey;
use crate::store::record;
use crate::store::stored_response::{StoredBody, StoredHead, StoredResponse};

/// Separates the URI from the variant. No URI contains it.
const SEPARATOR: char = '\0';

/// Begins the name of a row for a part of a response. The row lets the index evict and invalidate the file, and is never
/// read: parts don't outlive the head in memory.
const SLICE: &str = "\0slice-";

/// Ordinal of responses of earlier processes: older than all others.
pub(super) const EARLIER: u64 = 1;

/// The responses on disk.
#[derive(Debug)]
pub(crate) struct DiskArchive {
    folder: Arc<CacheFolder>,
    /// Key of the row for the evicted response that is being written, if any.
    spilling: Mutex<Option<String>>,
}

/// A response read from the index.
pub(super) struct LoadedResponse {
    pub(super) stored: StoredResponse,
    row_key: String,
    row: DiskRow,
}

impl DiskArchive {
    pub(super) fn new(folder: Arc<CacheFolder>) -> Self {
        Self {
            folder,
            spilling: Mutex::default(),
        }
    }

    /// Brings the row of a response that was just stored up to date: puts it if its body is in a file, and otherwise removes
    /// the one of an older response.
    pub(super) fn follow(
        &self,
        key: &CacheKey,
        stored: &StoredResponse,
        is_current: impl Fn() -> bool,
    ) {
        match &stored.body {
            StoredBody::File(body) => {
                let row_key = row_key(key, &stored.meta);
                self.put(
                    key,
                    &row_key,
                    &stored.meta,
                    body,
                    !body.is_recorded(),
                    is_current,
                );
            }
            StoredBody::Parts(parts) => {
                self.remove_variant(key, &stored.meta);
                for body in parts.files().filter(|body| !body.is_recorded()) {
                    self.put(
                        key,
                        &slice_key(key, body.file),
                        &stored.meta,
                        body,
                        false,
                        &is_current,
                    );
                }
            }
            StoredBody::Whole(_) | StoredBody::Broadcast(_) => {
                self.remove_variant(key, &stored.meta);
            }
        }
    }

    /// Writes an evicted response to disk.
    pub(super) fn spill(
        &self,
        key: &CacheKey,
        stored: &StoredResponse,
        is_current: impl Fn() -> bool,
    ) {
        let StoredBody::Whole(content) = &stored.body else {
            return;
        };
        let Ok(body) = DiskBody::create(&self.folder, content) else {
            return;
        };
        *self.spilling() = Some(row_key(key, &stored.meta));
        self.put(
            key,
            &row_key(key, &stored.meta),
            &stored.meta,
            &body,
            false,
            is_current,
        );
        *self.spilling() = None;
    }

    fn put(
        &self,
        key: &CacheKey,
        row_key: &str,
        meta: &StoredHead,
        body: &Arc<DiskBody>,
        durable: bool,
        is_current: impl Fn() -> bool,
    ) {
        let is_slice = row_key.contains(SLICE);
        let written = body.written();
        let row = DiskRow {
            at: 0,
            run: self.folder.index.run,
            began: meta.began,
            file: body.file,
            len: written.len,
            groups: meta
                .groups
                .iter()
                .map(|name| group(key.origin(), name))
                .collect(),
            head: if is_slice {
                Vec::new()
            } else {
                record::encode(meta, written)
            },
        };
        let (mut put, was_recorded) = (false, body.is_recorded());
        let change = |change: &mut IndexTransaction<'_>| {
            let run = row.run;
            let known = change.get(row_key)?;
            let is_older = known
                .as_ref()
                .is_some_and(|known| known.run == run && known.began > row.began);
            // The file of a row that was removed is gone.
            let has_file = !was_recorded || known.is_some_and(|known| known.file == row.file);
            if is_current() && has_file && !is_older {
                change.put(row_key, row)?;
                put = true;
                // Before the transaction ends, so the file belongs to exactly one of both.
                if is_slice {
                    body.lend(row_key);
                } else {
                    body.hand_over(row_key);
                }
            }
            Ok(())
        };
        let changed = blocking(|| self.folder.try_change(durable, change));
        if put && changed.is_none() {
            // The row may or may not exist. The index isn't used again.
            self.folder.free(body.len());
        }
    }

    /// Removes the response for the same requests.
    pub(super) fn remove_variant(&self, key: &CacheKey, meta: &StoredHead) {
        let row_key = row_key(key, meta);
        let is_spilling = self.spilling().as_ref() == Some(&row_key);
        if is_spilling || self.folder.index.row(&row_key).is_some() {
            blocking(|| {
                self.folder
                    .change(false, |change| change.remove(&row_key).map(drop))
            });
        }
    }

    /// Returns `true` if there are responses for a URI.
    pub(super) fn has_any(&self, key: &CacheKey) -> bool {
        let prefix = format!("{}{SEPARATOR}", key.as_str());
        !blocking(|| self.folder.index.rows(&prefix)).is_empty()
    }

    /// Removes all responses for a URI. Returns `true` if there were any.
    pub(super) fn remove(&self, key: &CacheKey) -> bool {
        let prefix = format!("{}{SEPARATOR}", key.as_str());
        !self.remove_all(|change| change.keys(&prefix)).is_empty()
    }

    /// Removes all responses for URIs with this prefix, and returns the URIs.
    pub(super) fn remove_prefix(&self, prefix: &str) -> Vec<String> {
        self.remove_all(|change| change.keys(prefix))
    }

    /// Removes all responses of an origin in a group, and returns their URIs.
    pub(super) fn remove_group(&self, origin: &str, name: &str) -> Vec<String> {
        self.remove_all(|change| change.members(&group(origin, name)))
    }

    fn remove_all(
        &self,
        select: impl Fn(&IndexTransaction<'_>) -> Result<Vec<String>, Error>,
    ) -> Vec<String> {
        let mut removed = Vec::new();
        let change = |change: &mut IndexTransaction<'_>| {
            removed = select(change)?;
            for key in &removed {
                change.remove(key)?;
            }
            Ok(())
        };
        blocking(|| self.folder.change(true, change));
        uris(removed)
    }

    /// Makes the responses for a URI, or with a prefix or in a group, stale. Returns the URIs of those that weren't purged
    /// before.
    pub(super) fn soft_purge(&self, what: &PurgeScope<'_>, now: Timestamp) -> Vec<String> {
        let mut purged = Vec::new();
        let change = |change: &mut IndexTransaction<'_>| {
            let keys = match what {
                PurgeScope::Uri(key) => change.keys(&format!("{}{SEPARATOR}", key.as_str())),
                PurgeScope::Prefix(prefix) => change.keys(prefix),
                PurgeScope::Group(origin, name) => change.members(&group(origin, name)),
            };
            for key in keys? {
                let Some(row) = change.get(&key)? else {
                    continue;
                };
                let read = record::decode(&row.head, row.began, row.len);
                let Some((meta, body)) =
                    read.and_then(|(meta, body)| Some((meta.purged(now)?, body)))
                else {
                    continue;
                };
                change.put(
                    &key,
                    DiskRow {
                        head: record::encode(&meta, body),
                        ..row
                    },
                )?;
                purged.push(key);
            }
            Ok(())
        };
        blocking(|| self.folder.change(true, change));
        uris(purged)
    }

    /// Reads the response that a request selects, and verifies its body if an earlier process wrote it.
    pub(super) fn load(
        &self,
        key: &CacheKey,
        request: &HeaderMap,
        implicit_key: &str,
    ) -> Option<LoadedResponse> {
        let prefix = format!("{}{SEPARATOR}", key.as_str());
        let mut rows = self.folder.index.rows(&prefix);
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.at));
        let (row_key, row, meta, written) = rows.into_iter().find_map(|(row_key, row)| {
            let is_own = row.run == self.folder.index.run;
            let (meta, written) =
                record::decode(&row.head, if is_own { row.began } else { EARLIER }, row.len)?;
            let is_selected = meta.is_selected(request, implicit_key);
            is_selected.then_some((row_key, row, meta, written))
        })?;
        let is_own = row.run == self.folder.index.run;
        let body = Arc::new(DiskBody::recorded(
            &self.folder,
            row.file,
            &row_key,
            written,
        ));
        let usable = if is_own {
            body.exists()
        } else {
            meta.has_validator() && blocking(|| body.verify())
        };
        if !usable {
            self.folder.forget(&row_key, row.file);
            return None;
        }
        let meta = if is_own { meta } else { meta.unconfirmed() };
        let stored = StoredResponse {
            meta: Arc::new(meta),
            body: StoredBody::File(body),
        };
        Some(LoadedResponse {
            stored,
            row_key,
            row,
        })
    }

    /// Returns `true` if the index still has this response, with the same head: a soft purge changes the head alone.
    pub(super) fn has(&self, loaded: &LoadedResponse) -> bool {
        let is_same = |row: DiskRow| row.file == loaded.row.file && row.head == loaded.row.head;
        self.folder.index.row(&loaded.row_key).is_some_and(is_same)
    }

    /// Makes all changes durable.
    pub(super) fn sync(&self) {
        self.folder.index.sync();
    }

    /// Returns the number of bytes of bodies on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.folder.taken()
    }

    fn spilling(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.spilling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Responses to purge.
pub(super) enum PurgeScope<'a> {
    Uri(&'a CacheKey),
    Prefix(&'a str),
    Group(&'a str, &'a str),
}

fn row_key(key: &CacheKey, meta: &StoredHead) -> String {
    format!(
        "{}{SEPARATOR}{}",
        key.as_str(),
        record::variant_name(&meta.secondary_key)
    )
}

fn slice_key(key: &CacheKey, file: FileId) -> String {
    format!("{}{SLICE}{}-{}", key.as_str(), file.run, file.number)
}

fn group(origin: &str, name: &str) -> String {
    format!("{origin}{SEPARATOR}{name}")
}

/// Returns the URIs of rows, each once.
fn uris(row_keys: Vec<String>) -> Vec<String> {
    let uri = |key: String| key.split_once(SEPARATOR).map(|(uri, _)| uri.to_owned());
    let mut uris: Vec<_> = row_keys.into_iter().filter_map(uri).collect();
    uris.sort();
    uris.dedup();
    uris
}

/// Runs a function that waits for the disk, without delaying other tasks where the runtime has several threads.
fn blocking<T>(run: impl FnOnce() -> T) -> T {
    let has_threads = |runtime: Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
    if Handle::try_current().is_ok_and(has_threads) {
        block_in_place(run)
    } else {
        run()
    }
}

#[cfg(test)]
mod tests;
