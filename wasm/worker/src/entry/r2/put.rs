//! Writing an object in one request, together with its condition.

use js_sys::Uint8Array;
use object_store::path::Path;
use object_store::{Error, PutMode, PutOptions, PutPayload, PutResult, Result, UpdateVersion};
use serde_json::json;
use worker::Bucket;

use super::{PATIENCE, attributes, failure};
use crate::glue;
use crate::tasks::allowance::Share;
use crate::tasks::answer::Answer;

/// Writes an object.
pub(super) async fn put(
    bucket: &Bucket,
    location: &Path,
    payload: &PutPayload,
    options: PutOptions,
) -> Result<PutResult> {
    let mut asked = attributes::metadata(&options.attributes)?;
    let expected = match options.mode {
        PutMode::Overwrite => None,
        // R2 takes no `*` in a list, and no other condition says that there must be nothing.
        PutMode::Create => {
            asked.insert("onlyIf".to_owned(), json!({ "etagDoesNotMatch": "*" }));
            None
        }
        PutMode::Update(version) => {
            asked.insert("onlyIf".to_owned(), json!({ "etagMatches": still(&version)? }));
            Some(version)
        }
    };
    let options = serde_json::Value::Object(asked).to_string();
    let bytes = bytes(payload);
    let answer = Answer::to(Share::Work, |number| {
        glue::put(number, PATIENCE, bucket.as_ref(), location.as_ref(), &bytes, &options);
    });
    let (version, _) = answer.await.map_err(|error| failure::of(location, error))?;
    version.map(|version| result(&version)).ok_or_else(|| failure::changed(location, expected.as_ref()))
}

/// What R2 says of the version that was written: its tag and its number, a line each.
pub(super) fn result(said: &str) -> PutResult {
    let mut lines = said.split('\n').map(ToOwned::to_owned);
    PutResult { e_tag: lines.next(), version: lines.next(), extensions: http::Extensions::default() }
}

/// Copies the bytes into one piece of the runtime's memory, which is freed afterwards.
pub(super) fn bytes(payload: &PutPayload) -> Uint8Array {
    let length = |chunk: &[u8]| u32::try_from(chunk.len()).unwrap_or(u32::MAX);
    let bytes = Uint8Array::new_with_length(u32::try_from(payload.content_length()).unwrap_or(u32::MAX));
    let mut at = 0;
    for chunk in payload {
        let end = at + length(chunk);
        bytes.subarray(at, end).copy_from(chunk);
        at = end;
    }
    bytes
}

fn still(version: &UpdateVersion) -> Result<&str> {
    let raw = version.e_tag.as_deref().and_then(attributes::raw);
    raw.ok_or_else(|| Error::NotSupported { source: "R2 compares one tag, which it gave".into() })
}
