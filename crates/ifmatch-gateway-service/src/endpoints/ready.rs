//! `/-/health` and `/-/ready`: for load balancers. They need no token.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use ifmatch_blob_indexed::IndexedStore;
use serde_json::json;

use super::answer_json;
use crate::purges::Following;
use crate::readiness::FailedComponent;
use crate::state::AppState;

/// Whether requests can be served.
pub(super) enum Ready {
    /// They can.
    Yes,
    /// The gateway is about to stop.
    Stopping,
    /// The store or its register doesn't respond, or refuses changes, for this reason.
    Unavailable(FailedComponent),
}

/// Checks whether requests can be served.
pub(super) async fn check(state: &AppState) -> Ready {
    match &state.blobs {
        _ if state.is_stopping() => Ready::Stopping,
        Some(blobs) => {
            let index = blobs.folder.as_ref().map(IndexedStore::index);
            match state
                .readiness
                .check(&blobs.store, blobs.register.as_deref().or(index))
                .await
            {
                Ok(()) => Ready::Yes,
                Err(down) => Ready::Unavailable(down),
            }
        }
        None => Ready::Yes,
    }
}

/// Returns what an operator should know although requests can be served.
pub(super) fn warning(state: &AppState) -> Option<String> {
    let is_cut_off = state.following().is_some_and(Following::is_cut_off);
    let purges = is_cut_off.then(|| {
        "the purge log is unreadable, so stored responses are revalidated before use. Check the server of --purge-register".to_owned()
    });
    let warnings: Vec<String> = state
        .certificate_problem()
        .into_iter()
        .chain(purges)
        .collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

/// Returns 200 if requests can be served, or 503 if the store doesn't respond, its register doesn't respond or
/// refuses changes, or the gateway is about to stop. An expired certificate is a warning: others have the same, so taking this
/// gateway out wouldn't help. Nor does it if the purge log can't be read. The reason is in `/-/overview`, which needs a token.
pub(super) async fn respond(state: &AppState) -> Response<Bytes> {
    let status = match check(state).await {
        Ready::Stopping => "stopping",
        Ready::Unavailable(_) => "unavailable",
        Ready::Yes => {
            let body = match warning(state) {
                None => json!({ "status": "ready" }),
                Some(problem) => json!({ "status": "ready", "warning": problem }),
            };
            return answer_json(StatusCode::OK, &body);
        }
    };
    let mut response = answer_json(
        StatusCode::SERVICE_UNAVAILABLE,
        &json!({ "status": status }),
    );
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Returns 200, or 503 once the gateway is about to stop.
pub(super) fn respond_health(state: &AppState) -> Response<Bytes> {
    if state.is_stopping() {
        answer_json(
            StatusCode::SERVICE_UNAVAILABLE,
            &json!({ "status": "stopping" }),
        )
    } else {
        answer_json(StatusCode::OK, &json!({ "status": "ok" }))
    }
}
