//! Reading an object, or what is known of it.

use futures_util::{StreamExt, TryStreamExt, stream};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob_objects::DirectBody;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, GetResultPayload, Result};
use serde_json::{Value, json};
use wasm_bindgen::JsCast;
use worker::{Bucket, web_sys};

use super::attributes::{self, Described};
use super::{PATIENCE, failure};
use crate::entry::edge::body::EdgeBody;
use crate::entry::edge::stream::{Broken, ByteStream};
use crate::glue;
use crate::tasks::allowance::Share;
use crate::tasks::answer::Answer;

/// Reads an object.
pub(super) async fn get(bucket: &Bucket, location: &Path, options: GetOptions) -> Result<GetResult> {
    let answer = Answer::to(Share::Work, |number| {
        if options.head {
            glue::look(number, PATIENCE, bucket.as_ref(), location.as_ref());
        } else {
            glue::get(number, PATIENCE, bucket.as_ref(), location.as_ref(), &asked(&options));
        }
    });
    let (described, body) = answer.await.map_err(|error| failure::of(location, error))?;
    let described = Described::read(&described.ok_or_else(|| absent(location))?)?;
    let (meta, attributes) = described.into_parts(location.clone())?;
    // Before the body: R2 sends none where a condition failed.
    options.check_preconditions(&meta)?;
    let range = match &options.range {
        Some(range) => range.as_range(meta.size).map_err(|error| invalid(&error))?,
        None => 0..meta.size,
    };
    let mut extensions = http::Extensions::default();
    let payload = if options.head {
        stream::empty().boxed()
    } else {
        let raw: web_sys::ReadableStream = body.dyn_into().map_err(|_| bodiless())?;
        // Whoever can hand it on does not read it.
        let whole = EdgeBody::new(ByteStream::new(raw.clone()), Some(range.end.saturating_sub(range.start)));
        extensions.insert(DirectBody::new(BlobBody::stream(whole)));
        ByteStream::new(raw).map_err(broken).boxed()
    };
    Ok(GetResult { payload: GetResultPayload::Stream(payload), meta, range, attributes, extensions })
}

/// The options of a read, as R2 has them. Empty: none.
fn asked(options: &GetOptions) -> String {
    if options.if_match.is_none() && options.range.is_none() {
        return String::new();
    }
    let mut asked = serde_json::Map::new();
    if let Some(raw) = options.if_match.as_deref().and_then(attributes::raw) {
        asked.insert("onlyIf".to_owned(), json!({ "etagMatches": raw }));
    }
    if let Some(range) = &options.range {
        let range = match *range {
            GetRange::Bounded(ref range) => {
                json!({ "offset": range.start, "length": range.end.saturating_sub(range.start) })
            }
            GetRange::Offset(offset) => json!({ "offset": offset }),
            GetRange::Suffix(suffix) => json!({ "suffix": suffix }),
        };
        asked.insert("range".to_owned(), range);
    }
    Value::Object(asked).to_string()
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
