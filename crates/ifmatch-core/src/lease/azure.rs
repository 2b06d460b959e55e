//! Azure's vocabulary for leases: header fields, formats of ids, limits and error codes.

use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use uuid::Uuid;

use super::{
    BreakPeriod, InvalidLeaseId, LeaseAction, LeaseConflict, LeaseDuration, LeaseFailure, LeaseId,
    fields,
};
use crate::problem::Problem;

/// The lease operation.
pub const ACTION: HeaderName = HeaderName::from_static("x-ms-lease-action");
/// The duration of a lease to acquire.
pub const DURATION: HeaderName = HeaderName::from_static("x-ms-lease-duration");
/// The time for which a broken lease continues to lock.
pub const BREAK_PERIOD: HeaderName = HeaderName::from_static("x-ms-lease-break-period");
/// The lease's id.
pub const ID: HeaderName = HeaderName::from_static("x-ms-lease-id");
/// The id of a lease to acquire, or the new id of a lease.
pub const PROPOSED_ID: HeaderName = HeaderName::from_static("x-ms-proposed-lease-id");
/// The remaining time of a broken lease.
pub const TIME: HeaderName = HeaderName::from_static("x-ms-lease-time");
/// The client's id of the request.
pub const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
/// The error code of a response.
pub const ERROR_CODE: HeaderName = HeaderName::from_static("x-ms-error-code");

/// The header fields of a request for a lease operation.
pub const OPERATION_HEADERS: [HeaderName; 5] = [ACTION, DURATION, BREAK_PERIOD, ID, PROPOSED_ID];

/// A lease header field is missing or invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// A required field is missing.
    #[error("{0} is missing")]
    Missing(HeaderName),
    /// A field is repeated or has an invalid value.
    #[error("{0} must be {1}")]
    Invalid(HeaderName, &'static str),
}

impl HeaderError {
    /// Returns the field.
    pub fn header(&self) -> &HeaderName {
        match self {
            Self::Missing(name) | Self::Invalid(name, _) => name,
        }
    }

    /// Returns Azure's error code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing(_) => "MissingRequiredHeader",
            Self::Invalid(..) => "InvalidHeaderValue",
        }
    }
}

impl From<HeaderError> for Problem {
    fn from(error: HeaderError) -> Self {
        Self::bad_request(error.to_string())
            .member("header", error.header().as_str())
            .code(error.code())
    }
}

/// Reads the lease operation of a request. `new_id` returns the id of an acquired lease if the request proposes none.
///
/// # Errors
/// Fails if a field is missing or invalid, or if `new_id` fails.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use ifmatch_core::lease::azure::{ACTION, HeaderError, action};
/// use ifmatch_core::lease::{LeaseAction, LeaseId};
///
/// let new_id = || Ok::<_, HeaderError>(LeaseId::from_random([1; 16]));
/// let mut headers = HeaderMap::new();
/// assert_eq!(action(&headers, new_id), Err(HeaderError::Missing(ACTION)));
/// headers.insert(ACTION, HeaderValue::from_static("break"));
/// assert_eq!(action(&headers, new_id), Ok(LeaseAction::Break { period: None, token: None }));
/// ```
pub fn action<E>(
    headers: &HeaderMap,
    new_id: impl FnOnce() -> Result<LeaseId, E>,
) -> Result<LeaseAction, E>
where
    E: From<HeaderError>,
{
    Ok(
        match required(headers, ACTION)?.to_ascii_lowercase().as_str() {
            "acquire" => {
                let duration =
                    number(required(headers, DURATION)?).and_then(LeaseDuration::from_seconds);
                let invalid = || {
                    HeaderError::Invalid(DURATION, "15 to 60 seconds, or -1 for an infinite lease")
                };
                let duration = duration.ok_or_else(invalid)?;
                let holder = fields::holder(headers)?;
                LeaseAction::Acquire {
                    id: id(headers, PROPOSED_ID)?.map_or_else(new_id, Ok)?,
                    duration,
                    holder,
                }
            }
            "renew" => LeaseAction::Renew(required_id(headers, ID)?),
            "change" => LeaseAction::Change {
                id: required_id(headers, ID)?,
                proposed: required_id(headers, PROPOSED_ID)?,
            },
            "release" => LeaseAction::Release(required_id(headers, ID)?),
            "break" => {
                let period = single(headers, BREAK_PERIOD)?.map(|text| {
                    let period = number(text).and_then(BreakPeriod::from_seconds);
                    period.ok_or(HeaderError::Invalid(BREAK_PERIOD, "0 to 60 seconds"))
                });
                LeaseAction::Break {
                    period: period.transpose()?,
                    token: None,
                }
            }
            _ => {
                return Err(HeaderError::Invalid(
                    ACTION,
                    "acquire, renew, change, release or break",
                )
                .into());
            }
        },
    )
}

/// Returns the value of [`ACTION`] for an operation.
pub fn action_name(action: &LeaseAction) -> &'static str {
    match action {
        LeaseAction::Acquire { .. } => "acquire",
        LeaseAction::Renew(_) => "renew",
        LeaseAction::Change { .. } => "change",
        LeaseAction::Release(_) => "release",
        LeaseAction::Break { .. } => "break",
    }
}

/// Reads a lease id. Returns `None` if the field is absent.
///
/// # Errors
/// Fails if the field is repeated or not a GUID.
pub fn id(headers: &HeaderMap, name: HeaderName) -> Result<Option<LeaseId>, HeaderError> {
    let Some(text) = single(headers, name.clone())? else {
        return Ok(None);
    };
    text.parse()
        .map(Some)
        .map_err(|_| HeaderError::Invalid(name, "a GUID"))
}

fn required_id(headers: &HeaderMap, name: HeaderName) -> Result<LeaseId, HeaderError> {
    id(headers, name.clone())?.ok_or(HeaderError::Missing(name))
}

fn required(headers: &HeaderMap, name: HeaderName) -> Result<&str, HeaderError> {
    single(headers, name.clone())?.ok_or(HeaderError::Missing(name))
}

/// Returns the value of a field that must not be repeated.
///
/// # Errors
/// Fails if the field is repeated or not visible ASCII.
pub fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, HeaderError> {
    let mut lines = headers.get_all(&name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => line
            .to_str()
            .map(|text| Some(text.trim()))
            .map_err(|_| HeaderError::Invalid(name, "visible ASCII")),
        (Some(_), Some(_)) => Err(HeaderError::Invalid(name, "one value")),
    }
}

fn number(text: &str) -> Option<i64> {
    text.parse().ok()
}

impl FromStr for LeaseId {
    type Err = InvalidLeaseId;

    /// Parses the formats N, D, B, P and X of .NET's `Guid`.
    fn from_str(text: &str) -> Result<Self, InvalidLeaseId> {
        let inner = |open: char, close: char| text.strip_prefix(open)?.strip_suffix(close);
        let uuid = match text.len() {
            32 | 36 => Some(text),
            38 => inner('{', '}').or_else(|| inner('(', ')')),
            _ => return parse_x(text).ok_or(InvalidLeaseId),
        };
        uuid.and_then(|text| Uuid::try_parse(text).ok())
            .map(Self::from)
            .ok_or(InvalidLeaseId)
    }
}

/// Parses format X: `{0x00000000,0x0000,0x0000,{0x00,0x00,0x00,0x00,0x00,0x00,0x00,0x00}}`, leading zeros optional.
fn parse_x(text: &str) -> Option<LeaseId> {
    const WIDTHS: [usize; 11] = [8, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2];
    let inner = text.strip_prefix('{')?.strip_suffix("}}")?;
    let (head, tail) = inner.split_once(",{")?;
    let number = |(text, width): (&str, usize)| {
        let digits = text
            .strip_prefix("0x")
            .or_else(|| text.strip_prefix("0X"))?;
        (1..=width)
            .contains(&digits.len())
            .then(|| format!("{digits:0>width$}"))
    };
    let parts: Vec<&str> = head.split(',').chain(tail.split(',')).collect();
    if parts.len() != WIDTHS.len() {
        return None;
    }
    let digits: String = parts
        .into_iter()
        .zip(WIDTHS)
        .map(number)
        .collect::<Option<_>>()?;
    Uuid::try_parse(&digits).ok().map(LeaseId::from)
}

impl LeaseDuration {
    /// Returns the duration for the number on the wire: -1, or 15 to 60 seconds.
    ///
    /// ```
    /// use ifmatch_core::lease::LeaseDuration;
    ///
    /// assert_eq!(LeaseDuration::from_seconds(-1), Some(LeaseDuration::Infinite));
    /// assert!(LeaseDuration::from_seconds(15).is_some());
    /// assert_eq!(LeaseDuration::from_seconds(14), None);
    /// assert_eq!(LeaseDuration::from_seconds(61), None);
    /// ```
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        match seconds {
            -1 => Some(Self::Infinite),
            15..=60 => u8::try_from(seconds).ok().map(Self::Seconds),
            _ => None,
        }
    }
}

impl LeaseConflict {
    /// Returns Azure's error code.
    pub fn code(self) -> &'static str {
        match self {
            Self::AlreadyPresent => "LeaseAlreadyPresent",
            Self::IsBreakingAndCannotBeAcquired => "LeaseIsBreakingAndCannotBeAcquired",
            Self::IsBrokenAndCannotBeRenewed => "LeaseIsBrokenAndCannotBeRenewed",
            Self::IsBreakingAndCannotBeChanged => "LeaseIsBreakingAndCannotBeChanged",
            Self::IdMismatch => "LeaseIdMismatchWithLeaseOperation",
            Self::NotPresent => "LeaseNotPresentWithLeaseOperation",
            // Azure's requests name no token.
            Self::TokenMismatch => "LeaseTokenMismatch",
        }
    }
}

impl LeaseFailure {
    /// Returns Azure's error code for a blob.
    pub fn blob_code(self) -> &'static str {
        match self {
            Self::NotPresent => "LeaseNotPresentWithBlobOperation",
            Self::IdMismatch => "LeaseIdMismatchWithBlobOperation",
            Self::IdMissing => "LeaseIdMissing",
            Self::Lost => "LeaseLost",
            Self::Superseded => "LeaseTokenSuperseded",
        }
    }

    /// Returns Azure's error code for a container.
    pub fn container_code(self) -> &'static str {
        match self {
            Self::NotPresent => "LeaseNotPresentWithContainerOperation",
            Self::IdMismatch => "LeaseIdMismatchWithContainerOperation",
            other => other.blob_code(),
        }
    }
}

impl Problem {
    /// Adds Azure's error code: as the member `code`, and in the header field `x-ms-error-code`.
    #[must_use]
    pub fn code(self, code: &'static str) -> Self {
        self.member("code", code)
            .header(ERROR_CODE, HeaderValue::from_static(code))
    }

    /// 412: the lease doesn't permit the request. Unlike with a stale tag, a retry with a new tag doesn't help. The
    /// member `code` and the header field `x-ms-error-code` tell the two apart.
    ///
    /// ```
    /// # use ifmatch_core::lease::LeaseFailure;
    /// # use ifmatch_core::problem::Problem;
    /// let response = Problem::lease_failed(LeaseFailure::IdMissing).to_response();
    /// assert_eq!(response.status(), 412);
    /// assert_eq!(response.headers()["x-ms-error-code"], "LeaseIdMissing");
    /// ```
    pub fn lease_failed(failure: LeaseFailure) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "lease-failed")
            .detail(failure.to_string())
            .code(failure.blob_code())
    }

    /// 409: the lease operation conflicts with the state of the lease.
    pub fn lease_conflict(conflict: LeaseConflict) -> Self {
        Self::new(StatusCode::CONFLICT, "lease-conflict")
            .detail(conflict.to_string())
            .code(conflict.code())
    }
}
