//! The permissions that each operation needs from a shared access signature.

use ifmatch_core::lease::LeaseAction;
use ifmatch_core::tag::TagList;

use super::copy::CopyParameters;
use super::{
    BatchParameters, BlobOperation, BlobPart, ContainerOperation, GetParameters, PutBlob,
    PutBlockList, RestOperation,
};
use crate::auth::{AccessGrant, AuthError, ResourceLevel, SharedAccessError};

/// Permits the operation, or rejects it. With the permission to create, but not to write, a blob must not be replaced, for which a
/// condition is added to the write.
pub(crate) fn check(
    operation: &mut RestOperation<'_>,
    grant: &AccessGrant,
) -> Result<(), AuthError> {
    let AccessGrant::SharedAccess(access) = grant else {
        return Ok(());
    };
    if matches!(operation, RestOperation::GetAccountInformation) {
        return Ok(access.permit_account_information()?);
    }
    let (level, any_of) = needed(operation);
    access.permit(level, any_of)?;
    if uses_tags(operation) && !access.has('t') {
        return Err(SharedAccessError::Permission.into());
    }
    if let RestOperation::Blob(
        _,
        BlobOperation::Put(PutBlob { write, .. })
        | BlobOperation::Copy(CopyParameters { write, .. }),
    ) = operation
        && !access.has('w')
    {
        write.conditions.preconditions.if_none_match = Some(TagList::Any);
        write.may_only_create = true;
    }
    Ok(())
}

/// Returns the level of an operation, and the permissions of which it needs any.
fn needed(operation: &RestOperation<'_>) -> (ResourceLevel, &'static str) {
    match operation {
        RestOperation::GetAccountInformation
        | RestOperation::GetServiceProperties
        | RestOperation::GetServiceStatistics => (ResourceLevel::Service, "r"),
        // Each part has a signature of its own, which decides.
        RestOperation::Batch(BatchParameters {
            container: None, ..
        }) => (ResourceLevel::Service, "dw"),
        RestOperation::Batch(_) => (ResourceLevel::Object, "dw"),
        RestOperation::ListContainers(_) => (ResourceLevel::Service, "l"),
        RestOperation::Container(_, operation) => {
            (ResourceLevel::Container, on_container(operation))
        }
        RestOperation::Blob(_, operation) => (ResourceLevel::Object, on_blob(operation)),
    }
}

fn on_container(operation: &ContainerOperation) -> &'static str {
    match operation {
        ContainerOperation::Create(_) => "cw",
        ContainerOperation::GetProperties(_) => "r",
        ContainerOperation::SetMetadata(..) => "w",
        // As in Azure, only the account's key permits this: otherwise a signature could extend itself.
        ContainerOperation::GetPolicies(_) | ContainerOperation::SetPolicies(..) => "",
        ContainerOperation::Lease(lease) => on_lease(&lease.request.action),
        ContainerOperation::Delete(_) => "d",
        ContainerOperation::ListBlobs(_) => "l",
    }
}

fn on_blob(operation: &BlobOperation<'_>) -> &'static str {
    match operation {
        BlobOperation::Get(GetParameters {
            part: BlobPart::Tags,
            ..
        })
        | BlobOperation::SetTags(_) => "t",
        BlobOperation::Get(_) | BlobOperation::GetBlockList(_) => "r",
        BlobOperation::Put(_) | BlobOperation::Copy(_) | BlobOperation::Snapshot(_) => "cw",
        BlobOperation::AppendBlock(_) | BlobOperation::AppendFromUrl(_) => "aw",
        BlobOperation::Seal(_)
        | BlobOperation::PutBlock(_)
        | BlobOperation::CopyBlock(_)
        | BlobOperation::SetTier(..)
        | BlobOperation::PutBlockList(_)
        | BlobOperation::Set(..) => "w",
        BlobOperation::Lease(lease) => on_lease(&lease.request.action),
        BlobOperation::Delete(..) => "d",
    }
}

/// Returns `true` for an operation that also reads or writes tags, which needs another permission.
fn uses_tags(operation: &RestOperation<'_>) -> bool {
    let operation = match operation {
        RestOperation::Blob(_, operation) => operation,
        RestOperation::Container(_, ContainerOperation::ListBlobs(list)) => return list.with_tags,
        _ => return false,
    };
    match operation {
        BlobOperation::Get(get) => get.if_tags.is_some(),
        BlobOperation::Put(PutBlob { headers, .. })
        | BlobOperation::PutBlockList(PutBlockList { headers, .. }) => !headers.tags.is_empty(),
        BlobOperation::Set(write, _) => write.conditions.if_tags.is_some(),
        BlobOperation::Copy(copy) => copy.tags.as_ref().is_none_or(|tags| !tags.is_empty()),
        _ => false,
    }
}

/// The right to delete includes the right to break the lease that forbids it.
fn on_lease(action: &LeaseAction) -> &'static str {
    match action {
        LeaseAction::Break { .. } => "wd",
        _ => "w",
    }
}
