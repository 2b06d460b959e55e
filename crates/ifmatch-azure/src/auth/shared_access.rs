//! Shared access signatures: what the query of a request claims, and what a verified one grants.
//!
//! A signature covers a text of its own, which names a resource, permissions and limits, but neither the request nor its
//! headers. Everything that a request may do because of it must therefore be in the text, and everything in the text
//! must limit the request.

use std::net::IpAddr;

use http::request::Parts;
use http::{HeaderName, HeaderValue, header};
use ifmatch_blob::dialect::Peer;
use ifmatch_blob::name;
use ifmatch_core::date::Timestamp;
use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::access_policy::AccessPolicy;
use crate::query::QueryParameters;

/// First version whose text ends with the fields of [`BLOB_2018`].
const OLDEST: &str = "2018-11-09";
/// First version whose text contains the encryption scope.
const WITH_SCOPE: &str = "2020-12-06";

/// A line of the text to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignedLine {
    /// The value of a parameter; empty if it is missing.
    Of(&'static str),
    Account,
    /// The request's resource.
    Resource,
    Empty,
}

use SignedLine::{Account, Empty, Of, Resource};

// The lines of the text, by kind and version. The line after the version's `sr` names a snapshot.
#[rustfmt::skip]
const BLOB_2018: &[SignedLine] = &[
    Of("sp"), Of("st"), Of("se"), Resource, Of("si"), Of("sip"), Of("spr"), Of("sv"), Of("sr"), Empty,
    Of("rscc"), Of("rscd"), Of("rsce"), Of("rscl"), Of("rsct"),
];
#[rustfmt::skip]
const BLOB_2020: &[SignedLine] = &[
    Of("sp"), Of("st"), Of("se"), Resource, Of("si"), Of("sip"), Of("spr"), Of("sv"), Of("sr"), Empty, Of("ses"),
    Of("rscc"), Of("rscd"), Of("rsce"), Of("rscl"), Of("rsct"),
];
#[rustfmt::skip]
const TABLE: &[SignedLine] = &[
    Of("sp"), Of("st"), Of("se"), Resource, Of("si"), Of("sip"), Of("spr"), Of("sv"),
    Of("spk"), Of("srk"), Of("epk"), Of("erk"),
];
#[rustfmt::skip]
const ACCOUNT_2018: &[SignedLine] = &[
    Account, Of("sp"), Of("ss"), Of("srt"), Of("st"), Of("se"), Of("sip"), Of("spr"), Of("sv"), Empty,
];
#[rustfmt::skip]
const ACCOUNT_2020: &[SignedLine] = &[
    Account, Of("sp"), Of("ss"), Of("srt"), Of("st"), Of("se"), Of("sip"), Of("spr"), Of("sv"), Of("ses"), Empty,
];

/// The parameters that replace header fields of a response to a read.
const OVERRIDES: [(&str, HeaderName); 5] = [
    ("rscc", header::CACHE_CONTROL),
    ("rscd", header::CONTENT_DISPOSITION),
    ("rsce", header::CONTENT_ENCODING),
    ("rscl", header::CONTENT_LANGUAGE),
    ("rsct", header::CONTENT_TYPE),
];

/// The service that a request was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignedService {
    Blob,
    Table,
}

/// The level of the resource of an operation, as in `srt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceLevel {
    /// The account.
    Service,
    /// A container or table.
    Container,
    /// A blob or entity.
    Object,
}

/// A reason to reject a shared access signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SharedAccessError {
    /// A parameter is missing, repeated or malformed.
    #[error("the parameter {0} of the shared access signature is missing, repeated or malformed")]
    Malformed(&'static str),
    /// The version is older than those supported.
    #[error(
        "sv must be 2018-11-09 or later: create the shared access signature with a newer version"
    )]
    Version,
    /// A kind of signature that isn't supported.
    #[error(
        "{0}: create a service or account SAS that states its own permissions and times, with the account's key"
    )]
    Unsupported(&'static str),
    /// `si` names a policy that the container doesn't have.
    #[error(
        "the container has no stored access policy with the id in si: it was renamed or removed, which revokes the signature"
    )]
    Policy,
    /// Both the signature and its policy state a limit.
    #[error(
        "the stored access policy and the shared access signature both state {0}: only one of them may"
    )]
    Twice(&'static str),
    /// The time isn't between `st` and `se`.
    #[error("the shared access signature has expired, or is not valid yet, by the server's clock")]
    Time,
    /// The connection doesn't use TLS although `spr` requires it.
    #[error("the shared access signature requires https")]
    Protocol,
    /// The client's address isn't in `sip`.
    #[error("the shared access signature is not for this client's address")]
    Address,
    /// An account SAS for other services.
    #[error("the shared access signature is not for this service: see ss")]
    Service,
    /// An account SAS for other levels.
    #[error("the shared access signature is not for resources of this type: see srt")]
    ResourceType,
    /// The operation needs a permission that wasn't signed.
    #[error("the shared access signature does not permit this operation: see sp")]
    Permission,
    /// A blob exists, and the signature permits creation only.
    #[error("the shared access signature permits creating blobs, not overwriting them: see sp")]
    Overwrite,
    /// The entity is outside the signed range of keys.
    #[error("the shared access signature is not for this entity: see spk, srk, epk and erk")]
    Range,
}

impl SharedAccessError {
    /// Returns Azure's error code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Malformed(_)
            | Self::Version
            | Self::Unsupported(_)
            | Self::Policy
            | Self::Twice(_)
            | Self::Time => "AuthenticationFailed",
            Self::Protocol => "AuthorizationProtocolMismatch",
            Self::Address => "AuthorizationSourceIPMismatch",
            Self::Service => "AuthorizationServiceMismatch",
            Self::ResourceType => "AuthorizationResourceTypeMismatch",
            Self::Permission => "AuthorizationPermissionMismatch",
            Self::Overwrite => "UnauthorizedBlobOverwrite",
            Self::Range => "AuthorizationFailure",
        }
    }
}

/// Everything that a verified signature grants.
#[derive(Clone, Debug)]
pub struct SharedAccess {
    scope: SignedScope,
    permissions: String,
    /// The lines of the signed text.
    lines: &'static [SignedLine],
    overrides: Vec<(HeaderName, HeaderValue)>,
}

/// The resources that a signature is for.
#[derive(Clone, Debug)]
enum SignedScope {
    /// The levels in `srt`.
    Account(Vec<ResourceLevel>),
    /// A blob, or a container and its blobs. The text names it, so the signature fits no other.
    Blob,
    /// The entities of a table, by its name in lower case.
    Table(String, KeyRange),
}

impl SharedAccess {
    /// Permits an operation that needs any of these permissions.
    ///
    /// # Errors
    /// The signature doesn't grant it.
    pub fn permit(&self, level: ResourceLevel, any_of: &str) -> Result<(), SharedAccessError> {
        match &self.scope {
            SignedScope::Account(levels) if !levels.contains(&level) => {
                return Err(SharedAccessError::ResourceType);
            }
            // As in Azure, a signature for a container is one for its blobs: their listing, and nothing else of its own.
            SignedScope::Blob
                if level == ResourceLevel::Service
                    || (level == ResourceLevel::Container && any_of != "l") =>
            {
                return Err(SharedAccessError::Permission);
            }
            SignedScope::Table(..) if level != ResourceLevel::Object => {
                return Err(SharedAccessError::Permission);
            }
            _ => {}
        }
        if any_of.chars().any(|one| self.has(one)) {
            Ok(())
        } else {
            Err(SharedAccessError::Permission)
        }
    }

    /// Permits reading the kind of the account, which needs the permission to read, at any level.
    ///
    /// # Errors
    /// The signature doesn't grant it.
    pub fn permit_account_information(&self) -> Result<(), SharedAccessError> {
        if self.has('r') {
            Ok(())
        } else {
            Err(SharedAccessError::Permission)
        }
    }

    /// Returns `true` if the permission was signed.
    pub fn has(&self, permission: char) -> bool {
        self.permissions.contains(permission)
    }

    /// Returns `true` if the signature is for this table, and the key of the entity lies in the signed range.
    pub fn covers(&self, table: &str, partition: &str, row: &str) -> bool {
        match &self.scope {
            SignedScope::Table(own, range) => {
                own.eq_ignore_ascii_case(table) && range.contains(partition, row)
            }
            _ => true,
        }
    }

    /// Returns the header fields to replace in the response to a read.
    pub(crate) fn overrides(&self) -> &[(HeaderName, HeaderValue)] {
        &self.overrides
    }

    /// Returns `true` for a parameter, in lower case, that belongs to the signature and not to the operation.
    pub(crate) fn has_parameter(&self, name: &str) -> bool {
        name == "sig"
            || self
                .lines
                .iter()
                .any(|line| matches!(line, Of(own) if *own == name))
    }
}

/// A range of entities, inclusive at both ends. A bound is a partition key and, if it states one, a row key.
#[derive(Clone, Debug, Default)]
struct KeyRange {
    start: Option<(String, Option<String>)>,
    end: Option<(String, Option<String>)>,
}

impl KeyRange {
    /// Reads the range that a query claims.
    fn of(claim: &SharedAccessClaim) -> Result<Self, SharedAccessError> {
        let bound = |partition, row| match (claim.find(partition), claim.find(row)) {
            (Some(partition), row) => Ok(Some((partition.to_owned(), row.map(ToOwned::to_owned)))),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(SharedAccessError::Malformed(partition)),
        };
        Ok(Self {
            start: bound("spk", "srk")?,
            end: bound("epk", "erk")?,
        })
    }

    /// Compares ordinally, in UTF-16 like the service.
    fn contains(&self, partition: &str, row: &str) -> bool {
        let order = |one: &str, other: &str| one.encode_utf16().cmp(other.encode_utf16());
        let order = |(bound, in_it): &(String, Option<String>)| {
            let rows = || {
                in_it
                    .as_ref()
                    .map_or(std::cmp::Ordering::Equal, |bound| order(row, bound))
            };
            order(partition, bound).then_with(rows)
        };
        self.start.as_ref().is_none_or(|bound| order(bound).is_ge())
            && self.end.as_ref().is_none_or(|bound| order(bound).is_le())
    }
}

/// The signature that a query claims to carry.
#[derive(Clone, Debug)]
pub(super) struct SharedAccessClaim {
    parameters: QueryParameters,
    lines: &'static [SignedLine],
    resource: String,
}

impl SharedAccessClaim {
    /// Parses the query of a request to a service.
    ///
    /// # Errors
    /// The parameters are malformed, or ask for what isn't supported.
    pub(super) fn parse(head: &Parts, service: SignedService) -> Result<Self, SharedAccessError> {
        let malformed = SharedAccessError::Malformed("names and values");
        let parameters =
            QueryParameters::parse(head.uri.query().unwrap_or_default()).map_err(|_| malformed)?;
        // Control characters could move text from one line to another.
        if parameters.has_control() {
            return Err(malformed);
        }
        let mut claim = Self {
            parameters,
            lines: &[],
            resource: String::new(),
        };
        if claim.parameters.names().any(|name| name.starts_with("sk")) {
            return Err(SharedAccessError::Unsupported(
                "user delegation is not supported",
            ));
        }
        if claim.find("si").is_some() && service == SignedService::Table {
            return Err(SharedAccessError::Unsupported(
                "tables have no stored access policies (si)",
            ));
        }
        if claim.find("ses").is_some() {
            return Err(SharedAccessError::Unsupported(
                "encryption scopes (ses) are not supported",
            ));
        }
        let version = claim
            .find("sv")
            .filter(|text| is_date(text))
            .ok_or(SharedAccessError::Malformed("sv"))?;
        if version < OLDEST {
            return Err(SharedAccessError::Version);
        }
        let has_scope = version >= WITH_SCOPE;
        let kinds = ["ss", "sr", "tn"].map(|name| claim.find(name));
        (claim.lines, claim.resource) = match (kinds, service) {
            ([Some(_), None, None], _) => (
                if has_scope {
                    ACCOUNT_2020
                } else {
                    ACCOUNT_2018
                },
                String::new(),
            ),
            ([None, Some(kind), None], SignedService::Blob) => (
                if has_scope { BLOB_2020 } else { BLOB_2018 },
                blob_resource(head, kind)?,
            ),
            ([None, None, Some(table)], SignedService::Table) => {
                (TABLE, table_resource(head, table)?)
            }
            _ => return Err(SharedAccessError::Malformed("ss, sr or tn")),
        };
        if claim.find("sr") == Some("b") && claim.find("snapshot").is_some() {
            return Err(SharedAccessError::Unsupported(
                "a signature for a blob (sr=b) is not valid for its snapshots",
            ));
        }
        // The text of an account SAS doesn't cover it.
        if claim.find("si").is_some() && !claim.lines.contains(&Of("si")) {
            return Err(SharedAccessError::Malformed("si"));
        }
        Ok(claim)
    }

    /// Returns the signature.
    pub(super) fn signature(&self) -> Option<&str> {
        self.find("sig")
    }

    /// Returns the id of the stored access policy, and the container that has it.
    pub(super) fn policy(&self) -> Option<(String, String)> {
        let container = self.resource.strip_prefix("/blob/")?.split('/').nth(1)?;
        Some((self.find("si")?.to_owned(), container.to_owned()))
    }

    /// Returns a limit: the signature's, or the one in the policy that it names.
    fn limit<'a>(
        &'a self,
        name: &'static str,
        policy: Option<&'a AccessPolicy>,
    ) -> Result<Option<&'a str>, SharedAccessError> {
        match (
            self.find(name),
            policy.and_then(|policy| policy.limit(name)),
        ) {
            (Some(_), Some(_)) => Err(SharedAccessError::Twice(name)),
            (own, of_policy) => Ok(own.or(of_policy)),
        }
    }

    /// Returns the text to sign.
    pub(super) fn text(&self, account: &str) -> String {
        let line = |line: &SignedLine| match line {
            Of(name) => self.find(name).unwrap_or_default(),
            Account => account,
            Resource => &self.resource,
            Empty => "",
        };
        self.lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Returns what the signature grants to this request, after the text was found to be signed. `policy` is the stored access policy
    /// that it names.
    ///
    /// # Errors
    /// The signature isn't valid at this time, for this client or for this service.
    pub(super) fn grant(
        &self,
        service: SignedService,
        peer: Option<Peer>,
        now: Timestamp,
        policy: Option<&AccessPolicy>,
    ) -> Result<SharedAccess, SharedAccessError> {
        if self.find("si").is_some() && policy.is_none() {
            return Err(SharedAccessError::Policy);
        }
        let start = self.limit("st", policy)?;
        let start = start
            .map(|text| instant(text).ok_or(SharedAccessError::Malformed("st")))
            .transpose()?;
        let end = self
            .limit("se", policy)?
            .and_then(instant)
            .ok_or(SharedAccessError::Malformed("se"))?;
        if start.is_some_and(|start| now < start) || now >= end {
            return Err(SharedAccessError::Time);
        }
        match self.find("spr") {
            None | Some("https,http" | "http,https") => {}
            Some("https") if peer.is_some_and(|peer| peer.is_secure) => {}
            Some("https") => return Err(SharedAccessError::Protocol),
            Some(_) => return Err(SharedAccessError::Malformed("spr")),
        }
        if let Some(range) = self.find("sip") {
            let (first, last) = address_range(range).ok_or(SharedAccessError::Malformed("sip"))?;
            let client = peer.map(|peer| peer.address.to_canonical());
            let is_inside = |client: IpAddr| {
                client.is_ipv4() == first.is_ipv4() && first <= client && client <= last
            };
            if !client.is_some_and(is_inside) {
                return Err(SharedAccessError::Address);
            }
        }
        let permissions = self
            .limit("sp", policy)?
            .ok_or(SharedAccessError::Malformed("sp"))?
            .to_owned();
        let scope = match self.find("ss") {
            Some(services) => {
                let own = if service == SignedService::Blob {
                    'b'
                } else {
                    't'
                };
                if !services.contains(own) {
                    return Err(SharedAccessError::Service);
                }
                let levels = self
                    .find("srt")
                    .ok_or(SharedAccessError::Malformed("srt"))?;
                let all = [
                    ('s', ResourceLevel::Service),
                    ('c', ResourceLevel::Container),
                    ('o', ResourceLevel::Object),
                ];
                SignedScope::Account(
                    all.iter()
                        .filter(|(name, _)| levels.contains(*name))
                        .map(|(_, level)| *level)
                        .collect(),
                )
            }
            None if service == SignedService::Table => SignedScope::Table(
                self.find("tn").unwrap_or_default().to_ascii_lowercase(),
                KeyRange::of(self)?,
            ),
            None => SignedScope::Blob,
        };
        Ok(SharedAccess {
            scope,
            permissions,
            lines: self.lines,
            overrides: self.overrides()?,
        })
    }

    /// Returns the header fields to replace. Only the text of a blob's signature covers them.
    fn overrides(&self) -> Result<Vec<(HeaderName, HeaderValue)>, SharedAccessError> {
        let own = OVERRIDES
            .into_iter()
            .filter(|(name, _)| self.lines.contains(&Of(name)));
        let given =
            own.filter_map(|(name, field)| self.find(name).map(|value| (name, field, value)));
        given
            .map(|(name, field, value)| {
                let value =
                    HeaderValue::from_str(value).map_err(|_| SharedAccessError::Malformed(name))?;
                Ok((field, value))
            })
            .collect()
    }

    /// Returns the value of a parameter, unless it is empty.
    fn find(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).filter(|value| !value.is_empty())
    }
}

/// Returns `true` if the query has a shared access signature.
pub fn is_in(query: Option<&str>) -> bool {
    let is_sig = |parameter: &str| {
        parameter
            .get(..4)
            .is_some_and(|begin| begin.eq_ignore_ascii_case("sig="))
    };
    query.is_some_and(|query| query.split('&').any(is_sig))
}

/// Returns the resource in the text of a blob's signature: the container, or the blob.
fn blob_resource(head: &Parts, kind: &str) -> Result<String, SharedAccessError> {
    let decode = |text| match name::decode(text) {
        Ok(text) if !text.contains(char::is_control) => Ok(text.into_owned()),
        _ => Err(SharedAccessError::Malformed("path")),
    };
    let (account, inner) = account_and_rest(head.uri.path());
    let (container, blob) = inner.split_once('/').unwrap_or((inner, ""));
    // A slash in a container's name would make it the name of a blob.
    let container = decode(container)?;
    if container.is_empty() || container.contains('/') {
        return Err(SharedAccessError::Malformed("sr"));
    }
    match kind {
        "c" => Ok(format!("/blob/{account}/{container}")),
        "b" if !blob.is_empty() => Ok(format!("/blob/{account}/{container}/{}", decode(blob)?)),
        "bs" | "bv" | "d" => Err(SharedAccessError::Unsupported(
            "snapshots, versions and directories are not supported",
        )),
        _ => Err(SharedAccessError::Malformed("sr")),
    }
}

/// Returns the resource in the text of a table's signature. The request must be for this table.
fn table_resource(head: &Parts, table: &str) -> Result<String, SharedAccessError> {
    let (account, inner) = account_and_rest(head.uri.path());
    let own = name::decode(inner).map_err(|_| SharedAccessError::Malformed("path"))?;
    let own = own.split('(').next().unwrap_or_default();
    // The operations of a transaction name their tables themselves.
    if !own.eq_ignore_ascii_case(table) && own != "$batch" {
        return Err(SharedAccessError::Malformed("tn"));
    }
    Ok(format!("/table/{account}/{}", table.to_ascii_lowercase()))
}

/// Splits a path into the account and the rest.
fn account_and_rest(path: &str) -> (&str, &str) {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split_once('/').unwrap_or((path, ""))
}

/// Parses an address, or the first and last address of a range.
fn address_range(text: &str) -> Option<(IpAddr, IpAddr)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (IpAddr, IpAddr) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first.is_ipv4() == last.is_ipv4()).then_some((first, last))
}

/// Parses a time in one of the forms that Azure accepts: `2026-11-24`, `2026-11-24T15:00Z`, with seconds, with fractions.
pub(crate) fn instant(text: &str) -> Option<Timestamp> {
    let full = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        17 => format!("{}:00Z", text.strip_suffix('Z')?),
        _ if text.ends_with('Z') => text.to_owned(),
        _ => return None,
    };
    let moment = OffsetDateTime::parse(&full, &Rfc3339).ok()?;
    u64::try_from(moment.unix_timestamp_nanos() / 1000)
        .ok()
        .map(Timestamp::from_micros)
}

/// Returns `true` for a text of the form `2026-02-06`, such as a version.
pub(crate) fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 10
        && bytes.iter().enumerate().all(|(at, byte)| {
            if matches!(at, 4 | 7) {
                *byte == b'-'
            } else {
                byte.is_ascii_digit()
            }
        })
}
