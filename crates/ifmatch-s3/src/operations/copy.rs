//! `CopyObject`.
//!
//! The source's conditions are evaluated on the version whose bytes are then read. The copy is written like any object.

use http::{HeaderMap, HeaderName, Method};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Opened, Put, Reading};
use ifmatch_blob::tags::Tags;
use ifmatch_core::precondition::Verdict;
use s3s::auth::Credentials;
use s3s::dto::{
    ChecksumAlgorithm, CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource,
    MetadataDirective, TaggingDirective,
};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

use super::objects;
use crate::backend::{Backend, refuse_version};
use crate::bodies::checksum::{DigestAlgorithm, with_checksums};
use crate::bodies::upload_body::{self, BodyOutcome};
use crate::conditions::{self, WriteConditions};
use crate::convert::tags;
use crate::convert::{self, fields_of};
use crate::error;

const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");

/// `CopyObject`.
pub(crate) async fn copy(
    backend: &Backend,
    request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let S3Request {
        input,
        credentials,
        headers,
        ..
    } = request;
    let blob = backend.blob(credentials.as_ref(), &input.bucket, &input.key)?;
    let source = SourceObject::of(backend, credentials.as_ref(), &input.copy_source, &headers)?;
    let replaces = input
        .metadata_directive
        .as_ref()
        .is_some_and(|kind| kind.as_str() == MetadataDirective::REPLACE);
    let tags = replaced_tags(&input)?;
    let target = format!("{blob} from {} {replaces} {tags:?}", source.named);
    let write = WriteConditions::of(&backend.context, &Method::PUT, &target, &headers)?;
    let (source, opened) = source.open(backend, &headers).await?;
    // As on S3, that an object is encrypted, or where it is stored, is a change, even if nothing changes here.
    let changes =
        replaces || input.server_side_encryption.is_some() || input.storage_class.is_some();
    if blob == source && !changes {
        return Err(s3_error!(
            InvalidRequest,
            "a copy of an object onto itself must replace its metadata, or ask for an encryption or a storage class"
        ));
    }
    let whole = Put::copying(&source, opened).await.map_err(error::plain)?;
    let put = if replaces {
        let fields = fields_of!(input);
        let checksum = whole.headers.checksum.clone();
        let kept = whole.headers.tags.clone();
        Put {
            headers: BlobHeaders {
                checksum,
                tags: kept,
                ..fields.parse()?
            },
            ..whole
        }
    } else {
        whole
    };
    let put = match tags {
        Some(tags) => Put {
            headers: BlobHeaders {
                tags,
                ..put.headers
            },
            ..put
        },
        None => put,
    };
    let (put, outcome) = match input.checksum_algorithm {
        Some(name) => with_checksum(put, &name)?,
        None => (put, BodyOutcome::default()),
    };
    let explain = |failed: &_| outcome.explain(failed, write.is_conditional());
    let written = objects::store(backend, &blob, &write, put, explain).await?;
    let result = with_checksums!(
        outcome.checksum(),
        CopyObjectResult {
            e_tag: convert::e_tag(written.tag.as_ref()),
            last_modified: convert::timestamp(written.last_modified),
            ..CopyObjectResult::default()
        }
    );
    Ok(S3Response::new(CopyObjectOutput {
        copy_object_result: Some(result),
        server_side_encryption: backend.encryption(),
        ..CopyObjectOutput::default()
    }))
}

/// Computes a checksum of the bytes as they pass, instead of the source's. So the store can't share them with the
/// source.
fn with_checksum(put: Put, name: &ChecksumAlgorithm) -> S3Result<(Put, BodyOutcome)> {
    let algorithm = DigestAlgorithm::named(&name.as_str().to_ascii_lowercase())
        .ok_or_else(|| s3_error!(InvalidRequest, "the checksum {} is unknown", name.as_str()))?;
    let (body, outcome) = upload_body::verified(put.body, &HeaderMap::new(), None, Some(algorithm));
    let headers = BlobHeaders {
        checksum: None,
        ..put.headers
    };
    Ok((
        Put {
            headers,
            body,
            source: None,
            late_checksum: outcome.kept(),
            ..put
        },
        outcome,
    ))
}

/// Returns the tags of a copy that doesn't keep its source's.
fn replaced_tags(input: &CopyObjectInput) -> S3Result<Option<Tags>> {
    let given = tags::parse(input.tagging.as_deref())?;
    match input
        .tagging_directive
        .as_ref()
        .map(TaggingDirective::as_str)
    {
        Some(TaggingDirective::REPLACE) => Ok(Some(given)),
        None | Some(TaggingDirective::COPY) if given.is_empty() => Ok(None),
        None | Some(TaggingDirective::COPY) => Err(s3_error!(
            InvalidArgument,
            "x-amz-tagging of a copy needs x-amz-tagging-directive: REPLACE"
        )),
        Some(_) => Err(s3_error!(
            InvalidArgument,
            "x-amz-tagging-directive must be COPY or REPLACE"
        )),
    }
}

/// The source of a copy.
pub(crate) struct SourceObject {
    /// The object with the name that was sent.
    named: BlobPath,
    /// The object with a space in place of each plus that isn't encoded: programs that encode names as forms do send a
    /// space as a plus.
    spaced: Option<BlobPath>,
}

impl SourceObject {
    /// Reads the source from a request. Its buckets are the account's.
    pub(crate) fn of(
        backend: &Backend,
        credentials: Option<&Credentials>,
        source: &CopySource,
        headers: &HeaderMap,
    ) -> S3Result<Self> {
        let blob = |source: &CopySource| {
            let CopySource::Bucket {
                bucket,
                key,
                version_id,
            } = source
            else {
                return Err(s3_error!(
                    NotImplemented,
                    "a copy's source must be /bucket/key"
                ));
            };
            refuse_version(version_id.as_deref())?;
            backend.blob(credentials, bucket, key)
        };
        let sent = headers
            .get(COPY_SOURCE)
            .and_then(|value| value.to_str().ok())
            .filter(|sent| sent.contains('+'));
        let spaced = sent.and_then(|sent| CopySource::parse(&sent.replace('+', "%20")).ok());
        Ok(Self {
            named: blob(source)?,
            spaced: spaced.as_ref().map(blob).transpose()?,
        })
    }

    /// Opens the source on its conditions, and returns its name: the one that was sent, if there is such an object.
    pub(crate) async fn open(
        self,
        backend: &Backend,
        headers: &HeaderMap,
    ) -> S3Result<(BlobPath, Opened)> {
        let preconditions = conditions::of_source(headers)?;
        let reading = Reading::RANGES.without_lease();
        for source in [Some(&self.named), self.spaced.as_ref()]
            .into_iter()
            .flatten()
        {
            let Some(opened) = backend
                .context
                .store
                .open(source, reading)
                .await
                .map_err(error::plain)?
            else {
                continue;
            };
            return match preconditions.evaluate(&Method::GET, Some(&opened.info.validators())) {
                Verdict::Proceed if opened.info.length > backend.context.max_body => {
                    Err(s3_error!(
                        EntityTooLarge,
                        "the source has more than {} bytes",
                        backend.context.max_body
                    ))
                }
                Verdict::Proceed => Ok((source.clone(), opened)),
                Verdict::NotModified => Err(false_condition("If-None-Match")),
                Verdict::Failed(precondition) => {
                    Err(false_condition(error::condition(precondition)))
                }
            };
        }
        Err(objects::not_found(backend, &self.named).await)
    }
}

/// Returns the error for a false condition on the source.
fn false_condition(name: &str) -> S3Error {
    let error = s3_error!(
        PreconditionFailed,
        "a condition on the source of the copy is false"
    );
    error::with_condition(error, &format!("x-amz-copy-source-{name}"))
}
