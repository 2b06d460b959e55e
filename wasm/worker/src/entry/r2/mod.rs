//! R2 as an object store.
//!
//! Conditions are part of the request to R2, so writers that bypass the Worker aren't overwritten. R2 reports a
//! failed condition without saying which: the object it returns tells.

mod attributes;
pub(super) mod direct;
mod failure;
mod get;
mod put;
mod tombstone;

use std::fmt;
use std::io;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use ifmatch_blob_objects::{ConditionalDeletion, DescribedListing};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UpdateVersion,
};
use worker::Bucket;
use worker::send::{IntoSendFuture, SendWrapper};

use crate::tasks::subrequests::{self, BudgetShare};
use crate::tasks::timeout;

/// Time limit for a response from R2, in milliseconds. Streaming a client's body to R2 takes as long as the client.
const TIMEOUT: u32 = 25_000;

/// Maximum number of objects that R2 deletes at a time.
const PAGE: usize = 1_000;

/// A bucket. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct R2Bucket {
    bucket: SendWrapper<Bucket>,
    /// `true` if a version is identified by its date.
    by_date: bool,
}

impl R2Bucket {
    /// Returns the store in a bucket.
    pub(crate) fn new(bucket: Bucket) -> Self {
        Self {
            bucket: SendWrapper::new(bucket),
            by_date: false,
        }
    }

    /// Identifies versions by their date instead of their tag, which is a hash: the same bytes, written again, are another version.
    /// R2 accepts one write of an object per second.
    pub(crate) fn by_date(self) -> Self {
        Self {
            by_date: true,
            ..self
        }
    }

    /// Error for an operation that the blob service doesn't use.
    fn lacks(&self, operation: &str) -> Error {
        Error::NotImplemented {
            operation: operation.to_owned(),
            implementer: self.to_string(),
        }
    }
}

impl fmt::Display for R2Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("R2")
    }
}

#[async_trait]
impl ObjectStore for R2Bucket {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        put::put(&self.bucket, location, &payload, options, self.by_date)
            .into_send()
            .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        put::begin(&self.bucket, location, &options)
            .into_send()
            .await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        get::get(&self.bucket, location, options).into_send().await
    }

    async fn get_ranges(&self, _: &Path, _: &[Range<u64>]) -> Result<Vec<Bytes>> {
        Err(self.lacks("several ranges in one response"))
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .try_chunks(PAGE)
            .map_err(|error| error.1)
            .and_then(move |locations| {
                let store = store.clone();
                async move {
                    let keys = locations.iter().map(AsRef::<str>::as_ref).collect();
                    let first = locations.first().cloned().unwrap_or_default();
                    within_limits(&first, store.bucket.delete_multiple(keys)).await?;
                    Ok(stream::iter(locations).map(Ok))
                }
                .into_send()
            })
            .try_flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        get::objects(&self.bucket, get::folder(prefix), None, false)
            .map_ok(|(meta, _)| meta)
            .boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        get::objects(&self.bucket, get::folder(prefix), Some(offset), false)
            .map_ok(|(meta, _)| meta)
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        get::folders(&self.bucket, prefix).into_send().await
    }

    async fn rename_opts(&self, _: &Path, _: &Path, _: RenameOptions) -> Result<()> {
        Err(self.lacks("rename"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(self.lacks("copy"))
    }
}

#[async_trait]
impl ConditionalDeletion for R2Bucket {
    async fn delete_if(&self, location: &Path, version: &UpdateVersion) -> Result<()> {
        tombstone::delete(&self.bucket, location, version)
            .into_send()
            .await
    }
}

impl DescribedListing for R2Bucket {
    fn list_described(
        &self,
        prefix: &str,
        after: Option<&Path>,
    ) -> BoxStream<'static, Result<(ObjectMeta, Attributes)>> {
        get::objects(&self.bucket, Some(prefix.to_owned()), after, true)
    }
}

/// Sends a request to R2, within the budget of subrequests and the time limit. After a timeout, the request may still
/// take effect.
async fn within_limits<T>(
    location: &Path,
    request: impl Future<Output = worker::Result<T>>,
) -> Result<T> {
    in_time("R2 to answer", TIMEOUT, within_budget(location, request)).await
}

/// Sends a request to R2, within the budget of subrequests.
async fn within_budget<T>(
    location: &Path,
    request: impl Future<Output = worker::Result<T>>,
) -> Result<T> {
    subrequests::take(BudgetShare::Work).map_err(|spent| failure::unsent(location, spent))?;
    request.await.map_err(|error| failure::of(location, &error))
}

/// Waits for something, up to a number of milliseconds.
async fn in_time<T>(
    subject: &'static str,
    limit: u32,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let late = |late| {
        let source = io::Error::new(
            io::ErrorKind::TimedOut,
            format!("waited for {subject}: {late}"),
        );
        Err(Error::Generic {
            store: "R2",
            source: source.into(),
        })
    };
    timeout(limit, work).await.unwrap_or_else(late)
}
