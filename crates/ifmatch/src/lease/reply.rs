//! The response to a lease operation.

use http::header::{ETAG, LAST_MODIFIED};
use http::{HeaderValue, Response, StatusCode};
use http_body::Body;
use ifmatch_core::command::Observed;
use ifmatch_core::lease::{LeaseAction, LeaseReceipt, azure};
use ifmatch_register::Applied;

use super::request::LeaseRequest;
use crate::body::ResponseBody;
use crate::read::compressed_tag;
use crate::write::request::WriteContext;

/// Builds the response to an operation that has succeeded. It carries the validators of the resource if they are certain:
/// the register is authoritative, or a probe has just seen them.
pub(super) fn success<T: Body>(
    context: &WriteContext,
    request: &LeaseRequest,
    receipt: &LeaseReceipt,
    applied: &Applied,
    observed: Option<&Observed>,
) -> Response<ResponseBody<T>> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = match request.action {
        LeaseAction::Acquire { .. } => StatusCode::CREATED,
        LeaseAction::Renew(_) | LeaseAction::Change { .. } | LeaseAction::Release(_) => {
            StatusCode::OK
        }
        LeaseAction::Break { .. } => StatusCode::ACCEPTED,
    };
    let headers = response.headers_mut();
    if let LeaseAction::Break { .. } = request.action {
        headers.insert(
            azure::TIME,
            receipt.seconds_left().unwrap_or_default().into(),
        );
    } else if let Some(lease) = receipt.lease {
        headers.extend(
            HeaderValue::from_str(&lease.id().to_string())
                .ok()
                .map(|id| (azure::ID, id)),
        );
    }
    let shared = &context.shared;
    let now = shared.now();
    let was_probed =
        observed.is_some_and(|observed| Some(observed.snapshot) == applied.before.snapshot(now));
    let version = applied
        .after
        .settled(now)
        .filter(|_| was_probed || shared.is_authoritative());
    if let Some(version) = version
        && let [tag] = version.tags()
    {
        let shown = shared
            .config
            .behind_compression
            .then(|| compressed_tag::shown(tag, &context.head.headers));
        headers.insert(ETAG, shown.as_ref().unwrap_or(tag).to_header());
        if version.last_modified().has_come(shared.wall()) {
            headers.insert(LAST_MODIFIED, version.last_modified().to_header());
        }
    }
    response
}
