//! An object store with the faults that a test asks for, and with objects of any age.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use ifmatch_blob::test_util::ManualClock;
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::Clock;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Objects in memory. Clones share them, and the faults.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyObjects(Arc<State>);

#[derive(Debug, Default)]
struct State {
    objects: InMemory,
    /// The age of all bodies in hours, beside their own.
    age: AtomicU64,
    /// The clock by which bodies age, and when each was stored.
    clock: ManualClock,
    stored: Mutex<HashMap<Path, Timestamp>>,
    /// One of this many uploads gets no answer, or 0 for none of them. Uploads in parts always get one.
    lossy: AtomicU64,
    uploads: AtomicU64,
    /// Uploads that arrive when the test says so.
    late: Mutex<Vec<(Path, PutPayload)>>,
    /// The names of all bodies so far.
    names: Mutex<HashSet<Path>>,
}

impl FaultyObjects {
    /// Lets bodies age by this clock.
    pub(crate) fn aging_by(clock: ManualClock) -> Self {
        Self(Arc::new(State {
            clock,
            ..State::default()
        }))
    }

    /// Makes all bodies appear this old.
    pub(crate) fn age(&self, hours: u64) {
        self.0.age.store(hours, Ordering::SeqCst);
    }

    /// Loses the answer of one of this many uploads. Half of these take place at once, and half late.
    pub(crate) fn lose_one_of(&self, uploads: u64) {
        self.0.lossy.store(uploads, Ordering::SeqCst);
    }

    /// Late uploads arrive.
    pub(crate) async fn arrive(&self) {
        let late = std::mem::take(&mut *self.0.late.lock().unwrap());
        for (location, payload) in late {
            self.store_now(&location);
            self.0.objects.put(&location, payload).await.unwrap();
        }
    }

    /// Notes the time of an upload.
    fn store_now(&self, location: &Path) {
        let now = self.0.clock.now();
        self.0.stored.lock().unwrap().insert(location.clone(), now);
    }

    /// Begins to store an object. A name is used for one body only.
    fn begin(&self, location: &Path) {
        let is_body = location.as_ref().contains("bodies/");
        assert!(
            !is_body || self.0.names.lock().unwrap().insert(location.clone()),
            "{location} is used twice"
        );
        self.store_now(location);
    }

    /// Returns the names of all bodies.
    pub(crate) async fn bodies(&self) -> Vec<Path> {
        let all: Vec<_> = self.0.objects.list(None).try_collect().await.unwrap();
        all.into_iter()
            .map(|meta| meta.location)
            .filter(|location| location.as_ref().contains("bodies/"))
            .collect()
    }

    fn aged(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if meta.location.as_ref().contains("bodies/") {
            let own = self
                .0
                .stored
                .lock()
                .unwrap()
                .get(&meta.location)
                .map(|stored| stored.until(self.0.clock.now()));
            let more = Duration::from_hours(self.0.age.load(Ordering::SeqCst));
            meta.last_modified -= own.unwrap_or_default() + more;
        }
        meta
    }
}

impl fmt::Display for FaultyObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyObjects")
    }
}

fn no_answer() -> Error {
    Error::Generic {
        store: "faulty",
        source: "no answer".into(),
    }
}

#[async_trait]
impl ObjectStore for FaultyObjects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.begin(location);
        let number = self.0.uploads.fetch_add(1, Ordering::SeqCst);
        let lossy = self.0.lossy.load(Ordering::SeqCst);
        if lossy == 0 || !number.is_multiple_of(lossy) {
            return self.0.objects.put_opts(location, payload, options).await;
        }
        if (number / lossy).is_multiple_of(2) {
            self.0.objects.put_opts(location, payload, options).await?;
        } else {
            self.0
                .late
                .lock()
                .unwrap()
                .push((location.clone(), payload));
        }
        Err(no_answer())
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.begin(location);
        self.0.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.objects.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let objects = self.clone();
        self.0
            .objects
            .list(prefix)
            .map_ok(move |meta| objects.aged(meta))
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.begin(to);
        self.0.objects.copy_opts(from, to, options).await
    }
}
