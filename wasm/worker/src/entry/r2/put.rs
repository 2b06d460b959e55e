//! Writing an object in one request, together with its condition.

use object_store::path::Path;
use object_store::{Error, PutMode, PutOptions, PutPayload, PutResult, Result, UpdateVersion};
use worker::{Bucket, Conditional, Object};

use super::attributes::{self, Metadata};
use super::failure;

/// Writes an object.
pub(super) async fn put(
    bucket: &Bucket,
    location: &Path,
    payload: &PutPayload,
    options: PutOptions,
) -> Result<PutResult> {
    let Metadata { http, custom } = attributes::metadata(&options.attributes)?;
    let put = bucket.put(location.as_ref(), bytes(payload)).http_metadata(http).custom_metadata(custom);
    let (put, expected) = match options.mode {
        PutMode::Overwrite => (put, None),
        // R2 takes no `*` in a list, and no other condition says that there must be nothing.
        PutMode::Create => (put.only_if(none_there()), None),
        PutMode::Update(version) => (put.only_if(still(&version)?), Some(version)),
    };
    match put.execute().await {
        Ok(Some(object)) => Ok(result(&object)),
        Ok(None) => Err(failure::changed(location, expected.as_ref())),
        Err(error) => Err(failure::of(location, &error)),
    }
}

/// What R2 says of the version that was written.
pub(super) fn result(object: &Object) -> PutResult {
    PutResult {
        e_tag: Some(object.http_etag()),
        version: Some(object.version()),
        extensions: http::Extensions::default(),
    }
}

/// The bytes in one piece, which R2 wants to know the length of.
pub(super) fn bytes(payload: &PutPayload) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.content_length());
    for chunk in payload {
        bytes.extend_from_slice(chunk);
    }
    bytes
}

fn none_there() -> Conditional {
    Conditional { etag_does_not_match: Some("*".to_owned()), ..Conditional::default() }
}

fn still(version: &UpdateVersion) -> Result<Conditional> {
    let raw = version.e_tag.as_deref().and_then(attributes::raw);
    let raw = raw.ok_or_else(|| Error::NotSupported { source: "R2 compares one tag, which it gave".into() })?;
    Ok(Conditional { etag_matches: Some(raw.to_owned()), ..Conditional::default() })
}
