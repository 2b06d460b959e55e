//! Changes other than of a blob's bytes: header fields, leases, containers.

use std::collections::BTreeMap;

use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::lease::{LeaseAction, LeaseReceipt, LeaseUse, SeenLease};
use ifmatch_core::precondition::Preconditions;

use super::write::RequestKey;
use crate::headers::{Append, BlobHeaders, FieldText};

/// A change of header fields, which keeps the bytes.
#[derive(Clone, Debug)]
pub struct SetHeaders {
    /// The conditions of the request.
    pub preconditions: Preconditions,
    /// The lease id of the request.
    pub lease: LeaseUse,
    /// The new fields.
    pub change: HeaderChange,
    /// The client's name for the request. A retry gets the first answer again.
    pub request: Option<RequestKey>,
}

/// The header fields to replace.
///
/// ```
/// use ifmatch_blob::headers::{BlobHeaders, FieldText};
/// use ifmatch_blob::store::HeaderChange;
///
/// let kept = BlobHeaders { content_type: Some(FieldText::new("text/plain")?), ..BlobHeaders::default() };
/// let change = HeaderChange::Metadata([("owner".into(), FieldText::new("me")?)].into());
/// let changed = change.of(&kept);
/// assert_eq!(changed.content_type, kept.content_type);
/// assert_eq!(changed.metadata["owner"].as_str(), "me");
/// # Ok::<(), ifmatch_blob::headers::InvalidFieldText>(())
/// ```
#[derive(Clone, Debug)]
pub enum HeaderChange {
    /// Replaces all of the user's own fields, and keeps the others.
    Metadata(BTreeMap<Box<str>, FieldText>),
    /// Replaces all fields except the user's own, and keeps the checksum.
    Fields(Box<BlobHeaders>),
    /// Replaces the state of an append blob, and keeps all fields.
    Append(Append),
}

impl HeaderChange {
    /// Returns the fields after the change.
    pub fn of(&self, kept: &BlobHeaders) -> BlobHeaders {
        match self {
            Self::Metadata(metadata) => BlobHeaders { metadata: metadata.clone(), ..kept.clone() },
            Self::Fields(fields) => {
                let BlobHeaders { metadata, append, block_list, checksum, .. } = kept.clone();
                BlobHeaders { metadata, append, block_list, checksum, ..BlobHeaders::clone(fields) }
            }
            Self::Append(append) => BlobHeaders { append: Some(*append), ..kept.clone() },
        }
    }
}

/// A lease operation.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The operation.
    pub action: LeaseAction,
    /// The conditions of the request.
    pub preconditions: Preconditions,
    /// The client's name for the request, including the action and its ids. A retry gets the first answer again.
    pub request: Option<RequestKey>,
}

/// The result of a lease operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The lease.
    pub receipt: LeaseReceipt,
    /// The tag of the leased blob or container. A lease operation does not change it.
    pub tag: Option<EntityTag>,
    /// The modification date of the leased blob or container. A lease operation does not change it.
    pub last_modified: HttpDate,
}

/// The properties of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerInfo {
    /// The entity tag, if the store knows it.
    pub tag: Option<EntityTag>,
    /// When the container itself was created or changed, if the store knows it.
    pub last_modified: Option<HttpDate>,
    /// The user's own fields, in [`BlobHeaders::metadata`]; the others are empty.
    pub headers: BlobHeaders,
    /// When the container was created, if the store knows it. No two containers of the same name have the same time.
    pub created: Option<Timestamp>,
    /// The lease. It protects the container from deletion only.
    pub lease: Option<SeenLease>,
}
