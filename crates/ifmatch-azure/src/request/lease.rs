//! The action of Lease Blob and Lease Container.

use http::{HeaderMap, HeaderName};
use ifmatch_core::lease::{BreakPeriod, LeaseAction, LeaseDuration};

use super::headers;
use crate::error::AzureError;
use crate::guid;

const ACTION: HeaderName = HeaderName::from_static("x-ms-lease-action");
const DURATION: HeaderName = HeaderName::from_static("x-ms-lease-duration");
const PROPOSED_ID: HeaderName = HeaderName::from_static("x-ms-proposed-lease-id");
const BREAK_PERIOD: HeaderName = HeaderName::from_static("x-ms-lease-break-period");

/// Parses the action of a lease operation.
pub(super) fn action(fields: &HeaderMap) -> Result<LeaseAction, AzureError> {
    let id = || {
        headers::lease_id(fields, &headers::LEASE_ID)?
            .ok_or_else(|| AzureError::missing_header(headers::LEASE_ID.as_str()))
    };
    let proposed = || headers::lease_id(fields, &PROPOSED_ID);
    match headers::required(fields, &ACTION)?.to_ascii_lowercase().as_str() {
        "acquire" => {
            let duration = duration(fields)?;
            let id = proposed()?.or_else(guid::random).ok_or_else(AzureError::busy)?;
            Ok(LeaseAction::Acquire { id, duration })
        }
        "renew" => Ok(LeaseAction::Renew(id()?)),
        "change" => {
            let id = id()?;
            let proposed = proposed()?.ok_or_else(|| AzureError::missing_header(PROPOSED_ID.as_str()))?;
            Ok(LeaseAction::Change { id, proposed })
        }
        "release" => Ok(LeaseAction::Release(id()?)),
        "break" => Ok(LeaseAction::Break(break_period(fields)?)),
        _ => Err(AzureError::invalid_header(ACTION.as_str(), "must be acquire, renew, change, release or break")),
    }
}

fn duration(fields: &HeaderMap) -> Result<LeaseDuration, AzureError> {
    let seconds = headers::required(fields, &DURATION)?.parse().ok();
    let invalid =
        || AzureError::invalid_header(DURATION.as_str(), "must be 15 to 60 seconds, or -1 for an infinite lease");
    seconds.and_then(LeaseDuration::from_seconds).ok_or_else(invalid)
}

fn break_period(fields: &HeaderMap) -> Result<Option<BreakPeriod>, AzureError> {
    let Some(text) = headers::one(fields, &BREAK_PERIOD)? else { return Ok(None) };
    let period = text.parse().ok().and_then(BreakPeriod::from_seconds);
    period.map(Some).ok_or_else(|| AzureError::invalid_header(BREAK_PERIOD.as_str(), "must be 0 to 60 seconds"))
}
