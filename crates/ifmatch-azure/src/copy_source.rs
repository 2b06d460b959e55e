//! The source of Copy Blob, Put Blob From URL, Put Block From URL and Append Block From URL.
//!
//! Conditions and the lease are checked against the version that is then read.

use ifmatch_blob::dialect::Context;
use ifmatch_blob::store::{Opened, Reading, Upload};
use ifmatch_core::lease::SeenLease;
use ifmatch_core::precondition::Verdict;
use ifmatch_core::range::{Limits, Selection};

use crate::error::AzureError;
use crate::request::conditions;
use crate::request::copy::{CopiedPart, CopySource};
use crate::{lookup, snapshots};

/// Opens the source, after checking its lease and conditions.
pub(crate) async fn open_source(
    context: &Context,
    source: &CopySource,
) -> Result<Opened, AzureError> {
    let Some(opened) =
        snapshots::open(context, &source.blob, source.snapshot, Reading::RANGES).await?
    else {
        lookup::container(context, &source.blob.container).await?;
        return Err(AzureError::blob_not_found());
    };
    SeenLease::check(opened.info.lease.as_ref(), source.lease).map_err(AzureError::of_blob)?;
    match conditions::evaluate_read(&source.conditions, &opened.info)? {
        Verdict::Proceed => Ok(opened),
        Verdict::NotModified | Verdict::Failed(_) => Err(AzureError::source_condition_not_met()),
    }
}

/// Opens the part of a blob that becomes a block, and returns its bytes and their number.
pub(crate) async fn open_part(
    context: &Context,
    part: CopiedPart,
) -> Result<(Upload, u64), AzureError> {
    const RANGE: &str = "x-ms-source-range";
    let mut opened = open_source(context, &part.source).await?;
    let length = opened.info.length;
    let range = match part.range {
        None => 0..length,
        Some(text) => match Selection::parse(text.as_bytes(), length, Limits { max_ranges: 1 }) {
            Selection::Parts(parts) if parts.len() == 1 => parts[0].start()..parts[0].end() + 1,
            Selection::Unsatisfiable => return Err(AzureError::invalid_range(length)),
            _ => {
                return Err(AzureError::invalid_header(
                    RANGE,
                    "must be a range, such as bytes=0-1023",
                ));
            }
        },
    };
    if range.is_empty() {
        return Err(AzureError::invalid_header(RANGE, "the block is empty"));
    }
    let length = range.end - range.start;
    if length > part.limit {
        return Err(AzureError::too_large(part.limit));
    }
    let body = opened
        .source
        .read(Some(range))
        .await
        .map_err(AzureError::of_blob)?;
    Ok((Upload::new(body), length))
}
