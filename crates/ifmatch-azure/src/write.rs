//! Put Blob, Set Blob Metadata, Set Blob Properties and Delete Blob.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{LeaseUse, azure};
use ifmatch_core::precondition::Precondition;
use ifmatch_core::tag::TagList;

use super::blocks::{self, Shelf, StagedBlocks};
use super::conditions::{self, WriteConditions};
use super::error::AzureError;
use super::operation::Operation;
use super::{Call, container, fields, md5, response, retry};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    Delete, HeaderChange, Md5Use, MissingContainer, Put, Reading, RequestKey, SetHeaders, StoreError, StoreErrorKind,
    Upload, Written,
};

const BLOB_TYPE: HeaderName = HeaderName::from_static("x-ms-blob-type");
const DELETED_FOR_GOOD: HeaderName = HeaderName::from_static("x-ms-delete-type-permanent");
const DELETE_SNAPSHOTS: HeaderName = HeaderName::from_static("x-ms-delete-snapshots");

/// Rejects unsupported blob types.
pub(super) fn check_type(fields: &HeaderMap) -> Result<(), AzureError> {
    match fields::one(fields, &BLOB_TYPE)? {
        None | Some("" | "BlockBlob") => Ok(()),
        Some(_) => Err(AzureError::invalid_field(BLOB_TYPE.as_str(), "only BlockBlob is supported")),
    }
}

pub(super) async fn put(
    call: &Call,
    blob: &BlobPath,
    upload: impl FnOnce() -> Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let fields = &call.head.headers;
    fields::required(fields, &BLOB_TYPE)?;
    let head = Head::of_whole(call)?;
    let length = fields::length(fields)?;
    if length > call.shared.max_body {
        return Err(AzureError::too_large(call.shared.max_body));
    }
    let headers = BlobHeaders { metadata: fields::metadata(fields)?, ..fields::kept(fields, true)? };
    look(call, blob, &head.conditions, head.lease).await?;
    let staged = staged(call, blob).await?;
    let put = head.put(upload(), call.shared.max_body);
    let put = Put { headers, length: Some(length), md5: Md5Use::Computed, ..put };
    let written = call.shared.store.put(blob, put).await.map_err(|error| head.refused(error))?;
    head.confirm(call, blob, &written).await?;
    blocks::discard(&*call.shared.store, staged).await;
    let mut response = stored(&written);
    response.headers_mut().extend(written.md5.map(|md5| (md5::CONTENT_MD5, md5.to_header())));
    Ok(response)
}

pub(super) async fn set_headers(
    call: &Call,
    operation: Operation,
    blob: &BlobPath,
) -> Result<Response<BlobBody>, AzureError> {
    let head = Head::of(call)?;
    let fields = &call.head.headers;
    let change = match operation {
        Operation::SetMetadata => HeaderChange::Metadata(fields::metadata(fields)?),
        _ => HeaderChange::Fields(fields::kept(fields, false)?.into()),
    };
    look(call, blob, &head.conditions, head.lease).await?;
    let Head { conditions, lease, request, .. } = head;
    let set = SetHeaders { preconditions: conditions.preconditions, lease, change, request };
    match call.shared.store.set_headers(blob, set).await {
        Ok(written) => {
            let mut response = response::empty(StatusCode::OK, written.tag.as_ref(), Some(written.last_modified));
            if operation == Operation::SetMetadata {
                response::tell_encryption(&mut response);
            }
            Ok(response)
        }
        Err(error) => Err(explain(call, blob, error).await),
    }
}

pub(super) async fn delete(call: &Call, blob: &BlobPath) -> Result<Response<BlobBody>, AzureError> {
    let head = Head::of(call)?;
    if fields::one(&call.head.headers, &DELETE_SNAPSHOTS)?.is_some_and(|text| text != "include") {
        return Err(AzureError::invalid_field(
            DELETE_SNAPSHOTS.as_str(),
            "must be 'include': the service has no snapshots",
        ));
    }
    look(call, blob, &head.conditions, head.lease).await?;
    let staged = staged(call, blob).await?;
    let Head { conditions, lease, request, .. } = head;
    let delete = Delete { preconditions: conditions.preconditions, lease, request };
    match call.shared.store.delete(blob, delete).await {
        Ok(()) => {
            blocks::discard(&*call.shared.store, staged).await;
            let mut response = response::empty(StatusCode::ACCEPTED, None, None);
            response.headers_mut().insert(DELETED_FOR_GOOD, HeaderValue::from_static("true"));
            Ok(response)
        }
        Err(error) => Err(explain(call, blob, error).await),
    }
}

/// The headers that all writes of a blob share.
pub(super) struct Head {
    pub(super) conditions: WriteConditions,
    pub(super) lease: LeaseUse,
    /// The identity of the request, if it may be a retry.
    pub(super) request: Option<RequestKey>,
    /// The time at which the request arrived.
    begun: Timestamp,
}

impl Head {
    pub(super) fn of(call: &Call) -> Result<Self, AzureError> {
        let headers = &call.head.headers;
        let conditions = conditions::of_write(headers)?;
        let lease = LeaseUse::Write(azure::id(headers, azure::ID)?);
        conditions.check_policy(&call.shared, &call.head.method)?;
        let request = if conditions.hold_once() { retry::key(&call.head) } else { None };
        Ok(Self { conditions, lease, request, begun: call.shared.now() })
    }

    /// Like [`Self::of`], for a write of a whole blob.
    ///
    /// With a lease id, the lease alone decides: only an existing blob has a lease, so `If-None-Match: *` and a lease
    /// id could never both hold. SDKs send both, and the real service lets the holder write.
    pub(super) fn of_whole(call: &Call) -> Result<Self, AzureError> {
        let mut head = Self::of(call)?;
        if head.creates() && matches!(head.lease, LeaseUse::Write(Some(_))) {
            head.conditions.preconditions.if_none_match = None;
            head.request = None;
        }
        Ok(head)
    }

    /// Builds a write to an existing container.
    pub(super) fn put(&self, body: Upload, limit: u64) -> Put {
        Put {
            preconditions: self.conditions.preconditions.clone(),
            lease: self.lease,
            container: MissingContainer::Refuse,
            request: self.request.clone(),
            limit,
            ..Put::new(body)
        }
    }

    /// Translates the error of a refused write. Creating a blob that exists is a conflict.
    pub(super) fn refused(&self, error: StoreError) -> AzureError {
        match error.kind() {
            StoreErrorKind::PreconditionFailed { precondition: Precondition::IfNoneMatch, .. } if self.creates() => {
                AzureError::new(StatusCode::CONFLICT, "BlobAlreadyExists", "the blob already exists")
            }
            _ => AzureError::of_blob(error),
        }
    }

    /// Rejects the replay of a creation that has since been undone. The same request may come from a program that uses
    /// one id for all its requests, which would take a blob that another client created by now for its own.
    pub(super) async fn confirm(&self, call: &Call, blob: &BlobPath, written: &Written) -> Result<(), AzureError> {
        let is_earlier = written.generation.is_some_and(|generation| generation.timestamp() < self.begun);
        if !self.creates() || !is_earlier {
            return Ok(());
        }
        let opened = call.shared.store.open(blob, Reading::HEAD).await.map_err(AzureError::of_blob)?;
        if opened.is_some_and(|opened| opened.info.generation == written.generation) {
            return Ok(());
        }
        let message = "the blob that an earlier request with this x-ms-client-request-id created was changed or deleted \
                       since: give each request its own id";
        Err(AzureError::new(StatusCode::CONFLICT, "BlobAlreadyExists", message))
    }

    fn creates(&self) -> bool {
        self.conditions.preconditions.if_none_match == Some(TagList::Any)
    }
}

/// Returns the blocks staged before a write, which the write discards.
async fn staged(call: &Call, blob: &BlobPath) -> Result<StagedBlocks, AzureError> {
    let container = container::find(call, &blob.container).await?;
    let blocks = blocks::staged_blocks()?;
    if call.shared.store.peek().is_some_and(|store| store.is_empty(&blocks)) {
        return Ok(StagedBlocks::new());
    }
    Shelf::within(&container, blob)?.staged(&*call.shared.store).await
}

/// Checks the conditions that the store does not evaluate.
pub(super) async fn look(
    call: &Call,
    blob: &BlobPath,
    conditions: &WriteConditions,
    lease: LeaseUse,
) -> Result<(), AzureError> {
    if !conditions.need_look() {
        return Ok(());
    }
    match call.shared.store.open(blob, Reading::HEAD).await.map_err(AzureError::of_blob)? {
        Some(opened) => {
            let info = &opened.info;
            conditions.look(Some(info.last_modified), info.lease.as_ref(), lease, call.shared.now())
        }
        None => Ok(()),
    }
}

/// Translates an error of the store. If it is "not found", tells a missing container from a missing blob.
pub(super) async fn explain(call: &Call, blob: &BlobPath, error: StoreError) -> AzureError {
    match error.kind() {
        StoreErrorKind::NotFound => match container::find(call, &blob.container).await {
            Ok(_) => AzureError::blob_not_found(),
            Err(missing) => missing,
        },
        _ => AzureError::of_blob(error),
    }
}

/// The response to a write of a whole blob.
pub(super) fn stored(written: &Written) -> Response<BlobBody> {
    let mut response = response::empty(StatusCode::CREATED, written.tag.as_ref(), Some(written.last_modified));
    response::tell_encryption(&mut response);
    response
}
