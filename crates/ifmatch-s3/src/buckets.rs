//! Buckets, which are containers.

use futures_util::TryStreamExt;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{ContainerInfo, Delete, ListQuery};
use ifmatch_core::date::Timestamp;
use s3s::auth::Credentials;
use s3s::dto::{
    Bucket, CreateBucketInput, CreateBucketOutput, DeleteBucketInput, DeleteBucketOutput, ListBucketsInput,
    ListBucketsOutput,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::backend::{Backend, refuse};
use crate::{convert, error};

/// Maximum number of buckets of a page.
const MAX_BUCKETS: usize = 10_000;
/// Number of containers read from the store at a time.
const STEP: usize = 500;

pub(crate) async fn list(
    backend: &Backend,
    request: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let S3Request { input, credentials, .. } = request;
    let account = backend.account(credentials.as_ref())?;
    let limit = input.max_buckets.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MAX_BUCKETS);
    let limit = limit.clamp(1, MAX_BUCKETS);
    let own = backend.accounts.prefix(account);
    let prefix = format!("{own}{}", input.prefix.as_deref().unwrap_or_default());
    let after = input.continuation_token.map(|token| format!("{own}{token}"));
    let query = ListQuery { prefix, after, ..ListQuery::first(STEP) };
    let mut containers = query.containers(&*backend.context.store);
    let mut buckets: Vec<Bucket> = Vec::new();
    while let Some(entry) = containers.try_next().await.map_err(|failed| error::plain(&failed))? {
        // Other names belong to the plain dialect, or to another account.
        let Some(name) = backend.accounts.name_of(account, &entry.name) else { continue };
        if buckets.len() == limit {
            let continuation_token = buckets.last().and_then(|last| last.name.clone());
            let buckets = Some(buckets);
            return Ok(S3Response::new(ListBucketsOutput { buckets, continuation_token, ..Default::default() }));
        }
        let created = entry.info.created.map(Timestamp::last_modified).or(entry.info.last_modified);
        let creation_date = created.and_then(convert::timestamp);
        buckets.push(Bucket { name: Some(name.to_owned()), creation_date, ..Bucket::default() });
    }
    Ok(S3Response::new(ListBucketsOutput { buckets: Some(buckets), ..Default::default() }))
}

pub(crate) async fn create(
    backend: &Backend,
    request: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    let S3Request { input, credentials, .. } = request;
    refuse(input.object_lock_enabled_for_bucket.unwrap_or_default(), "object lock")?;
    let container = backend.container(credentials.as_ref(), &input.bucket)?;
    let created = backend.context.store.create_container(&container, BlobHeaders::default()).await;
    created.map_err(|failed| error::plain(&failed))?;
    Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{}", input.bucket)) }))
}

/// Deletes an empty bucket.
pub(crate) async fn delete(
    backend: &Backend,
    request: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    let S3Request { input, credentials, .. } = request;
    let container = backend.container(credentials.as_ref(), &input.bucket)?;
    let deleted = backend.context.store.delete_empty_container(&container, Delete::default()).await;
    deleted.map_err(|failed| error::plain(&failed))?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}

/// Returns the container of a bucket, which must exist.
pub(crate) async fn find(
    backend: &Backend,
    credentials: Option<&Credentials>,
    bucket: &str,
) -> S3Result<(ContainerName, ContainerInfo)> {
    let container = backend.container(credentials, bucket)?;
    let found = backend.context.store.container(&container).await.map_err(|failed| error::plain(&failed))?;
    let found = found.ok_or_else(|| s3_error!(NoSuchBucket, "there is no such bucket: create it first"))?;
    Ok((container, found))
}
