//! Copy Blob and Put Blob From URL.
//!
//! The copy is written like any blob, with the conditions and the lease of its request, in one step after the last byte: a crash leaves
//! the previous blob.

use http::{Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::{BlobHeaders, ContentMd5, Copied, FieldText};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    Md5Use, MissingContainer, Put, Reading, StoreError, StoreErrorKind, Written,
};
use ifmatch_core::lease::{LeaseState, LeaseUse, SeenLease};

use crate::block_storage::staging::{self, BlobPaths};
use crate::block_storage::{CommittedList, SavedList, open_with_list};
use crate::copy_source::open_source;
use crate::error::AzureError;
use crate::random_guid;
use crate::request::copy::{CopiedFields, CopyParameters};
use crate::response::headers::{COPY_ID, COPY_STATUS, SUCCESS};
use crate::snapshots;
use crate::write::{self, require_block_blob};

/// Copy Blob and Put Blob From URL.
pub(crate) async fn copy_blob(
    context: &Context,
    blob: &BlobPath,
    copy: CopyParameters,
) -> Result<Response<BlobBody>, AzureError> {
    let CopyParameters {
        write,
        source,
        fields,
        tags,
        tier,
        needs_infinite_lease,
    } = copy;
    let is_kept = matches!(fields, CopiedFields::Kept { .. });
    // Otherwise it's Put Blob From URL, a Put Blob, so a false condition has its code.
    let of_target = |error| {
        if is_kept {
            write::of_target(error)
        } else {
            error
        }
    };
    write::check(context, blob, &write.conditions, write.lease)
        .await
        .map_err(of_target)?;
    // Without an id, the write refuses any lease.
    if needs_infinite_lease && write.lease.id().is_some() {
        refuse_finite_lease(context, blob, write.lease).await?;
    }
    let staged = staging::all(context, blob).await?;
    let (opened, list) = if is_kept {
        let paths = snapshots::block_paths(context, &source.blob, source.snapshot).await?;
        let open = || async { open_source(context, &source).await.map(Some) };
        let opened = open_with_list(&*context.store, &paths, None, open).await?;
        opened.ok_or_else(AzureError::blob_not_found)?
    } else {
        (open_source(context, &source).await?, None)
    };
    if opened.info.length > context.max_body {
        return Err(AzureError::too_large(context.max_body));
    }
    if tier.is_some() {
        require_block_blob(Some(&opened.info))?;
    }
    let length = opened.info.length;
    let tags = tags.unwrap_or_else(|| opened.info.headers.tags.clone());
    let whole = Put::copying(&source.blob, opened)
        .await
        .map_err(AzureError::of_blob)?;
    let whole = with_fields(whole, fields);
    let id = random_guid()
        .and_then(|id| FieldText::new(&id.to_string()).ok())
        .ok_or_else(AzureError::busy)?;
    // As in Azure, only Copy Blob leaves a trace.
    let copied = is_kept.then(|| Copied {
        id,
        source: source.url,
        length,
        date: context.wall().last_modified(),
    });
    let headers = BlobHeaders {
        copied: copied.clone(),
        tags,
        tier,
        ..whole.headers
    };
    let paths = BlobPaths::of(context, blob).await?;
    let saved = match list {
        Some(list) => {
            Some(CommittedList::prepare(&*context.store, blob, &paths, list.blocks).await?)
        }
        None => None,
    };
    let headers = match &saved {
        Some(saved) => saved.name_in(&headers),
        None => headers,
    };
    let put = Put {
        preconditions: write.conditions.preconditions.clone(),
        lease: write.lease,
        container: MissingContainer::Refuse,
        request: write.request.clone(),
        keeps_type: true,
        limit: context.max_body,
        headers,
        ..whole
    };
    let written = context.store.put(blob, put).await;
    settle(context, blob, &paths, saved, &written).await;
    let written = written.map_err(|error| of_target(write::rejected(&write, error)))?;
    write::confirm(context, blob, &write, &written).await?;
    staging::discard_after(&*context.store, staged, &written).await;
    let mut response = write::stored(&written);
    if let Some(copied) = copied {
        *response.status_mut() = StatusCode::ACCEPTED;
        let first = if written.is_replay {
            find_copy(context, blob).await?
        } else {
            None
        };
        response
            .headers_mut()
            .insert(COPY_ID, first.unwrap_or(copied).id.to_header());
        response.headers_mut().insert(COPY_STATUS, SUCCESS);
    }
    Ok(response)
}

/// Refuses a target with a finite lease that the request holds.
async fn refuse_finite_lease(
    context: &Context,
    blob: &BlobPath,
    held: LeaseUse,
) -> Result<(), AzureError> {
    let opened = context
        .store
        .open(blob, Reading::HEAD)
        .await
        .map_err(AzureError::of_blob)?;
    let Some(seen) = opened.and_then(|opened| opened.info.lease) else {
        return Ok(());
    };
    SeenLease::check(Some(&seen), held).map_err(AzureError::of_blob)?;
    if seen.state() != LeaseState::Leased || seen.lease.end().is_none() {
        return Ok(());
    }
    let message = "the target of a copy must have an infinite lease, or none";
    Err(AzureError::new(
        StatusCode::PRECONDITION_FAILED,
        "InfiniteLeaseDurationRequired",
        message,
    ))
}

/// Ends the write of a copy: keeps the list of its blocks if it took effect.
async fn settle(
    context: &Context,
    blob: &BlobPath,
    paths: &BlobPaths,
    saved: Option<SavedList>,
    written: &Result<Written, StoreError>,
) {
    let (Some(saved), store) = (saved, &*context.store) else {
        return;
    };
    match written {
        Ok(written) => {
            if let Err(error) = saved.settle(store, blob, paths, written, None).await {
                tracing::warn!(error = %error.message, "could not store the block list of a copy: later lists cannot reuse its blocks");
            }
        }
        Err(error) if *error.kind() == StoreErrorKind::OutcomeUnknown => {}
        Err(_) => saved.abandon(store).await,
    }
}

/// Returns the copy that made the blob, which a retry of its request names.
async fn find_copy(context: &Context, blob: &BlobPath) -> Result<Option<Copied>, AzureError> {
    let opened = context
        .store
        .open(blob, Reading::HEAD.without_lease())
        .await
        .map_err(AzureError::of_blob)?;
    Ok(opened.and_then(|opened| opened.info.headers.copied))
}

/// Returns the write with the header fields of the copy.
fn with_fields(whole: Put, fields: CopiedFields) -> Put {
    match fields {
        CopiedFields::Kept { metadata, md5 } => {
            let mut headers = whole.headers;
            if let Some(metadata) = metadata {
                headers.metadata = metadata;
            }
            headers.content_md5 = md5.or(headers.content_md5);
            Put {
                headers,
                md5: verified(md5, whole.md5),
                ..whole
            }
        }
        CopiedFields::Put { own, keep, md5 } => {
            let checksum = whole.headers.checksum.clone();
            let kept = if keep {
                whole.headers
            } else {
                BlobHeaders::default()
            };
            let headers = BlobHeaders {
                content_type: own.content_type.or(kept.content_type),
                content_encoding: own.content_encoding.or(kept.content_encoding),
                content_language: own.content_language.or(kept.content_language),
                content_disposition: own.content_disposition.or(kept.content_disposition),
                cache_control: own.cache_control.or(kept.cache_control),
                content_md5: md5.or(own.content_md5).or(kept.content_md5),
                metadata: own.metadata,
                checksum,
                ..BlobHeaders::default()
            };
            Put {
                headers,
                md5: verified(md5, whole.md5),
                ..whole
            }
        }
    }
}

/// Returns how a copy treats its MD5. Its bytes must match the given one.
fn verified(given: Option<ContentMd5>, otherwise: Md5Use) -> Md5Use {
    if given.is_some() {
        Md5Use::Computed
    } else {
        otherwise
    }
}
