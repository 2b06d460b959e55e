//! What a lease operation is answered with.

use http::header::{ETAG, LAST_MODIFIED};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body;
use ifmatch_core::command::Observed;
use ifmatch_core::lease::{LeaseAction, LeaseReceipt};
use ifmatch_register::{Applied, Register};
use ifmatch_runtime::Clock;

use super::LEASE_ID;
use super::request::LeaseRequest;
use crate::body::ResponseBody;
use crate::read::compressed_tag;
use crate::write::Writing;

const LEASE_TIME: HeaderName = HeaderName::from_static("x-ms-lease-time");

/// The answer to an operation that was carried out. It has the validators of the resource where they are known for certain:
/// the register knows them, or a probe has just seen them.
pub(super) fn carried_out<T: Body, R: Register, C: Clock>(
    writing: &Writing<R, C>,
    wanted: &LeaseRequest,
    receipt: &LeaseReceipt,
    applied: &Applied,
    observed: Option<&Observed>,
) -> Response<ResponseBody<T>> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = match wanted.action {
        LeaseAction::Acquire { .. } => StatusCode::CREATED,
        LeaseAction::Renew(_) | LeaseAction::Change { .. } | LeaseAction::Release(_) => StatusCode::OK,
        LeaseAction::Break(_) => StatusCode::ACCEPTED,
    };
    let headers = response.headers_mut();
    if let LeaseAction::Break(_) = wanted.action {
        headers.insert(LEASE_TIME, receipt.seconds_left().unwrap_or_default().into());
    } else if let Some(lease) = receipt.lease {
        headers.extend(HeaderValue::from_str(&lease.id().to_string()).ok().map(|id| (LEASE_ID, id)));
    }
    let shared = &writing.shared;
    let now = shared.now();
    let seen = observed.is_some_and(|observed| Some(observed.snapshot) == applied.before.snapshot(now));
    let version = applied.after.settled(now).filter(|_| seen || shared.is_authoritative());
    if let Some(version) = version
        && let [tag] = version.tags()
    {
        let shown = shared.config.behind_compression.then(|| compressed_tag::shown(tag, &writing.head.headers));
        headers.insert(ETAG, shown.as_ref().unwrap_or(tag).to_header());
        if version.last_modified().has_come(shared.wall()) {
            headers.insert(LAST_MODIFIED, version.last_modified().to_header());
        }
    }
    response
}
