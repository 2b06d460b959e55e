//! `/-/overview`: the state of the gateway at a glance, and the reason if it isn't ready. The console shows it. And `/-/metrics`:
//! all metrics, for Prometheus.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use ifmatch_gateway_config::sources::InForce;
use ifmatch_gateway_config::text::Text;
use ifmatch_proxy::ServerState;
use ifmatch_register::Register;
use ifmatch_runtime::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

use super::cache::{HITS, MISSES, count_of};
use super::ready::{self, Ready};
use super::{answer_json, answer_text};
use crate::metrics::seconds;
use crate::metrics::{self, MetricSamples, table};
use crate::state::AppState;

/// The state of a gateway. Times are seconds since 1970.
#[derive(Serialize, Deserialize)]
pub(crate) struct Overview {
    pub(crate) version: Text,
    pub(crate) started: f64,
    /// `ready`, `stopping` or `unavailable`.
    pub(crate) status: Text,
    /// Why it is unavailable.
    pub(crate) reason: Option<Text>,
    /// What is unavailable: `store` or `register`.
    pub(crate) component: Option<Text>,
    /// Since when it is unavailable, as far as it was checked.
    pub(crate) since: Option<f64>,
    /// What an operator should know although it is ready.
    pub(crate) warning: Option<Text>,
    /// Where the blobs are.
    pub(crate) storage: Option<Text>,
    pub(crate) disk: Option<DiskSpace>,
    pub(crate) register: Option<RegisterState>,
    pub(crate) certificates: Vec<CertificateEnd>,
    pub(crate) requests: RequestCounts,
    /// Number of requests that lost since the start.
    pub(crate) conflicts: u64,
    pub(crate) cache: Option<CacheCounts>,
    /// The routes to upstreams.
    pub(crate) upstreams: Option<Vec<Text>>,
    /// The servers of the upstreams.
    pub(crate) servers: Vec<ServerStatus>,
    pub(crate) settings: Vec<InForce>,
    pub(crate) now: f64,
}

/// The space of the disk that the data folder is on, in bytes.
#[derive(Serialize, Deserialize)]
pub(crate) struct DiskSpace {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

/// The register of an object store. Times are in seconds.
#[derive(Serialize, Deserialize)]
pub(crate) struct RegisterState {
    pub(crate) guarantee: Text,
    pub(crate) epoch: u64,
    /// Uncertainty of the engine's clock, if it is known.
    pub(crate) clock_error: Option<f64>,
    /// Mean time of a load since the start, if there was one.
    pub(crate) mean_load: Option<f64>,
    pub(crate) mean_swap: Option<f64>,
}

/// A server of an upstream.
#[derive(Serialize, Deserialize)]
pub(crate) struct ServerStatus {
    pub(crate) route: Text,
    pub(crate) name: Text,
    /// `false` while its health checks fail, or its circuit breaker is open.
    pub(crate) healthy: bool,
    /// The failures since its last response.
    pub(crate) failing: Option<ServerFailure>,
}

/// What failed at a server that hasn't responded since.
#[derive(Serialize, Deserialize)]
pub(crate) struct ServerFailure {
    /// When it first failed.
    pub(crate) since: f64,
    /// When it last failed.
    pub(crate) last: f64,
    pub(crate) cause: Text,
}

/// A certificate, when it should have been renewed, and when it ends.
#[derive(Serialize, Deserialize)]
pub(crate) struct CertificateEnd {
    pub(crate) file: Text,
    pub(crate) renewal: f64,
    pub(crate) ends: f64,
}

/// Counts of requests since the start, and what is open.
#[derive(Serialize, Deserialize)]
pub(crate) struct RequestCounts {
    pub(crate) total: f64,
    pub(crate) ok: f64,
    pub(crate) client_errors: f64,
    pub(crate) server_errors: f64,
    pub(crate) aborted: f64,
    pub(crate) not_modified: f64,
    pub(crate) in_flight: f64,
    pub(crate) connections: f64,
    pub(crate) bytes_out: f64,
}

/// Counts of the cache since the start.
#[derive(Serialize, Deserialize)]
pub(crate) struct CacheCounts {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Bytes of bodies served from the cache.
    pub(crate) bytes_not_fetched: u64,
}

/// Responds with whether the gateway is ready or why not, its storage and register, its requests, and its settings.
pub(super) async fn respond(state: &AppState) -> Response<Bytes> {
    let (status, down) = match ready::check(state).await {
        Ready::Yes => ("ready", None),
        Ready::Stopping => ("stopping", None),
        Ready::Unavailable(down) => ("unavailable", Some(down)),
    };
    let text = metrics_text(state);
    let samples = MetricSamples::parse(&text);
    let blobs = state.blobs.as_ref();
    let disk = blobs
        .and_then(|blobs| blobs.data.as_deref())
        .and_then(|folder| fs4::statvfs(folder).ok());
    let certificates = state.certificate_ends().into_iter();
    let now = seconds(SystemClock.wall());
    let upstreams = state
        .upstreams
        .as_ref()
        .map(|upstreams| upstreams.proxy.upstreams());
    let servers = upstreams.iter().flatten().flat_map(|upstream| {
        let server = |server: &ServerState| ServerStatus {
            route: upstream.route.as_str().into(),
            name: server.name.as_str().into(),
            healthy: server.healthy,
            failing: server.failing.as_ref().map(|failing| ServerFailure {
                since: now - failing.since.as_secs_f64(),
                last: now - failing.last.as_secs_f64(),
                cause: failing.cause.into(),
            }),
        };
        upstream.servers.iter().map(server)
    });
    let servers = servers.collect();
    let overview = Overview {
        version: env!("CARGO_PKG_VERSION").into(),
        started: seconds(state.started),
        status: status.into(),
        component: down.as_ref().map(|down| down.component.into()),
        since: down.as_ref().map(|down| seconds(down.since)),
        reason: down.map(|down| Text(down.reason)),
        warning: ready::warning(state).map(Text),
        storage: blobs.map(|blobs| Text(blobs.location.clone())),
        disk: disk.map(|disk| DiskSpace {
            free: disk.available_space(),
            total: disk.total_space(),
        }),
        register: blobs
            .and_then(|blobs| blobs.register.as_deref())
            .map(|register| RegisterState::of(register, &samples)),
        certificates: certificates
            .map(|(file, renewal, end)| CertificateEnd {
                file: Text(file),
                renewal: renewal.as_secs_f64(),
                ends: end.as_secs_f64(),
            })
            .collect(),
        requests: RequestCounts::of(&samples),
        conflicts: state.conflicts.total(),
        cache: state
            .cache
            .as_ref()
            .map(|cache| CacheCounts::of(&cache.handle.metrics())),
        upstreams: upstreams.map(|upstreams| {
            upstreams
                .into_iter()
                .map(|upstream| Text(upstream.route))
                .collect()
        }),
        servers,
        settings: state.settings.clone(),
        now,
    };
    answer_json(StatusCode::OK, &overview)
}

impl RequestCounts {
    /// Returns the counts in these samples.
    pub(crate) fn of(samples: &MetricSamples<'_>) -> Self {
        let of = |status: &str| samples.sum(table::gateway::REQUESTS, &[("status", status)]);
        Self {
            total: samples.sum(table::gateway::REQUESTS, &[]),
            ok: of("2xx"),
            client_errors: of("4xx"),
            server_errors: of("5xx"),
            aborted: of("aborted"),
            not_modified: samples.sum(table::gateway::CONDITIONS, &[("outcome", "not_modified")]),
            in_flight: samples.sum(table::gateway::IN_FLIGHT, &[]),
            connections: samples.sum(table::gateway::CONNECTIONS, &[]),
            bytes_out: samples.sum(table::gateway::BODY_BYTES, &[("direction", "out")]),
        }
    }
}

impl CacheCounts {
    fn of(metrics: &ifmatch_cache::Metrics) -> Self {
        let (hits, misses) = (count_of(metrics, &HITS), count_of(metrics, &MISSES));
        Self {
            hits,
            misses,
            bytes_not_fetched: metrics.bytes,
        }
    }
}

impl RegisterState {
    /// Describes a register, with the mean times of its calls in these samples.
    fn of(register: &dyn Register, samples: &MetricSamples<'_>) -> Self {
        let engine = register.engine();
        let mean = |operation| {
            let of = |part: &str| {
                samples.sum(
                    &format!("{}_{part}", table::register::SECONDS),
                    &[("operation", operation)],
                )
            };
            (of("count") > 0.0).then(|| of("sum") / of("count"))
        };
        Self {
            guarantee: format!("{:?}", engine.guarantee).to_lowercase().into(),
            epoch: engine.epoch.number,
            clock_error: engine
                .time
                .as_ref()
                .map(|time| Duration::as_secs_f64(&time.error())),
            mean_load: mean("load"),
            mean_swap: mean("swap"),
        }
    }
}

/// Responds with all metrics.
pub(super) fn respond_metrics(state: &AppState) -> Response<Bytes> {
    answer_text(
        StatusCode::OK,
        "text/plain; version=0.0.4; charset=utf-8",
        metrics_text(state).into(),
    )
}

/// Returns the metrics as text, updated to the present.
fn metrics_text(state: &AppState) -> String {
    state.metrics.documents.set(state.documents.taken());
    if let Some(blobs) = &state.blobs {
        blobs.store.expire_leases();
        state.metrics.waits.set(blobs.waits.count());
    }
    if let Some(cache) = &state.cache {
        metrics::cache::update(&cache.handle.metrics());
    }
    if let Some(following) = state.following() {
        metrics::cache::update_purges(
            following.position(),
            following.age(),
            following.is_cut_off(),
        );
    }
    if let Some(upstreams) = &state.upstreams {
        metrics::upstreams::update(&upstreams.proxy);
    }
    state.metrics.render()
}

#[cfg(test)]
impl Overview {
    /// Returns the state of a gateway that is ready, at second 1000.
    pub(crate) fn example() -> Self {
        let requests = RequestCounts::of(&MetricSamples::parse(""));
        Self {
            version: "1.0.0".into(),
            started: 0.0,
            status: "ready".into(),
            reason: None,
            component: None,
            since: None,
            warning: None,
            storage: None,
            disk: None,
            register: None,
            certificates: Vec::new(),
            requests,
            conflicts: 0,
            cache: None,
            upstreams: None,
            servers: Vec::new(),
            settings: Vec::new(),
            now: 1000.0,
        }
    }
}
