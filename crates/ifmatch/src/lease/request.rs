//! Lease header fields of a request.

use http::request::Parts;
use http::{HeaderMap, HeaderName};
use ifmatch_core::lease::{BreakPeriod, LeaseAction, LeaseDuration, LeaseId, LeaseUse};
use ifmatch_core::problem::Problem;
use ifmatch_core::record::RequestId;

use crate::config::Config;
use crate::responses;

pub(super) const LEASE_ID: HeaderName = HeaderName::from_static("x-ms-lease-id");
const ACTION: HeaderName = HeaderName::from_static("x-ms-lease-action");
const DURATION: HeaderName = HeaderName::from_static("x-ms-lease-duration");
const BREAK_PERIOD: HeaderName = HeaderName::from_static("x-ms-lease-break-period");
const PROPOSED_ID: HeaderName = HeaderName::from_static("x-ms-proposed-lease-id");
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");

/// A lease operation and the identity of its request.
#[derive(Debug)]
pub(super) struct LeaseRequest {
    pub(super) action: LeaseAction,
    pub(super) id: Option<RequestId>,
}

impl LeaseRequest {
    /// Parses the header fields of a lease operation.
    ///
    /// # Errors
    /// 400 if a field is missing, malformed or out of range; 503 if the system has no random numbers for a new id.
    pub(super) fn parse(headers: &HeaderMap) -> Result<Self, Problem> {
        let name = field(headers, &ACTION)?.ok_or_else(|| missing(&ACTION))?.to_ascii_lowercase();
        let action = match name.as_str() {
            "acquire" => {
                let duration = number(headers, &DURATION, "-1, or 15 to 60", LeaseDuration::from_seconds)?;
                let duration = duration.ok_or_else(|| missing(&DURATION))?;
                let id = id(headers, &PROPOSED_ID)?.map_or_else(random_id, Ok)?;
                LeaseAction::Acquire { id, duration }
            }
            "renew" => LeaseAction::Renew(required_id(headers, &LEASE_ID)?),
            "change" => {
                let proposed = required_id(headers, &PROPOSED_ID)?;
                LeaseAction::Change { id: required_id(headers, &LEASE_ID)?, proposed }
            }
            "release" => LeaseAction::Release(required_id(headers, &LEASE_ID)?),
            "break" => LeaseAction::Break(number(headers, &BREAK_PERIOD, "0 to 60", BreakPeriod::from_seconds)?),
            _ => return Err(invalid(&ACTION, "acquire, renew, change, release or break")),
        };
        let given = [&LEASE_ID, &PROPOSED_ID, &DURATION, &BREAK_PERIOD].map(|name| headers.get(name));
        let id = field(headers, &CLIENT_REQUEST_ID)?.map(|client| {
            let given = given.map(|value| value.map_or(&b""[..], |value| value.as_bytes()));
            RequestId::of(&[client.as_bytes(), name.as_bytes(), given[0], given[1], given[2], given[3]])
        });
        Ok(Self { action, id })
    }
}

/// Returns the lease that a write presents.
///
/// # Errors
/// 400 if it is not a lease id.
pub(crate) fn lease_of_write(config: &Config, head: &Parts) -> Result<LeaseUse, Problem> {
    if names_lease(config, head) { lease_id(&head.headers).map(LeaseUse::Write) } else { Ok(LeaseUse::default()) }
}

/// Returns `true` if a request presents a lease, to a resource that has leases.
pub(crate) fn names_lease(config: &Config, head: &Parts) -> bool {
    config.leases && head.headers.contains_key(LEASE_ID) && config.leases(head)
}

/// Returns the lease id that a request presents.
///
/// # Errors
/// 400 if it is not a lease id.
pub(super) fn lease_id(headers: &HeaderMap) -> Result<Option<LeaseId>, Problem> {
    id(headers, &LEASE_ID)
}

/// Removes the fields of a lease operation, since a probe is about the resource.
pub(super) fn strip_lease_fields(headers: &mut HeaderMap) {
    for name in [ACTION, DURATION, BREAK_PERIOD, PROPOSED_ID, LEASE_ID] {
        headers.remove(name);
    }
}

fn id(headers: &HeaderMap, name: &HeaderName) -> Result<Option<LeaseId>, Problem> {
    let Some(text) = field(headers, name)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| invalid(name, "a GUID"))
}

fn required_id(headers: &HeaderMap, name: &HeaderName) -> Result<LeaseId, Problem> {
    id(headers, name)?.ok_or_else(|| missing(name))
}

fn random_id() -> Result<LeaseId, Problem> {
    let half = || ifmatch_runtime::nonce().map_err(|_| Problem::unavailable(responses::RETRY_AFTER));
    let number = u128::from(half()?) << 64 | u128::from(half()?);
    Ok(LeaseId::from_random(number.to_be_bytes()))
}

fn number<T>(
    headers: &HeaderMap,
    name: &HeaderName,
    range: &str,
    within: impl Fn(i64) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let Some(text) = field(headers, name)? else { return Ok(None) };
    text.parse().ok().and_then(within).map(Some).ok_or_else(|| invalid(name, range))
}

/// Returns the value of a field that must not be repeated.
fn field<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => line.to_str().map(|text| Some(text.trim())).map_err(|_| invalid(name, "visible ASCII")),
        (Some(_), Some(_)) => Err(invalid(name, "one value")),
    }
}

fn invalid(name: &HeaderName, expected: &str) -> Problem {
    Problem::bad_request(format!("{name} must be {expected}"))
        .member("header", name.as_str())
        .code("InvalidHeaderValue")
}

fn missing(name: &HeaderName) -> Problem {
    Problem::bad_request(format!("{name} is missing")).member("header", name.as_str()).code("MissingRequiredHeader")
}
