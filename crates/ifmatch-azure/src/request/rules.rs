//! The operations, and the query parameters and headers that each accepts.
//!
//! A table lists the query parameters and `x-ms-*` headers that each operation knows. Azure ignores unknown ones, and so does
//! this service, except those that select another resource, guard a write or change its outcome: an operation that does
//! not support one of these rejects it, so that an unsupported option never turns into a plain read or write.

use http::header::{ALLOW, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::headers::{self, METADATA};
use super::query::Query;
use super::target::Kind;
use crate::error::AzureError;

/// The name of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    ListContainers,
    GetServiceProperties,
    GetAccountInformation,
    CreateContainer,
    GetContainerProperties,
    SetContainerMetadata,
    LeaseContainer,
    DeleteContainer,
    ListBlobs,
    GetBlob,
    GetBlobProperties,
    PutBlob,
    AppendBlock,
    SealBlob,
    PutBlock,
    PutBlockList,
    GetBlockList,
    SetBlobMetadata,
    SetBlobProperties,
    LeaseBlob,
    DeleteBlob,
    CopyBlob,
    PutBlockFromUrl,
    SetBlobTier,
    Batch,
}

/// The conditional headers that an operation accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conditions {
    None,
    Dates,
    All,
}

/// The methods, `restype` and `comp`.
type Request = (&'static str, &'static str, &'static str);

struct Rule {
    name: Name,
    kind: Kind,
    request: Request,
    parameters: &'static [&'static str],
    /// Lists of the `x-ms-*` headers that it knows.
    fields: &'static [&'static [&'static str]],
    conditions: Conditions,
}

/// Headers that every operation accepts.
const COMMON: [&str; 5] =
    ["x-ms-version", "x-ms-date", "x-ms-client-request-id", "x-ms-return-client-request-id", "x-ms-useragent"];
/// Prefixes of headers that change what a request does. An operation that does not list such a header rejects it.
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
/// Query parameters that select another resource or change what a request does. An operation that does not list such a
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
const LEASING: &[&str] =
    &["x-ms-lease-action", "x-ms-lease-duration", "x-ms-lease-id", "x-ms-proposed-lease-id", "x-ms-lease-break-period"];
const META: &[&str] = &[METADATA];
/// The header fields stored with a blob.
const STORED: &[&str] = &[
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
const TIER: &[&str] = &["x-ms-access-tier"];
const REHYDRATE: &[&str] = &["x-ms-rehydrate-priority"];
const RANGE: &[&str] = &["x-ms-range", "x-ms-range-get-content-md5", "x-ms-range-get-content-crc64"];
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
const SOURCE_BLOB: &[&str] = &["x-ms-copy-source-blob-properties", "x-ms-requires-sync", "x-ms-source-lease-id"];
const SOURCE_RANGE: &[&str] = &["x-ms-source-range", "x-ms-source-content-crc64"];
const SNAPSHOTS: &[&str] = &["x-ms-delete-snapshots"];
const LISTING: &[&str] = &["prefix", "marker", "maxresults", "include"];
const LISTING_BLOBS: &[&str] = &["prefix", "delimiter", "marker", "maxresults", "include", "startfrom"];

#[rustfmt::skip]
const RULES: [Rule; 31] = {
    use Conditions::{All, Dates, None};
    use Name as N;
    const fn rule(
        name: Name, kind: Kind, request: Request,
        parameters: &'static [&'static str], fields: &'static [&'static [&'static str]], conditions: Conditions,
    ) -> Rule {
        Rule { name, kind, request, parameters, fields, conditions }
    }
    [
        rule(N::Batch, Kind::Service, ("POST", "", "batch"), &[], &[], None),
        // As the SDK for JavaScript sends it to an account in the path.
        rule(N::Batch, Kind::Service, ("POST", "container", "batch"), &[], &[], None),
        rule(N::Batch, Kind::Container, ("POST", "container", "batch"), &[], &[], None),
        rule(N::ListContainers, Kind::Service, ("GET", "", "list"), LISTING, &[], None),
        rule(N::GetServiceProperties, Kind::Service, ("GET", "service", "properties"), &[], &[], None),
        rule(N::GetAccountInformation, Kind::Service, ("GET HEAD", "account", "properties"), &[], &[], None),
        rule(N::GetAccountInformation, Kind::Container, ("GET HEAD", "account", "properties"), &[], &[], None),
        rule(N::GetAccountInformation, Kind::Blob, ("GET HEAD", "account", "properties"), &[], &[], None),
        rule(N::CreateContainer, Kind::Container, ("PUT", "container", ""), &[], &[META], None),
        rule(N::GetContainerProperties, Kind::Container, ("GET HEAD", "container", ""), &[], &[LEASE], None),
        rule(N::GetContainerProperties, Kind::Container, ("GET HEAD", "container", "metadata"), &[], &[LEASE], None),
        rule(N::SetContainerMetadata, Kind::Container, ("PUT", "container", "metadata"), &[], &[LEASE, META], Dates),
        rule(N::LeaseContainer, Kind::Container, ("PUT", "container", "lease"), &[], &[LEASING], Dates),
        rule(N::DeleteContainer, Kind::Container, ("DELETE", "container", ""), &[], &[LEASE], Dates),
        rule(N::ListBlobs, Kind::Container, ("GET", "container", "list"), LISTING_BLOBS, &[], None),
        rule(N::GetBlob, Kind::Blob, ("GET", "", ""), &[], &[LEASE, RANGE], All),
        rule(N::GetBlobProperties, Kind::Blob, ("HEAD", "", ""), &[], &[LEASE], All),
        rule(N::GetBlobProperties, Kind::Blob, ("GET HEAD", "", "metadata"), &[], &[LEASE], All),
        rule(N::PutBlob, Kind::Blob, ("PUT", "", ""), &[], &[LEASE, META, TIER, CRC64, TYPE, STORED], All),
        rule(N::AppendBlock, Kind::Blob, ("PUT", "", "appendblock"), &[], &[LEASE, META, CRC64, POSITION, MAX_SIZE], All),
        rule(N::SealBlob, Kind::Blob, ("PUT", "", "seal"), &[], &[LEASE, POSITION], All),
        rule(N::PutBlock, Kind::Blob, ("PUT", "", "block"), &["blockid"], &[LEASE, META, BLOB_MD5, CRC64], None),
        rule(N::PutBlockList, Kind::Blob, ("PUT", "", "blocklist"), &[], &[LEASE, META, TIER, CRC64, STORED], All),
        rule(N::GetBlockList, Kind::Blob, ("GET", "", "blocklist"), &["blocklisttype"], &[LEASE], None),
        rule(N::SetBlobMetadata, Kind::Blob, ("PUT", "", "metadata"), &[], &[LEASE, META], All),
        rule(N::SetBlobProperties, Kind::Blob, ("PUT", "", "properties"), &[], &[LEASE, STORED], All),
        rule(N::LeaseBlob, Kind::Blob, ("PUT", "", "lease"), &[], &[LEASING], All),
        rule(N::CopyBlob, Kind::Blob, ("PUT", "", ""), &[], &[LEASE, META, TIER, TYPE, STORED, SOURCE, SOURCE_BLOB], All),
        rule(N::PutBlockFromUrl, Kind::Blob, ("PUT", "", "block"), &["blockid"], &[LEASE, SOURCE, SOURCE_RANGE], None),
        rule(N::SetBlobTier, Kind::Blob, ("PUT", "", "tier"), &[], &[LEASE, TIER, REHYDRATE], None),
        rule(N::DeleteBlob, Kind::Blob, ("DELETE", "", ""), &[], &[LEASE, SNAPSHOTS], All),
    ]
};

/// Returns the operation that a request names, after checking its parameters and headers.
pub(super) fn find(kind: Kind, method: &Method, query: &Query, headers: &HeaderMap) -> Result<Name, AzureError> {
    let part = |name| query.get(name).unwrap_or_default();
    let parts = (part("restype"), part("comp"));
    let same = |rule: &&Rule| rule.kind == kind && (rule.request.1, rule.request.2) == parts;
    let candidates: Vec<&Rule> = RULES.iter().filter(same).collect();
    if candidates.is_empty() {
        let rule = "this combination is not supported here";
        return Err(AzureError::invalid_parameter("restype, comp", rule));
    }
    let of_method = candidates.iter().filter(|rule| rule.request.0.split(' ').any(|name| name == method.as_str()));
    let copies = headers.contains_key(headers::COPY_SOURCE);
    let is_copy = |rule: &Rule| matches!(rule.name, Name::CopyBlob | Name::PutBlockFromUrl);
    let mut of_method: Vec<&&Rule> = of_method.collect();
    of_method.sort_by_key(|rule| is_copy(rule) != copies);
    let rule = of_method.first().ok_or_else(|| wrong_method(&candidates))?;
    if matches!(rule.name, Name::PutBlob | Name::CopyBlob) {
        // Checked first: other blob types have their own headers.
        headers::check_blob_type(headers)?;
    }
    rule.check_parameters(query)?;
    rule.check_fields(headers)?;
    rule.check_conditions(headers)?;
    Ok(rule.name)
}

fn wrong_method(candidates: &[&Rule]) -> AzureError {
    let allowed: Vec<&str> = candidates.iter().flat_map(|rule| rule.request.0.split(' ')).collect();
    let allowed = HeaderValue::from_str(&allowed.join(", ")).unwrap_or(HeaderValue::from_static("GET"));
    let message = "the method is not allowed here: see Allow";
    AzureError::new(StatusCode::METHOD_NOT_ALLOWED, "UnsupportedHttpVerb", message).with(ALLOW, allowed)
}

impl Rule {
    fn check_parameters(&self, query: &Query) -> Result<(), AzureError> {
        let unsupported = |name: &&str| EFFECTIVE_PARAMETERS.contains(name) && !self.parameters.contains(name);
        match query.names().find(unsupported) {
            Some(name) => {
                let message = format!("the parameter {name} is not supported by this operation");
                Err(AzureError::bad_request("UnsupportedQueryParameter", message))
            }
            None => Ok(()),
        }
    }

    fn check_fields(&self, headers: &HeaderMap) -> Result<(), AzureError> {
        let effective = |name: &&str| EFFECTIVE_FIELDS.iter().any(|prefix| name.starts_with(prefix));
        let own = headers.keys().map(http::HeaderName::as_str).filter(effective);
        let known = |name: &str| {
            let listed = |field: &&str| if *field == METADATA { name.starts_with(METADATA) } else { name == *field };
            COMMON.contains(&name) || self.fields.iter().copied().flatten().any(listed)
        };
        match own.into_iter().find(|name| !known(name)) {
            Some(name) => Err(AzureError::unsupported_header(name)),
            None => Ok(()),
        }
    }

    fn check_conditions(&self, headers: &HeaderMap) -> Result<(), AzureError> {
        let tags = headers.contains_key(IF_MATCH) || headers.contains_key(IF_NONE_MATCH);
        let dates = headers.contains_key(IF_MODIFIED_SINCE) || headers.contains_key(IF_UNMODIFIED_SINCE);
        let refused = match self.conditions {
            Conditions::None => tags || dates,
            Conditions::Dates => tags,
            Conditions::All => false,
        };
        if refused {
            let message = "the operation does not support these conditional headers";
            return Err(AzureError::bad_request("ConditionHeadersNotSupported", message));
        }
        Ok(())
    }
}
