//! Reads an object or its metadata.

use std::ops;

use futures_util::{StreamExt, TryStreamExt, stream};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob_objects::DirectBody;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, GetResultPayload, Result};
use worker::{Bucket, Conditional, GetOptionsBuilder, Object, Range, ResponseBody, web_sys};

use super::tombstone::is_tombstone;
use super::{attributes, failure, within_limits};
use crate::entry::edge::body::EdgeBody;
use crate::entry::edge::stream::{Broken, ByteStream};

/// Reads an object.
pub(super) async fn get(bucket: &Bucket, location: &Path, options: GetOptions) -> Result<GetResult> {
    let object = if options.head {
        within_limits(location, bucket.head(location.as_ref())).await?
    } else {
        within_limits(location, request(bucket.get(location.as_ref()), &options).execute()).await?
    };
    let object = object.filter(|object| !is_tombstone(object)).ok_or_else(|| absent(location))?;
    let (meta, attributes) = (attributes::meta(&object, location.clone())?, attributes::attributes(&object)?);
    // R2 sends no body if a condition failed.
    options.check_preconditions(&meta)?;
    let range = sent(options.range.as_ref(), meta.size)?;
    let mut extensions = http::Extensions::default();
    let payload = if options.head {
        stream::empty().boxed()
    } else {
        let raw = body(&object).map_err(|error| failure::of(location, &error))?.ok_or_else(bodiless)?;
        // The body is passed on without being read.
        let whole = EdgeBody::new(ByteStream::new(raw.clone()), Some(range.end.saturating_sub(range.start)));
        extensions.insert(DirectBody::new(BlobBody::stream(whole)));
        ByteStream::new(raw).map_err(broken).boxed()
    };
    Ok(GetResult { payload: GetResultPayload::Stream(payload), meta, range, attributes, extensions })
}

/// Adds a condition and a range to a request.
fn request<'a>(request: GetOptionsBuilder<'a>, options: &GetOptions) -> GetOptionsBuilder<'a> {
    let request = match options.if_match.as_deref().and_then(attributes::raw_tag) {
        Some(raw) => request.only_if(Conditional { etag_matches: Some(raw.to_owned()), ..Conditional::default() }),
        None => request,
    };
    let range = match options.range {
        None => return request,
        Some(GetRange::Bounded(ref range)) => {
            Range::OffsetWithLength { offset: range.start, length: range.end.saturating_sub(range.start) }
        }
        Some(GetRange::Offset(offset)) => Range::OffsetToEnd { offset },
        Some(GetRange::Suffix(suffix)) => Range::Suffix { suffix },
    };
    request.range(range)
}

/// Returns the range that R2 sends. `GetRange::as_range` refuses more bytes than fit in this platform's memory.
fn sent(range: Option<&GetRange>, size: u64) -> Result<ops::Range<u64>> {
    let sent = match range {
        None => return Ok(0..size),
        Some(GetRange::Bounded(range)) => range.start..range.end.min(size),
        Some(GetRange::Offset(offset)) => *offset..size,
        Some(GetRange::Suffix(length)) => size.saturating_sub(*length)..size,
    };
    if sent.is_empty() { Err(invalid(&"the object has no such bytes")) } else { Ok(sent) }
}

/// Returns the stream of an object's body.
fn body(object: &Object) -> worker::Result<Option<web_sys::ReadableStream>> {
    let Some(body) = object.body() else { return Ok(None) };
    Ok(match body.response_body()? {
        ResponseBody::Stream(stream) => Some(stream),
        ResponseBody::Empty | ResponseBody::Body(_) => None,
    })
}

fn bodiless() -> Error {
    Error::Generic { store: "R2", source: "R2 sent no body".into() }
}

fn broken(error: Broken) -> Error {
    Error::Generic { store: "R2", source: error.into() }
}

fn absent(location: &Path) -> Error {
    Error::NotFound { path: location.to_string(), source: "there is no such object".into() }
}

fn invalid(error: &impl ToString) -> Error {
    Error::Generic { store: "R2", source: error.to_string().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_may_be_longer_than_the_memory() {
        let size = 6 << 30;
        for (range, expected) in [
            (None, Some(0..size)),
            (Some(GetRange::Bounded(1..5 << 30)), Some(1..5 << 30)),
            (Some(GetRange::Bounded(1..u64::MAX)), Some(1..size)),
            (Some(GetRange::Offset(1)), Some(1..size)),
            (Some(GetRange::Suffix(5 << 30)), Some(1 << 30..size)),
            (Some(GetRange::Suffix(u64::MAX)), Some(0..size)),
            (Some(GetRange::Offset(size)), None),
            (Some(GetRange::Bounded(size..size + 1)), None),
            (Some(GetRange::Suffix(0)), None),
        ] {
            assert_eq!(sent(range.as_ref(), size).ok(), expected, "{range:?}");
        }
    }
}
