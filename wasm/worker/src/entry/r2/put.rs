//! Writes an object in one request, with a condition.

use ifmatch_blob_objects::DirectBody;
use object_store::path::Path;
use object_store::{Error, PutMode, PutOptions, PutPayload, PutResult, Result, UpdateVersion};
use worker::{Bucket, Conditional, Data, Date, DateInit, Object};

use super::{attributes, direct, failure, tombstone, within_limits};
use crate::entry::edge::body::EdgeBody;

/// Writes an object.
pub(super) async fn put(
    bucket: &Bucket,
    location: &Path,
    payload: &PutPayload,
    options: PutOptions,
    by_date: bool,
) -> Result<PutResult> {
    let (http, custom) = attributes::metadata(&options.attributes)?;
    let data = match options.extensions.get::<DirectBody>() {
        Some(direct) => {
            let body = direct.take::<EdgeBody>().and_then(EdgeBody::into_whole);
            Data::ReadableStream(body.ok_or_else(direct::unread)?)
        }
        None => Data::Bytes(bytes(payload)),
    };
    let request =
        |data| bucket.put(location.as_ref(), data).http_metadata(http.clone()).custom_metadata(custom.clone());
    let send = async |data, condition| within_limits(location, request(data).only_if(condition).execute()).await;
    let (object, expected) = match options.mode {
        PutMode::Overwrite => (within_limits(location, request(data).execute()).await?, None),
        PutMode::Update(version) => (send(data, unchanged(&version, by_date)?).await?, Some(version)),
        PutMode::Create => {
            let nothing = Conditional { etag_does_not_match: Some("*".to_owned()), ..Conditional::default() };
            let created = send(data, nothing).await?;
            // The whole body is in memory: a body of the runtime is sent only if it replaces an object.
            let left = if created.is_none() { tombstone::replaceable(bucket, location).await? } else { None };
            match left {
                Some(left) => (send(Data::Bytes(bytes(payload)), unchanged(&left, true)?).await?, None),
                None => (created, None),
            }
        }
    };
    object.map(|object| result(&object)).ok_or_else(|| failure::changed(location, expected.as_ref()))
}

/// Returns the condition that an object is still this version.
///
/// With a tag, R2 would ignore the latest date (RFC 9110 §13.2.2), so the dates stand alone. They are in whole milliseconds.
pub(super) fn unchanged(version: &UpdateVersion, by_date: bool) -> Result<Conditional> {
    if !by_date {
        return Ok(Conditional { etag_matches: Some(raw_tag(version)?), ..Conditional::default() });
    }
    let uploaded = version.version.as_deref().and_then(|millis| millis.parse::<u64>().ok());
    let uploaded =
        uploaded.ok_or_else(|| Error::NotSupported { source: "R2 compares with the date of a version".into() })?;
    let date = |millis| Some(Date::new(DateInit::Millis(millis)));
    let (uploaded_after, uploaded_before) = (date(uploaded.saturating_sub(1)), date(uploaded + 1));
    Ok(Conditional { uploaded_after, uploaded_before, ..Conditional::default() })
}

/// Returns the tag and version of a written object.
pub(super) fn result(object: &Object) -> PutResult {
    let (e_tag, version) = (Some(object.http_etag()), Some(object.uploaded().as_millis().to_string()));
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
