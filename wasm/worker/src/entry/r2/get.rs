//! Reads an object or its metadata.

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
    let range = match &options.range {
        Some(range) => range.as_range(meta.size).map_err(|error| invalid(&error))?,
        None => 0..meta.size,
    };
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
