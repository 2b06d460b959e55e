//! Operations on blobs.

mod append_block;
mod copy_blob;
mod get_blob;
pub(crate) mod tags;

pub(crate) use append_block::{append_block, append_block_from_url, seal_blob};
pub(crate) use copy_blob::copy_blob;
pub(crate) use get_blob::get_blob;
pub(crate) use tags::set_tags;

use http::{HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::Tier;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{HeaderChange, Md5Use, Put, Reading, SetHeaders, Upload};
use ifmatch_core::lease::{LeaseUse, SeenLease};

use crate::block_storage::staging;
use crate::crc64::Crc64;
use crate::error::AzureError;
use crate::request::headers::{CONTENT_CRC64, CONTENT_MD5};
use crate::request::snapshot::SnapshotDeletion;
use crate::request::{LeaseParameters, PutBlob, WriteHeaders};
use crate::response::{self, headers};
use crate::write::{self, require_block_blob};
use crate::{lookup, snapshots};

const DELETED_PERMANENTLY: HeaderName = HeaderName::from_static("x-ms-delete-type-permanent");

/// Put Blob.
pub(crate) async fn put_blob(
    context: &Context,
    blob: &BlobPath,
    put: PutBlob,
    upload: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let PutBlob {
        write,
        headers,
        crc64,
        length,
    } = put;
    write::check(context, blob, &write.conditions, write.lease).await?;
    let staged = staging::all(context, blob).await?;
    let (upload, watch) = Crc64::watch(crc64, upload);
    let put = write::put(&write, upload, context.max_body);
    let put = Put {
        headers: *headers,
        length: Some(length),
        md5: Md5Use::Computed,
        ..put
    };
    let written = context.store.put(blob, put).await;
    let written =
        written.map_err(|error| watch.explain(error, |error| write::rejected(&write, error)))?;
    write::confirm(context, blob, &write, &written).await?;
    staging::discard_after(&*context.store, staged, &written).await;
    let mut response = write::stored(&written);
    response
        .headers_mut()
        .extend(crc64.map(|crc64| (CONTENT_CRC64, crc64.to_header())));
    response
        .headers_mut()
        .extend(written.md5.map(|md5| (CONTENT_MD5, md5.to_header())));
    Ok(response)
}

/// Delete Blob.
pub(crate) async fn delete_blob(
    context: &Context,
    blob: &BlobPath,
    write: WriteHeaders,
    deletion: SnapshotDeletion,
) -> Result<Response<BlobBody>, AzureError> {
    write::check(context, blob, &write.conditions, write.lease).await?;
    let deletes_blob = matches!(deletion, SnapshotDeletion::Bare | SnapshotDeletion::Include);
    let staged = if deletes_blob {
        Some(staging::all(context, blob).await?)
    } else {
        None
    };
    snapshots::delete(context, blob, write, deletion).await?;
    staging::discard(&*context.store, staged.unwrap_or_default()).await;
    let mut response = response::empty(StatusCode::ACCEPTED, None, None);
    response
        .headers_mut()
        .insert(DELETED_PERMANENTLY, HeaderValue::from_static("true"));
    Ok(response)
}

/// Set Blob Metadata, Set Blob Properties and Set Blob Tags.
pub(crate) async fn set_blob_headers(
    context: &Context,
    blob: &BlobPath,
    write: WriteHeaders,
    change: HeaderChange,
) -> Result<Response<BlobBody>, AzureError> {
    let WriteHeaders {
        conditions,
        lease,
        request,
        ..
    } = write;
    let is_metadata = matches!(change, HeaderChange::Metadata(_));
    let keeps_version = change.keeps_version();
    write::check(context, blob, &conditions, lease).await?;
    let (preconditions, if_tags) = (conditions.preconditions, conditions.if_tags);
    let set = SetHeaders {
        preconditions,
        if_tags,
        lease,
        change,
        request,
    };
    match context.store.set_headers(blob, set).await {
        // The version stays, so the response names none, as in Azure.
        Ok(_) if keeps_version => Ok(response::empty(StatusCode::NO_CONTENT, None, None)),
        Ok(written) => {
            let mut response = response::empty(
                StatusCode::OK,
                written.tag.as_ref(),
                Some(written.last_modified),
            );
            if is_metadata {
                response::set_not_encrypted(&mut response);
            }
            Ok(response)
        }
        Err(error) => Err(write::explain(context, blob, error).await),
    }
}

/// Set Blob Tier. The tier is kept and told. A store that can't change it may still be asked for the one that the blob has.
pub(crate) async fn set_blob_tier(
    context: &Context,
    blob: &BlobPath,
    lease: LeaseUse,
    tier: Tier,
) -> Result<Response<BlobBody>, AzureError> {
    let Some(opened) = context
        .store
        .open(blob, Reading::HEAD)
        .await
        .map_err(AzureError::of_blob)?
    else {
        lookup::container(context, &blob.container).await?;
        return Err(AzureError::blob_not_found());
    };
    SeenLease::check(opened.info.lease.as_ref(), lease).map_err(AzureError::of_blob)?;
    require_block_blob(Some(&opened.info))?;
    if headers::tier(&opened.info.headers) != tier.name.as_str() {
        let tier = Tier {
            changed: Some(headers::second_of(context.wall())),
            ..tier
        };
        let set = SetHeaders {
            lease,
            ..SetHeaders::new(HeaderChange::Tier(tier))
        };
        if let Err(error) = context.store.set_headers(blob, set).await {
            return Err(write::explain(context, blob, error).await);
        }
    }
    Ok(response::empty(StatusCode::OK, None, None))
}

/// Lease Blob.
pub(crate) async fn lease_blob(
    context: &Context,
    blob: &BlobPath,
    lease: LeaseParameters,
) -> Result<Response<BlobBody>, AzureError> {
    let LeaseParameters {
        conditions,
        request,
    } = lease;
    let action = request.action;
    write::check(context, blob, &conditions, LeaseUse::Read(None)).await?;
    match context.store.lease(blob, request).await {
        Ok(leased) => Ok(response::leased(action, &leased)),
        Err(error) => Err(write::explain(context, blob, error).await),
    }
}
