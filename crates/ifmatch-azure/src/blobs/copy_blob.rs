//! Copy Blob, Put Blob From URL, and the source of Put Block From URL.
//!
//! The source's conditions and lease are checked against the version whose bytes are then read. The copy is written like any blob,
//! with the conditions and the lease of its request, in one step after the last byte: a crash leaves the previous blob.

use http::{HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Md5Use, MissingContainer, Opened, Put, Reading, StoreErrorKind};
use ifmatch_core::lease::SeenLease;
use ifmatch_core::precondition::Verdict;

use super::write;
use crate::blocks::staging;
use crate::containers;
use crate::error::AzureError;
use crate::guid;
use crate::request::conditions;
use crate::request::copy::{CopiedFields, Copy, CopySource};

const COPY_ID: HeaderName = HeaderName::from_static("x-ms-copy-id");
const COPY_STATUS: HeaderName = HeaderName::from_static("x-ms-copy-status");

pub(crate) async fn copy_blob(
    context: &Context,
    blob: &BlobPath,
    copy: Copy,
) -> Result<Response<BlobBody>, AzureError> {
    let Copy { write, source, fields } = copy;
    write::check(context, blob, &write.conditions, write.lease).await.map_err(write::of_target)?;
    let staged = staging::all(context, blob).await?;
    let opened = open_source(context, &source).await?;
    if opened.info.length > context.max_body {
        return Err(AzureError::too_large(context.max_body));
    }
    let whole = Put::copying(opened).await.map_err(AzureError::of_blob)?;
    let put = Put {
        preconditions: write.conditions.preconditions.clone(),
        lease: write.lease,
        container: MissingContainer::Refuse,
        request: write.request.clone(),
        limit: context.max_body,
        ..with_fields(whole, &fields)
    };
    let written = context.store.put(blob, put).await.map_err(|error| write::rejected_copy(&write, error))?;
    write::confirm(context, blob, &write, &written).await?;
    staging::discard(&*context.store, staged).await;
    let mut response = write::stored(&written);
    if matches!(fields, CopiedFields::Kept(_)) {
        *response.status_mut() = StatusCode::ACCEPTED;
        let id = guid::random().and_then(|id| HeaderValue::try_from(id.to_string()).ok());
        response.headers_mut().extend(id.map(|id| (COPY_ID, id)));
        response.headers_mut().insert(COPY_STATUS, HeaderValue::from_static("success"));
    }
    Ok(response)
}

/// Opens the source, after checking its lease and conditions.
pub(crate) async fn open_source(context: &Context, source: &CopySource) -> Result<Opened, AzureError> {
    let Some(opened) = context.store.open(&source.blob, Reading::RANGES).await.map_err(AzureError::of_blob)? else {
        containers::find(context, &source.blob.container).await?;
        return Err(AzureError::blob_not_found());
    };
    SeenLease::check(opened.info.lease.as_ref(), source.lease)
        .map_err(|failure| AzureError::of_blob(StoreErrorKind::LeaseFailed(failure)))?;
    match conditions::evaluate_read(&source.conditions, &opened.info)? {
        Verdict::Proceed => Ok(opened),
        Verdict::NotModified | Verdict::Failed(_) => Err(AzureError::source_condition_not_met()),
    }
}

/// Returns the write with the header fields of the copy.
fn with_fields(whole: Put, fields: &CopiedFields) -> Put {
    match fields {
        CopiedFields::Kept(None) => whole,
        CopiedFields::Kept(Some(metadata)) => {
            Put { headers: BlobHeaders { metadata: metadata.clone(), ..whole.headers }, ..whole }
        }
        CopiedFields::Put { own, keep, md5 } => {
            let (own, checksum) = (BlobHeaders::clone(own), whole.headers.checksum.clone());
            let kept = if *keep { whole.headers } else { BlobHeaders::default() };
            let headers = BlobHeaders {
                content_type: own.content_type.or(kept.content_type),
                content_encoding: own.content_encoding.or(kept.content_encoding),
                content_language: own.content_language.or(kept.content_language),
                content_disposition: own.content_disposition.or(kept.content_disposition),
                cache_control: own.cache_control.or(kept.cache_control),
                content_md5: md5.or(own.content_md5).or(kept.content_md5),
                metadata: own.metadata,
                append: None,
                checksum,
            };
            Put { headers, md5: if md5.is_some() { Md5Use::Computed } else { whole.md5 }, ..whole }
        }
    }
}
