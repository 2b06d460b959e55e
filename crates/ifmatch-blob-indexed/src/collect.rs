//! Garbage collection: what a crash left at startup, or for a day in a bucket, and what deletions of containers and blobs leave.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, RegisterError, Swap};

use super::Inner;
use super::body_files::{BodyName, Folder, files, is_incoming, nonce_of};
use super::bucket::{self, Bucket};
use super::error::OpenError;
use super::key;
use super::payload::{Payload, PayloadError};
use super::swap::body_of;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::records::{is_past_retention, next_page};

/// The bodies that records refer to.
#[derive(Default)]
struct Referenced {
    /// The numbers of all bodies that a record refers to.
    bodies: HashSet<u64>,
    /// A record that can't be decoded, so its body is unknown.
    damaged: Option<Key>,
}

impl Inner {
    /// Collects what a crash left in a folder. Must not run concurrently with writers, since a body is complete before a record
    /// refers to it.
    pub(super) async fn collect(&self, folder: &Arc<Folder>) -> Result<(), OpenError> {
        let index = self.read_index().await?;
        let swept = Arc::clone(folder);
        let collected = tokio::task::spawn_blocking(move || index.sweep(&swept))
            .await
            .map_err(OpenError::other)?;
        match collected.map_err(|error| OpenError::folder(folder.temporary(), error))? {
            0 => {}
            files => tracing::info!(files, "collected the remains of a crash"),
        }
        Ok(())
    }

    async fn read_index(&self) -> Result<Referenced, OpenError> {
        let mut index = Referenced::default();
        // Containers first: if a newer release wrote one, nothing is touched.
        for prefix in [key::CONTAINERS, key::BLOBS] {
            let mut after = None;
            while let Some(records) = next_page(self.driver.register(), prefix, &mut after)
                .await
                .map_err(OpenError::register)?
            {
                for (key, record) in self.tidy(records).await.map_err(OpenError::register)? {
                    let now = self.driver.now();
                    index.add(&key, &record, now)?;
                    self.internal_counts.found(&key, &record, now);
                }
            }
        }
        Ok(index)
    }

    /// Forgets old deletions and collects deleted containers, concurrently with readers and writers.
    pub(super) async fn forget_deletions(&self) -> Result<(), RegisterError> {
        for prefix in [key::BLOBS, key::CONTAINERS] {
            let mut after = None;
            while let Some(records) = next_page(self.driver.register(), prefix, &mut after).await? {
                self.tidy(records).await?;
            }
        }
        Ok(())
    }

    /// Collects the blobs of a deleted container.
    pub(super) async fn collect_container(&self, container: &ContainerName, incarnation: Revision) {
        let prefix = key::of_blobs_in(container, incarnation);
        let mut after = None;
        let collected: Result<(), RegisterError> = async {
            while let Some(records) = next_page(self.driver.register(), &prefix, &mut after).await?
            {
                for (key, record) in records {
                    self.discard(&key, record).await?;
                }
            }
            Ok(())
        }
        .await;
        if let Err(error) = collected {
            tracing::warn!(%container, %error, "blobs of a deleted container remain; they are collected later");
        }
    }

    /// Removes the blobs of deleted containers, forgets old deletions, and returns the other records.
    ///
    /// The records are read before their containers. An incarnation that had blobs at that time and isn't the current one
    /// now never returns.
    async fn tidy(&self, records: Vec<(Key, Record)>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let mut containers = HashMap::new();
        let mut kept = Vec::with_capacity(records.len());
        for (key, record) in records {
            let is_lost = match key::container_of(&key) {
                Some((container, incarnation)) => {
                    if !containers.contains_key(&container) {
                        let current = self.current(&container).await?;
                        containers.insert(container.clone(), current);
                    }
                    containers
                        .get(&container)
                        .is_some_and(|current| current.excludes(incarnation))
                }
                None => false,
            };
            if is_lost {
                self.discard(&key, record).await?;
            } else {
                self.forget(&key, &record).await?;
                kept.push((key, record));
            }
        }
        Ok(kept)
    }

    /// Returns the incarnation of the container with this record.
    async fn current(&self, container: &Key) -> Result<Incarnation, RegisterError> {
        let record = self.driver.register().load(container).await?;
        let Some(version) = record
            .as_ref()
            .and_then(|record| record.state(self.driver.now()).version())
        else {
            return Ok(Incarnation::None);
        };
        let payload = Payload::decode(version.payload());
        Ok(payload.map_or(Incarnation::Unknown, |payload| {
            Incarnation::Is(payload.created(version))
        }))
    }

    /// Removes an unreachable record and its body. A writer that found it earlier may still write to it once more.
    async fn discard(&self, key: &Key, record: Record) -> Result<(), RegisterError> {
        let mut found = Some(record);
        while let Some(record) = found {
            found = match self
                .driver
                .register()
                .compare_and_swap(key, record.revision(), None)
                .await?
            {
                Swap::Done => {
                    self.retire(body_of(&record, self.driver.now())).await;
                    None
                }
                Swap::Conflict(found) => found,
            };
        }
        Ok(())
    }

    /// Forgets an old deletion. Keeps a record that was changed since.
    async fn forget(&self, key: &Key, record: &Record) -> Result<(), RegisterError> {
        let now = self.driver.now();
        if record.is_forgettable(now) && is_past_retention(record, now) {
            self.driver
                .register()
                .compare_and_swap(key, record.revision(), None)
                .await?;
        }
        Ok(())
    }
}

/// A container's current incarnation.
enum Incarnation {
    None,
    Is(Revision),
    /// The container's record is damaged.
    Unknown,
}

impl Incarnation {
    /// Returns `true` if another incarnation no longer exists.
    fn excludes(&self, other: Revision) -> bool {
        match self {
            _ if other == key::INTERNAL => false,
            Self::None => true,
            Self::Is(current) => *current != other,
            Self::Unknown => false,
        }
    }
}

/// Maximum number of bodies that are swept at a time.
const SWEPT_AT_ONCE: usize = 1 << 20;
/// Maximum number of bodies that are removed at the same time.
const REMOVALS: usize = 8;

impl Inner {
    /// Removes the bodies in a bucket that no record names, concurrently with the readers and writers of all processes. Returns
    /// their number.
    ///
    /// The bodies are listed before the records are read, so a record that is about to name one of them would be too late.
    pub(super) async fn sweep(&self, bucket: &Bucket) -> Result<u64, OpenError> {
        let mut listed = bucket
            .older_than(bucket::AGE)
            .await
            .map_err(OpenError::bucket)?;
        let mut swept = 0;
        loop {
            let mut old = HashMap::new();
            while old.len() < SWEPT_AT_ONCE
                && let Some(body) = listed.try_next().await.map_err(OpenError::bucket)?
            {
                old.insert(body.nonce, body);
            }
            if old.is_empty() {
                return Ok(swept);
            }
            if !self.spare_named(&mut old).await? {
                return Ok(swept);
            }
            if !old.is_empty() {
                // Readers of all processes finish.
                self.driver.clock().sleep(bucket::GRACE).await;
            }
            swept += old.len() as u64;
            let remove =
                |body: BodyName| async move { bucket.delete(&bucket.location(&body)).await };
            stream::iter(old.into_values())
                .map(Ok)
                .try_for_each_concurrent(REMOVALS, remove)
                .await
                .map_err(OpenError::bucket)?;
        }
    }

    /// Spares the bodies that records name. Returns `false` if a record is damaged, which may name any of them.
    async fn spare_named(&self, old: &mut HashMap<u64, BodyName>) -> Result<bool, OpenError> {
        let mut after = None;
        while let Some(records) = next_page(self.driver.register(), key::BLOBS, &mut after)
            .await
            .map_err(OpenError::register)?
        {
            for (key, record) in records {
                let Some(version) = record.state(self.driver.now()).version() else {
                    continue;
                };
                match Payload::decode(version.payload()) {
                    Ok(payload) => drop(payload.file().and_then(|body| old.remove(&body.nonce))),
                    Err(error @ PayloadError::Newer(_)) => {
                        return Err(OpenError::record(key.as_str(), error));
                    }
                    Err(PayloadError::Damaged) => {
                        tracing::warn!(%key, "the record is damaged: no body is swept, since one of them may be its own");
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

impl Referenced {
    fn add(&mut self, key: &Key, record: &Record, now: Timestamp) -> Result<(), OpenError> {
        let Some(version) = record.state(now).version() else {
            return Ok(());
        };
        match Payload::decode(version.payload()) {
            Ok(payload) => self.bodies.extend(payload.file().map(|name| name.nonce)),
            Err(error @ PayloadError::Newer(_)) => {
                return Err(OpenError::record(key.as_str(), error));
            }
            Err(PayloadError::Damaged) => self.damaged = Some(key.clone()),
        }
        Ok(())
    }

    /// Removes files and returns their number. Files other than bodies are left alone.
    fn sweep(&self, folder: &Folder) -> io::Result<usize> {
        let mut collected = remove_files(folder.temporary(), is_incoming)?;
        if let Some(key) = &self.damaged {
            tracing::warn!(%key, "the record is damaged: no body is collected, since one of them may be its own");
            return Ok(collected);
        }
        for shard in folder.shards() {
            let unknown =
                |name: &str| nonce_of(name).is_some_and(|nonce| !self.bodies.contains(&nonce));
            collected += remove_files(&shard, unknown)?;
        }
        Ok(collected)
    }
}

fn remove_files(folder: &Path, unwanted: impl Fn(&str) -> bool) -> io::Result<usize> {
    let files = files(folder, unwanted)?;
    files.iter().try_for_each(fs::remove_file)?;
    Ok(files.len())
}
