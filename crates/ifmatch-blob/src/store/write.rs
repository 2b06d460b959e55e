//! Writing and deleting a blob, and changes of header fields, leases and containers.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use ifmatch_core::EntityTag;
use ifmatch_core::append::AppendConditions;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::{LeaseAction, LeaseReceipt, LeaseUse, SeenLease};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{RequestId, Revision};

use super::BlobStore;
use super::md5::Md5Use;
use super::read::{BlobInfo, Opened, Reading};
use crate::body::Upload;
use crate::error::{StoreError, StoreErrorKind};
use crate::headers::{Append, BlobHeaders, ContentMd5, FieldText, Tier};
use crate::name::BlobPath;
use crate::tags::{TagCondition, Tags};

/// A write.
#[derive(Debug)]
pub struct Put {
    /// The request's conditions.
    pub preconditions: Preconditions,
    /// The lease id of the request.
    pub lease: LeaseUse,
    /// Behaviour if the container doesn't exist.
    pub container: MissingContainer,
    /// The header fields to keep.
    pub headers: BlobHeaders,
    /// Handling of the MD5 of the bytes.
    pub md5: Md5Use,
    /// The checksum of the bytes, if it is known only after the last of them.
    pub late_checksum: LateChecksum,
    /// The bytes.
    pub body: Upload,
    /// A blob that had the bytes with this [`digest`](Self::digest) when the write began. A store that finds them there may keep them
    /// without reading the body.
    pub source: Option<BlobPath>,
    /// Length declared by the client. Another length fails with [`StoreErrorKind::LengthMismatch`].
    pub length: Option<u64>,
    /// Hash declared by the client. Another hash fails with [`StoreErrorKind::DigestMismatch`].
    pub digest: Option<ContentHash>,
    /// The client's name for the request. A retry gets the first response again.
    pub request: Option<RequestKey>,
    /// Refuse to replace an append blob by another kind of blob, or the reverse, with
    /// [`StoreErrorKind::OtherType`], in the same step as the write.
    pub keeps_type: bool,
    /// Keep the tags of the version that is replaced, in the same step as the write, in place of those in the headers.
    pub keeps_tags: bool,
    /// Maximum number of bytes. A longer body fails with [`StoreErrorKind::TooLarge`].
    pub limit: u64,
}

impl Put {
    /// Creates an unconditional write of these bytes.
    pub fn new(body: Upload) -> Self {
        Self {
            preconditions: Preconditions::default(),
            lease: LeaseUse::default(),
            container: MissingContainer::Create,
            headers: BlobHeaders::default(),
            md5: Md5Use::default(),
            late_checksum: LateChecksum::default(),
            body,
            source: None,
            length: None,
            digest: None,
            request: None,
            keeps_type: false,
            keeps_tags: false,
            limit: u64::MAX,
        }
    }

    /// Creates an unconditional write of the bytes and header fields of an opened version of `source`: a copy, without the list of its
    /// blocks, the copy that made it, and the tier. The bytes belong to this very version: a write in between changes nothing, or fails the
    /// copy. They are streamed, unless the store can share them.
    ///
    /// # Errors
    /// The bytes can't be read.
    pub async fn copying(source: &BlobPath, mut opened: Opened) -> Result<Self, StoreError> {
        let body = opened.source.read(None).await?;
        let BlobInfo {
            length,
            hash,
            headers,
            ..
        } = opened.info;
        let headers = BlobHeaders {
            block_list: None,
            copied: None,
            tier: None,
            ..headers
        };
        Ok(Self {
            headers,
            length: Some(length),
            digest: hash,
            source: Some(source.clone()),
            ..Self::new(Upload::new(body))
        })
    }
}

/// Behaviour of a write to a container that doesn't exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingContainer {
    /// Creates the container.
    Create,
    /// Fails with [`StoreErrorKind::ContainerNotFound`], also if the container is deleted before the whole body has
    /// arrived, even if another one has its name by then.
    Refuse,
}

/// A deletion.
#[derive(Clone, Debug, Default)]
pub struct Delete {
    /// The request's conditions.
    pub preconditions: Preconditions,
    /// The lease id of the request.
    pub lease: LeaseUse,
    /// The client's name for the request. A retry gets the first response again.
    pub request: Option<RequestKey>,
    /// Deletes only a blob whose last snapshot is this one: otherwise [`StoreErrorKind::SnapshotTaken`].
    pub last_snapshot: Option<LastSnapshot>,
}

/// The field [`last_snapshot`](BlobHeaders::last_snapshot) of a blob that was read before. A deletion that must leave no snapshot behind
/// reads it, then looks for snapshots, and then deletes the blob on the condition that it is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastSnapshot(pub Option<FieldText>);

impl Delete {
    /// A deletion on the condition that the blob still has this tag. Without a tag, it is never true.
    pub fn of_version(tag: Option<&EntityTag>) -> Self {
        Self {
            preconditions: Preconditions::unchanged(tag),
            ..Self::default()
        }
    }
}

/// The client's name for a request, the same for all its retries.
///
/// ```
/// use ifmatch_blob::store::RequestKey;
/// use ifmatch_core::digest::ContentHash;
///
/// let key = RequestKey::of(&[b"8e03978e", b"PUT"]);
/// let content = ContentHash::of(b"hello");
/// assert_eq!(key.request(Some(&content)), key.clone().request(Some(&content)));
/// assert_ne!(key.request(Some(&content)), key.request(None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey(ContentHash);

impl RequestKey {
    /// Creates a key from the client's key and everything in the head that affects the outcome.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut framed = Vec::new();
        for part in parts {
            framed.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            framed.extend_from_slice(part);
        }
        Self(ContentHash::of(&framed))
    }

    /// Returns the identity of the request, including the hash of its content. The same key with other content is
    /// another request.
    pub fn request(&self, content: Option<&ContentHash>) -> RequestId {
        let content = content.map_or(&[][..], |hash| &hash.as_bytes()[..]);
        RequestId::of(&[self.0.as_bytes(), content])
    }
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The new tag.
    pub tag: Option<EntityTag>,
    /// The modification date. Send it only once it [has come](HttpDate::has_come).
    pub last_modified: HttpDate,
    /// The hash of the bytes, if the store knows it.
    pub hash: Option<ContentHash>,
    /// MD5 kept with the blob.
    pub md5: Option<ContentMd5>,
    /// The number of this write, if the store numbers its writes.
    pub generation: Option<Revision>,
    /// There was no such blob before.
    pub created: bool,
    /// This is the response to an earlier request with the same key.
    pub is_replay: bool,
}

impl Written {
    /// Returns `true` if the blob still has the version that was written. The response to a retry may name one that was replaced or
    /// deleted since: a client with one key for all its requests would take the write of another client for its own.
    ///
    /// # Errors
    /// Same as [`BlobStore::open`].
    pub async fn is_current(
        &self,
        store: &dyn BlobStore,
        blob: &BlobPath,
    ) -> Result<bool, StoreError> {
        let opened = store.open(blob, Reading::HEAD.without_lease()).await?;
        Ok(opened.is_some_and(|opened| opened.info.generation == self.generation))
    }
}

/// A place for the checksum of a body, which its reader fills before the body ends. Clones share the place.
///
/// A store that must send the headers before the bytes keeps only a [checksum in the headers](BlobHeaders::checksum).
///
/// ```
/// use ifmatch_blob::headers::{BlobHeaders, FieldText};
/// use ifmatch_blob::store::LateChecksum;
///
/// let (checksum, mut headers) = (LateChecksum::default(), BlobHeaders::default());
/// checksum.clone().set(FieldText::new("crc32:NhCmhg==")?);
/// checksum.settle(&mut headers);
/// assert_eq!(headers.checksum.unwrap().as_str(), "crc32:NhCmhg==");
/// # Ok::<(), ifmatch_blob::headers::InvalidFieldText>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct LateChecksum(Arc<OnceLock<FieldText>>);

impl LateChecksum {
    /// Sets the checksum. Later calls have no effect.
    pub fn set(&self, checksum: FieldText) {
        self.0.get_or_init(|| checksum);
    }

    /// Stores the checksum of a completely received body in its headers.
    pub fn settle(&self, headers: &mut BlobHeaders) {
        if let Some(checksum) = self.0.get() {
            headers.checksum = Some(checksum.clone());
        }
    }
}

/// A change of header fields, which keeps the bytes.
#[derive(Clone, Debug)]
pub struct SetHeaders {
    /// The request's conditions.
    pub preconditions: Preconditions,
    /// The lease id of the request.
    pub lease: LeaseUse,
    /// The new fields.
    pub change: HeaderChange,
    /// The request's condition on the tags. If it is false, so is the condition [`Precondition::IfMatch`](ifmatch_core::precondition::Precondition::IfMatch).
    pub if_tags: Option<TagCondition>,
    /// The client's name for the request. A retry gets the first response again.
    pub request: Option<RequestKey>,
}

impl SetHeaders {
    /// Creates an unconditional change.
    pub fn new(change: HeaderChange) -> Self {
        let preconditions = Preconditions::NONE;
        Self {
            preconditions,
            lease: LeaseUse::default(),
            change,
            if_tags: None,
            request: None,
        }
    }
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
    /// Replaces all fields except the user's own, and keeps the checksum, the tags and the tier.
    Fields(Box<BlobHeaders>),
    /// Seals an append blob on these conditions, and keeps all fields.
    Seal(AppendConditions),
    /// Replaces the tags, and keeps all fields.
    Tags(Tags),
    /// Replaces the access tier, and keeps all fields.
    Tier(Tier),
    /// A snapshot was taken of a blob that was created at this time: all other fields stay. Fails with
    /// [`StoreErrorKind::NotFound`] if another blob has its name.
    Snapshot {
        /// The new [`BlobHeaders::last_snapshot`], which no other snapshot has had.
        last: FieldText,
        /// When the blob was created.
        created: Timestamp,
    },
    /// Replaces the stored access policies of a container, and keeps all fields.
    Policies(Option<FieldText>),
}

impl HeaderChange {
    /// Returns `true` if the blob keeps its version, with its tag and its date. Stores that can't do that refuse the change with
    /// [`StoreErrorKind::Unsupported`].
    pub const fn keeps_version(&self) -> bool {
        matches!(self, Self::Tags(_) | Self::Tier(_) | Self::Snapshot { .. })
    }

    /// Checks that the change is possible for a blob with these fields, this length and this time of creation.
    ///
    /// # Errors
    /// Of [`HeaderChange::Snapshot`]: [`StoreErrorKind::NotFound`]. Of [`HeaderChange::Seal`]: [`StoreErrorKind::OtherType`] if it isn't
    /// an append blob, and [`StoreErrorKind::AppendFailed`] if a condition is false.
    pub fn check(
        &self,
        kept: &BlobHeaders,
        length: u64,
        created: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let conditions = match self {
            Self::Seal(conditions) => conditions,
            Self::Snapshot {
                created: expected, ..
            } if created != Some(*expected) => {
                return Err(StoreErrorKind::NotFound.into());
            }
            _ => return Ok(()),
        };
        if kept.append.is_none() {
            return Err(StoreErrorKind::OtherType.into());
        }
        conditions
            .evaluate(length, 0)
            .map_err(|failure| StoreErrorKind::AppendFailed(failure).into())
    }

    /// Returns the fields after the change.
    pub fn of(&self, kept: &BlobHeaders) -> BlobHeaders {
        match self {
            Self::Metadata(metadata) => BlobHeaders {
                metadata: metadata.clone(),
                ..kept.clone()
            },
            Self::Fields(fields) => {
                let BlobHeaders {
                    metadata,
                    append,
                    block_list,
                    checksum,
                    tags,
                    tier,
                    last_snapshot,
                    ..
                } = kept.clone();
                BlobHeaders {
                    metadata,
                    append,
                    block_list,
                    checksum,
                    tags,
                    tier,
                    last_snapshot,
                    ..BlobHeaders::clone(fields)
                }
            }
            Self::Seal(_) => {
                let append = kept.append.map(|append| Append {
                    sealed: true,
                    ..append
                });
                BlobHeaders {
                    append,
                    ..kept.clone()
                }
            }
            Self::Tags(tags) => BlobHeaders {
                tags: tags.clone(),
                ..kept.clone()
            },
            Self::Tier(tier) => BlobHeaders {
                tier: Some(tier.clone()),
                ..kept.clone()
            },
            Self::Snapshot { last, .. } => BlobHeaders {
                last_snapshot: Some(last.clone()),
                ..kept.clone()
            },
            Self::Policies(policies) => BlobHeaders {
                policies: policies.clone(),
                ..kept.clone()
            },
        }
    }
}

/// A lease operation.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The operation.
    pub action: LeaseAction,
    /// The request's conditions.
    pub preconditions: Preconditions,
    /// The client's name for the request, including the action and its ids. A retry gets the first response again.
    pub request: Option<RequestKey>,
}

/// The result of a lease operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The lease.
    pub receipt: LeaseReceipt,
    /// The tag of the leased blob or container. A lease operation doesn't change it.
    pub tag: Option<EntityTag>,
    /// The modification date of the leased blob or container. A lease operation doesn't change it.
    pub last_modified: HttpDate,
}

/// A container's properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerInfo {
    /// The entity tag, if the store knows it.
    pub tag: Option<EntityTag>,
    /// When the container itself was created or changed, if the store knows it.
    pub last_modified: Option<HttpDate>,
    /// The user's own fields, in [`BlobHeaders::metadata`], and the [policies](BlobHeaders::policies); the others are empty.
    pub headers: BlobHeaders,
    /// When the container was created, if the store knows it. No two containers of the same name have the same time.
    pub created: Option<Timestamp>,
    /// The lease. It protects the container from deletion only.
    pub lease: Option<SeenLease>,
}
