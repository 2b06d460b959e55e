//! Decoded records of blobs and containers, in memory.
//!
//! An entry holds a decoded record at one revision. It is valid only while the register has that revision of the record
//! in memory. A register never reuses a revision, so a stale entry is ignored, and nothing has to remove it.
//!
//! # Interleavings
//!
//! - **A read after an acknowledged write.** The swap changed the revision before the write was acknowledged. The check of the
//!   old entry therefore fails.
//! - **A slow reader that inserts an old version after a write.** Its entry has the revision of the record that it decoded,
//!   which is no longer the current one.
//! - **A container that is deleted and created again during `Inner::cached`.** The blob's key contains the incarnation of the
//!   container that was current when the call began. It is either still current, or the call overlaps with the
//!   deletion and returns the blob from before it.
//! - **Bytes.** A body in a file has a unique name, which comes from the checked record. An inline body is part of the
//!   record. The bytes thus always belong to the version with the tag.

use std::sync::Arc;

use bytes::Bytes;
use ifmatch_core::record::Revision;
use ifmatch_register::Key;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::body_files::BodyName;
use super::payload::{Payload, Place};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::store::{BlobInfo, ContainerInfo};

/// Maximum size of all entries, in bytes.
const CAPACITY: u64 = 10 * 1024 * 1024;
/// Approximate size of an entry without names, metadata and an inline body, in bytes.
const USUAL_SIZE: usize = 1024;
/// Approximate size of a field without its name and its value, in bytes.
const FIELD_SIZE: usize = 128;

/// Decoded records in memory.
#[derive(Debug)]
pub(super) struct DecodedRecords(Cache<Key, Entry, BySize>);

/// A record at one revision.
#[derive(Clone, Debug)]
struct Entry {
    revision: Revision,
    decoded: Decoded,
}

#[derive(Clone, Debug)]
enum Decoded {
    Container(Arc<Container>),
    Blob(Arc<Blob>),
}

/// A decoded container record.
#[derive(Debug)]
pub(super) struct Container {
    /// Distinguishes this container from earlier ones with its name.
    pub(super) incarnation: Revision,
    /// Prefix of the keys of its blobs.
    pub(super) blobs: String,
    pub(super) info: ContainerInfo,
}

/// A decoded blob record.
#[derive(Debug)]
pub(super) struct Blob {
    pub(super) body: Body,
    pub(super) info: Arc<BlobInfo>,
}

/// A blob's bytes.
#[derive(Debug)]
pub(super) enum Body {
    Inline(Bytes),
    File(BodyName),
}

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<Key, Entry> for BySize {
    fn weight(&self, key: &Key, entry: &Entry) -> u64 {
        let own = match &entry.decoded {
            Decoded::Container(container) => size_of_metadata(&container.info.headers),
            Decoded::Blob(blob) => {
                let inline = if let Body::Inline(bytes) = &blob.body {
                    bytes.len()
                } else {
                    0
                };
                inline + size_of_metadata(&blob.info.headers)
            }
        };
        (USUAL_SIZE + key.as_str().len() + own) as u64
    }
}

/// Returns the approximate size of the user's own fields and the internal ones in memory, in bytes.
fn size_of_metadata(headers: &BlobHeaders) -> usize {
    let own = headers
        .metadata
        .iter()
        .map(|(name, value)| name.len() + value.as_str().len());
    let internal = headers
        .internal()
        .map(|(name, text)| name.len() + text.len());
    own.chain(internal).map(|texts| FIELD_SIZE + texts).sum()
}

impl DecodedRecords {
    pub(super) fn new() -> Self {
        let usual = USUAL_SIZE as u64;
        Self(Cache::with_weighter(
            usize::try_from(CAPACITY / usual).unwrap_or(usize::MAX),
            CAPACITY,
            BySize,
        ))
    }

    /// Returns a record as decoded at this revision, the current one.
    fn get(&self, key: &Key, current: Revision) -> Option<Decoded> {
        self.0
            .get(key)
            .filter(|entry| entry.revision == current)
            .map(|entry| entry.decoded)
    }

    /// Returns a container at this revision of its record, the current one.
    pub(super) fn container(&self, key: &Key, current: Revision) -> Option<Arc<Container>> {
        let Decoded::Container(container) = self.get(key, current)? else {
            return None;
        };
        Some(container)
    }

    /// Returns a blob at this revision of its record, the current one.
    pub(super) fn blob(&self, key: &Key, current: Revision) -> Option<Arc<Blob>> {
        let Decoded::Blob(blob) = self.get(key, current)? else {
            return None;
        };
        Some(blob)
    }

    /// Caches a container's record at this revision.
    pub(super) fn keep_container(&self, key: Key, revision: Revision, container: &Arc<Container>) {
        self.0.insert(
            key,
            Entry {
                revision,
                decoded: Decoded::Container(Arc::clone(container)),
            },
        );
    }

    /// Caches a blob's record at this revision, without the lease, which may end. The record must have no write in flight,
    /// since that would end with time and without a new revision.
    pub(super) fn keep_blob(
        &self,
        key: Key,
        revision: Revision,
        payload: &Payload,
        info: &BlobInfo,
    ) {
        let body = match (&payload.place, payload.file()) {
            (Place::Inline(bytes), _) => Body::Inline(bytes.clone()),
            (_, Some(name)) => Body::File(name),
            (_, None) => return,
        };
        let info = BlobInfo {
            lease: None,
            ..info.clone()
        };
        let blob = Blob {
            body,
            info: Arc::new(info),
        };
        self.0.insert(
            key,
            Entry {
                revision,
                decoded: Decoded::Blob(Arc::new(blob)),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use http_body_util::Full;

    use super::*;
    use crate::IndexedStore;
    use ifmatch_blob::headers::FieldText;
    use ifmatch_blob::name::{BlobPath, ContainerName};
    use ifmatch_blob::store::{
        BlobStore, Cached, Delete, HeaderChange, Peek, Put, Reading, SetHeaders, Upload,
    };

    async fn store() -> (IndexedStore, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        (
            IndexedStore::open(folder.path()).await.expect("it opens"),
            folder,
        )
    }

    fn blob() -> BlobPath {
        BlobPath::parse("/notes/today.txt").expect("valid")
    }

    fn bytes(text: &'static str) -> Put {
        Put::new(Upload::new(Full::<Bytes>::from(text)))
    }

    /// Returns the cached blob after it was opened a few times. The first time brings its records into memory.
    async fn opened(store: &IndexedStore) -> Option<Cached> {
        for _ in 0..3 {
            store
                .open(&blob(), Reading::WHOLE)
                .await
                .expect("it can be read");
        }
        store.cached(&blob())
    }

    #[tokio::test]
    async fn a_cached_blob_is_the_current_version() {
        let (store, _folder) = store().await;
        assert!(opened(&store).await.is_none());
        let first = store.put(&blob(), bytes("first")).await.expect("written");
        let cached = opened(&store).await.expect("it was opened");
        assert_eq!(
            (&cached.info.tag, cached.content.as_deref()),
            (&first.tag, Some(&b"first"[..]))
        );

        let second = store.put(&blob(), bytes("second")).await.expect("written");
        let tag = store.cached(&blob()).map(|cached| cached.info.tag.clone());
        assert!(
            tag.is_none_or(|tag| tag == second.tag),
            "the previous version is cached"
        );
        let cached = opened(&store).await.expect("it was opened");
        assert_eq!(
            (&cached.info.tag, cached.content.as_deref()),
            (&second.tag, Some(&b"second"[..]))
        );

        store
            .delete(&blob(), Delete::default())
            .await
            .expect("deleted");
        assert!(store.cached(&blob()).is_none());
    }

    #[tokio::test]
    async fn a_blob_of_a_deleted_container_is_not_cached() {
        let (store, _folder) = store().await;
        store.put(&blob(), bytes("first")).await.expect("written");
        assert!(opened(&store).await.is_some());
        store
            .delete_container(&blob().container, Delete::default())
            .await
            .expect("deleted");
        assert!(store.cached(&blob()).is_none());
        store
            .create_container(&blob().container, BlobHeaders::default())
            .await
            .expect("created");
        assert!(opened(&store).await.is_none());
    }

    /// Writers publish the generation that they wrote, readers the one that they saw. No later read sees an older one.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_read_never_returns_an_older_version_than_an_earlier_read() {
        let (store, _folder) = store().await;
        store.put(&blob(), bytes("first")).await.expect("written");
        let (newest, writing) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(2)));
        let writers = (0..2).map(|_| {
            let (store, newest, writing) =
                (store.clone(), Arc::clone(&newest), Arc::clone(&writing));
            tokio::spawn(async move {
                for _ in 0..40 {
                    let written = store.put(&blob(), bytes("more")).await.expect("written");
                    newest.fetch_max(
                        written.generation.expect("a number").get(),
                        Ordering::SeqCst,
                    );
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            })
        });
        let writers = futures_util::future::join_all(writers);
        let readers = (0..4).map(|_| {
            let (store, newest, writing) =
                (store.clone(), Arc::clone(&newest), Arc::clone(&writing));
            tokio::spawn(async move {
                let mut cached = 0_usize;
                while writing.load(Ordering::SeqCst) > 0 || cached == 0 {
                    let floor = newest.load(Ordering::SeqCst);
                    let opened = store
                        .open(&blob(), Reading::HEAD)
                        .await
                        .expect("it can be read")
                        .expect("it exists");
                    let seen = opened.info.generation.expect("a number").get();
                    assert!(seen >= floor, "opened an older version");
                    let floor = newest.fetch_max(seen, Ordering::SeqCst).max(seen);
                    if let Some(found) = store.cached(&blob()) {
                        let seen = found.info.generation.expect("a number").get();
                        assert!(seen >= floor, "an older version is cached");
                        newest.fetch_max(seen, Ordering::SeqCst);
                        cached += 1;
                    }
                    tokio::task::yield_now().await;
                }
            })
        });
        let readers = futures_util::future::join_all(readers);
        let (writers, readers) = futures_util::join!(writers, readers);
        assert!(
            writers
                .into_iter()
                .chain(readers)
                .all(|ended| ended.is_ok())
        );
    }

    fn fields(owner: &str) -> BlobHeaders {
        let mut fields = BlobHeaders::default();
        fields
            .metadata
            .insert("owner".into(), FieldText::new(owner).expect("valid"));
        fields
    }

    /// Looks up a container until it comes from memory.
    async fn look_up(store: &IndexedStore, name: &ContainerName) -> Option<Arc<Container>> {
        for _ in 0..3 {
            store.inner.look_up(name).await.expect("it can be read");
        }
        store.inner.look_up(name).await.expect("it can be read")
    }

    #[tokio::test]
    async fn a_cached_container_is_the_current_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = IndexedStore::open(folder.path()).await.expect("it opens");
        let name = ContainerName::new("notes").expect("valid");
        assert!(look_up(&store, &name).await.is_none());
        store
            .create_container(&name, fields("me"))
            .await
            .expect("created");
        let first = look_up(&store, &name).await.expect("it exists");
        assert_eq!(first.info.headers, fields("me"));
        let again = store
            .inner
            .look_up(&name)
            .await
            .expect("it can be read")
            .expect("it exists");
        assert!(Arc::ptr_eq(&first, &again), "it was not from memory");

        let change = HeaderChange::Metadata(fields("you").metadata);
        let set = SetHeaders::new(change);
        store.set_container(&name, set).await.expect("changed");
        let changed = look_up(&store, &name).await.expect("it exists");
        assert_eq!(
            (&changed.info.headers, changed.incarnation),
            (&fields("you"), first.incarnation)
        );

        store
            .delete_container(&name, Delete::default())
            .await
            .expect("deleted");
        assert!(look_up(&store, &name).await.is_none());
        store
            .create_container(&name, fields("me"))
            .await
            .expect("created");
        let second = look_up(&store, &name).await.expect("it exists");
        assert_ne!(second.incarnation, first.incarnation);
    }
}
