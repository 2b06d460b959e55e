//! Requests, parsed once into the typed operations of `operation`.
//!
//! [`parse`] checks the whole head of a request. A request with an unsupported parameter or `x-ms-*` header that would change
//! its outcome is rejected before it has any effect.

pub(crate) mod conditions;
pub(crate) mod copy;
pub(crate) mod headers;
mod list;
mod operation;
pub(crate) mod permissions;
mod rules;
pub(crate) mod snapshot;
mod target;
pub(crate) mod xml;

use http::request::Parts;
use http::{HeaderMap, Method};
use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::{Append, BlobHeaders};
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{HeaderChange, LeaseRequest, RequestKey};
use ifmatch_core::append::AppendConditions;
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{LeaseId, LeaseUse, azure, fields};
use ifmatch_core::policy::RequirePreconditions;

use crate::auth::AccessGrant;
use crate::auth::access_policy::AccessPolicy;
use crate::error::AzureError;
use crate::query::QueryParameters;
use crate::random_guid;
use conditions::WriteConditions;
use rules::{OfBlob, OfContainer, OfService};
use snapshot::SnapshotDeletion;
use target::RequestTarget;

pub(crate) use list::{ListParameters, marker_at};
pub(crate) use operation::{
    AppendBlock, BatchParameters, BlobOperation, BlobPart, BlockId, ContainerOperation,
    ContainerWrite, GetBlockList, GetParameters, LeaseParameters, PutBlob, PutBlock, PutBlockList,
    RangeDigest, RequestDocument, RestOperation, SealBlob, SetTags, TakeSnapshot, WriteHeaders,
};

/// Maximum length of a block, in bytes: 4,000 MiB.
const MAX_BLOCK: u64 = 4000 * 1024 * 1024;
/// Maximum length of an appended block, in bytes, which is kept in memory.
const MAX_APPENDED: u64 = 4 * 1024 * 1024;
/// Maximum size of a block list, in bytes: enough for 50,000 blocks with the longest ids.
const MAX_DOCUMENT: u64 = 8 * 1024 * 1024;
/// Maximum size of a document with tags, in bytes.
const MAX_TAGS: u64 = 64 * 1024;
/// Maximum size of a list of access policies, in bytes.
const MAX_POLICIES: u64 = 64 * 1024;
/// Maximum size of a batch, in bytes.
const MAX_BATCH: u64 = 4 * 1024 * 1024;

/// Parses the head of an authenticated request.
pub(crate) fn parse<'a>(
    context: &Context,
    head: &'a Parts,
    account: &Account,
    accounts: &Accounts,
    grant: &AccessGrant,
    source_policy: Option<AccessPolicy>,
) -> Result<RestOperation<'a>, AzureError> {
    headers::check_common(&head.headers, grant)?;
    let target = RequestTarget::parse(head.uri.path(), account, accounts)?;
    let mut query = QueryParameters::parse(head.uri.query().unwrap_or_default())?;
    if let AccessGrant::SharedAccess(access) = grant {
        query.remove(|name| access.has_parameter(name));
    }
    let Context {
        required, max_body, ..
    } = context;
    let now = context.wall();
    let parser = OperationParser {
        head,
        query,
        account,
        accounts,
        grant,
        source_policy,
        now,
        required,
        max_body: *max_body,
    };
    match target {
        RequestTarget::Service => parser.service(),
        RequestTarget::Container(container) => parser.container(container),
        RequestTarget::Blob(blob) => parser.blob(blob),
    }
}

/// Parses the headers and parameters of a known operation.
struct OperationParser<'a, 'c> {
    head: &'a Parts,
    query: QueryParameters,
    account: &'c Account,
    accounts: &'c Accounts,
    grant: &'c AccessGrant,
    /// The policy that the signature of a copy's source names.
    source_policy: Option<AccessPolicy>,
    now: Timestamp,
    required: &'c RequirePreconditions,
    max_body: u64,
}

impl<'a> OperationParser<'a, '_> {
    fn service(&self) -> Result<RestOperation<'a>, AzureError> {
        Ok(
            match rules::find(&rules::OF_SERVICE, self.head, &self.query)? {
                OfService::ListContainers => {
                    RestOperation::ListContainers(ListParameters::of_containers(
                        self.head,
                        &self.query,
                        self.account,
                        self.accounts,
                    )?)
                }
                OfService::GetProperties => RestOperation::GetServiceProperties,
                OfService::GetStatistics => RestOperation::GetServiceStatistics,
                OfService::GetAccountInformation => RestOperation::GetAccountInformation,
                OfService::Batch => RestOperation::Batch(self.batch(None)?),
            },
        )
    }

    fn container(&self, container: ContainerName) -> Result<RestOperation<'a>, AzureError> {
        let fields = self.fields();
        let operation = match rules::find(&rules::OF_CONTAINER, self.head, &self.query)? {
            OfContainer::GetAccountInformation => return Ok(RestOperation::GetAccountInformation),
            OfContainer::Batch => return Ok(RestOperation::Batch(self.batch(Some(container))?)),
            OfContainer::Create => {
                headers::refuse_public_access(fields)?;
                let metadata = headers::metadata(fields)?;
                ContainerOperation::Create(
                    BlobHeaders {
                        metadata,
                        ..BlobHeaders::default()
                    }
                    .into(),
                )
            }
            OfContainer::GetProperties => {
                ContainerOperation::GetProperties(LeaseUse::Read(self.lease_id()?))
            }
            OfContainer::SetMetadata => {
                let change = HeaderChange::Metadata(headers::metadata(fields)?);
                ContainerOperation::SetMetadata(self.container_change()?, change)
            }
            OfContainer::GetPolicies => {
                ContainerOperation::GetPolicies(LeaseUse::Read(self.lease_id()?))
            }
            OfContainer::SetPolicies => {
                headers::refuse_public_access(fields)?;
                ContainerOperation::SetPolicies(
                    self.container_change()?,
                    self.document(MAX_POLICIES)?,
                )
            }
            OfContainer::Lease => ContainerOperation::Lease(self.lease()?),
            OfContainer::Delete => {
                let conditions = conditions::of_write(fields)?;
                let lease = self.lease_of_write()?;
                let request = self.retry_key(&conditions);
                ContainerOperation::Delete(ContainerWrite {
                    conditions,
                    lease,
                    request,
                })
            }
            OfContainer::ListBlobs => ContainerOperation::ListBlobs(ListParameters::of_blobs(
                self.head,
                &self.query,
                self.account,
                self.accounts,
            )?),
        };
        Ok(RestOperation::Container(container, operation))
    }

    /// Parses the headers that all changes of a container share.
    fn container_change(&self) -> Result<ContainerWrite, AzureError> {
        let conditions = conditions::of_write(self.fields())?;
        Ok(ContainerWrite {
            conditions,
            lease: LeaseUse::Read(self.lease_id()?),
            request: None,
        })
    }

    fn blob(&self, blob: BlobPath) -> Result<RestOperation<'a>, AzureError> {
        let fields = self.fields();
        let operation = match rules::find(&rules::OF_BLOB, self.head, &self.query)? {
            OfBlob::GetAccountInformation => return Ok(RestOperation::GetAccountInformation),
            OfBlob::Get | OfBlob::GetProperties | OfBlob::GetTags => {
                BlobOperation::Get(self.get()?)
            }
            OfBlob::Put => BlobOperation::Put(self.put_blob()?),
            OfBlob::AppendBlock => BlobOperation::AppendBlock(self.append_block()?),
            OfBlob::AppendBlockFromUrl => BlobOperation::AppendFromUrl(self.append_from_url()?),
            OfBlob::Seal => {
                let conditions = headers::append_conditions(fields)?;
                BlobOperation::Seal(SealBlob {
                    write: self.write_at(conditions)?,
                    conditions,
                })
            }
            OfBlob::PutBlock => BlobOperation::PutBlock(self.put_block()?),
            OfBlob::PutBlockList => BlobOperation::PutBlockList(self.put_block_list()?),
            OfBlob::GetBlockList => BlobOperation::GetBlockList(self.get_block_list()?),
            OfBlob::SetMetadata => {
                let write = self.write()?;
                BlobOperation::Set(write, HeaderChange::Metadata(headers::metadata(fields)?))
            }
            OfBlob::SetProperties => {
                let write = self.write()?;
                BlobOperation::Set(
                    write,
                    HeaderChange::Fields(headers::stored(fields, false)?.into()),
                )
            }
            OfBlob::Lease => BlobOperation::Lease(self.lease()?),
            OfBlob::Delete => {
                let write = self.write()?;
                let deletion = match (self.query.snapshot()?, headers::deletion(fields)?) {
                    (None, deletion) => deletion,
                    (Some(time), SnapshotDeletion::Bare) => SnapshotDeletion::One(time),
                    (Some(_), _) => return Err(headers::snapshot_of_snapshot()),
                };
                // Only a write of the blob's record checks the token.
                let keeps_blob =
                    matches!(deletion, SnapshotDeletion::Only | SnapshotDeletion::One(_));
                if keeps_blob && write.lease.token().is_some() {
                    return Err(AzureError::unsupported_header(rules::FENCING_TOKEN));
                }
                BlobOperation::Delete(write, deletion)
            }
            OfBlob::Snapshot => {
                let (write, metadata) = (self.write()?, headers::metadata(fields)?);
                // The holder of a lease may take one, and so may everyone else.
                let write = WriteHeaders {
                    lease: LeaseUse::Read(write.lease.id()),
                    request: None,
                    ..write
                };
                BlobOperation::Snapshot(TakeSnapshot {
                    write,
                    metadata: Some(metadata).filter(|own| !own.is_empty()),
                })
            }
            OfBlob::Copy => BlobOperation::Copy(self.copy()?),
            OfBlob::PutBlockFromUrl => BlobOperation::CopyBlock(self.copy_block()?),
            OfBlob::SetTier => {
                let tier = headers::required_tier(fields)?;
                BlobOperation::SetTier(LeaseUse::Read(self.lease_id()?), tier)
            }
            OfBlob::SetTags => BlobOperation::SetTags(SetTags {
                write: self.write()?,
                document: self.document(MAX_TAGS)?,
            }),
        };
        Ok(RestOperation::Blob(blob, operation))
    }

    fn get(&self) -> Result<GetParameters<'a>, AzureError> {
        let fields = self.fields();
        let conditions = conditions::of_read(fields)?;
        let lease = LeaseUse::Read(self.lease_id()?);
        let range = headers::range(fields)?;
        let part = match range {
            _ if self.head.method == Method::HEAD => BlobPart::Head,
            _ if self.query.get("comp") == Some("tags") => BlobPart::Tags,
            _ if self.query.get("comp").is_some() => BlobPart::Metadata,
            None => BlobPart::Whole,
            Some(range) => BlobPart::Range {
                range,
                headers: fields,
                digest: headers::range_digest(fields)?,
            },
        };
        let (client, snapshot) = (self.head.extensions.get().copied(), self.query.snapshot()?);
        Ok(GetParameters {
            client,
            snapshot,
            conditions,
            if_tags: headers::if_tags(fields)?,
            lease,
            part,
        })
    }

    fn put_blob(&self) -> Result<PutBlob, AzureError> {
        let fields = self.fields();
        headers::require_blob_type(fields)?;
        let write = self.write_whole()?;
        let length = headers::length(fields)?;
        if length > self.max_body {
            return Err(AzureError::too_large(self.max_body));
        }
        let append = headers::is_append_blob(fields)?.then(Append::default);
        let tier = headers::tier(fields)?;
        if append.is_some() && tier.is_some() {
            return Err(AzureError::invalid_header(
                "x-ms-access-tier",
                "only block blobs have a tier",
            ));
        }
        if append.is_some() && length > 0 {
            return Err(AzureError::invalid_header(
                "content-length",
                "an append blob is created empty",
            ));
        }
        let metadata = headers::metadata(fields)?;
        let (_, crc64) = headers::digests(fields)?;
        let tags = headers::tags(fields)?;
        let headers = BlobHeaders {
            metadata,
            append,
            tags,
            tier,
            ..headers::stored(fields, true)?
        };
        Ok(PutBlob {
            write,
            headers: headers.into(),
            crc64,
            length,
        })
    }

    fn append_block(&self) -> Result<AppendBlock, AzureError> {
        let fields = self.fields();
        let conditions = headers::append_conditions(fields)?;
        let block = self.document(MAX_APPENDED)?;
        if block.length == 0 {
            return Err(AzureError::invalid_header(
                "content-length",
                "the block is empty",
            ));
        }
        Ok(AppendBlock {
            write: self.write_at(conditions)?,
            conditions,
            block,
        })
    }

    fn put_block(&self) -> Result<PutBlock, AzureError> {
        let id = self.block_id()?;
        let lease = LeaseUse::Write(self.lease_id()?);
        let (md5, crc64) = headers::digests(self.fields())?;
        let (length, limit) = (
            headers::length(self.fields())?,
            self.max_body.min(MAX_BLOCK),
        );
        if length == 0 {
            return Err(AzureError::invalid_header(
                "content-length",
                "the block is empty",
            ));
        }
        if length > limit {
            return Err(AzureError::too_large(limit));
        }
        Ok(PutBlock {
            id,
            lease,
            md5,
            crc64,
            length,
            limit,
        })
    }

    fn put_block_list(&self) -> Result<PutBlockList, AzureError> {
        let fields = self.fields();
        let write = self.write_whole()?;
        let metadata = headers::metadata(fields)?;
        let tags = headers::tags(fields)?;
        let headers = BlobHeaders {
            metadata,
            tags,
            tier: headers::tier(fields)?,
            ..headers::stored(fields, false)?
        };
        Ok(PutBlockList {
            write,
            headers: headers.into(),
            list: self.document(MAX_DOCUMENT)?,
        })
    }

    fn batch(&self, container: Option<ContainerName>) -> Result<BatchParameters, AzureError> {
        let boundary = headers::boundary(self.fields())?;
        Ok(BatchParameters {
            container,
            boundary,
            document: self.document(MAX_BATCH)?,
        })
    }

    /// Returns what a body of at most `limit` bytes must be.
    fn document(&self, limit: u64) -> Result<RequestDocument, AzureError> {
        let fields = self.fields();
        let (md5, crc64) = headers::digests(fields)?;
        let length = headers::length(fields)?;
        if length > limit {
            return Err(AzureError::too_large(limit));
        }
        Ok(RequestDocument {
            client: self.head.extensions.get().copied(),
            md5,
            crc64,
            length,
        })
    }

    fn get_block_list(&self) -> Result<GetBlockList, AzureError> {
        const TYPE: &str = "blocklisttype";
        let (committed, uncommitted) = match self
            .query
            .get(TYPE)
            .unwrap_or("committed")
            .to_ascii_lowercase()
            .as_str()
        {
            "committed" => (true, false),
            "uncommitted" => (false, true),
            "all" => (true, true),
            _ => {
                return Err(AzureError::invalid_parameter(
                    TYPE,
                    "must be committed, uncommitted or all",
                ));
            }
        };
        let client = self.head.extensions.get().copied();
        Ok(GetBlockList {
            client,
            committed,
            uncommitted,
            lease: LeaseUse::Read(self.lease_id()?),
            snapshot: self.query.snapshot()?,
        })
    }

    fn lease(&self) -> Result<LeaseParameters, AzureError> {
        let action = azure::action(self.fields(), || {
            random_guid()
                .map(LeaseId::from)
                .ok_or_else(AzureError::busy)
        })?;
        let conditions = conditions::of_write(self.fields())?;
        let preconditions = conditions.preconditions.clone();
        Ok(LeaseParameters {
            conditions,
            request: LeaseRequest {
                action,
                preconditions,
                request: headers::retry_key(self.head),
            },
        })
    }

    /// Parses the headers that all writes of a blob share.
    fn write(&self) -> Result<WriteHeaders, AzureError> {
        let conditions = conditions::of_write(self.fields())?;
        let lease = self.lease_of_write()?;
        conditions.check_policy(self.required, &self.head.method)?;
        let request = self.retry_key(&conditions);
        Ok(WriteHeaders {
            conditions,
            lease,
            request,
            may_only_create: false,
        })
    }

    /// Like [`Self::write`], for a write at the end of a blob. A required position is a condition.
    fn write_at(&self, at: AppendConditions) -> Result<WriteHeaders, AzureError> {
        let conditions = conditions::of_write(self.fields())?;
        let lease = self.lease_of_write()?;
        if at.position.is_none() {
            conditions.check_policy(self.required, &self.head.method)?;
        }
        Ok(WriteHeaders {
            conditions,
            lease,
            request: None,
            may_only_create: false,
        })
    }

    /// Like [`Self::write`], for a write of a whole blob.
    ///
    /// With a lease id, the lease alone decides: only an existing blob has a lease, so `If-None-Match: *` and a lease id
    /// could never both hold. SDKs send both, and the real service lets the holder write.
    fn write_whole(&self) -> Result<WriteHeaders, AzureError> {
        let mut write = self.write()?;
        if write.creates() && write.lease.is_holders_write() {
            write.conditions.preconditions.if_none_match = None;
            write.request = None;
        }
        Ok(write)
    }

    fn block_id(&self) -> Result<BlockId, AzureError> {
        const NAME: &str = "blockid";
        let missing =
            || AzureError::bad_request("MissingRequiredQueryParameter", "blockid is required");
        let text = self
            .query
            .get(NAME)
            .filter(|text| !text.is_empty())
            .ok_or_else(missing)?;
        let rule = format!("must be the base64 of 1 to {} bytes", BlockId::MAX_BYTES);
        BlockId::from_base64(text).ok_or_else(|| AzureError::invalid_parameter(NAME, &rule))
    }

    /// Returns the identity of a write that may be a retry.
    fn retry_key(&self, conditions: &WriteConditions) -> Option<RequestKey> {
        conditions
            .hold_once()
            .then(|| headers::retry_key(self.head))
            .flatten()
    }

    /// Returns the lease of a write, with its fencing token.
    fn lease_of_write(&self) -> Result<LeaseUse, AzureError> {
        Ok(fields::write(self.fields(), self.lease_id()?)?)
    }

    fn lease_id(&self) -> Result<Option<LeaseId>, AzureError> {
        Ok(azure::id(self.fields(), azure::ID)?)
    }

    fn fields(&self) -> &'a HeaderMap {
        &self.head.headers
    }
}
