//! Blobs that were opened a while ago, in memory: what their records say, taken apart already.
//!
//! An entry says: as long as these two records have these revisions, this is the blob. A revision is never used twice, so
//! that an entry is right or of no use, but never wrong; nobody has to take it out when something changes.

use std::sync::Arc;

use bytes::Bytes;
use ifmatch_core::record::Revision;
use ifmatch_register::{Key, Register};
use ifmatch_runtime::Clock;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::Inner;
use super::folder::BodyName;
use super::payload::{Payload, Place};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobInfo, Cached};

/// The most that is kept, in bytes.
const CAPACITY: u64 = 8 * 1024 * 1024;
/// What an entry has, more or less.
const USUAL_SIZE: usize = 1024;

/// Blobs in memory.
#[derive(Debug)]
pub(super) struct KnownBlobs(Cache<BlobPath, Arc<Entry>, BySize>);

/// A blob, and what must be the case for it to be the current one.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) container: Found,
    pub(super) blob: Found,
    body: Body,
    info: Arc<BlobInfo>,
    size: u64,
}

/// The revision that a record had.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) key: Key,
    pub(super) revision: Revision,
}

#[derive(Debug)]
enum Body {
    Inline(Bytes),
    File(BodyName),
}

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<BlobPath, Arc<Entry>> for BySize {
    fn weight(&self, _: &BlobPath, entry: &Arc<Entry>) -> u64 {
        entry.size
    }
}

/// What the user's own fields take in memory, in bytes, more or less.
pub(super) fn size_of_metadata(headers: &BlobHeaders) -> usize {
    headers.metadata.iter().map(|(name, value)| name.len() + value.as_str().len() + 128).sum()
}

impl KnownBlobs {
    pub(super) fn new() -> Self {
        let usual = USUAL_SIZE as u64;
        Self(Cache::with_weighter(usize::try_from(CAPACITY / usual).unwrap_or(usize::MAX), CAPACITY, BySize))
    }

    /// Remembers a blob. No write of it may have been in flight.
    pub(super) fn keep(&self, path: &BlobPath, container: Found, blob: Found, payload: &Payload, info: &BlobInfo) {
        let body = match (&payload.place, payload.file()) {
            (Place::Inline(bytes), _) => Body::Inline(bytes.clone()),
            (_, Some(name)) => Body::File(name),
            (_, None) => return,
        };
        let inline = if let Body::Inline(bytes) = &body { bytes.len() } else { 0 };
        let size = USUAL_SIZE + inline + path.name.as_str().len() + size_of_metadata(&info.headers);
        let info = Arc::new(info.clone());
        self.0.insert(path.clone(), Arc::new(Entry { container, blob, body, info, size: size as u64 }));
    }
}

impl<R: Register, C: Clock> Inner<R, C> {
    /// A blob that is known still to be there. The container is asked first: while its record stays the same, the
    /// blob's is the one that counts.
    pub(super) fn cached(&self, path: &BlobPath) -> Option<Cached> {
        let entry = self.known.0.get(path)?;
        for found in [&entry.container, &entry.blob] {
            if self.driver.revision_at_once(&found.key)? != found.revision {
                return None;
            }
        }
        let content = match &entry.body {
            Body::Inline(bytes) => Some(bytes.clone()),
            Body::File(name) => self.recent.get(name),
        };
        Some(Cached { info: Arc::clone(&entry.info), content })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use http_body_util::Full;

    use super::*;
    use crate::EmbeddedStore;
    use ifmatch_blob::store::{BlobStore, Delete, Peek, Put, Reading, Upload};

    async fn store() -> (EmbeddedStore, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        (EmbeddedStore::open(folder.path()).await.expect("it opens"), folder)
    }

    fn blob() -> BlobPath {
        BlobPath::parse("/notes/today.txt").expect("valid")
    }

    fn bytes(text: &'static str) -> Put {
        Put::new(Upload::new(Full::<Bytes>::from(text)))
    }

    /// What is at hand after the blob was opened a few times: the first time its records come into memory.
    async fn opened(store: &EmbeddedStore) -> Option<Cached> {
        for _ in 0..3 {
            store.open(&blob(), Reading::WHOLE).await.expect("it can be read");
        }
        store.cached(&blob())
    }

    #[tokio::test]
    async fn what_is_cached_is_the_blob_as_it_is() {
        let (store, _folder) = store().await;
        assert!(opened(&store).await.is_none());
        let first = store.put(&blob(), bytes("first")).await.expect("written");
        let cached = opened(&store).await.expect("it was opened");
        assert_eq!((&cached.info.tag, cached.content.as_deref()), (&first.tag, Some(&b"first"[..])));

        let second = store.put(&blob(), bytes("second")).await.expect("written");
        let tag = store.cached(&blob()).map(|cached| cached.info.tag.clone());
        assert!(tag.is_none_or(|tag| tag == second.tag), "the version before is at hand");
        let cached = opened(&store).await.expect("it was opened");
        assert_eq!((&cached.info.tag, cached.content.as_deref()), (&second.tag, Some(&b"second"[..])));

        store.delete(&blob(), Delete::default()).await.expect("deleted");
        assert!(store.cached(&blob()).is_none());
    }

    #[tokio::test]
    async fn a_blob_of_a_container_that_is_gone_is_not_cached() {
        let (store, _folder) = store().await;
        store.put(&blob(), bytes("first")).await.expect("written");
        assert!(opened(&store).await.is_some());
        store.delete_container(&blob().container, Delete::default()).await.expect("deleted");
        assert!(store.cached(&blob()).is_none());
        store.create_container(&blob().container, BlobHeaders::default()).await.expect("created");
        assert!(opened(&store).await.is_none());
    }

    /// Writers tell which generation they wrote, readers which they saw: none that looks afterwards sees an older one.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nobody_sees_an_older_version_after_a_newer_one() {
        let (store, _folder) = store().await;
        store.put(&blob(), bytes("first")).await.expect("written");
        let (newest, writing) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(2)));
        let writers = (0..2).map(|_| {
            let (store, newest, writing) = (store.clone(), Arc::clone(&newest), Arc::clone(&writing));
            tokio::spawn(async move {
                for _ in 0..40 {
                    let written = store.put(&blob(), bytes("more")).await.expect("written");
                    newest.fetch_max(written.generation.expect("a number").get(), Ordering::SeqCst);
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            })
        });
        let writers = futures_util::future::join_all(writers);
        let readers = (0..4).map(|_| {
            let (store, newest, writing) = (store.clone(), Arc::clone(&newest), Arc::clone(&writing));
            tokio::spawn(async move {
                let mut cached = 0_usize;
                while writing.load(Ordering::SeqCst) > 0 || cached == 0 {
                    let floor = newest.load(Ordering::SeqCst);
                    let opened =
                        store.open(&blob(), Reading::HEAD).await.expect("it can be read").expect("it is there");
                    let seen = opened.info.generation.expect("a number").get();
                    assert!(seen >= floor, "opened an older version");
                    let floor = newest.fetch_max(seen, Ordering::SeqCst).max(seen);
                    if let Some(found) = store.cached(&blob()) {
                        let seen = found.info.generation.expect("a number").get();
                        assert!(seen >= floor, "an older version is at hand");
                        newest.fetch_max(seen, Ordering::SeqCst);
                        cached += 1;
                    }
                    tokio::task::yield_now().await;
                }
            })
        });
        let readers = futures_util::future::join_all(readers);
        let (writers, readers) = futures_util::join!(writers, readers);
        assert!(writers.into_iter().chain(readers).all(|ended| ended.is_ok()));
    }
}
