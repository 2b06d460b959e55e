//! Steps that writes of blobs share.

use http::header::ETAG;
use http::{Method, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    BlobInfo, MissingContainer, Put, Reading, StoreError, StoreErrorKind, Upload, Written,
};
use ifmatch_core::lease::{LeaseUse, SeenLease};
use ifmatch_core::precondition::{Precondition, Verdict};

use crate::auth::{AuthError, SharedAccessError};
use crate::error::AzureError;
use crate::request::WriteHeaders;
use crate::request::conditions::WriteConditions;
use crate::{lookup, response};

/// Checks the conditions that the store doesn't evaluate.
pub(crate) async fn check(
    context: &Context,
    blob: &BlobPath,
    conditions: &WriteConditions,
    lease: LeaseUse,
) -> Result<(), AzureError> {
    if !conditions.need_check() {
        return Ok(());
    }
    match context
        .store
        .open(blob, Reading::HEAD)
        .await
        .map_err(AzureError::of_blob)?
    {
        Some(opened) => {
            let info = &opened.info;
            conditions.check(Some(info.last_modified), info.lease.as_ref(), lease)
        }
        None => Ok(()),
    }
}

/// Evaluates the lease and the conditions of a write on a version.
pub(crate) fn evaluate(info: &BlobInfo, write: &WriteHeaders) -> Result<(), AzureError> {
    SeenLease::check(info.lease.as_ref(), write.lease).map_err(AzureError::of_blob)?;
    match (
        write
            .conditions
            .preconditions
            .evaluate(&Method::PUT, Some(&info.validators())),
        &info.tag,
    ) {
        (Verdict::Failed(_), Some(tag)) => {
            Err(AzureError::condition_not_met().with(ETAG, tag.to_header()))
        }
        (Verdict::Failed(_), None) => Err(AzureError::condition_not_met()),
        _ => Ok(()),
    }
}

/// Builds a write to an existing container.
pub(crate) fn put(write: &WriteHeaders, body: Upload, limit: u64) -> Put {
    Put {
        preconditions: write.conditions.preconditions.clone(),
        lease: write.lease,
        container: MissingContainer::Refuse,
        request: write.request.clone(),
        keeps_type: true,
        limit,
        ..Put::new(body)
    }
}

/// Translates the error of a rejected write. Creating a blob that exists is a conflict.
pub(crate) fn rejected(write: &WriteHeaders, error: StoreError) -> AzureError {
    match error.kind() {
        StoreErrorKind::PreconditionFailed {
            precondition: Precondition::IfNoneMatch,
            ..
        } if write.may_only_create => AuthError::from(SharedAccessError::Overwrite).into(),
        StoreErrorKind::PreconditionFailed {
            precondition: Precondition::IfNoneMatch,
            ..
        } if write.creates() => AzureError::new(
            StatusCode::CONFLICT,
            "BlobAlreadyExists",
            "the blob already exists",
        ),
        _ => AzureError::of_blob(error),
    }
}

/// Returns the error of a copy: a false condition is the target's.
pub(crate) fn of_target(error: AzureError) -> AzureError {
    if error.code == "ConditionNotMet" {
        AzureError {
            code: "TargetConditionNotMet",
            ..error
        }
    } else {
        error
    }
}

/// Rejects the replay of a creation if the blob has been deleted or replaced since.
pub(crate) async fn confirm(
    context: &Context,
    blob: &BlobPath,
    write: &WriteHeaders,
    written: &Written,
) -> Result<(), AzureError> {
    let is_uncertain = write.creates() && written.is_replay;
    if !is_uncertain
        || written
            .is_current(&*context.store, blob)
            .await
            .map_err(AzureError::of_blob)?
    {
        return Ok(());
    }
    let message = "the blob that an earlier request with this x-ms-client-request-id created was changed or deleted \
                   since: give each request its own id";
    Err(AzureError::new(
        StatusCode::CONFLICT,
        "BlobAlreadyExists",
        message,
    ))
}

/// Translates an error of the store. If it is "not found", distinguishes a missing container from a missing blob.
pub(crate) async fn explain(context: &Context, blob: &BlobPath, error: StoreError) -> AzureError {
    match error.kind() {
        StoreErrorKind::NotFound => match lookup::container(context, &blob.container).await {
            Ok(_) => AzureError::blob_not_found(),
            Err(missing) => missing,
        },
        _ => AzureError::of_blob(error),
    }
}

/// The response to a write of a whole blob.
pub(crate) fn stored(written: &Written) -> Response<BlobBody> {
    let mut response = response::empty(
        StatusCode::CREATED,
        written.tag.as_ref(),
        Some(written.last_modified),
    );
    response::set_not_encrypted(&mut response);
    response
}

/// Rejects an operation on blocks if there is an append blob.
pub(crate) fn require_block_blob(info: Option<&BlobInfo>) -> Result<(), AzureError> {
    if info.is_some_and(|info| info.headers.append.is_some()) {
        Err(AzureError::other_type())
    } else {
        Ok(())
    }
}
