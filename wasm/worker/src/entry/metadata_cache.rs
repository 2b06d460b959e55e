//! Cache of blob metadata in the isolate's memory. For the time in `IFMATCH_MAX_STALENESS`, readers with the cached version get
//! 304 without a request to R2.
//!
//! Another isolate may replace the blob meanwhile: its version becomes visible when that time has passed. The time counts from
//! before R2 was asked, so it includes the response's latency. Everything in one response belongs to one version.
//!
//! Writes through this isolate evict the blob. A read concurrent with a write may have seen the previous state, and isn't
//! cached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ifmatch_blob::BlobStore;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{
    AppendBlock, Appended, BlobInfo, Cached, Delete, Opened, Peek, Put, Reading, SetHeaders,
    StoreError, Update, Updated, Wrapper, Written,
};
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::Clock;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Capacity in bytes. An isolate has 128 MB.
const CAPACITY: u64 = 4 << 20;
/// Size of an entry without its texts, which most entries hardly exceed.
const USUAL_SIZE: u64 = 512;

/// A store with a cache of metadata.
pub(super) struct MetadataCache {
    store: Arc<dyn BlobStore>,
    clock: Arc<dyn Clock>,
    bound: Duration,
    memory: Cache<BlobPath, SeenBlob, BlobWeighter>,
    /// Number of completed writes.
    writes: AtomicU64,
}

/// A cached entry.
#[derive(Clone)]
struct SeenBlob {
    /// Time before R2 was asked.
    at: Timestamp,
    info: Arc<BlobInfo>,
}

impl MetadataCache {
    /// Wraps a store. Entries are used for at most the given time by the clock.
    pub(super) fn new(store: Arc<dyn BlobStore>, bound: Duration, clock: Arc<dyn Clock>) -> Self {
        let usual = usize::try_from(CAPACITY / USUAL_SIZE).unwrap_or(usize::MAX);
        let memory = Cache::with_weighter(usual, CAPACITY, BlobWeighter);
        Self {
            store,
            clock,
            bound,
            memory,
            writes: AtomicU64::new(0),
        }
    }

    /// Runs a write, and evicts the blob when it ends.
    async fn writing<T>(&self, blob: &BlobPath, work: impl Future<Output = T>) -> T {
        let _end = WriteEnd {
            writes: &self.writes,
            forget: || drop(self.memory.remove(blob)),
        };
        work.await
    }

    /// Runs the deletion of a container, and evicts all blobs when it ends.
    async fn deleting<T>(&self, work: impl Future<Output = T>) -> T {
        let _end = WriteEnd {
            writes: &self.writes,
            forget: || self.memory.clear(),
        };
        work.await
    }

    /// Caches the result of a read, unless a write has ended since it began, or a later read is cached.
    fn remember(&self, blob: &BlobPath, began: &Began, opened: Option<&Opened>) {
        let is_overtaken = |seen: &SeenBlob| began.at < seen.at && self.is_recent(seen.at);
        if self.writes.load(Ordering::SeqCst) != began.writes
            || self.memory.get(blob).as_ref().is_some_and(is_overtaken)
        {
            return;
        }
        match opened {
            // Leases aren't cached.
            Some(Opened { info, .. }) => {
                let info = Arc::new(BlobInfo {
                    lease: None,
                    ..info.clone()
                });
                self.memory
                    .insert(blob.clone(), SeenBlob { at: began.at, info });
            }
            None => drop(self.memory.remove(blob)),
        }
    }

    /// Returns `true` if an entry is recent. After the clock went back, the age of an entry from the future is unknown.
    fn is_recent(&self, at: Timestamp) -> bool {
        let now = self.clock.now();
        at <= now && at.until(now) < self.bound
    }

    fn begin(&self) -> Began {
        Began {
            at: self.clock.now(),
            writes: self.writes.load(Ordering::SeqCst),
        }
    }
}

/// State at the beginning of a read.
struct Began {
    at: Timestamp,
    writes: u64,
}

/// Counts a write at its end, and evicts what it may have changed, even if the write is cancelled or panics.
struct WriteEnd<'a, F: Fn()> {
    writes: &'a AtomicU64,
    forget: F,
}

impl<F: Fn()> Drop for WriteEnd<'_, F> {
    fn drop(&mut self) {
        self.writes.fetch_add(1, Ordering::SeqCst);
        (self.forget)();
    }
}

#[async_trait]
impl Wrapper for MetadataCache {
    fn inner(&self) -> &dyn BlobStore {
        &*self.store
    }

    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        let began = self.begin();
        let opened = self.store.open(blob, reading).await?;
        self.remember(blob, &began, opened.as_ref());
        Ok(opened)
    }

    fn peek(&self) -> Option<&dyn Peek> {
        Some(self)
    }

    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError> {
        self.writing(blob, self.store.put(blob, put)).await
    }

    async fn append(&self, blob: &BlobPath, append: AppendBlock) -> Result<Appended, StoreError> {
        self.writing(blob, self.store.append(blob, append)).await
    }

    async fn update(&self, blob: &BlobPath, update: Update) -> Result<Updated, StoreError> {
        self.writing(blob, self.store.update(blob, update)).await
    }

    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError> {
        self.writing(blob, self.store.delete(blob, delete)).await
    }

    async fn set_headers(&self, blob: &BlobPath, set: SetHeaders) -> Result<Written, StoreError> {
        self.writing(blob, self.store.set_headers(blob, set)).await
    }

    async fn delete_container(
        &self,
        container: &ContainerName,
        delete: Delete,
    ) -> Result<(), StoreError> {
        self.deleting(self.store.delete_container(container, delete))
            .await
    }

    async fn delete_empty_container(
        &self,
        container: &ContainerName,
        delete: Delete,
    ) -> Result<(), StoreError> {
        self.deleting(self.store.delete_empty_container(container, delete))
            .await
    }
}

impl Peek for MetadataCache {
    fn cached(&self, blob: &BlobPath) -> Option<Cached> {
        let SeenBlob { at, info } = self.memory.get(blob)?;
        self.is_recent(at).then_some(Cached {
            info,
            content: None,
        })
    }

    fn is_empty(&self, container: &ContainerName) -> bool {
        self.store
            .peek()
            .is_some_and(|store| store.is_empty(container))
    }
}

#[derive(Clone)]
struct BlobWeighter;

impl Weighter<BlobPath, SeenBlob> for BlobWeighter {
    fn weight(&self, blob: &BlobPath, seen: &SeenBlob) -> u64 {
        let headers = &seen.info.headers;
        let metadata = headers
            .metadata
            .iter()
            .map(|(name, value)| name.len() + value.as_str().len());
        let internal = headers
            .internal()
            .map(|(name, text)| name.len() + text.len());
        let fields = [
            &headers.content_type,
            &headers.content_encoding,
            &headers.content_language,
            &headers.content_disposition,
            &headers.cache_control,
        ];
        let fields = fields
            .into_iter()
            .flatten()
            .map(|value| value.as_str().len());
        let texts = metadata.chain(internal).chain(fields).sum::<usize>();
        USUAL_SIZE + (blob.container.as_str().len() + blob.name.as_str().len() + texts) as u64
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::large_futures,
        reason = "a test fails by panicking, and its stack is large"
    )]

    use bytes::Bytes;
    use http_body_util::Full;
    use ifmatch_blob::BlobService;
    use ifmatch_blob::store::{LeaseRequest, Upload};
    use ifmatch_blob_objects::{BackingStore, ObjectBlobs, StoreCapabilities};
    use ifmatch_core::EntityTag;
    use ifmatch_core::lease::{LeaseAction, LeaseDuration};
    use ifmatch_core::precondition::Preconditions;
    use ifmatch_register::MemoryRegister;
    use ifmatch_runtime::ManualClock;
    use object_store::memory::InMemory;
    use tower_service::Service;

    use super::*;

    const BOUND: Duration = Duration::from_secs(5);

    /// Two isolates over one bucket: one that remembers, and one that doesn't.
    fn isolates() -> (MetadataCache, ObjectBlobs, ManualClock) {
        let register = Arc::new(MemoryRegister::unbounded());
        let backing = BackingStore::new(Arc::new(InMemory::new())).listed_in_order();
        let other = ObjectBlobs::trusting(backing, register, StoreCapabilities::FULL).unwrap();
        let clock = ManualClock::default();
        (
            MetadataCache::new(Arc::new(other.clone()), BOUND, Arc::new(clock.clone())),
            other,
            clock,
        )
    }

    fn blob() -> BlobPath {
        BlobPath::parse("/docs/a").unwrap()
    }

    async fn put(store: &impl BlobStore, text: &'static str) -> Option<EntityTag> {
        store
            .put(&blob(), Put::new(Upload::new(Full::<Bytes>::from(text))))
            .await
            .unwrap()
            .tag
    }

    async fn read(store: &impl BlobStore) -> Option<EntityTag> {
        store
            .open(&blob(), Reading::HEAD.without_lease())
            .await
            .unwrap()?
            .info
            .tag
    }

    fn remembered(store: &impl BlobStore) -> Option<EntityTag> {
        store.peek()?.cached(&blob())?.info.tag.clone()
    }

    #[tokio::test]
    async fn a_write_by_another_isolate_is_visible_after_the_staleness_bound() {
        let (store, other, clock) = isolates();
        let first = put(&other, "first").await;
        assert_eq!(remembered(&store), None, "it was not read");
        assert_eq!(read(&store).await, first);
        let second = put(&other, "second").await;
        clock.advance(Duration::from_micros(4_999_999));
        assert_eq!(remembered(&store), first);
        clock.advance(Duration::from_micros(1));
        assert_eq!(remembered(&store), None);
        assert_eq!(read(&store).await, second);
        assert_eq!(remembered(&store), second);
    }

    #[tokio::test]
    async fn a_write_or_deletion_by_this_isolate_is_visible_immediately() {
        let (store, _, _) = isolates();
        put(&store, "first").await;
        read(&store).await;
        let second = put(&store, "second").await;
        assert_eq!(remembered(&store), None);
        assert_eq!(read(&store).await, second);
        BlobStore::delete(&store, &blob(), Delete::default())
            .await
            .unwrap();
        assert_eq!(remembered(&store), None);
        put(&store, "third").await;
        read(&store).await;
        BlobStore::delete_container(&store, &blob().container, Delete::default())
            .await
            .unwrap();
        assert_eq!(remembered(&store), None);
        assert_eq!(read(&store).await, None);
    }

    #[tokio::test]
    async fn a_request_with_a_lease_id_is_not_answered_from_memory() {
        const HOLDER: &str = "936da01f-9abd-4d9d-80c7-02af85c822a8";
        let (store, _, _) = isolates();
        put(&store, "first").await;
        let (id, duration) = (
            HOLDER.parse().unwrap(),
            LeaseDuration::from_seconds(60).unwrap(),
        );
        let action = LeaseAction::Acquire {
            id,
            duration,
            holder: None,
        };
        let lease = LeaseRequest {
            action,
            preconditions: Preconditions::default(),
            request: None,
        };
        BlobStore::lease(&store, &blob(), lease).await.unwrap();
        read(&store).await;
        assert!(remembered(&store).is_some());
        let mut service = BlobService::new(Arc::new(store));
        for (id, status) in [(HOLDER, 200), ("11111111-9abd-4d9d-80c7-02af85c822a8", 412)] {
            let request = http::Request::head("/docs/a").header("x-ms-lease-id", id);
            let answer = service
                .call(request.body(Full::<Bytes>::default()).unwrap())
                .await
                .unwrap();
            assert_eq!(answer.status(), status, "{id}");
        }
    }

    #[tokio::test]
    async fn a_read_that_a_write_overtook_is_not_remembered() {
        let (store, _, _) = isolates();
        put(&store, "first").await;
        let began = store.begin();
        let seen = store
            .store
            .open(&blob(), Reading::HEAD.without_lease())
            .await
            .unwrap();
        put(&store, "second").await;
        store.remember(&blob(), &began, seen.as_ref());
        assert_eq!(remembered(&store), None);
    }

    #[tokio::test]
    async fn a_read_that_a_later_one_overtook_is_not_remembered_in_its_place() {
        let (store, other, clock) = isolates();
        put(&other, "first").await;
        let began = store.begin();
        let seen = other
            .open(&blob(), Reading::HEAD.without_lease())
            .await
            .unwrap();
        let second = put(&other, "second").await;
        clock.advance(Duration::from_secs(1));
        assert_eq!(read(&store).await, second);
        store.remember(&blob(), &began, seen.as_ref());
        assert_eq!(remembered(&store), second);
    }

    #[tokio::test]
    async fn entries_from_the_future_are_ignored_after_the_clock_went_back() {
        let (store, other, clock) = isolates();
        put(&other, "first").await;
        clock.advance(BOUND);
        read(&store).await;
        clock.set(Timestamp::default());
        assert_eq!(remembered(&store), None);
        let second = put(&other, "second").await;
        assert_eq!(read(&store).await, second);
        assert_eq!(remembered(&store), second);
    }

    #[tokio::test]
    async fn a_write_that_is_given_up_forgets_as_well() {
        let (store, other, _) = isolates();
        put(&other, "first").await;
        read(&store).await;
        let blob = blob();
        let mut given_up = Box::pin(store.writing(&blob, std::future::pending::<()>()));
        assert!(futures_util::poll!(&mut given_up).is_pending());
        drop(given_up);
        assert_eq!(remembered(&store), None);
    }
}
