//! Reading an object, or what is known of it.

use futures_util::{StreamExt, TryStreamExt, stream};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::objects::DirectBody;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, GetResultPayload, Result};
use worker::{Bucket, Conditional, Object, ObjectBody, Range, ResponseBody, web_sys};

use super::{attributes, failure};
use crate::entry::edge::body::EdgeBody;
use crate::entry::edge::stream::{Broken, ByteStream};

/// Reads an object.
pub(super) async fn get(bucket: &Bucket, location: &Path, options: GetOptions) -> Result<GetResult> {
    let found =
        if options.head { bucket.head(location.as_ref()).await } else { read(bucket, location, &options).await };
    let object = found.map_err(|error| failure::of(location, &error))?;
    let object = object.ok_or_else(|| absent(location))?;
    let meta = attributes::meta(location.clone(), &object)?;
    // Before the body: R2 sends none where a condition failed.
    options.check_preconditions(&meta)?;
    let attributes = attributes::attributes(&object)?;
    let range = match &options.range {
        Some(range) => range.as_range(meta.size).map_err(|error| invalid(&error))?,
        None => 0..meta.size,
    };
    let mut extensions = http::Extensions::default();
    let payload = if options.head {
        stream::empty().boxed()
    } else {
        let raw = body(&object)?;
        // Whoever can hand it on does not read it.
        let whole = EdgeBody::new(ByteStream::new(raw.clone()), Some(range.end.saturating_sub(range.start)));
        extensions.insert(DirectBody::new(BlobBody::stream(whole)));
        ByteStream::new(raw).map_err(broken).boxed()
    };
    Ok(GetResult { payload: GetResultPayload::Stream(payload), meta, range, attributes, extensions })
}

async fn read(bucket: &Bucket, location: &Path, options: &GetOptions) -> worker::Result<Option<Object>> {
    let mut get = bucket.get(location.as_ref());
    if let Some(raw) = options.if_match.as_deref().and_then(attributes::raw) {
        get = get.only_if(Conditional { etag_matches: Some(raw.to_owned()), ..Conditional::default() });
    }
    if let Some(range) = &options.range {
        get = get.range(match *range {
            GetRange::Bounded(ref range) => {
                Range::OffsetWithLength { offset: range.start, length: range.end.saturating_sub(range.start) }
            }
            GetRange::Offset(offset) => Range::OffsetToEnd { offset },
            GetRange::Suffix(suffix) => Range::Suffix { suffix },
        });
    }
    get.execute().await
}

/// The bytes, as the runtime has them.
fn body(object: &Object) -> Result<web_sys::ReadableStream> {
    match object.body().map(ObjectBody::response_body) {
        Some(Ok(ResponseBody::Stream(raw))) => Ok(raw),
        _ => Err(Error::Generic { store: "R2", source: "R2 sent no body".into() }),
    }
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
