//! The operation that a request names.
//!
//! A table lists the query parameters and `x-ms-*` headers that each operation knows. A request with any other is
//! rejected, so that an unsupported option never turns into a plain read or write.

use http::header::{ALLOW, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::error::AzureError;
use super::fields::METADATA;
use super::query::Query;
use super::target::Kind;
use super::write;

/// An operation of the Blob service's REST API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    ListContainers,
    ServiceProperties,
    AccountInformation,
    CreateContainer,
    ContainerProperties,
    SetContainerMetadata,
    LeaseContainer,
    DeleteContainer,
    ListBlobs,
    GetBlob,
    BlobProperties,
    PutBlob,
    PutBlock,
    PutBlockList,
    GetBlockList,
    SetMetadata,
    SetProperties,
    LeaseBlob,
    DeleteBlob,
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
    operation: Operation,
    kind: Kind,
    request: Request,
    parameters: &'static [&'static str],
    fields: &'static [&'static str],
    conditions: Conditions,
}

/// Headers that every operation accepts.
const COMMON: [&str; 5] =
    ["x-ms-version", "x-ms-date", "x-ms-client-request-id", "x-ms-return-client-request-id", "x-ms-useragent"];
const LEASE: &[&str] = &["x-ms-lease-id"];
const LEASING: &[&str] =
    &["x-ms-lease-action", "x-ms-lease-duration", "x-ms-lease-id", "x-ms-proposed-lease-id", "x-ms-lease-break-period"];
const META: &[&str] = &[METADATA];
const LEASE_META: &[&str] = &["x-ms-lease-id", METADATA];
const GET: &[&str] = &["x-ms-lease-id", "x-ms-range", "x-ms-range-get-content-md5"];
const PROPERTIES: &[&str] = &[
    "x-ms-lease-id",
    "x-ms-blob-content-md5",
    "x-ms-blob-content-type",
    "x-ms-blob-content-encoding",
    "x-ms-blob-content-language",
    "x-ms-blob-content-disposition",
    "x-ms-blob-cache-control",
];
const PUT_LIST: &[&str] = &[
    "x-ms-lease-id",
    METADATA,
    "x-ms-blob-content-md5",
    "x-ms-blob-content-type",
    "x-ms-blob-content-encoding",
    "x-ms-blob-content-language",
    "x-ms-blob-content-disposition",
    "x-ms-blob-cache-control",
];
const PUT: &[&str] = &[
    "x-ms-lease-id",
    METADATA,
    "x-ms-blob-type",
    "x-ms-blob-content-md5",
    "x-ms-blob-content-type",
    "x-ms-blob-content-encoding",
    "x-ms-blob-content-language",
    "x-ms-blob-content-disposition",
    "x-ms-blob-cache-control",
];
const DELETE: &[&str] = &["x-ms-lease-id", "x-ms-delete-snapshots"];
const LISTING: &[&str] = &["prefix", "marker", "maxresults", "include"];
const LISTING_BLOBS: &[&str] = &["prefix", "delimiter", "marker", "maxresults", "include"];

#[rustfmt::skip]
const RULES: [Rule; 23] = {
    use Conditions::{All, Dates, None};
    use Operation as O;
    const fn rule(
        operation: Operation, kind: Kind, request: Request,
        parameters: &'static [&'static str], fields: &'static [&'static str], conditions: Conditions,
    ) -> Rule {
        Rule { operation, kind, request, parameters, fields, conditions }
    }
    [
        rule(O::ListContainers, Kind::Service, ("GET", "", "list"), LISTING, &[], None),
        rule(O::ServiceProperties, Kind::Service, ("GET", "service", "properties"), &[], &[], None),
        rule(O::AccountInformation, Kind::Service, ("GET HEAD", "account", "properties"), &[], &[], None),
        rule(O::AccountInformation, Kind::Container, ("GET HEAD", "account", "properties"), &[], &[], None),
        rule(O::AccountInformation, Kind::Blob, ("GET HEAD", "account", "properties"), &[], &[], None),
        rule(O::CreateContainer, Kind::Container, ("PUT", "container", ""), &[], META, None),
        rule(O::ContainerProperties, Kind::Container, ("GET HEAD", "container", ""), &[], LEASE, None),
        rule(O::ContainerProperties, Kind::Container, ("GET HEAD", "container", "metadata"), &[], LEASE, None),
        rule(O::SetContainerMetadata, Kind::Container, ("PUT", "container", "metadata"), &[], LEASE_META, Dates),
        rule(O::LeaseContainer, Kind::Container, ("PUT", "container", "lease"), &[], LEASING, Dates),
        rule(O::DeleteContainer, Kind::Container, ("DELETE", "container", ""), &[], LEASE, Dates),
        rule(O::ListBlobs, Kind::Container, ("GET", "container", "list"), LISTING_BLOBS, &[], None),
        rule(O::GetBlob, Kind::Blob, ("GET", "", ""), &[], GET, All),
        rule(O::BlobProperties, Kind::Blob, ("HEAD", "", ""), &[], LEASE, All),
        rule(O::BlobProperties, Kind::Blob, ("GET HEAD", "", "metadata"), &[], LEASE, All),
        rule(O::PutBlob, Kind::Blob, ("PUT", "", ""), &[], PUT, All),
        rule(O::PutBlock, Kind::Blob, ("PUT", "", "block"), &["blockid"], LEASE_META, None),
        rule(O::PutBlockList, Kind::Blob, ("PUT", "", "blocklist"), &[], PUT_LIST, All),
        rule(O::GetBlockList, Kind::Blob, ("GET", "", "blocklist"), &["blocklisttype"], LEASE, None),
        rule(O::SetMetadata, Kind::Blob, ("PUT", "", "metadata"), &[], LEASE_META, All),
        rule(O::SetProperties, Kind::Blob, ("PUT", "", "properties"), &[], PROPERTIES, All),
        rule(O::LeaseBlob, Kind::Blob, ("PUT", "", "lease"), &[], LEASING, All),
        rule(O::DeleteBlob, Kind::Blob, ("DELETE", "", ""), &[], DELETE, All),
    ]
};

/// Returns the operation that a request names, after checking its parameters and headers.
pub(super) fn find(kind: Kind, method: &Method, query: &Query, headers: &HeaderMap) -> Result<Operation, AzureError> {
    let part = |name| query.get(name).unwrap_or_default();
    let parts = (part("restype"), part("comp"));
    let same = |rule: &&Rule| rule.kind == kind && (rule.request.1, rule.request.2) == parts;
    let candidates: Vec<&Rule> = RULES.iter().filter(same).collect();
    if candidates.is_empty() {
        let rule = "this combination is not supported here";
        return Err(AzureError::invalid_parameter("restype, comp", rule));
    }
    let mut of_method = candidates.iter().filter(|rule| rule.request.0.split(' ').any(|name| name == method.as_str()));
    let rule = of_method.next().ok_or_else(|| wrong_method(&candidates))?;
    if rule.operation == Operation::PutBlob {
        // Checked first: other blob types have headers of their own.
        write::check_type(headers)?;
    }
    rule.check_parameters(query)?;
    rule.check_fields(headers)?;
    rule.check_conditions(headers)?;
    Ok(rule.operation)
}

fn wrong_method(candidates: &[&Rule]) -> AzureError {
    let allowed: Vec<&str> = candidates.iter().flat_map(|rule| rule.request.0.split(' ')).collect();
    let allowed = HeaderValue::from_str(&allowed.join(", ")).unwrap_or(HeaderValue::from_static("GET"));
    let message = "the method is not allowed here: see Allow";
    AzureError::new(StatusCode::METHOD_NOT_ALLOWED, "UnsupportedHttpVerb", message).with(ALLOW, allowed)
}

impl Rule {
    fn check_parameters(&self, query: &Query) -> Result<(), AzureError> {
        let common = ["restype", "comp", "timeout"];
        match query.names().find(|name| !common.contains(name) && !self.parameters.contains(name)) {
            Some(name) => {
                let message = format!("the parameter {name} is not supported by this operation");
                Err(AzureError::bad_request("UnsupportedQueryParameter", message))
            }
            None => Ok(()),
        }
    }

    fn check_fields(&self, headers: &HeaderMap) -> Result<(), AzureError> {
        let own = headers.keys().map(http::HeaderName::as_str).filter(|name| name.starts_with("x-ms-"));
        let known = |name: &str| {
            let listed = |field: &&str| if *field == METADATA { name.starts_with(METADATA) } else { name == *field };
            COMMON.contains(&name) || self.fields.iter().any(listed)
        };
        match own.into_iter().find(|name| !known(name)) {
            Some(name) => Err(AzureError::unsupported_field(name)),
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
