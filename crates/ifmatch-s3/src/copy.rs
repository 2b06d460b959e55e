//! `CopyObject`.
//!
//! The source's conditions are evaluated on the version whose bytes are then read. The copy is written like any object.

use http::{HeaderMap, Method};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Opened, Put, Reading};
use ifmatch_core::precondition::Verdict;
use s3s::auth::Credentials;
use s3s::dto::{CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, MetadataDirective};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

use crate::backend::{Backend, refuse_version};
use crate::conditions::{self, Write};
use crate::convert::{self, fields_of};
use crate::{error, objects};

pub(crate) async fn copy(
    backend: &Backend,
    request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let S3Request { input, credentials, headers, .. } = request;
    let blob = backend.blob(credentials.as_ref(), &input.bucket, &input.key)?;
    let source = source(backend, credentials.as_ref(), &input.copy_source)?;
    let replaces = input.metadata_directive.as_ref().is_some_and(|kind| kind.as_str() == MetadataDirective::REPLACE);
    if blob == source && !replaces {
        return Err(s3_error!(InvalidRequest, "a copy of an object onto itself must replace its metadata"));
    }
    let target = format!("{blob} from {source} {replaces}");
    let write = Write::of(&backend.context, &Method::PUT, &target, &headers)?;
    let opened = open(backend, &source, &headers).await?;
    let whole = Put::copying(&source, opened).await.map_err(error::plain)?;
    let put = if replaces {
        let fields = fields_of!(input);
        let checksum = whole.headers.checksum.clone();
        Put { headers: BlobHeaders { checksum, ..fields.parse()? }, ..whole }
    } else {
        whole
    };
    let explain = |failed: &_| error::of_store(failed, write.is_conditional());
    let written = objects::store(backend, &blob, &write, put, explain).await?;
    let result = CopyObjectResult {
        e_tag: convert::e_tag(written.tag.as_ref()),
        last_modified: convert::timestamp(written.last_modified),
        ..CopyObjectResult::default()
    };
    Ok(S3Response::new(CopyObjectOutput {
        copy_object_result: Some(result),
        server_side_encryption: backend.encryption(),
        ..CopyObjectOutput::default()
    }))
}

/// Returns the source of a copy.
pub(crate) fn source(backend: &Backend, credentials: Option<&Credentials>, source: &CopySource) -> S3Result<BlobPath> {
    let CopySource::Bucket { bucket, key, version_id } = source else {
        return Err(s3_error!(NotImplemented, "a copy's source must be /bucket/key"));
    };
    refuse_version(version_id.as_deref())?;
    backend.blob(credentials, bucket, key)
}

/// Opens the source of a copy on its conditions.
pub(crate) async fn open(backend: &Backend, source: &BlobPath, headers: &HeaderMap) -> S3Result<Opened> {
    let preconditions = conditions::of_source(headers)?;
    let reading = Reading::RANGES.without_lease();
    let Some(opened) = backend.context.store.open(source, reading).await.map_err(error::plain)? else {
        return Err(objects::not_found(backend, source).await);
    };
    match preconditions.evaluate(&Method::GET, Some(&opened.info.validators())) {
        Verdict::Proceed if opened.info.length > backend.context.max_body => {
            Err(s3_error!(EntityTooLarge, "the source has more than {} bytes", backend.context.max_body))
        }
        Verdict::Proceed => Ok(opened),
        Verdict::NotModified => Err(false_condition("If-None-Match")),
        Verdict::Failed(precondition) => Err(false_condition(error::condition(precondition))),
    }
}

/// Returns the error for a false condition on the source.
fn false_condition(name: &str) -> S3Error {
    let error = s3_error!(PreconditionFailed, "a condition on the source of the copy is false");
    error::with_condition(error, &format!("x-amz-copy-source-{name}"))
}
