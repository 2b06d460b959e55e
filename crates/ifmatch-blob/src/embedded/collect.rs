//! Collecting what a crash left behind, before the first request: uploads that never ended, bodies that no record points
//! to, and records that say nothing any more.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Record;
use ifmatch_store::register::{RegisterError, Scan};
use ifmatch_store::{Clock, Key, Register};

use super::error::OpenError;
use super::folder::{Folder, nonce_of};
use super::payload::{Payload, PayloadError};
use super::{Inner, key};

/// The most records looked at in one step.
const STEP: usize = 1000;
/// How long the record of a deleted blob is kept: it gives late retries of the deletion their answer.
const RETENTION: Duration = Duration::from_hours(24);

/// What the records say of the bodies.
#[derive(Default)]
struct Index {
    /// The numbers of all bodies that a record points to.
    bodies: HashSet<u64>,
    /// A record that does not say where its body is.
    damaged: Option<Key>,
}

impl<R: Register, C: Clock> Inner<R, C> {
    /// Must not run beside writers: a body is whole before a record points to it.
    pub(super) async fn collect(&self) -> Result<(), OpenError> {
        let index = self.read_index().await?;
        let folder = Arc::clone(&self.folder);
        let collected = tokio::task::spawn_blocking(move || index.sweep(&folder)).await.map_err(OpenError::other)?;
        match collected.map_err(|error| OpenError::folder(self.folder.temporary(), error))? {
            0 => {}
            files => tracing::info!(files, "collected what a crash left behind"),
        }
        Ok(())
    }

    async fn read_index(&self) -> Result<Index, OpenError> {
        let mut index = Index::default();
        let mut after: Option<Key> = None;
        loop {
            let scan = Scan { prefix: key::BLOBS, after: after.as_ref().map(Key::as_str), limit: STEP };
            let records = self.driver.register().scan(&scan).await.map_err(OpenError::register)?;
            for (key, record) in &records {
                index.add(key, record, self.driver.now())?;
                self.forget(key, record).await.map_err(OpenError::register)?;
            }
            let Some((last, _)) = records.last() else { return Ok(index) };
            after = Some(last.clone());
        }
    }

    /// Forgets old deletions, beside readers and writers: a record that anybody has changed meanwhile stays.
    pub(super) async fn forget_deletions(&self) -> Result<(), RegisterError> {
        let mut after: Option<Key> = None;
        loop {
            let scan = Scan { prefix: key::BLOBS, after: after.as_ref().map(Key::as_str), limit: STEP };
            let records = self.driver.register().scan(&scan).await?;
            for (key, record) in &records {
                self.forget(key, record).await?;
            }
            let Some((last, _)) = records.last() else { return Ok(()) };
            after = Some(last.clone());
        }
    }

    async fn forget(&self, key: &Key, record: &Record) -> Result<(), RegisterError> {
        let now = self.driver.now();
        if record.is_forgettable(now) && record.revision().timestamp().saturating_add(RETENTION) < now {
            self.driver.register().compare_and_swap(key, record.revision(), None).await?;
        }
        Ok(())
    }
}

impl Index {
    fn add(&mut self, key: &Key, record: &Record, now: Timestamp) -> Result<(), OpenError> {
        let Some(version) = record.state(now).version() else { return Ok(()) };
        match Payload::decode(version.payload()) {
            Ok(payload) => self.bodies.extend(payload.file().map(|name| name.nonce)),
            Err(error @ PayloadError::Newer(_)) => return Err(OpenError::record(key.as_str(), error)),
            Err(PayloadError::Damaged) => self.damaged = Some(key.clone()),
        }
        Ok(())
    }

    /// Removes files, and says how many. Files that are no bodies are somebody else's.
    fn sweep(&self, folder: &Folder) -> io::Result<usize> {
        let mut collected = remove_files(folder.temporary(), |_| true)?;
        if let Some(key) = &self.damaged {
            tracing::warn!(%key, "the record is damaged: no body is collected, since one of them may be its own");
            return Ok(collected);
        }
        for shard in folder.shards() {
            let unknown = |name: &str| nonce_of(name).is_some_and(|nonce| !self.bodies.contains(&nonce));
            collected += remove_files(&shard, unknown)?;
        }
        Ok(collected)
    }
}

fn remove_files(folder: &Path, unwanted: impl Fn(&str) -> bool) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&unwanted) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}
