//! Upper bounds for the number of blobs in each internal container. If there are none, most writes needn't look for
//! staged blocks.
//!
//! A count is never too small: a write counts from its beginning, and until it is known to have left nothing behind.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ifmatch_core::command::Outcome;
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Record;
use ifmatch_register::{Applied, Key};

use super::key;
use ifmatch_blob::name::ContainerName;

/// The counts, by container.
#[derive(Debug, Default)]
pub(super) struct InternalCounts {
    blobs: Mutex<HashMap<Box<str>, u64>>,
    /// `true` if other processes write to the containers, too.
    is_unknown: bool,
}

/// A write in progress, counted as one more blob.
pub(super) struct Counted<'a> {
    counts: &'a InternalCounts,
    container: &'a str,
}

impl InternalCounts {
    /// Returns the counts of containers that other processes write to, too: none is known to be empty.
    pub(super) fn unknown() -> Self {
        Self {
            is_unknown: true,
            ..Self::default()
        }
    }

    /// Returns `true` if an internal container is known to be empty.
    pub(super) fn is_empty(&self, container: &ContainerName) -> bool {
        !self.is_unknown
            && container.is_internal()
            && self
                .lock()
                .get(container.as_str())
                .is_none_or(|blobs| *blobs == 0)
    }

    /// Counts a record that exists before the first write, or that is copied from another store.
    pub(super) fn found(&self, key: &Key, record: &Record, now: Timestamp) {
        if let Some(container) =
            key::internal_container_of(key).filter(|_| count_in(record, now) == 1)
        {
            self.change(container, |blobs| blobs.saturating_add(1));
        }
    }

    /// Counts a write that is about to begin. Returns `None` if it isn't to an internal container.
    pub(super) fn begin<'a>(&'a self, key: &'a Key) -> Option<Counted<'a>> {
        let container = key::internal_container_of(key).filter(|_| !self.is_unknown)?;
        self.change(container, |blobs| blobs.saturating_add(1));
        Some(Counted {
            counts: self,
            container,
        })
    }

    fn change(&self, container: &str, change: impl FnOnce(u64) -> u64) {
        let mut numbers = self.lock();
        match numbers.get_mut(container) {
            Some(blobs) => *blobs = change(*blobs),
            None => drop(numbers.insert(container.into(), change(0))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, u64>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted<'_> {
    /// Replaces the count of the write by its result. Without this call the outcome is unknown, and the write counts
    /// forever. `None` is a write without an effect.
    pub(super) fn end(self, applied: Option<&Applied>, now: Timestamp) {
        let (before, after) = match applied {
            Some(Applied {
                before,
                after,
                outcome: Outcome::Written(_),
            }) => (count_in(before, now), count_in(after, now)),
            _ => (0, 0),
        };
        self.counts.change(self.container, |blobs| {
            (blobs + after).saturating_sub(1 + before)
        });
    }
}

/// Returns 1 if a record has a version, and 0 otherwise.
fn count_in(record: &Record, now: Timestamp) -> u64 {
    u64::from(record.state(now).version().is_some())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use ifmatch_core::precondition::Preconditions;
    use ifmatch_core::tag::TagList;

    use super::*;
    use crate::IndexedStore;
    use ifmatch_blob::name::{BlobName, BlobPath};
    use ifmatch_blob::store::{
        BlobStore, Delete, MissingContainer, Peek, Put, Reading, StoreErrorKind, Upload,
    };

    fn blocks() -> ContainerName {
        ContainerName::internal("blocks").expect("valid")
    }

    fn blob(name: &str) -> BlobPath {
        BlobPath {
            container: blocks(),
            name: BlobName::new(name).expect("valid"),
        }
    }

    fn bytes() -> Put {
        let put = Put::new(Upload::new(Full::<Bytes>::from("a block")));
        Put {
            container: MissingContainer::Refuse,
            ..put
        }
    }

    fn if_absent() -> Preconditions {
        Preconditions {
            if_none_match: Some(TagList::Any),
            ..Preconditions::default()
        }
    }

    #[tokio::test]
    async fn a_container_with_blobs_is_not_empty_even_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || async { IndexedStore::open(folder.path()).await.expect("it opens") };
        let store = open().await;
        assert!(store.is_empty(&blocks()));
        for name in ["a", "b", "a"] {
            store.put(&blob(name), bytes()).await.expect("written");
            assert!(!store.is_empty(&blocks()), "{name}");
        }
        assert!(store.is_empty(&ContainerName::internal("blocklists").expect("valid")));
        drop(store);
        let store = open().await;
        for name in ["a", "b"] {
            assert!(!store.is_empty(&blocks()), "{name}");
            store
                .delete(&blob(name), Delete::default())
                .await
                .expect("deleted");
        }
        assert!(store.is_empty(&blocks()));
        drop(store);
        assert!(open().await.is_empty(&blocks()));
    }

    #[tokio::test]
    async fn a_refused_write_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = IndexedStore::open(folder.path()).await.expect("it opens");
        store.put(&blob("a"), bytes()).await.expect("written");
        let refused = store
            .put(
                &blob("a"),
                Put {
                    preconditions: if_absent(),
                    ..bytes()
                },
            )
            .await;
        assert!(matches!(
            refused.expect_err("there is one").kind(),
            StoreErrorKind::PreconditionFailed { .. }
        ));
        assert!(store.delete(&blob("b"), Delete::default()).await.is_err());
        assert!(!store.is_empty(&blocks()));
        store
            .delete(&blob("a"), Delete::default())
            .await
            .expect("deleted");
        assert!(store.delete(&blob("a"), Delete::default()).await.is_err());
        assert!(store.is_empty(&blocks()));
    }

    #[test]
    fn a_write_counts_before_it_begins_and_if_its_outcome_is_unknown() {
        let counts = InternalCounts::default();
        let key = Key::new("b/-blocks/0000000000000000/a").expect("valid");
        // This write never ends.
        assert!(counts.begin(&key).is_some());
        assert!(!counts.is_empty(&blocks()));
    }

    #[test]
    fn other_containers_are_not_counted() {
        let counts = InternalCounts::default();
        assert!(
            counts
                .begin(&Key::new("b/notes/0000000000000001/a").expect("valid"))
                .is_none()
        );
        assert!(!counts.is_empty(&ContainerName::new("notes").expect("valid")));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_writers_are_all_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = IndexedStore::open(folder.path()).await.expect("it opens");
        let writers = (0..4_usize).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for at in 0..10_usize {
                    let path = blob(&((writer + at) % 3).to_string());
                    store.put(&path, bytes()).await.expect("written");
                    if at % 2 == 0 {
                        // Another writer may have been faster.
                        let _ = store.delete(&path, Delete::default()).await;
                    }
                }
            })
        });
        assert!(
            futures_util::future::join_all(writers)
                .await
                .into_iter()
                .all(|ended| ended.is_ok())
        );
        for name in ["0", "1", "2"] {
            let there = store
                .open(&blob(name), Reading::HEAD)
                .await
                .expect("it can be read")
                .is_some();
            assert!(
                !there || !store.is_empty(&blocks()),
                "{name} was not counted"
            );
            assert_eq!(
                store.delete(&blob(name), Delete::default()).await.is_ok(),
                there
            );
        }
        assert!(store.is_empty(&blocks()));
    }
}
