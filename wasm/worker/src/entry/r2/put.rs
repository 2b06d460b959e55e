//! Writes an object in one request, with a condition.

use ifmatch_blob_objects::DirectBody;
use object_store::path::Path;
use object_store::{Error, PutMode, PutOptions, PutPayload, PutResult, Result, UpdateVersion};
use worker::{Bucket, Conditional, Data, Object};

use super::{attributes, direct, failure, within_limits};
use crate::entry::edge::body::EdgeBody;

/// Writes an object.
pub(super) async fn put(
    bucket: &Bucket,
    location: &Path,
    payload: &PutPayload,
    options: PutOptions,
) -> Result<PutResult> {
    let (http, custom) = attributes::metadata(&options.attributes)?;
    let data = match options.extensions.get::<DirectBody>() {
        Some(direct) => {
            let body = direct.take::<EdgeBody>().and_then(EdgeBody::into_whole);
            Data::ReadableStream(body.ok_or_else(direct::unread)?)
        }
        None => Data::Bytes(bytes(payload)),
    };
    let request = bucket.put(location.as_ref(), data).http_metadata(http).custom_metadata(custom);
    let (request, expected) = match options.mode {
        PutMode::Overwrite => (request, None),
        PutMode::Create => {
            let nothing = Conditional { etag_does_not_match: Some("*".to_owned()), ..Conditional::default() };
            (request.only_if(nothing), None)
        }
        PutMode::Update(version) => {
            let unchanged = Conditional { etag_matches: Some(raw_tag(&version)?), ..Conditional::default() };
            (request.only_if(unchanged), Some(version))
        }
    };
    let object = within_limits(location, request.execute()).await?;
    object.map(|object| result(&object)).ok_or_else(|| failure::changed(location, expected.as_ref()))
}

/// Returns the tag and version of a written object.
pub(super) fn result(object: &Object) -> PutResult {
    let (e_tag, version) = (Some(object.http_etag()), Some(object.version()));
    PutResult { e_tag, version, extensions: http::Extensions::default() }
}

/// Joins the chunks of a payload.
pub(super) fn bytes(payload: &PutPayload) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.content_length());
    payload.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
    bytes
}

fn raw_tag(version: &UpdateVersion) -> Result<String> {
    let raw = version.e_tag.as_deref().and_then(attributes::raw_tag);
    raw.map(ToOwned::to_owned)
        .ok_or_else(|| Error::NotSupported { source: "R2 compares with one strong tag of its own".into() })
}
