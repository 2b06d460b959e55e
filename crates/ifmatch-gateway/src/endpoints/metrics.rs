//! `/-/metrics`: all metrics, for Prometheus.

use bytes::Bytes;
use http::{Response, StatusCode};

use super::response;
use crate::gateway::state::AppState;
use crate::metrics;

/// Path of the endpoint.
pub(super) const PATH: &str = "/-/metrics";

/// Returns the metrics.
pub(super) fn respond(state: &AppState) -> Response<Bytes> {
    response::text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text(state).into())
}

/// Returns the metrics as text, updated to the present.
pub(super) fn text(state: &AppState) -> String {
    if let Some(blobs) = &state.blobs {
        blobs.expire_leases();
    }
    state.metrics.waits.set(state.waits.count());
    state.metrics.documents.set(state.documents.taken());
    if let Some(cache) = &state.cache {
        metrics::cache::update(&cache.metrics());
    }
    if let Some(following) = state.purges.following() {
        metrics::cache::update_purges(following.position(), following.age(), following.is_cut_off());
    }
    if let Some(proxy) = &state.proxy {
        metrics::upstreams::update(proxy);
    }
    state.metrics.render()
}
