//! Changes other than a blob's bytes: header fields, leases, containers.

use std::collections::BTreeMap;

use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::lease::{Lease, LeaseAction, LeaseReceipt, LeaseUse};
use ifmatch_core::precondition::Preconditions;

use super::RequestKey;
use crate::headers::{BlobHeaders, FieldText};

/// All there is to a change of header fields, which leaves the bytes as they are.
#[derive(Clone, Debug)]
pub struct SetHeaders {
    /// The conditions of the request.
    pub preconditions: Preconditions,
    /// The lease that the request came with.
    pub lease: LeaseUse,
    /// What changes.
    pub change: HeaderChange,
    /// The client's name for the request: a retry gets the first answer again.
    pub request: Option<RequestKey>,
}

/// Which header fields are replaced.
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
    /// All of the user's own fields; the others stay.
    Metadata(BTreeMap<Box<str>, FieldText>),
    /// All fields of these but the user's own, which stay.
    Fields(Box<BlobHeaders>),
}

impl HeaderChange {
    /// The fields after the change.
    pub fn of(&self, kept: &BlobHeaders) -> BlobHeaders {
        match self {
            Self::Metadata(metadata) => BlobHeaders { metadata: metadata.clone(), ..kept.clone() },
            Self::Fields(fields) => BlobHeaders { metadata: kept.metadata.clone(), ..BlobHeaders::clone(fields) },
        }
    }
}

/// All there is to a lease operation.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// What to do.
    pub action: LeaseAction,
    /// The conditions of the request.
    pub preconditions: Preconditions,
    /// The client's name for the request, the action and its ids included: a retry gets the first answer again.
    pub request: Option<RequestKey>,
}

/// What a lease operation left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The lease.
    pub receipt: LeaseReceipt,
    /// The tag of what is leased: a lease operation does not change it.
    pub tag: Option<EntityTag>,
    /// The modification date of what is leased: a lease operation does not change it.
    pub last_modified: HttpDate,
}

/// What is known of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerInfo {
    /// The entity tag, where the store knows one.
    pub tag: Option<EntityTag>,
    /// When it was created or changed itself, where the store knows it.
    pub last_modified: Option<HttpDate>,
    /// The user's own fields, in [`BlobHeaders::metadata`]; the others are empty.
    pub headers: BlobHeaders,
    /// When it was created, where the store knows it: no two containers of one name are created at the same time.
    pub created: Option<Timestamp>,
    /// The lease, which protects the container from deletion only.
    pub lease: Option<Lease>,
}
