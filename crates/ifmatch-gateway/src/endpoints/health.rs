//! `/-/health`: for load balancers. Needs no token.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;

use super::response;
use crate::gateway::state::AppState;

/// Path of the endpoint.
pub(super) const PATH: &str = "/-/health";

/// Returns 200, or 503 once the gateway is about to stop.
pub(super) fn respond(state: &AppState) -> Response<Bytes> {
    if state.is_stopping() {
        response::json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "stopping" }))
    } else {
        response::json(StatusCode::OK, &json!({ "status": "ok" }))
    }
}
