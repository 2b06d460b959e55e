//! Lease Blob and Lease Container.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_core::lease::{BreakPeriod, LeaseAction, LeaseDuration, LeaseUse};

use super::conditions;
use super::error::AzureError;
use super::{Call, container, fields, response, retry, write};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{LeaseRequest, Leased};

const ACTION: HeaderName = HeaderName::from_static("x-ms-lease-action");
const DURATION: HeaderName = HeaderName::from_static("x-ms-lease-duration");
const PROPOSED_ID: HeaderName = HeaderName::from_static("x-ms-proposed-lease-id");
const BREAK_PERIOD: HeaderName = HeaderName::from_static("x-ms-lease-break-period");
const TIME: HeaderName = HeaderName::from_static("x-ms-lease-time");

pub(super) async fn of_blob(call: &Call, blob: &BlobPath) -> Result<Response<BlobBody>, AzureError> {
    let action = action(&call.head.headers)?;
    let conditions = conditions::of_write(&call.head.headers)?;
    write::look(call, blob, &conditions, LeaseUse::Read(None)).await?;
    let request = LeaseRequest { action, preconditions: conditions.preconditions, request: retry::key(&call.head) };
    match call.shared.store.lease(blob, request).await {
        Ok(leased) => Ok(answer(action, &leased)),
        Err(error) => Err(write::explain(call, blob, error).await),
    }
}

pub(super) async fn of_container(call: &Call, container: &ContainerName) -> Result<Response<BlobBody>, AzureError> {
    let action = action(&call.head.headers)?;
    let conditions = conditions::of_write(&call.head.headers)?;
    container::look(call, container, &conditions, LeaseUse::Read(None)).await?;
    let request = LeaseRequest { action, preconditions: conditions.preconditions, request: retry::key(&call.head) };
    let leased = call.shared.store.lease_container(container, request).await.map_err(AzureError::of_container)?;
    Ok(answer(action, &leased))
}

fn action(headers: &HeaderMap) -> Result<LeaseAction, AzureError> {
    let id = || {
        fields::lease_id(headers, &fields::LEASE_ID)?
            .ok_or_else(|| AzureError::missing_field(fields::LEASE_ID.as_str()))
    };
    let proposed = || fields::lease_id(headers, &PROPOSED_ID);
    match fields::required(headers, &ACTION)?.to_ascii_lowercase().as_str() {
        "acquire" => {
            let duration = duration(headers)?;
            let id = proposed()?.or_else(fields::guid).ok_or_else(AzureError::busy)?;
            Ok(LeaseAction::Acquire { id, duration })
        }
        "renew" => Ok(LeaseAction::Renew(id()?)),
        "change" => {
            let id = id()?;
            let proposed = proposed()?.ok_or_else(|| AzureError::missing_field(PROPOSED_ID.as_str()))?;
            Ok(LeaseAction::Change { id, proposed })
        }
        "release" => Ok(LeaseAction::Release(id()?)),
        "break" => Ok(LeaseAction::Break(break_period(headers)?)),
        _ => Err(AzureError::invalid_field(ACTION.as_str(), "must be acquire, renew, change, release or break")),
    }
}

fn duration(headers: &HeaderMap) -> Result<LeaseDuration, AzureError> {
    let seconds = fields::required(headers, &DURATION)?.parse().ok();
    let invalid =
        || AzureError::invalid_field(DURATION.as_str(), "must be 15 to 60 seconds, or -1 for an infinite lease");
    seconds.and_then(LeaseDuration::from_seconds).ok_or_else(invalid)
}

fn break_period(headers: &HeaderMap) -> Result<Option<BreakPeriod>, AzureError> {
    let Some(text) = fields::one(headers, &BREAK_PERIOD)? else { return Ok(None) };
    let period = text.parse().ok().and_then(BreakPeriod::from_seconds);
    period.map(Some).ok_or_else(|| AzureError::invalid_field(BREAK_PERIOD.as_str(), "must be 0 to 60 seconds"))
}

fn answer(action: LeaseAction, leased: &Leased) -> Response<BlobBody> {
    let status = match action {
        LeaseAction::Acquire { .. } => StatusCode::CREATED,
        LeaseAction::Break(_) => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    let mut response = response::empty(status, leased.tag.as_ref(), Some(leased.last_modified));
    let headers = response.headers_mut();
    if matches!(action, LeaseAction::Break(_)) {
        headers.insert(TIME, leased.receipt.seconds_left().unwrap_or_default().into());
    } else if let Some(lease) = leased.receipt.lease {
        let id = HeaderValue::try_from(lease.id().to_string()).ok();
        headers.extend(id.map(|id| (fields::LEASE_ID, id)));
    }
    response
}
