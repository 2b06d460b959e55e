//! The tags of objects: `x-amz-tagging` of writes, and the operations on tags alone, which leave the object's `ETag` and date as they are.

use http::Method;
use ifmatch_blob::store::{HeaderChange, SetHeaders, StoreErrorKind};
use ifmatch_blob::tags::{InvalidTags, Tags};
use s3s::auth::Credentials;
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput, GetObjectTaggingOutput,
    PutObjectTaggingInput, PutObjectTaggingOutput, Tag,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use crate::backend::{Backend, refuse_version};
use crate::conditions::WriteConditions;
use crate::{error, objects};

/// Prefix of the names that S3 reserves.
const RESERVED: &str = "aws:";

pub(crate) async fn get(
    backend: &Backend,
    request: S3Request<GetObjectTaggingInput>,
) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    let S3Request { input, credentials, .. } = request;
    refuse_version(input.version_id.as_deref())?;
    let blob = backend.blob(credentials.as_ref(), &input.bucket, &input.key)?;
    let tags = objects::find(backend, &blob).await?.info.headers.tags;
    let tag_set = tags.iter().map(|(name, value)| Tag { key: Some(name), value: Some(value) });
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set: tag_set.collect(), version_id: None }))
}

pub(crate) async fn put(
    backend: &Backend,
    request: S3Request<PutObjectTaggingInput>,
) -> S3Result<S3Response<PutObjectTaggingOutput>> {
    let S3Request { input, credentials, headers, .. } = request;
    refuse_version(input.version_id.as_deref())?;
    let tags = input.tagging.tag_set.into_iter().map(|Tag { key, value }| Some((key?, value?)));
    let tags = tags.collect::<Option<_>>().ok_or_else(|| s3_error!(MalformedXML, "a tag has a Key and a Value"))?;
    let tags = Tags::new(tags).map_err(|error| invalid(error, S3ErrorCode::InvalidTag))?;
    let change = TagChange { bucket: &input.bucket, key: &input.key, method: Method::PUT, tags: checked(tags)? };
    change.apply(backend, credentials.as_ref(), &headers).await?;
    Ok(S3Response::new(PutObjectTaggingOutput::default()))
}

pub(crate) async fn delete(
    backend: &Backend,
    request: S3Request<DeleteObjectTaggingInput>,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    let S3Request { input, credentials, headers, .. } = request;
    refuse_version(input.version_id.as_deref())?;
    let change = TagChange { bucket: &input.bucket, key: &input.key, method: Method::DELETE, tags: Tags::default() };
    change.apply(backend, credentials.as_ref(), &headers).await?;
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
    /// Replaces the tags, on the conditions of the request. A repeated request isn't recognised: its tags aren't part of its name.
    async fn apply(
        self,
        backend: &Backend,
        credentials: Option<&Credentials>,
        headers: &http::HeaderMap,
    ) -> S3Result<()> {
        let blob = backend.blob(credentials, self.bucket, self.key)?;
        let write = WriteConditions::of(&backend.context, &self.method, &blob.to_string(), headers)?;
        let is_conditional = write.is_conditional();
        let set = SetHeaders { preconditions: write.preconditions, ..SetHeaders::new(HeaderChange::Tags(self.tags)) };
        match backend.context.store.set_headers(&blob, set).await {
            Ok(_) => Ok(()),
            Err(failed) if *failed.kind() == StoreErrorKind::NotFound => Err(objects::not_found(backend, &blob).await),
            Err(failed) => Err(error::of_store(&failed, is_conditional)),
        }
    }
}

/// Parses the value of `x-amz-tagging`.
pub(crate) fn parse(text: Option<&str>) -> S3Result<Tags> {
    let tags: Tags = text.unwrap_or_default().parse().map_err(|error| {
        // As S3 tells a malformed field from tags that are too long.
        let is_malformed = matches!(error, InvalidTags::Encoding | InvalidTags::Repeated);
        invalid(error, if is_malformed { S3ErrorCode::InvalidArgument } else { S3ErrorCode::InvalidTag })
    })?;
    checked(tags)
}

/// Refuses tags with characters or names that S3 doesn't allow.
fn checked(tags: Tags) -> S3Result<Tags> {
    if !tags.consist_of(|char| char.is_alphanumeric() || " +-=._:/@".contains(char)) {
        return Err(s3_error!(InvalidTag, "tags consist of letters, digits, spaces, and + - = . _ : / @"));
    }
    if tags.iter().any(|(name, _)| name.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED)))
    {
        return Err(s3_error!(InvalidTag, "no tag's name may begin with {RESERVED}"));
    }
    Ok(tags)
}

fn invalid(error: InvalidTags, code: S3ErrorCode) -> S3Error {
    S3Error::with_message(code, error.to_string())
}

/// Returns the number of tags to report, which S3 leaves out if there are none.
pub(crate) fn count(tags: &Tags) -> Option<i32> {
    i32::try_from(tags.len()).ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_the_characters_of_s3() {
        let code =
            |text: &str| parse(Some(text)).map(|tags| tags.len()).map_err(|error| error.code().as_str().to_owned());
        for (text, expected) in [
            ("", Ok(0)),
            ("a=1&b%20c=%2B-%3D._%3A%2F%40", Ok(2)),
            ("gr%C3%BCn=%E6%9D%B1", Ok(1)),
            ("a=b%26c", Err("InvalidTag")),
            ("a=%0A", Err("InvalidTag")),
            ("aws%3Aa=1", Err("InvalidTag")),
            ("AWS%3Aa=1", Err("InvalidTag")),
            ("=1", Err("InvalidTag")),
            ("a=1&a=2", Err("InvalidArgument")),
            ("a=%FF", Err("InvalidArgument")),
        ] {
            assert_eq!(code(text), expected.map_err(str::to_owned), "{text}");
        }
        assert_eq!(parse(None).unwrap(), Tags::default());
    }
}
