//! Copy Blob, Put Blob From URL, Put Block From URL and Append Block From URL: copies within the account.

use std::collections::BTreeMap;

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, Uri};
use ifmatch_blob::dialect::Client;
use ifmatch_blob::headers::{BlobHeaders, ContentMd5, FieldText, Tier};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::tags::Tags;
use ifmatch_core::append::AppendConditions;
use ifmatch_core::lease::{LeaseId, LeaseUse, azure};
use ifmatch_core::precondition::Preconditions;

use super::BlockId;
use super::snapshot::SnapshotTime;
use super::target::RequestTarget;
use super::{MAX_APPENDED, MAX_BLOCK, OperationParser, WriteHeaders, conditions, headers, rules};
use crate::auth::{self, AccessGrant};
use crate::crc64::Crc64;
use crate::error::AzureError;
use crate::query::QueryParameters;

const SOURCE_LEASE: HeaderName = HeaderName::from_static("x-ms-source-lease-id");
const SOURCE_RANGE: HeaderName = HeaderName::from_static("x-ms-source-range");
const SOURCE_MD5: HeaderName = HeaderName::from_static("x-ms-source-content-md5");
const SOURCE_CRC64: HeaderName = HeaderName::from_static("x-ms-source-content-crc64");
/// Distinguishes Copy Blob From URL from Copy Blob.
const REQUIRES_SYNC: HeaderName = HeaderName::from_static("x-ms-requires-sync");
const TAG_OPTION: HeaderName = HeaderName::from_static("x-ms-copy-source-tag-option");
const COPY_PROPERTIES: HeaderName = HeaderName::from_static("x-ms-copy-source-blob-properties");
const SOURCE_CONDITIONS: [(HeaderName, HeaderName); 4] = [
    (HeaderName::from_static("x-ms-source-if-match"), IF_MATCH),
    (
        HeaderName::from_static("x-ms-source-if-none-match"),
        IF_NONE_MATCH,
    ),
    (
        HeaderName::from_static("x-ms-source-if-modified-since"),
        IF_MODIFIED_SINCE,
    ),
    (
        HeaderName::from_static("x-ms-source-if-unmodified-since"),
        IF_UNMODIFIED_SINCE,
    ),
];

/// Copy Blob and Put Blob From URL.
pub(crate) struct CopyParameters {
    pub(crate) write: WriteHeaders,
    pub(crate) source: Box<CopySource>,
    pub(crate) fields: CopiedFields,
    /// The copy's tags, or `None` for the source's.
    pub(crate) tags: Option<Tags>,
    /// The tier of the copy.
    pub(crate) tier: Option<Tier>,
    /// The target must not have a finite lease, which could end while the blob is copied: as in Azure, where the copy goes on after the
    /// response.
    pub(crate) needs_infinite_lease: bool,
}

/// The header fields of a copy.
pub(crate) enum CopiedFields {
    /// Copy Blob and Copy Blob From URL: the source's fields, with the request's metadata if it has any. The bytes must match this MD5.
    Kept {
        metadata: Option<BTreeMap<Box<str>, FieldText>>,
        md5: Option<ContentMd5>,
    },
    /// Put Blob From URL: the request's fields and metadata and, if `keep`, the source's fields that the request lacks. The bytes must
    /// match this MD5.
    Put {
        own: Box<BlobHeaders>,
        keep: bool,
        md5: Option<ContentMd5>,
    },
}

/// Put Block From URL.
pub(crate) struct CopyBlock {
    pub(crate) id: BlockId,
    pub(crate) lease: LeaseUse,
    pub(crate) part: CopiedPart,
}

/// Append Block From URL.
pub(crate) struct AppendFromUrl {
    pub(crate) write: WriteHeaders,
    pub(crate) conditions: AppendConditions,
    pub(crate) part: CopiedPart,
    /// The client, which has a share of the memory for the block.
    pub(crate) client: Option<Client>,
}

/// The part of a blob that becomes a block.
pub(crate) struct CopiedPart {
    pub(crate) source: Box<CopySource>,
    /// The range as sent, or `None` for the whole blob.
    pub(crate) range: Option<String>,
    pub(crate) md5: Option<ContentMd5>,
    pub(crate) crc64: Option<Crc64>,
    /// Maximum length, in bytes.
    pub(crate) limit: u64,
}

/// The blob to copy.
pub(crate) struct CopySource {
    pub(crate) blob: BlobPath,
    /// The snapshot to copy, or `None` for the blob itself.
    pub(crate) snapshot: Option<SnapshotTime>,
    /// The URL without its query, except for the snapshot.
    pub(crate) url: FieldText,
    pub(crate) conditions: Preconditions,
    pub(crate) lease: LeaseUse,
}

impl OperationParser<'_, '_> {
    /// Parses Copy Blob, Copy Blob From URL and Put Blob From URL.
    pub(super) fn copy(&self) -> Result<CopyParameters, AzureError> {
        let fields = self.fields();
        let write = self.write_whole()?;
        let tier = headers::tier(fields)?;
        let tags = self.copied_tags()?;
        let source = self.source(tags.is_none())?;
        let metadata = headers::metadata(fields)?;
        let md5 = headers::md5(fields, &SOURCE_MD5)?;
        if headers::one(fields, &headers::BLOB_TYPE)?.is_none_or(str::is_empty) {
            let metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
            let is_sync = headers::one(fields, &REQUIRES_SYNC)?
                .is_some_and(|text| text.eq_ignore_ascii_case("true"));
            refuse_properties(fields, is_sync)?;
            let fields = CopiedFields::Kept { metadata, md5 };
            return Ok(CopyParameters {
                write,
                source,
                fields,
                tags,
                tier,
                needs_infinite_lease: !is_sync,
            });
        }
        if headers::is_append_blob(fields)? {
            return Err(AzureError::invalid_header(
                headers::BLOB_TYPE.as_str(),
                "Put Blob From URL makes a BlockBlob: copy the blob without this header to keep its type",
            ));
        }
        let own = BlobHeaders {
            metadata,
            ..headers::stored(fields, false)?
        }
        .into();
        let keep = headers::one(fields, &COPY_PROPERTIES)?
            .is_none_or(|text| !text.eq_ignore_ascii_case("false"));
        let fields = CopiedFields::Put { own, keep, md5 };
        Ok(CopyParameters {
            write,
            source,
            fields,
            tags,
            tier,
            needs_infinite_lease: false,
        })
    }

    /// Returns a copy's tags: the request's, unless it asks for the source's.
    fn copied_tags(&self) -> Result<Option<Tags>, AzureError> {
        let tags = headers::tags(self.fields())?;
        match headers::one(self.fields(), &TAG_OPTION)? {
            None | Some("REPLACE") => Ok(Some(tags)),
            Some("COPY") if tags.is_empty() => Ok(None),
            Some(_) => {
                let rule = "must be REPLACE, or COPY without x-ms-tags";
                Err(AzureError::invalid_header(TAG_OPTION.as_str(), rule))
            }
        }
    }

    /// Parses Put Block From URL.
    pub(super) fn copy_block(&self) -> Result<CopyBlock, AzureError> {
        let (id, lease) = (self.block_id()?, LeaseUse::Write(self.lease_id()?));
        Ok(CopyBlock {
            id,
            lease,
            part: self.copied_part(MAX_BLOCK)?,
        })
    }

    /// Parses Append Block From URL.
    pub(super) fn append_from_url(&self) -> Result<AppendFromUrl, AzureError> {
        let conditions = headers::append_conditions(self.fields())?;
        let (write, client) = (
            self.write_at(conditions)?,
            self.head.extensions.get().copied(),
        );
        Ok(AppendFromUrl {
            write,
            conditions,
            part: self.copied_part(MAX_APPENDED)?,
            client,
        })
    }

    /// Parses the part of a blob that becomes a block of at most `limit` bytes.
    fn copied_part(&self, limit: u64) -> Result<CopiedPart, AzureError> {
        let fields = self.fields();
        let (md5, crc64) = headers::either((
            headers::md5(fields, &SOURCE_MD5)?,
            headers::crc64(fields, &SOURCE_CRC64)?,
        ))?;
        Ok(CopiedPart {
            source: self.source(false)?,
            range: headers::one(fields, &SOURCE_RANGE)?.map(str::to_owned),
            md5,
            crc64,
            limit: self.max_body.min(limit),
        })
    }

    /// Parses the headers that name the source. If its tags are read, its signature must permit that.
    fn source(&self, reads_tags: bool) -> Result<Box<CopySource>, AzureError> {
        let fields = self.fields();
        let mut conditions = HeaderMap::new();
        for (own, standard) in SOURCE_CONDITIONS {
            for value in fields.get_all(own) {
                conditions.append(&standard, value.clone());
            }
        }
        let lease: Option<LeaseId> = azure::id(fields, SOURCE_LEASE)?;
        let (conditions, lease) = (conditions::of_read(&conditions)?, LeaseUse::Read(lease));
        let (blob, snapshot, url) = self.source_blob(reads_tags)?;
        Ok(CopySource {
            blob,
            snapshot,
            url,
            conditions,
            lease,
        }
        .into())
    }

    /// Returns the blob that `x-ms-copy-source` names, its snapshot, and its URL without the query. It must be of the account that the
    /// request is for, on this server: the server sends no request to another one. A signature in it must permit reading the blob, and
    /// its tags if they are copied.
    fn source_blob(
        &self,
        reads_tags: bool,
    ) -> Result<(BlobPath, Option<SnapshotTime>, FieldText), AzureError> {
        let text = headers::required(self.fields(), &headers::COPY_SOURCE)?;
        let invalid = |rule: &str| AzureError::invalid_header(headers::COPY_SOURCE.as_str(), rule);
        let malformed = || invalid("must be the URL of a blob");
        let source: Uri = text.parse().map_err(|_| malformed())?;
        let place = source.authority().ok_or_else(malformed)?.as_str();
        let own = headers::host(self.head);
        let account = source.path().split('/').nth(1);
        let is_own = own.is_some_and(|own| own.eq_ignore_ascii_case(place))
            && account == Some(self.account.name());
        if !is_own {
            return Err(AzureError::foreign_source());
        }
        // A key permits reading every blob of its account, and a signature for the target says nothing of the source. A signature for
        // the source must hold in any case.
        if matches!(self.grant, AccessGrant::SharedAccess(_))
            || auth::shared_access::is_in(source.query())
        {
            let policy = self.source_policy.as_ref();
            auth::authenticate_source(
                self.accounts,
                self.head,
                &source,
                self.now,
                policy,
                reads_tags,
            )?;
        }
        let query = QueryParameters::parse(source.query().unwrap_or_default())?;
        if query.get("versionid").is_some() {
            return Err(invalid("the service has no versions"));
        }
        let snapshot = query.snapshot()?;
        match RequestTarget::parse(source.path(), self.account, self.accounts)? {
            RequestTarget::Blob(blob) => {
                let of_snapshot = snapshot
                    .map(|time| format!("?snapshot={time}"))
                    .unwrap_or_default();
                let url = text
                    .split('?')
                    .next()
                    .and_then(|url| FieldText::new(&[url, &of_snapshot].concat()).ok());
                Ok((blob, snapshot, url.ok_or_else(malformed)?))
            }
            _ => Err(malformed()),
        }
    }
}

/// Rejects properties, of which only Put Blob From URL has a choice, and the MD5 of the source for Copy Blob.
fn refuse_properties(fields: &HeaderMap, is_sync: bool) -> Result<(), AzureError> {
    let of_put = |name: &&HeaderName| {
        rules::STORED.contains(&name.as_str())
            || **name == COPY_PROPERTIES
            || (!is_sync && **name == SOURCE_MD5)
    };
    match fields.keys().find(of_put) {
        Some(name) => Err(AzureError::unsupported_header(name.as_str())),
        None => Ok(()),
    }
}
