//! The lease of a blob, as a resource of its own: `/{container}/{blob…}?lease`.
//!
//! | request | header fields | response |
//! |---|---|---|
//! | `POST` acquires | `lease-duration`, optional `lease-id`, `lease-holder` | 201 with `lease-id` and `lease-token` |
//! | `PUT` renews | `lease-id` | 200 with `lease-id` and `lease-token` |
//! | `DELETE` releases | `lease-id` | 204 |
//! | `DELETE` breaks | `lease-break-period` | 202 with `lease-remaining` |
//! | `GET`, `HEAD` | | 200 with the state as JSON |

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use ifmatch_core::EntityTag;
use ifmatch_core::fields::not_modified::retain_304_headers;
use ifmatch_core::lease::azure::{HeaderError, single};
use ifmatch_core::lease::{
    self, BreakPeriod, LeaseAction, LeaseDuration, LeaseId, LeaseState, SeenLease,
};
use ifmatch_core::precondition::{self, Preconditions, Validators, Verdict};
use ifmatch_core::problem::Problem;
use ifmatch_runtime::random_bytes;

use super::fields;
use super::problem::no_such_blob;
use crate::body::BlobBody;
use crate::dialect::Context;
use crate::leases;
use crate::name::BlobPath;
use crate::store::{LeaseRequest, Reading};

/// A lease's query.
const QUERY: &str = "lease";
/// The duration of a lease to acquire.
const DURATION: HeaderName = HeaderName::from_static("lease-duration");
/// The time for which a broken lease continues to lock.
const BREAK_PERIOD: HeaderName = HeaderName::from_static("lease-break-period");
/// The time that remains.
const REMAINING: HeaderName = HeaderName::from_static("lease-remaining");

/// Returns `true` if a request is about the lease of a blob.
pub(super) fn is_named(head: &Parts) -> bool {
    head.uri.query() == Some(QUERY)
}

/// Returns the state of the lease. Its tag changes with the state and with each new holder, not with a renewal.
pub(super) async fn get(
    shared: &Context,
    head: &Parts,
    blob: &BlobPath,
) -> Result<Response<BlobBody>, Problem> {
    let opened = shared
        .store
        .open(blob, Reading::HEAD)
        .await?
        .ok_or_else(no_such_blob)?;
    let lease = opened.info.lease.as_ref();
    let tag = tag(lease);
    let mut headers = HeaderMap::new();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.extend(tag.as_ref().map(|tag| (ETAG, tag.to_header())));
    let current = Validators {
        tags: tag.as_slice(),
        last_modified: None,
    };
    let (status, body) = match precondition::evaluate(&head.headers, &head.method, Some(&current)) {
        Verdict::Failed(failed) => return Err(Problem::precondition_failed(failed, tag.as_ref())),
        Verdict::NotModified => {
            retain_304_headers(&mut headers);
            (StatusCode::NOT_MODIFIED, BlobBody::empty())
        }
        Verdict::Proceed => {
            let text = serde_json::Value::Object(leases::describe(lease)).to_string();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(CONTENT_LENGTH, text.len().into());
            (
                StatusCode::OK,
                if head.method == Method::HEAD {
                    BlobBody::empty()
                } else {
                    text.into()
                },
            )
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Returns a weak tag, since the remaining time changes without it.
fn tag(seen: Option<&SeenLease>) -> Option<EntityTag> {
    let token = seen
        .map(|seen| seen.lease.token().get())
        .unwrap_or_default();
    let state = seen.map_or(LeaseState::Available, SeenLease::state).name();
    EntityTag::weak(&format!("{token}-{state}")).ok()
}

/// Carries out an operation on the lease.
pub(super) async fn operate(
    shared: &Context,
    head: &Parts,
    blob: &BlobPath,
) -> Result<Response<BlobBody>, Problem> {
    let action = action(head)?;
    let preconditions = Preconditions::from_headers(&head.headers);
    let request = LeaseRequest {
        action,
        preconditions,
        request: fields::request_key(head)?,
    };
    let receipt = shared.store.lease(blob, request).await?.receipt;
    let mut response = Response::new(BlobBody::empty());
    *response.status_mut() = match action {
        LeaseAction::Acquire { .. } => StatusCode::CREATED,
        LeaseAction::Break { .. } => StatusCode::ACCEPTED,
        LeaseAction::Release(_) => StatusCode::NO_CONTENT,
        LeaseAction::Renew(_) | LeaseAction::Change { .. } => StatusCode::OK,
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    match (action, receipt.lease) {
        (LeaseAction::Release(_), _) => {}
        (LeaseAction::Break { .. }, _) | (_, None) => {
            headers.extend(
                receipt
                    .seconds_left()
                    .map(|seconds| (REMAINING, seconds.into())),
            );
        }
        (_, Some(lease)) => {
            let id = HeaderValue::try_from(lease.id().to_string()).ok();
            headers.extend(id.map(|id| (lease::fields::ID, id)));
            headers.extend([lease::fields::token_of(&lease)]);
            headers.extend(
                receipt
                    .seconds_left()
                    .map(|seconds| (REMAINING, seconds.into())),
            );
        }
    }
    Ok(response)
}

fn action(head: &Parts) -> Result<LeaseAction, Problem> {
    let headers = &head.headers;
    let id = fields::lease_id(headers)?;
    let period = number(
        headers,
        BREAK_PERIOD,
        "0 to 60 seconds",
        BreakPeriod::from_seconds,
    )?;
    match (&head.method, id, period) {
        (&Method::POST, id, _) => {
            let rule = "15 to 60 seconds, or -1 for a lease without an end";
            let duration = number(headers, DURATION, rule, LeaseDuration::from_seconds)?;
            let duration = duration.ok_or(HeaderError::Missing(DURATION))?;
            let holder = lease::fields::holder(headers)?;
            Ok(LeaseAction::Acquire {
                id: id.map_or_else(random_id, Ok)?,
                duration,
                holder,
            })
        }
        (&Method::PUT, Some(id), _) => Ok(LeaseAction::Renew(id)),
        (&Method::DELETE, Some(id), None) => Ok(LeaseAction::Release(id)),
        (&Method::DELETE, None, Some(period)) => Ok(LeaseAction::Break {
            period: Some(period),
            token: None,
        }),
        (&Method::DELETE, ..) => Err(Problem::bad_request(
            "send lease-id to release the lease, or lease-break-period to break it without its id",
        )),
        _ => Err(HeaderError::Missing(lease::fields::ID).into()),
    }
}

fn number<T>(
    headers: &HeaderMap,
    name: HeaderName,
    rule: &'static str,
    parse: fn(i64) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let Some(text) = single(headers, name.clone())? else {
        return Ok(None);
    };
    let value = text.parse().ok().and_then(parse);
    value
        .map(Some)
        .ok_or_else(|| HeaderError::Invalid(name, rule).into())
}

fn random_id() -> Result<LeaseId, Problem> {
    random_bytes()
        .map(LeaseId::from_random)
        .map_err(|_| Problem::unavailable(Duration::from_secs(1)))
}
