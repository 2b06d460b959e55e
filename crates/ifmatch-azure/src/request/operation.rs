//! The typed operations, and their parameters.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use ifmatch_blob::dialect::Client;
use ifmatch_blob::headers::{BlobHeaders, ContentMd5, Tier};
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{HeaderChange, LeaseRequest, RequestKey};
use ifmatch_blob::tags::TagCondition;
use ifmatch_core::append::AppendConditions;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::tag::TagList;

use super::conditions::WriteConditions;
use super::copy::{AppendFromUrl, CopyBlock, CopyParameters};
use super::list::ListParameters;
use super::snapshot::{OwnMetadata, SnapshotDeletion, SnapshotTime};
use crate::crc64::Crc64;

/// An operation of the Blob service's REST API, with its parameters.
pub(crate) enum RestOperation<'a> {
    GetAccountInformation,
    GetServiceProperties,
    GetServiceStatistics,
    ListContainers(ListParameters),
    Batch(BatchParameters),
    Container(ContainerName, ContainerOperation),
    Blob(BlobPath, BlobOperation<'a>),
}

/// A batch of operations on blobs.
pub(crate) struct BatchParameters {
    /// The container of all blobs, if the batch is sent to one.
    pub(crate) container: Option<ContainerName>,
    /// Separates the parts.
    pub(crate) boundary: String,
    pub(crate) document: RequestDocument,
}

/// A body that an operation holds in memory, and what it must be.
pub(crate) struct RequestDocument {
    /// The client that sends it.
    pub(crate) client: Option<Client>,
    pub(crate) md5: Option<ContentMd5>,
    pub(crate) crc64: Option<Crc64>,
    pub(crate) length: u64,
}

/// An operation on a container.
pub(crate) enum ContainerOperation {
    Create(Box<BlobHeaders>),
    GetProperties(LeaseUse),
    SetMetadata(ContainerWrite, HeaderChange),
    GetPolicies(LeaseUse),
    SetPolicies(ContainerWrite, RequestDocument),
    Lease(LeaseParameters),
    Delete(ContainerWrite),
    ListBlobs(ListParameters),
}

/// An operation on a blob.
pub(crate) enum BlobOperation<'a> {
    Get(GetParameters<'a>),
    Put(PutBlob),
    AppendBlock(AppendBlock),
    AppendFromUrl(AppendFromUrl),
    Seal(SealBlob),
    PutBlock(PutBlock),
    PutBlockList(PutBlockList),
    GetBlockList(GetBlockList),
    Set(WriteHeaders, HeaderChange),
    Lease(LeaseParameters),
    Delete(WriteHeaders, SnapshotDeletion),
    Snapshot(TakeSnapshot),
    Copy(CopyParameters),
    CopyBlock(CopyBlock),
    SetTier(LeaseUse, Tier),
    SetTags(SetTags),
}

/// Get Blob, Get Blob Properties, Get Blob Metadata and Get Blob Tags.
pub(crate) struct GetParameters<'a> {
    /// The client to which the blob is sent.
    pub(crate) client: Option<Client>,
    /// The snapshot to read, or `None` for the blob itself.
    pub(crate) snapshot: Option<SnapshotTime>,
    pub(crate) conditions: Preconditions,
    pub(crate) if_tags: Option<TagCondition>,
    pub(crate) lease: LeaseUse,
    pub(crate) part: BlobPart<'a>,
}

/// Set Blob Tags.
pub(crate) struct SetTags {
    pub(crate) write: WriteHeaders,
    pub(crate) document: RequestDocument,
}

/// The part of a blob that a read returns.
pub(crate) enum BlobPart<'a> {
    /// The properties and the length.
    Head,
    /// The properties without the length.
    Metadata,
    /// The tags, and nothing else.
    Tags,
    /// The content.
    Whole,
    /// A range of the content.
    Range {
        range: &'a str,
        /// Contains `If-Range`.
        headers: &'a HeaderMap,
        digest: Option<RangeDigest>,
    },
}

/// The digest of a range that a read asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeDigest {
    Md5,
    Crc64,
}

/// The headers that all writes of a blob share.
pub(crate) struct WriteHeaders {
    pub(crate) conditions: WriteConditions,
    pub(crate) lease: LeaseUse,
    /// The identity of the request, if it may be a retry.
    pub(crate) request: Option<RequestKey>,
    /// The signature permits no replacement, so the conditions require that the blob is new.
    pub(crate) may_only_create: bool,
}

impl WriteHeaders {
    /// Returns `true` if the write must create the blob.
    pub(crate) fn creates(&self) -> bool {
        self.conditions.preconditions.if_none_match == Some(TagList::Any)
    }
}

/// The headers that all writes of a container share.
pub(crate) struct ContainerWrite {
    pub(crate) conditions: WriteConditions,
    pub(crate) lease: LeaseUse,
    pub(crate) request: Option<RequestKey>,
}

/// Put Blob.
pub(crate) struct PutBlob {
    pub(crate) write: WriteHeaders,
    pub(crate) headers: Box<BlobHeaders>,
    pub(crate) crc64: Option<Crc64>,
    pub(crate) length: u64,
}

/// Append Block.
pub(crate) struct AppendBlock {
    pub(crate) write: WriteHeaders,
    pub(crate) conditions: AppendConditions,
    pub(crate) block: RequestDocument,
}

/// Append Blob Seal.
pub(crate) struct SealBlob {
    pub(crate) write: WriteHeaders,
    pub(crate) conditions: AppendConditions,
}

/// Id of a block: 1 to 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockId(Vec<u8>);

impl BlockId {
    /// Maximum length, in bytes.
    pub(super) const MAX_BYTES: usize = 64;

    /// Parses base64, as in requests. Returns `None` if it is malformed, empty or too long.
    pub(crate) fn from_base64(text: &str) -> Option<Self> {
        STANDARD.decode(text).ok().and_then(Self::new)
    }

    /// Parses hexadecimal, as in names. Returns `None` if it is malformed, empty or too long.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        hex::decode(text).ok().and_then(Self::new)
    }

    fn new(bytes: Vec<u8>) -> Option<Self> {
        (1..=Self::MAX_BYTES)
            .contains(&bytes.len())
            .then_some(Self(bytes))
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the base64 form.
    pub(crate) fn to_base64(&self) -> String {
        STANDARD.encode(&self.0)
    }

    /// Returns the hexadecimal form.
    pub(crate) fn to_hex(&self) -> String {
        hex::encode(&self.0)
    }
}

/// Snapshot Blob.
pub(crate) struct TakeSnapshot {
    pub(crate) write: WriteHeaders,
    pub(crate) metadata: OwnMetadata,
}

/// Put Block.
pub(crate) struct PutBlock {
    pub(crate) id: BlockId,
    pub(crate) lease: LeaseUse,
    pub(crate) md5: Option<ContentMd5>,
    pub(crate) crc64: Option<Crc64>,
    pub(crate) length: u64,
    /// Maximum length, in bytes.
    pub(crate) limit: u64,
}

/// Put Block List.
pub(crate) struct PutBlockList {
    pub(crate) write: WriteHeaders,
    pub(crate) headers: Box<BlobHeaders>,
    pub(crate) list: RequestDocument,
}

/// Get Block List.
pub(crate) struct GetBlockList {
    /// The client that asks.
    pub(crate) client: Option<Client>,
    pub(crate) committed: bool,
    pub(crate) uncommitted: bool,
    pub(crate) lease: LeaseUse,
    pub(crate) snapshot: Option<SnapshotTime>,
}

/// Lease Blob and Lease Container.
pub(crate) struct LeaseParameters {
    pub(crate) conditions: WriteConditions,
    pub(crate) request: LeaseRequest,
}
