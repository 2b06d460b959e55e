//! `/-/overview`: the state of the gateway at a glance, and the reason if it is not ready.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use ifmatch_register::Engine;
use ifmatch_runtime::{Clock, SystemClock};
use serde_json::{Value, json};

use super::ready::{self, Ready};
use super::{metrics, response};
use crate::conflicts::seconds;
use crate::gateway::state::AppState;
use crate::metrics::samples::Samples;

/// Path of the endpoint.
pub(super) const PATH: &str = "/-/overview";

/// Returns whether the gateway is ready or why not, its storage and register, its requests, and its settings.
pub(super) async fn respond(state: &AppState) -> Response<Bytes> {
    let (status, reason) = match ready::check(state).await {
        Ready::Yes => ("ready", None),
        Ready::Stopping => ("stopping", None),
        Ready::Unavailable(reason) => ("unavailable", Some(reason)),
    };
    let text = metrics::text(state);
    let samples = Samples::parse(&text);
    let overview = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started": seconds(state.started),
        "status": status,
        "reason": reason,
        "warning": ready::warning(state),
        "storage": state.facts.storage,
        "disk": state.facts.folder.as_deref().and_then(|folder| rustix::fs::statvfs(folder).ok()).map(|disk| json!({
            "free": disk.f_bavail.saturating_mul(disk.f_frsize),
            "total": disk.f_blocks.saturating_mul(disk.f_frsize),
        })),
        "register": state.register.as_ref().map(|register| register_json(&register.engine(), &samples)),
        "certificates": state.certificate_ends().into_iter().map(|(file, end)| json!({ "file": file, "ends": end.as_secs() })).collect::<Vec<_>>(),
        "requests": requests(&samples),
        "conflicts": state.conflicts.total(),
        "cache": state.cache.as_ref().map(|_| cache(&samples)),
        "upstreams": state.proxy.as_ref().map(|proxy| proxy.upstreams().iter().map(|upstream| upstream.route.clone()).collect::<Vec<_>>()),
        "settings": state.facts.settings,
        "now": seconds(SystemClock.wall()),
    });
    response::json(StatusCode::OK, &overview)
}

fn requests(samples: &Samples<'_>) -> Value {
    let of = |status: &str| samples.sum("ifmatch_requests_total", &[("status", status)]);
    json!({
        "total": samples.sum("ifmatch_requests_total", &[]),
        "ok": of("2xx"),
        "client_errors": of("4xx"),
        "server_errors": of("5xx"),
        "aborted": of("aborted"),
        "not_modified": samples.sum("ifmatch_conditions_total", &[("outcome", "not_modified")]),
        "in_flight": samples.sum("ifmatch_requests_in_flight", &[]),
        "connections": samples.sum("ifmatch_connections", &[]),
        "bytes_out": samples.sum("ifmatch_body_bytes_total", &[("direction", "out")]),
    })
}

fn cache(samples: &Samples<'_>) -> Value {
    let of = |outcome: &str| samples.sum("ifmatch_cache_requests_total", &[("outcome", outcome)]);
    json!({
        "hits": of("hit") + of("stale") + of("revalidated"),
        "misses": of("miss") + of("pass") + of("error"),
        "bytes_not_fetched": samples.sum("ifmatch_cache_answered_bytes_total", &[]),
    })
}

fn register_json(engine: &Engine, samples: &Samples<'_>) -> Value {
    let mean = |operation| {
        let of = [("operation", operation)];
        let count = samples.sum("ifmatch_register_seconds_count", &of);
        (count > 0.0).then(|| samples.sum("ifmatch_register_seconds_sum", &of) / count)
    };
    json!({
        "guarantee": format!("{:?}", engine.guarantee).to_lowercase(),
        "epoch": engine.epoch.number,
        "clock_error": engine.time.as_ref().map(|time| Duration::as_secs_f64(&time.error())),
        "mean_load": mean("load"),
        "mean_swap": mean("swap"),
    })
}
