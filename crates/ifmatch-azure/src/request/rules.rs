//! The operations, and the query parameters and headers that each accepts.
//!
//! A table lists the query parameters and `x-ms-*` headers that each operation knows. Azure ignores unknown ones, and so does
//! this service, except those that select another resource, guard a write or change its outcome: an operation that does
//! not support one of these rejects it, so an unsupported option never turns into a plain read or write.

use http::header::{ALLOW, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::headers::{self, METADATA};
use crate::error::AzureError;
use crate::query::QueryParameters;

/// The operations on the account. There is an enumeration for each target, so the parser has an arm for each operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfService {
    ListContainers,
    GetProperties,
    GetStatistics,
    GetAccountInformation,
    Batch,
}

/// The operations on a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfContainer {
    GetAccountInformation,
    Create,
    GetProperties,
    SetMetadata,
    GetPolicies,
    SetPolicies,
    Lease,
    Delete,
    ListBlobs,
    Batch,
}

/// The operations on a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfBlob {
    GetAccountInformation,
    Get,
    GetProperties,
    Put,
    AppendBlock,
    AppendBlockFromUrl,
    Seal,
    PutBlock,
    PutBlockList,
    GetBlockList,
    SetMetadata,
    SetProperties,
    Lease,
    Delete,
    Copy,
    PutBlockFromUrl,
    Snapshot,
    SetTier,
    GetTags,
    SetTags,
}

/// The conditional headers that an operation accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conditions {
    None,
    Dates,
    All,
}

/// The methods, divided by spaces, and the values of `restype` and `comp`.
type RequestSelector = (&'static str, &'static str, &'static str);

/// An operation's rule.
pub(super) struct OperationRule<N> {
    name: N,
    request: RequestSelector,
    parameters: &'static [&'static str],
    /// Lists of the `x-ms-*` headers that it knows.
    fields: &'static [&'static [&'static str]],
    conditions: Conditions,
}

/// Headers that every operation accepts.
const COMMON: [&str; 5] = [
    "x-ms-version",
    "x-ms-date",
    "x-ms-client-request-id",
    "x-ms-return-client-request-id",
    "x-ms-useragent",
];
/// Prefixes of headers that change what a request does. An operation that doesn't list such a header rejects it.
const EFFECTIVE_FIELDS: [&str; 27] = [
    "x-ms-access-tier",
    "x-ms-blob-",
    "x-ms-content-",
    "x-ms-copy-",
    "x-ms-default-encryption-",
    "x-ms-delete-",
    "x-ms-deny-encryption-",
    "x-ms-encryption-",
    "x-ms-expiry-",
    "x-ms-if-",
    "x-ms-immutability-",
    "x-ms-incremental-",
    "x-ms-lease-",
    "x-ms-legal-hold",
    "x-ms-meta-",
    "x-ms-origin",
    "x-ms-page-",
    "x-ms-proposed-",
    "x-ms-range",
    "x-ms-rehydrate-",
    "x-ms-requires-",
    "x-ms-seal-",
    "x-ms-sequence-",
    "x-ms-snapshot",
    "x-ms-source-",
    "x-ms-structured-",
    "x-ms-tags",
];
/// This service's own header, which rejects a late write. A write that can't check it rejects it, and a read ignores it.
pub(super) const FENCING_TOKEN: &str = "lease-token";
/// Query parameters that select another resource or change what a request does. An operation that doesn't list such a
/// parameter rejects it.
const EFFECTIVE_PARAMETERS: [&str; 9] = [
    "blockid",
    "blocklisttype",
    "deletetype",
    "endbefore",
    "prevsnapshot",
    "showonly",
    "snapshot",
    "versionid",
    "where",
];
const LEASE: &[&str] = &["x-ms-lease-id"];
/// The lease of a write, with a fencing token for the record to check. Put Block takes one, too: nothing takes effect before Put Block
/// List, which checks its own.
const FENCED: &[&str] = &["x-ms-lease-id", FENCING_TOKEN];
/// A lease operation is one of the lease that its id names, whatever its token.
const LEASING: &[&str] = &[
    "x-ms-lease-action",
    "x-ms-lease-duration",
    "x-ms-lease-id",
    "x-ms-proposed-lease-id",
    "x-ms-lease-break-period",
    FENCING_TOKEN,
];
const META: &[&str] = &[METADATA];
/// The header fields stored with a blob.
pub(super) const STORED: &[&str] = &[
    "x-ms-blob-content-md5",
    "x-ms-blob-content-type",
    "x-ms-blob-content-encoding",
    "x-ms-blob-content-language",
    "x-ms-blob-content-disposition",
    "x-ms-blob-cache-control",
];
const CRC64: &[&str] = &["x-ms-content-crc64"];
const BLOB_MD5: &[&str] = &["x-ms-blob-content-md5"];
const TYPE: &[&str] = &["x-ms-blob-type"];
/// Old SDKs send the type with operations on a part of a blob, where Azure ignores it.
const IGNORED_TYPE: &[&str] = &["x-ms-blob-type"];
const TIER: &[&str] = &["x-ms-access-tier"];
const REHYDRATE: &[&str] = &["x-ms-rehydrate-priority"];
const TAGS: &[&str] = &["x-ms-tags"];
const IF_TAGS: &[&str] = &["x-ms-if-tags"];
const RANGE: &[&str] = &[
    "x-ms-range",
    "x-ms-range-get-content-md5",
    "x-ms-range-get-content-crc64",
];
const POSITION: &[&str] = &["x-ms-blob-condition-appendpos"];
const MAX_SIZE: &[&str] = &["x-ms-blob-condition-maxsize"];
/// The source of a copy.
const SOURCE: &[&str] = &[
    "x-ms-copy-source",
    "x-ms-source-content-md5",
    "x-ms-source-if-match",
    "x-ms-source-if-none-match",
    "x-ms-source-if-modified-since",
    "x-ms-source-if-unmodified-since",
];
const SOURCE_BLOB: &[&str] = &[
    "x-ms-copy-source-blob-properties",
    "x-ms-requires-sync",
    "x-ms-source-lease-id",
    "x-ms-copy-source-tag-option",
];
const SOURCE_RANGE: &[&str] = &["x-ms-source-range", "x-ms-source-content-crc64"];
const PUBLIC: &[&str] = &["x-ms-blob-public-access"];
/// Names a snapshot of the blob.
const SNAPSHOT: &[&str] = &["snapshot"];
const SNAPSHOTS: &[&str] = &["x-ms-delete-snapshots"];
const LISTING: &[&str] = &["prefix", "marker", "maxresults", "include"];
const LISTING_BLOBS: &[&str] = &[
    "prefix",
    "delimiter",
    "marker",
    "maxresults",
    "include",
    "startfrom",
];

/// Builds a rule: a row of a table.
const fn rule<N>(
    name: N,
    request: RequestSelector,
    parameters: &'static [&'static str],
    fields: &'static [&'static [&'static str]],
    conditions: Conditions,
) -> OperationRule<N> {
    OperationRule {
        name,
        request,
        parameters,
        fields,
        conditions,
    }
}

#[rustfmt::skip]
pub(super) const OF_SERVICE: [OperationRule<OfService>; 6] = {
    use Conditions::None;
    use OfService as N;
    [
        rule(N::Batch, ("POST", "", "batch"), &[], &[], None),
        // As the SDK for JavaScript sends it to an account in the path.
        rule(N::Batch, ("POST", "container", "batch"), &[], &[], None),
        rule(N::ListContainers, ("GET", "", "list"), LISTING, &[], None),
        rule(N::GetProperties, ("GET", "service", "properties"), &[], &[], None),
        rule(N::GetStatistics, ("GET", "service", "stats"), &[], &[], None),
        rule(N::GetAccountInformation, ("GET HEAD", "account", "properties"), &[], &[], None),
    ]
};

#[rustfmt::skip]
pub(super) const OF_CONTAINER: [OperationRule<OfContainer>; 11] = {
    use Conditions::{Dates, None};
    use OfContainer as N;
    [
        rule(N::Batch, ("POST", "container", "batch"), &[], &[], None),
        rule(N::GetAccountInformation, ("GET HEAD", "account", "properties"), &[], &[], None),
        rule(N::Create, ("PUT", "container", ""), &[], &[META, PUBLIC], None),
        rule(N::GetProperties, ("GET HEAD", "container", ""), &[], &[LEASE], None),
        rule(N::GetProperties, ("GET HEAD", "container", "metadata"), &[], &[LEASE], None),
        rule(N::SetMetadata, ("PUT", "container", "metadata"), &[], &[LEASE, META], Dates),
        rule(N::GetPolicies, ("GET HEAD", "container", "acl"), &[], &[LEASE], None),
        rule(N::SetPolicies, ("PUT", "container", "acl"), &[], &[LEASE, PUBLIC], Dates),
        rule(N::Lease, ("PUT", "container", "lease"), &[], &[LEASING], Dates),
        rule(N::Delete, ("DELETE", "container", ""), &[], &[FENCED], Dates),
        rule(N::ListBlobs, ("GET", "container", "list"), LISTING_BLOBS, &[], None),
    ]
};

#[rustfmt::skip]
pub(super) const OF_BLOB: [OperationRule<OfBlob>; 21] = {
    use Conditions::{All, None};
    use OfBlob as N;
    [
        rule(N::GetAccountInformation, ("GET HEAD", "account", "properties"), &[], &[], None),
        rule(N::Get, ("GET", "", ""), SNAPSHOT, &[LEASE, RANGE, IF_TAGS], All),
        rule(N::GetProperties, ("HEAD", "", ""), SNAPSHOT, &[LEASE, IF_TAGS], All),
        rule(N::GetProperties, ("GET HEAD", "", "metadata"), SNAPSHOT, &[LEASE, IF_TAGS], All),
        rule(N::Put, ("PUT", "", ""), &[], &[FENCED, META, TIER, CRC64, TYPE, STORED, TAGS], All),
        rule(N::AppendBlock, ("PUT", "", "appendblock"), &[], &[FENCED, META, CRC64, POSITION, MAX_SIZE, IGNORED_TYPE], All),
        rule(N::AppendBlockFromUrl, ("PUT", "", "appendblock"), &[], &[FENCED, META, POSITION, MAX_SIZE, SOURCE, SOURCE_RANGE, IGNORED_TYPE], All),
        rule(N::Seal, ("PUT", "", "seal"), &[], &[FENCED, POSITION, IGNORED_TYPE], All),
        rule(N::PutBlock, ("PUT", "", "block"), &["blockid"], &[FENCED, META, BLOB_MD5, CRC64, IGNORED_TYPE], None),
        rule(N::PutBlockList, ("PUT", "", "blocklist"), &[], &[FENCED, META, TIER, CRC64, STORED, TAGS, IGNORED_TYPE], All),
        rule(N::GetBlockList, ("GET", "", "blocklist"), &["blocklisttype", "snapshot"], &[LEASE], None),
        rule(N::SetMetadata, ("PUT", "", "metadata"), &[], &[FENCED, META, IF_TAGS], All),
        rule(N::SetProperties, ("PUT", "", "properties"), &[], &[FENCED, STORED, IF_TAGS], All),
        rule(N::Lease, ("PUT", "", "lease"), &[], &[LEASING], All),
        rule(N::Copy, ("PUT", "", ""), &[], &[FENCED, META, TIER, TYPE, STORED, SOURCE, SOURCE_BLOB, TAGS], All),
        rule(N::PutBlockFromUrl, ("PUT", "", "block"), &["blockid"], &[FENCED, SOURCE, SOURCE_RANGE, IGNORED_TYPE], None),
        rule(N::SetTier, ("PUT", "", "tier"), &[], &[LEASE, TIER, REHYDRATE], None),
        rule(N::GetTags, ("GET", "", "tags"), SNAPSHOT, &[LEASE, IF_TAGS], None),
        rule(N::SetTags, ("PUT", "", "tags"), &[], &[FENCED, IF_TAGS, CRC64], All),
        rule(N::Snapshot, ("PUT", "", "snapshot"), &[], &[LEASE, META], All),
        rule(N::Delete, ("DELETE", "", ""), SNAPSHOT, &[FENCED, SNAPSHOTS], All),
    ]
};

/// Returns the operation that a request names, after checking its parameters and headers.
pub(super) fn find<N: Copy>(
    rules: &[OperationRule<N>],
    head: &Parts,
    query: &QueryParameters,
) -> Result<N, AzureError> {
    let headers = &head.headers;
    let part = |name| query.get(name).unwrap_or_default();
    let parts = (part("restype"), part("comp"));
    let candidates: Vec<&OperationRule<N>> = rules
        .iter()
        .filter(|rule| {
            let (_, restype, comp) = rule.request;
            (restype, comp) == parts
        })
        .collect();
    if candidates.is_empty() {
        let rule = match parts.1 {
            "blobs" => {
                "finding blobs by tags needs an index that this service does not have: list them with include=tags"
            }
            _ => "this combination is not supported here",
        };
        return Err(AzureError::invalid_parameter("restype, comp", rule));
    }
    let copies = headers.contains_key(headers::COPY_SOURCE);
    let rule = candidates
        .iter()
        .filter(|rule| rule.methods().any(|name| name == head.method))
        .min_by_key(|rule| rule.knows(headers::COPY_SOURCE.as_str()) != copies)
        .ok_or_else(|| wrong_method(&candidates))?;
    if parts.1.is_empty() && rule.knows(headers::BLOB_TYPE.as_str()) {
        // Checked first: other blob types have their own headers.
        headers::check_blob_type(headers)?;
    }
    rule.check_parameters(query)?;
    rule.check_fields(headers)?;
    rule.check_conditions(headers)?;
    Ok(rule.name)
}

/// The error for a method that no rule of the resource has.
fn wrong_method<N>(candidates: &[&OperationRule<N>]) -> AzureError {
    let mut allowed: Vec<&str> = candidates.iter().flat_map(|rule| rule.methods()).collect();
    // Several rules may have the same method.
    allowed.sort_unstable();
    allowed.dedup();
    let allowed = allowed.join(", ");
    let message = format!("use {allowed} here");
    let allowed = HeaderValue::from_str(&allowed).unwrap_or(HeaderValue::from_static("GET"));
    AzureError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "UnsupportedHttpVerb",
        message,
    )
    .with(ALLOW, allowed)
}

impl<N> OperationRule<N> {
    fn methods(&self) -> impl Iterator<Item = &'static str> {
        self.request.0.split(' ')
    }

    /// Returns `true` if the operation knows a header.
    fn knows(&self, name: &str) -> bool {
        let listed = |field: &&str| {
            if *field == METADATA {
                name.starts_with(METADATA)
            } else {
                name == *field
            }
        };
        self.fields.iter().copied().flatten().any(listed)
    }

    /// Rejects parameters that would be ignored.
    fn check_parameters(&self, query: &QueryParameters) -> Result<(), AzureError> {
        let unsupported =
            |name: &&str| EFFECTIVE_PARAMETERS.contains(name) && !self.parameters.contains(name);
        match query.names().find(unsupported) {
            Some(name) => {
                let message = format!("the parameter {name} is not supported by this operation");
                Err(AzureError::bad_request(
                    "UnsupportedQueryParameter",
                    message,
                ))
            }
            None => Ok(()),
        }
    }

    /// Rejects headers that would be ignored.
    fn check_fields(&self, headers: &HeaderMap) -> Result<(), AzureError> {
        let writes = self
            .methods()
            .any(|method| !matches!(method, "GET" | "HEAD"));
        let effective = |name: &&str| {
            EFFECTIVE_FIELDS
                .iter()
                .any(|prefix| name.starts_with(prefix))
                || (writes && *name == FENCING_TOKEN)
        };
        let mut own = headers
            .keys()
            .map(http::HeaderName::as_str)
            .filter(effective);
        match own.find(|name| !COMMON.contains(name) && !self.knows(name)) {
            Some(name) => Err(AzureError::unsupported_header(name)),
            None => Ok(()),
        }
    }

    /// Rejects conditions that would be ignored.
    fn check_conditions(&self, headers: &HeaderMap) -> Result<(), AzureError> {
        let tags = headers.contains_key(IF_MATCH) || headers.contains_key(IF_NONE_MATCH);
        let dates =
            headers.contains_key(IF_MODIFIED_SINCE) || headers.contains_key(IF_UNMODIFIED_SINCE);
        let refused = match self.conditions {
            Conditions::None => tags || dates,
            Conditions::Dates => tags,
            Conditions::All => false,
        };
        if refused {
            let message = "the operation does not support these conditional headers";
            return Err(AzureError::bad_request(
                "ConditionHeadersNotSupported",
                message,
            ));
        }
        Ok(())
    }
}
