//! Bodies as objects in a bucket that nothing else uses. Several processes share it.
//!
//! A body that is collected in memory is the object `bodies/{hash}-{number}`. A longer one arrives in parts, before its hash is known, and
//! is the object `bodies/long-{number}`. The highest bit of the number tells which. An append names its object by
//! the hash of the bytes before it.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::store::{BoxError, Reply, Source, StoreError, StoreErrorKind};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::{ContentHash, Hasher};
use ifmatch_register::Driver;
use ifmatch_runtime::task::detach;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload,
    WriteMultipart,
};

use super::bodies::{Bodies, BodyEnd, ExtendedBody, Incoming, Keep, Staged, differs};
use super::body_files::BodyName;
use super::payload::Payload;
use super::source::{Budget, Memory, SHORT};

/// Time from the beginning of a body in which a record must name it.
const LIFETIME: Duration = Duration::from_hours(6);
/// Age from which the sweep removes a body that no record names. A swap that was sent in time takes place until then, if ever.
pub(super) const AGE: Duration = Duration::from_hours(24);
/// Time for which a replaced body stays, so the readers of all processes finish.
pub(super) const GRACE: Duration = Duration::from_mins(5);
/// A body up to this size is collected and put at once; a longer one is sent in parts of this size.
///
/// All stores take parts from 5 MiB up and at least 10,000 of them, so a body can have 78 GiB.
const PART: usize = 8 * 1024 * 1024;
/// Maximum number of parts of a body that are on their way.
const PARTS_UNDER_WAY: usize = 2;
/// Maximum number of replaced bodies that wait for their removal. The sweep removes the others.
const MAX_RETIRED: usize = 1 << 18;
/// Folder of the bodies.
const BODIES: &str = "bodies";
/// Marks the number of a body that was sent in parts.
const LONG: u64 = BodyName::MARK;
/// Name of the object that shows the store's time.
const CLOCK: [&str; 2] = ["-ifmatch", "clock"];

/// An object store for bodies, and their prefix. Only ifmatch may use it.
///
/// The store needs no conditional writes, since each object has a name that is used once.
#[derive(Clone, Debug)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    copies: bool,
}

impl Objects {
    /// Keeps the bodies under this prefix.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: Path) -> Self {
        Self {
            store,
            prefix,
            copies: false,
        }
    }

    /// Declares that a copy by the store is complete when it answers. Other copies pass through this process.
    #[must_use]
    pub fn copied_by_store(self) -> Self {
        Self {
            copies: true,
            ..self
        }
    }
}

/// The bodies in a bucket.
pub(super) struct Bucket {
    objects: Objects,
    driver: Driver,
    retired: Mutex<Retired>,
}

/// Replaced bodies, in the order of their removal.
#[derive(Default)]
struct Retired {
    waiting: VecDeque<(Timestamp, BodyName)>,
    is_running: bool,
}

impl Bucket {
    pub(super) fn new(objects: Objects, driver: Driver) -> Self {
        Self {
            objects,
            driver,
            retired: Mutex::default(),
        }
    }

    fn store(&self) -> &dyn ObjectStore {
        &*self.objects.store
    }

    /// Returns the time of the index.
    pub(super) fn now(&self) -> Timestamp {
        self.driver.now()
    }

    pub(super) fn location(&self, body: &BodyName) -> Path {
        let folder = self.objects.prefix.clone().join(BODIES);
        match body.nonce & LONG {
            0 => folder.join(format!("{}-{:016x}", body.hash.hex(), body.nonce)),
            _ => folder.join(format!("long-{:016x}", body.nonce)),
        }
    }

    /// Lists the bodies that are older than this, by the store's own clock.
    pub(super) async fn older_than(
        &self,
        age: Duration,
    ) -> Result<BoxStream<'static, Result<BodyName, Error>>, Error> {
        let clock = self.objects.prefix.clone().join(CLOCK[0]).join(CLOCK[1]);
        self.store().put(&clock, PutPayload::new()).await?;
        let now = self.store().head(&clock).await?.last_modified;
        let listed = self
            .store()
            .list(Some(&self.objects.prefix.clone().join(BODIES)));
        let is_old = move |meta: &ObjectMeta| {
            (now - meta.last_modified)
                .to_std()
                .is_ok_and(|found| found >= age)
        };
        let listed = listed.try_filter_map(move |meta| {
            std::future::ready(Ok(meta
                .location
                .filename()
                .and_then(name_of)
                .filter(|_| is_old(&meta))))
        });
        Ok(listed.boxed())
    }

    /// Deletes an object, if it exists.
    pub(super) async fn delete(&self, location: &Path) -> Result<(), Error> {
        match self.store().delete(location).await {
            Err(Error::NotFound { .. }) => Ok(()),
            deleted => deleted,
        }
    }

    async fn delete_or_warn(&self, location: &Path) {
        if let Err(error) = self.delete(location).await {
            tracing::warn!(%error, %location, "a body remains; it is swept later");
        }
    }

    fn retired(&self) -> MutexGuard<'_, Retired> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes retired bodies after their time, many with one request, until none waits.
    async fn remove_retired(self: Arc<Self>) {
        while let Some(due) = self.next_due() {
            let clock = self.driver.clock();
            clock.sleep(clock.now().until(due)).await;
            let bodies = self.take_retired(clock.now());
            let locations: Vec<_> = bodies.iter().map(|body| Ok(self.location(body))).collect();
            let mut deleted = self.store().delete_stream(stream::iter(locations).boxed());
            while let Some(deleted) = deleted.next().await {
                match deleted {
                    Ok(_) | Err(Error::NotFound { .. }) => {}
                    Err(error) => {
                        tracing::warn!(%error, "a replaced body remains; it is swept later");
                    }
                }
            }
        }
    }

    /// Returns the time of the next removal.
    fn next_due(&self) -> Option<Timestamp> {
        let mut retired = self.retired();
        let next = retired.waiting.front().map(|(due, _)| *due);
        retired.is_running = next.is_some();
        next
    }

    fn take_retired(&self, now: Timestamp) -> Vec<BodyName> {
        let waiting = &mut self.retired().waiting;
        let count = waiting.iter().take_while(|(due, _)| *due <= now).count();
        waiting.drain(..count).map(|(_, body)| body).collect()
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("objects", &self.objects)
            .finish_non_exhaustive()
    }
}

/// Returns the body with this file name, or `None` if it isn't a body's. The hash of one that was sent in parts is unknown.
fn name_of(file_name: &str) -> Option<BodyName> {
    let (hash, nonce) = file_name
        .split_once('-')
        .filter(|(_, nonce)| nonce.len() == 16)?;
    let nonce = u64::from_str_radix(nonce, 16).ok()?;
    match (hash, nonce & LONG) {
        ("long", LONG) => Some(BodyName {
            hash: ContentHash::from_bytes([0; 32]),
            nonce,
        }),
        (_, 0) => {
            let mut bytes = [0; 32];
            hex::decode_to_slice(hash, &mut bytes).ok()?;
            Some(BodyName {
                hash: ContentHash::from_bytes(bytes),
                nonce,
            })
        }
        _ => None,
    }
}

#[async_trait]
impl Bodies for Bucket {
    fn check_space(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn begin(self: Arc<Self>, name: Option<BodyName>) -> Result<Box<dyn Incoming>, StoreError> {
        let nonce = name.map_or_else(BodyName::number, |name| Ok(name.nonce))?;
        Ok(Box::new(Arriving::new(self, nonce, name)))
    }

    /// Sends no request: a condition may show that the bytes aren't needed.
    async fn open(
        &self,
        body: BodyName,
        length: u64,
        _: Option<Budget>,
        keep: Keep,
    ) -> Result<Option<Box<dyn Source>>, StoreError> {
        let (store, location) = (Arc::clone(&self.objects.store), self.location(&body));
        Ok(Some(Box::new(Object {
            store,
            location,
            length,
            keep: Some(keep),
        })))
    }

    async fn duplicate(self: Arc<Self>, body: BodyName) -> Result<Option<Staged>, StoreError> {
        if !self.objects.copies {
            return Ok(None);
        }
        let name = BodyName {
            nonce: BodyName::number()? | (body.nonce & LONG),
            ..body
        };
        match self
            .store()
            .copy(&self.location(&body), &self.location(&name))
            .await
        {
            Ok(()) => Ok(Some(Staged::new(name, self))),
            // The bytes are read and written again. A copy that is made all the same has a name that no record has.
            Err(_) => Ok(None),
        }
    }

    async fn remove(&self, body: BodyName) {
        self.delete_or_warn(&self.location(&body)).await;
    }

    async fn retire(self: Arc<Self>, body: BodyName) {
        let due = self.driver.clock().now().saturating_add(GRACE);
        let mut retired = self.retired();
        if retired.waiting.len() >= MAX_RETIRED {
            return;
        }
        retired.waiting.push_back((due, body));
        if !std::mem::replace(&mut retired.is_running, true) {
            drop(detach(Arc::clone(&self).remove_retired()));
        }
    }

    fn abandon(self: Arc<Self>, body: BodyName) {
        drop(detach(async move { self.remove(body).await }));
    }

    /// An object can't be lengthened, so it is copied.
    async fn extend(
        self: Arc<Self>,
        version: Payload,
        nonce: u64,
    ) -> Result<ExtendedBody, StoreError> {
        let body = version.file().ok_or(StoreErrorKind::Unreadable)?;
        let source = self
            .open(body, version.length, None, Box::new(drop))
            .await?;
        let mut bytes = source
            .ok_or(StoreErrorKind::Unavailable)?
            .read(None)
            .await?;
        let name = BodyName {
            hash: version.hash,
            nonce,
        };
        let mut copy = Arriving::new(self, nonce, Some(name));
        while let Some(frame) = bytes.frame().await {
            let Ok(chunk) = frame?.into_data() else {
                continue;
            };
            copy.take(chunk).await?;
        }
        let hasher = copy.hasher.clone();
        if hasher.clone().finish() != version.hash {
            return Err(differs());
        }
        Ok(ExtendedBody {
            name,
            end: Box::new(copy),
            hasher,
        })
    }

    fn lifetime(&self) -> Option<Duration> {
        Some(LIFETIME)
    }
}

/// A body that arrives.
#[derive(Debug)]
pub(super) struct Arriving {
    bucket: Arc<Bucket>,
    nonce: u64,
    /// The name, if it doesn't follow from the content.
    name: Option<BodyName>,
    hasher: Hasher,
    /// The bytes so far, unless they are sent in parts.
    held: Vec<Bytes>,
    size: usize,
    parts: Option<Parts>,
    began: Timestamp,
}

/// An upload in parts. Dropping it aborts it.
#[derive(Debug)]
struct Parts(Option<WriteMultipart>);

impl Drop for Parts {
    fn drop(&mut self) {
        if let Some(upload) = self.0.take() {
            // The parts of an upload that can't be aborted end with the bucket's rule for them.
            drop(detach(async move { drop(upload.abort().await) }));
        }
    }
}

impl Arriving {
    fn new(bucket: Arc<Bucket>, nonce: u64, name: Option<BodyName>) -> Self {
        let began = bucket.now();
        Self {
            bucket,
            nonce,
            name,
            hasher: Hasher::default(),
            held: Vec::new(),
            size: 0,
            parts: None,
            began,
        }
    }

    /// Makes the body durable under this name, which it has had from the beginning.
    async fn finish_as(mut self: Box<Self>, name: BodyName) -> Result<Staged, StoreError> {
        // After an error, the object may be there, or arrive later. No record will name it.
        if let Some(upload) = self.parts.as_mut().and_then(|parts| parts.0.take()) {
            upload.finish().await.map_err(unavailable)?;
        } else {
            let payload: PutPayload = std::mem::take(&mut self.held).into_iter().collect();
            self.bucket
                .store()
                .put(&self.bucket.location(&name), payload)
                .await
                .map_err(unavailable)?;
        }
        let staged = Staged::new(name, Arc::<Bucket>::clone(&self.bucket));
        if self.began.until(self.bucket.now()) > LIFETIME {
            Err(unavailable("the body took too long"))
        } else {
            Ok(staged)
        }
    }

    async fn take(&mut self, chunk: Bytes) -> Result<(), StoreError> {
        self.hasher.update(&chunk);
        self.size = self.size.saturating_add(chunk.len());
        self.held.push(chunk);
        if self.size > PART {
            self.send_parts().await?;
        }
        Ok(())
    }

    async fn send_parts(&mut self) -> Result<&mut WriteMultipart, StoreError> {
        if self.parts.is_none() {
            let name = self.name.unwrap_or_else(|| {
                self.nonce |= LONG;
                BodyName {
                    hash: ContentHash::from_bytes([0; 32]),
                    nonce: self.nonce,
                }
            });
            let upload = self
                .bucket
                .store()
                .put_multipart(&self.bucket.location(&name))
                .await
                .map_err(unavailable)?;
            self.parts = Some(Parts(Some(WriteMultipart::new_with_chunk_size(
                upload, PART,
            ))));
        }
        let upload = self.parts.as_mut().and_then(|parts| parts.0.as_mut());
        let upload = upload.ok_or_else(|| unavailable("the upload has ended"))?;
        for bytes in self.held.drain(..) {
            upload
                .wait_for_capacity(PARTS_UNDER_WAY)
                .await
                .map_err(unavailable)?;
            upload.put(bytes);
        }
        Ok(upload)
    }
}

#[async_trait]
impl Incoming for Arriving {
    async fn write(&mut self, chunk: Vec<u8>) -> Result<(), StoreError> {
        self.take(chunk.into()).await
    }

    async fn finish(
        mut self: Box<Self>,
        promised: Option<ContentHash>,
    ) -> Result<Staged, StoreError> {
        let hash = std::mem::take(&mut self.hasher).finish();
        if promised.is_some_and(|promised| promised != hash) {
            return Err(StoreErrorKind::DigestMismatch.into());
        }
        let name = self.name.unwrap_or(BodyName {
            hash,
            nonce: self.nonce,
        });
        self.finish_as(name).await
    }
}

#[async_trait]
impl BodyEnd for Arriving {
    async fn write(mut self: Box<Self>, blocks: Vec<Bytes>) -> Result<(), StoreError> {
        for block in blocks {
            self.take(block).await?;
        }
        self.finish(None).await?.keep();
        Ok(())
    }
}

/// An object that is read. It stays for a while after it was replaced.
struct Object {
    store: Arc<dyn ObjectStore>,
    location: Path,
    length: u64,
    keep: Option<Keep>,
}

impl Object {
    /// Requests a range of the object.
    async fn get(&self, range: Range<u64>) -> Result<GetResult, StoreError> {
        let part = Some(range.clone())
            .filter(|range| *range != (0..self.length))
            .map(GetRange::Bounded);
        let got = self
            .store
            .get_opts(&self.location, GetOptions::new().with_range(part))
            .await
            .map_err(|error| match error {
                Error::NotFound { .. } => unavailable(
                    "the body is gone: it was replaced a while ago, or the bucket has lost it",
                ),
                error => unavailable(error),
            })?;
        if got.meta.size != self.length || got.range != range {
            return Err(StoreError::new(
                StoreErrorKind::Unreadable,
                "the body's object has another length",
            ));
        }
        Ok(got)
    }

    /// Requests all of a short object, and keeps it in memory for later reads.
    async fn short(&mut self) -> Result<Bytes, StoreError> {
        let bytes = self
            .get(0..self.length)
            .await?
            .bytes()
            .await
            .map_err(unavailable)?;
        if let Some(keep) = self.keep.take() {
            keep(bytes.clone());
        }
        Ok(bytes)
    }
}

impl Source for Object {
    fn read(&mut self, range: Option<Range<u64>>) -> Reply<'_, BlobBody> {
        Box::pin(async move {
            if self.length <= SHORT {
                return Memory::from(self.short().await?).read(range).await;
            }
            let got = self.get(range.unwrap_or(0..self.length)).await?;
            let frames = got
                .into_stream()
                .map_ok(Frame::data)
                .map_err(unavailable)
                .boxed();
            Ok(BlobBody::stream(StreamBody::new(frames)))
        })
    }
}

/// Returns the error of a request to the store. Nothing was changed, since no record names the body.
fn unavailable(error: impl Into<BoxError>) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, error)
}
