//! An object store that a test can control before and after each write.

use std::fmt;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use ifmatch_blob_objects::TooSoon;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result, UploadPart,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A fault of one write.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Another program writes the object right before.
    Foreign(&'static str),
    /// Another program deletes the object right before.
    ForeignDeletion,
    /// The write takes effect, and the response is lost.
    LostAnswer,
    /// The write takes effect and is retried, since the response was lost.
    Retried,
    /// The write has no effect, and the outcome is unknown.
    LostRequest,
    /// The write is refused because it follows another one too soon.
    TooSoon,
    /// The write has no effect and never ends.
    Stuck,
    /// The writing thread stops before the write takes effect, see [`Faulty::suspend`].
    Suspended,
    /// The write doesn't end. It takes effect some time after it was abandoned; a deletion takes some time.
    Late,
    /// The response to a deletion is lost before it takes effect, some time later.
    Delayed,
    /// The response is lost, and the write stays in flight with its condition, see [`Faulty::release`].
    Held,
    /// A deletion is definitely refused.
    Refused,
    /// The write waits before reaching the store, see [`Faulty::hold_write`].
    Waits,
}

/// The faults of the next writes, the next one last.
type Faults = Arc<Mutex<Vec<Fault>>>;

/// Signals of a held listing or write: the one it sends, and the one it waits for.
type Gate = (oneshot::Sender<()>, oneshot::Receiver<()>);

/// A write that takes effect after it was abandoned.
struct Late {
    inner: Arc<dyn ObjectStore>,
    location: Path,
    payload: PutPayload,
}

impl Drop for Late {
    fn drop(&mut self) {
        let (inner, location, payload) = (
            Arc::clone(&self.inner),
            self.location.clone(),
            self.payload.clone(),
        );
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            inner
                .put_opts(&location, payload, PutOptions::default())
                .await
        });
    }
}

/// A multipart upload. Its completion is the write that the faults apply to.
#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    faults: Faults,
    location: Path,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let fault = self.faults.lock().unwrap().pop();
        match fault {
            Some(Fault::LostRequest) => Err(Faulty::lost()),
            Some(Fault::TooSoon) => Err(Faulty::too_soon()),
            Some(Fault::LostAnswer) => self
                .inner
                .complete()
                .await
                .and_then(|_| Err(Faulty::lost())),
            Some(Fault::Retried) => {
                self.inner.complete().await?;
                let source = "NoSuchUpload".into();
                Err(Error::NotFound {
                    path: self.location.to_string(),
                    source,
                })
            }
            other => {
                assert!(
                    other.is_none(),
                    "the end of an upload cannot fail this way: {other:?}"
                );
                self.inner.complete().await
            }
        }
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

/// An object store with faults.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn ObjectStore>,
    /// Accepts conditions and ignores them.
    ignores_conditions: bool,
    faults: Faults,
    listing: Mutex<Option<Gate>>,
    waiting: Mutex<Option<Gate>>,
    /// Gates of the next reads, the next one last.
    reading: Mutex<Vec<Option<Gate>>>,
    /// The content that another program writes after each read.
    replacement: Mutex<Option<&'static str>>,
    suspended: Mutex<Option<mpsc::Receiver<()>>>,
    held: Mutex<Option<(Path, PutPayload, PutOptions)>>,
    log: Mutex<Vec<&'static str>>,
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            ignores_conditions: false,
            faults: Faults::default(),
            listing: Mutex::default(),
            waiting: Mutex::default(),
            reading: Mutex::default(),
            replacement: Mutex::default(),
            suspended: Mutex::default(),
            held: Mutex::default(),
            log: Mutex::default(),
        }
    }

    /// An in-memory store that may ignore conditions.
    pub(crate) fn in_memory(ignores_conditions: bool) -> Arc<Self> {
        Arc::new(Self {
            ignores_conditions,
            ..Self::new(Arc::new(InMemory::new()))
        })
    }

    /// Sets the faults of the next writes, the next one first.
    pub(crate) fn schedule(&self, faults: impl IntoIterator<Item = Fault>) {
        let mut scheduled = self.faults.lock().unwrap();
        assert!(
            scheduled.is_empty(),
            "the earlier faults did not happen: {scheduled:?}"
        );
        *scheduled = faults.into_iter().collect();
        scheduled.reverse();
    }

    /// Returns `true` if a fault hasn't happened yet.
    pub(crate) fn is_scheduled(&self) -> bool {
        !self.faults.lock().unwrap().is_empty()
    }

    /// Returns the conditions of the writes since the last call.
    pub(crate) fn modes(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    /// Stops the thread of the next write until it is resumed.
    pub(crate) fn suspend(&self) -> mpsc::Sender<()> {
        let (resume, resumed) = mpsc::channel();
        *self.suspended.lock().unwrap() = Some(resumed);
        self.schedule([Fault::Suspended]);
        resume
    }

    /// Holds the next listing: the first channel signals its beginning, the second one releases it.
    pub(crate) fn hold_listing(&self) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
        let ((ask, asked), (open, opened)) = (oneshot::channel(), oneshot::channel());
        *self.listing.lock().unwrap() = Some((ask, opened));
        (asked, open)
    }

    /// Holds the next write: the first channel signals its arrival, the second one releases it.
    pub(crate) fn hold_write(&self) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
        let ((ask, asked), (open, opened)) = (oneshot::channel(), oneshot::channel());
        *self.waiting.lock().unwrap() = Some((ask, opened));
        self.schedule([Fault::Waits]);
        (asked, open)
    }

    /// Holds the read after the next one: the first channel signals its arrival, the second one releases it.
    pub(crate) fn hold_second_read(&self) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
        let ((ask, asked), (open, opened)) = (oneshot::channel(), oneshot::channel());
        *self.reading.lock().unwrap() = vec![Some((ask, opened)), None];
        (asked, open)
    }

    /// Lets another program replace an object after each read of it.
    pub(crate) fn replace_after_reads(&self, content: impl Into<Option<&'static str>>) {
        *self.replacement.lock().unwrap() = content.into();
    }

    /// Delivers the held write.
    pub(crate) async fn release(&self) -> Result<PutResult> {
        let (location, payload, options) =
            self.held.lock().unwrap().take().expect("a write is held");
        self.inner.put_opts(&location, payload, options).await
    }

    fn next_fault(&self) -> Option<Fault> {
        self.faults.lock().unwrap().pop()
    }

    fn after_a_while(deleted: BoxStream<'static, Result<Path>>) -> JoinHandle<Vec<Result<Path>>> {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            deleted.collect().await
        })
    }

    /// Performs one deletion.
    fn delete(
        deleted: BoxStream<'static, Result<Path>>,
        fault: Option<&Fault>,
    ) -> BoxStream<'static, Result<Path>> {
        match fault {
            Some(Fault::LostRequest) => stream::once(async { Err(Self::lost()) }).boxed(),
            Some(Fault::TooSoon) => stream::once(async { Err(Self::too_soon()) }).boxed(),
            Some(Fault::Stuck) => stream::pending().boxed(),
            Some(Fault::Refused) => {
                let refused = Error::PermissionDenied {
                    path: "c/b".into(),
                    source: "it is read-only".into(),
                };
                stream::once(async { Err(refused) }).boxed()
            }
            Some(Fault::Delayed) => {
                drop(Self::after_a_while(deleted));
                stream::once(async { Err(Self::lost()) }).boxed()
            }
            Some(Fault::Late) => {
                // As in a folder: on a thread that continues even if its caller is dropped.
                Self::after_a_while(deleted)
                    .map(|deleted| stream::iter(deleted.unwrap()))
                    .flatten_stream()
                    .boxed()
            }
            _ => deleted,
        }
    }

    fn too_soon() -> Error {
        Error::Generic {
            store: "faulty",
            source: Box::new(TooSoon),
        }
    }

    fn lost() -> Error {
        Error::Generic {
            store: "faulty",
            source: "connection reset".into(),
        }
    }

    async fn before(&self, location: &Path, fault: Option<&Fault>) -> Result<()> {
        use object_store::ObjectStoreExt;
        match fault {
            Some(Fault::Foreign(text)) => self
                .inner
                .put(location, PutPayload::from_static(text.as_bytes()))
                .await
                .map(drop),
            Some(Fault::ForeignDeletion) => self.inner.delete(location).await,
            Some(Fault::LostRequest) => Err(Self::lost()),
            Some(Fault::TooSoon) => Err(Self::too_soon()),
            Some(Fault::Stuck) => std::future::pending().await,
            Some(Fault::Suspended) => {
                let resumed = self.suspended.lock().unwrap().take().unwrap();
                let _ = tokio::task::block_in_place(|| resumed.recv());
                Ok(())
            }
            Some(Fault::Waits) => {
                let (begin, opened) = self.waiting.lock().unwrap().take().unwrap();
                let _ = begin.send(());
                let _ = opened.await;
                Ok(())
            }
            Some(
                Fault::LostAnswer
                | Fault::Retried
                | Fault::Late
                | Fault::Delayed
                | Fault::Held
                | Fault::Refused,
            )
            | None => Ok(()),
        }
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({})", self.inner)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        self.log.lock().unwrap().push(match &options.mode {
            PutMode::Overwrite => "overwrite",
            PutMode::Create => "create",
            PutMode::Update(_) => "update",
        });
        if self.ignores_conditions {
            options.mode = PutMode::Overwrite;
        }
        let fault = self.next_fault();
        self.before(location, fault.as_ref()).await?;
        if let Some(Fault::Held) = fault {
            *self.held.lock().unwrap() = Some((location.clone(), payload, options));
            return Err(Self::lost());
        }
        if let Some(Fault::Late) = fault {
            let _given_up = Late {
                inner: Arc::clone(&self.inner),
                location: location.clone(),
                payload,
            };
            return std::future::pending().await;
        }
        let result = self
            .inner
            .put_opts(location, payload.clone(), options.clone())
            .await;
        match fault {
            Some(Fault::LostAnswer) => result.and_then(|_| Err(Self::lost())),
            Some(Fault::Retried) => {
                result?;
                self.inner.put_opts(location, payload, options).await
            }
            _ => result,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.log.lock().unwrap().push("multipart");
        let inner = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(FaultyUpload {
            inner,
            faults: Arc::clone(&self.faults),
            location: location.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let gate = self.reading.lock().unwrap().pop().flatten();
        if let Some((begin, opened)) = gate {
            let _ = begin.send(());
            let _ = opened.await;
        }
        let result = self.inner.get_opts(location, options).await;
        let replacement = *self.replacement.lock().unwrap();
        if let Some(content) = replacement {
            self.inner
                .put_opts(
                    location,
                    PutPayload::from_static(content.as_bytes()),
                    PutOptions::default(),
                )
                .await?;
        }
        result
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[std::ops::Range<u64>],
    ) -> Result<Vec<bytes::Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.log.lock().unwrap().push("delete");
        let (inner, faults) = (Arc::clone(&self.inner), Arc::clone(&self.faults));
        let deleted = locations.map(move |location| {
            let deleted = inner.delete_stream(stream::once(async { location }).boxed());
            let fault = faults.lock().unwrap().pop();
            Self::delete(deleted, fault.as_ref())
        });
        deleted.flatten_unordered(16).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listed = self.inner.list(prefix);
        let Some((begin, opened)) = self.listing.lock().unwrap().take() else {
            return listed;
        };
        let held = async move {
            let _ = begin.send(());
            let _ = opened.await;
            listed
        };
        held.flatten_stream().boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}
