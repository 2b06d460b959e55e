//! The operations on the tags of an object alone, which leave its `ETag` and date as they are.

use http::{HeaderMap, Method};
use ifmatch_blob::store::{HeaderChange, SetHeaders, StoreErrorKind};
use ifmatch_blob::tags::Tags;
use s3s::auth::Credentials;
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput,
    GetObjectTaggingOutput, PutObjectTaggingInput, PutObjectTaggingOutput, Tag,
};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use super::objects;
use crate::backend::{Backend, refuse_version};
use crate::conditions::WriteConditions;
use crate::convert::tags;
use crate::error;

/// `GetObjectTagging`.
pub(crate) async fn get(
    backend: &Backend,
    request: S3Request<GetObjectTaggingInput>,
) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    let S3Request {
        input, credentials, ..
    } = request;
    refuse_version(input.version_id.as_deref())?;
    let blob = backend.blob(credentials.as_ref(), &input.bucket, &input.key)?;
    let tags = objects::find(backend, &blob).await?.info.headers.tags;
    let tag_set = tags.iter().map(|(name, value)| Tag {
        key: Some(name),
        value: Some(value),
    });
    Ok(S3Response::new(GetObjectTaggingOutput {
        tag_set: tag_set.collect(),
        version_id: None,
    }))
}

/// `PutObjectTagging`.
pub(crate) async fn put(
    backend: &Backend,
    request: S3Request<PutObjectTaggingInput>,
) -> S3Result<S3Response<PutObjectTaggingOutput>> {
    let S3Request {
        input,
        credentials,
        headers,
        ..
    } = request;
    refuse_version(input.version_id.as_deref())?;
    let tags = input
        .tagging
        .tag_set
        .into_iter()
        .map(|Tag { key, value }| Some((key?, value?)));
    let tags = tags
        .collect::<Option<_>>()
        .ok_or_else(|| s3_error!(MalformedXML, "a tag has a Key and a Value"))?;
    let tags = Tags::new(tags).map_err(|error| tags::invalid(error, S3ErrorCode::InvalidTag))?;
    let change = TagChange {
        bucket: &input.bucket,
        key: &input.key,
        method: Method::PUT,
        tags: tags::checked(tags)?,
    };
    change
        .apply(backend, credentials.as_ref(), &headers)
        .await?;
    Ok(S3Response::new(PutObjectTaggingOutput::default()))
}

/// `DeleteObjectTagging`.
pub(crate) async fn delete(
    backend: &Backend,
    request: S3Request<DeleteObjectTaggingInput>,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    let S3Request {
        input,
        credentials,
        headers,
        ..
    } = request;
    refuse_version(input.version_id.as_deref())?;
    let change = TagChange {
        bucket: &input.bucket,
        key: &input.key,
        method: Method::DELETE,
        tags: Tags::default(),
    };
    change
        .apply(backend, credentials.as_ref(), &headers)
        .await?;
    Ok(S3Response::new(DeleteObjectTaggingOutput::default()))
}

/// A change of an object's tags.
struct TagChange<'a> {
    bucket: &'a str,
    key: &'a str,
    method: Method,
    tags: Tags,
}

impl TagChange<'_> {
    /// Replaces the tags, on the conditions of the request. A repeated request isn't recognized: its tags aren't part of its name.
    async fn apply(
        self,
        backend: &Backend,
        credentials: Option<&Credentials>,
        headers: &HeaderMap,
    ) -> S3Result<()> {
        let blob = backend.blob(credentials, self.bucket, self.key)?;
        let write =
            WriteConditions::of(&backend.context, &self.method, &blob.to_string(), headers)?;
        let is_conditional = write.is_conditional();
        let set = SetHeaders {
            preconditions: write.preconditions,
            ..SetHeaders::new(HeaderChange::Tags(self.tags))
        };
        match backend.context.store.set_headers(&blob, set).await {
            Ok(_) => Ok(()),
            Err(failed) if *failed.kind() == StoreErrorKind::NotFound => {
                Err(objects::not_found(backend, &blob).await)
            }
            Err(failed) => Err(error::of_store(&failed, is_conditional)),
        }
    }
}
