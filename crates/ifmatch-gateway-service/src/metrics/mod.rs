//! Metrics of the gateway, in the Prometheus text format.

use std::collections::HashMap;
use std::time::Duration;

use conditions::{ConditionSet, HEADERS};
use http::{Method, StatusCode};
use ifmatch_core::date::Timestamp;
use ifmatch_gateway_config::access::CredentialKind;
use ifmatch_gateway_config::error::Error;
use ifmatch_http_server::ServerEvent;
use ifmatch_register::metrics::BATCH_SIZE;
use metrics::{Counter, Gauge, Histogram, Recorder, counter, gauge, histogram};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use table::gateway::{
    BODY_BYTES, BUILD_INFO, CERTIFICATE_END, CONDITIONS, CONNECTIONS, CONNECTIONS_TOTAL,
    CREDENTIALS, DOCUMENTS, DURATION, IN_FLIGHT, REQUESTS, STORE_ERRORS, TIMEOUTS, TURNED_AWAY,
    WAITS,
};

pub(crate) mod cache;
pub mod catalogue;
pub(crate) mod conditions;
pub mod leases;
pub mod register;
pub(crate) mod table;
pub mod upstreams;

/// Upper bounds of the duration buckets, in seconds.
const BUCKETS: [f64; 14] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

/// Upper bounds of the buckets of batches, in calls.
const BATCH_SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Values of the label `method`, in the order of [`method_index`].
const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "other"];
/// Values of the label `status`, in the order of [`class_index`].
const CLASSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "aborted"];

/// Marks a request by which the console reads an endpoint. Such a request is neither counted nor logged, since no client sent it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UncountedRequest;

/// Handles of the metrics of every server, and of the recorder.
pub struct Metrics {
    requests: [[Counter; CLASSES.len()]; METHODS.len()],
    durations: [Histogram; METHODS.len()],
    conditions_met: [Counter; conditions::COUNT],
    not_modified: [Counter; conditions::COUNT],
    conditions_failed: [Counter; conditions::COUNT],
    conditions_required: Counter,
    /// Requests in progress.
    pub(crate) in_flight: Gauge,
    /// Bytes of request bodies.
    pub(crate) bytes_in: Counter,
    /// By kind: accepted, then refused.
    credentials: [[Counter; 2]; CredentialKind::ALL.len()],
    /// Bytes of response bodies.
    pub(crate) bytes_out: Counter,
    /// Requests that failed because their body arrived too slowly.
    pub(crate) slow_bodies: Counter,
    connections: Gauge,
    connections_total: Counter,
    /// Reads that wait for a change.
    pub(crate) waits: Gauge,
    /// Bytes of documents in memory.
    pub(crate) documents: Gauge,
    slow_heads: Counter,
    slow_readers: Counter,
    requests_refused: Counter,
    connections_refused: Counter,
    connections_evicted: Counter,
    handle: PrometheusHandle,
}

/// Sets when the certificate in a file expires, since 1970, or 0 if it isn't used.
pub(crate) fn set_certificate_end(file: &str, end: Duration) {
    gauge!(CERTIFICATE_END, "file" => file.to_owned()).set(end.as_secs_f64());
}

/// A completed or aborted request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishedRequest {
    /// Index of its method: see [`method_index`].
    pub(crate) method: usize,
    /// The kind of its credentials.
    pub(crate) credentials: CredentialKind,
    /// `None` if the client disconnected before the response.
    pub(crate) status: Option<StatusCode>,
    /// Its conditions.
    pub(crate) conditions: ConditionSet,
    /// `true` if a lease caused the refusal.
    pub(crate) by_lease: bool,
    /// Time from its head to the end of the response, in seconds.
    pub(crate) seconds: f64,
}

impl Metrics {
    /// Registers all metrics with a new recorder.
    ///
    /// # Errors
    /// Fails if the recorder rejects its settings. They are constants, so this doesn't happen.
    pub(crate) fn new() -> Result<(Self, PrometheusRecorder), Error> {
        let recorder = recorder()?;
        let metrics = Self::registered(&recorder, recorder.handle());
        Ok((metrics, recorder))
    }

    /// Registers all metrics with any recorder.
    fn registered(recorder: &dyn Recorder, handle: PrometheusHandle) -> Self {
        metrics::with_local_recorder(recorder, || {
            table::describe();
            for kind in ["unreadable", "unavailable", "full"] {
                drop(counter!(STORE_ERRORS, "kind" => kind));
            }
            gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
            Self::register(handle)
        })
    }

    /// Registers all metrics with the recorder of the process.
    ///
    /// # Errors
    /// Fails if there already is one.
    pub fn global() -> Result<Self, Error> {
        let (metrics, recorder) = Self::new()?;
        ::metrics::set_global_recorder(recorder)
            .map_err(|error| Error::runtime(format!("metrics cannot be set up: {error}")))?;
        Ok(metrics)
    }

    /// Registers the metrics with a handle here with the current recorder.
    fn register(handle: PrometheusHandle) -> Self {
        let conditions = |outcome: &'static str| {
            HEADERS.map(
                |header| counter!(CONDITIONS, "outcome" => outcome, "header" => header.to_string()),
            )
        };
        let timeout = |of: &'static str| counter!(TIMEOUTS, "of" => of);
        let turned_away = |what: &'static str| counter!(TURNED_AWAY, "what" => what);
        Self {
            requests: METHODS.map(|method| {
                CLASSES.map(|class| counter!(REQUESTS, "method" => method, "status" => class))
            }),
            durations: METHODS.map(|method| histogram!(DURATION, "method" => method)),
            conditions_met: conditions("met"),
            not_modified: conditions("not_modified"),
            conditions_failed: conditions("failed"),
            conditions_required: counter!(CONDITIONS, "outcome" => "required"),
            credentials: CredentialKind::ALL.map(|kind| {
                ["accepted", "refused"].map(
                    |outcome| counter!(CREDENTIALS, "kind" => kind.name(), "outcome" => outcome),
                )
            }),
            in_flight: gauge!(IN_FLIGHT),
            bytes_in: counter!(BODY_BYTES, "direction" => "in"),
            bytes_out: counter!(BODY_BYTES, "direction" => "out"),
            connections: gauge!(CONNECTIONS),
            connections_total: counter!(CONNECTIONS_TOTAL),
            waits: gauge!(WAITS),
            documents: gauge!(DOCUMENTS),
            slow_heads: timeout("head"),
            slow_bodies: timeout("body"),
            slow_readers: timeout("answer"),
            requests_refused: turned_away("request"),
            connections_refused: turned_away("connection"),
            connections_evicted: turned_away("idle"),
            handle,
        }
    }

    /// Counts an event of the HTTP server.
    pub(crate) fn server_event(&self, event: ServerEvent) {
        match event {
            ServerEvent::ConnectionOpened => {
                self.connections_total.increment(1);
                self.connections.increment(1.0);
            }
            ServerEvent::ConnectionClosed => self.connections.decrement(1.0),
            ServerEvent::ConnectionRefused => self.connections_refused.increment(1),
            ServerEvent::IdleConnectionEvicted => self.connections_evicted.increment(1),
            ServerEvent::RequestRefused => self.requests_refused.increment(1),
            ServerEvent::SlowHead => self.slow_heads.increment(1),
            ServerEvent::SlowReader => self.slow_readers.increment(1),
            _ => {}
        }
    }

    /// Counts a completed or aborted request.
    pub(crate) fn finished(&self, request: &FinishedRequest) {
        self.durations[request.method].record(request.seconds);
        self.requests[request.method][class_index(request.status)].increment(1);
        let is_refused = matches!(
            request.status,
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
        );
        self.credentials[request.credentials as usize][usize::from(is_refused)].increment(1);
        match request.status.map(|status| status.as_u16()) {
            Some(304) => count(&self.not_modified, request.conditions.not_modified()),
            Some(412) if !request.by_lease => {
                count(&self.conditions_failed, request.conditions.failed());
            }
            Some(428) => self.conditions_required.increment(1),
            Some(200..300) => count(&self.conditions_met, request.conditions.all()),
            _ => {}
        }
    }

    /// Returns all metrics in the Prometheus text format.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds recorded durations into their buckets. Otherwise they accumulate in memory until the metrics are read.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

/// Returns a recorder with the buckets of all histograms.
fn recorder() -> Result<PrometheusRecorder, Error> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(DURATION.to_owned()), &BUCKETS)
        .and_then(|builder| {
            builder.set_buckets_for_metric(
                Matcher::Full(table::upstreams::SECONDS.to_owned()),
                &BUCKETS,
            )
        })
        .and_then(|builder| {
            builder.set_buckets_for_metric(
                Matcher::Full(table::register::SECONDS.to_owned()),
                &BUCKETS,
            )
        })
        .and_then(|builder| {
            builder.set_buckets_for_metric(Matcher::Full(BATCH_SIZE.to_owned()), &BATCH_SIZES)
        })
        .map_err(|error| Error::runtime(format!("metrics cannot be set up: {error}")))?;
    Ok(builder.build_recorder())
}

/// Increments the counters with these indices.
fn count(counters: &[Counter], indices: impl IntoIterator<Item = usize>) {
    indices
        .into_iter()
        .for_each(|index| counters[index].increment(1));
}

/// Returns the index of a method. Unknown methods share one, so clients can't create metrics.
pub(crate) fn method_index(method: &Method) -> usize {
    match *method {
        Method::GET => 0,
        Method::HEAD => 1,
        Method::PUT => 2,
        Method::DELETE => 3,
        Method::OPTIONS => 4,
        _ => 5,
    }
}

/// Returns the index of a class of statuses, or of requests that had no response.
fn class_index(status: Option<StatusCode>) -> usize {
    match status.map(|status| status.as_u16()) {
        Some(0..300) => 0,
        Some(300..400) => 1,
        Some(400..500) => 2,
        Some(_) => 3,
        None => 4,
    }
}

/// The samples of a text in the Prometheus format, by name.
#[derive(Debug, Default)]
pub(crate) struct MetricSamples<'a>(HashMap<&'a str, Vec<(&'a str, f64)>>);

impl<'a> MetricSamples<'a> {
    /// Parses the gateway's own metrics, whose labels contain no space.
    pub(crate) fn parse(text: &'a str) -> Self {
        let mut samples = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((sample, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            if let Ok(value) = value.parse() {
                samples.0.entry(name).or_default().push((labels, value));
            }
        }
        samples
    }

    /// Returns the sum of the samples with this name and all of these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |found: &str| {
            labels
                .iter()
                .all(|(label, value)| found.contains(&format!("{label}=\"{value}\"")))
        };
        self.0
            .get(name)
            .into_iter()
            .flatten()
            .filter(|(found, _)| has(found))
            .map(|(_, value)| value)
            .sum()
    }
}

/// Returns the seconds since 1970.
#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds since 1970 are below 2^53"
)]
pub(crate) fn seconds(time: Timestamp) -> f64 {
    time.micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_store_is_counted_by_its_kind() {
        use ifmatch_blob::store::{StoreError, StoreErrorKind};
        let (metrics, recorder) = Metrics::new().unwrap();
        for kind in [
            StoreErrorKind::Unreadable,
            StoreErrorKind::Unavailable,
            StoreErrorKind::OutcomeUnknown,
            StoreErrorKind::Full,
            // Not failures.
            StoreErrorKind::Unsupported,
            StoreErrorKind::InFlight {
                retry_after: Duration::from_secs(1),
            },
        ] {
            ::metrics::with_local_recorder(&recorder, || StoreError::from(kind).report());
        }
        for (kind, count) in [("unreadable", 1), ("unavailable", 2), ("full", 1)] {
            let line = format!("ifmatch_store_errors_total{{kind=\"{kind}\"}} {count}\n");
            assert!(
                metrics.render().contains(&line),
                "{line} in\n{}",
                metrics.render()
            );
        }
    }

    #[test]
    fn each_metric_counts_a_request_once() {
        let (metrics, _recorder) = Metrics::new().unwrap();
        let seconds = 0.002;
        let none = http::HeaderMap::new();
        let tag = http::HeaderMap::from_iter([(
            http::header::IF_NONE_MATCH,
            http::HeaderValue::from_static("*"),
        )]);
        for (status, headers, by_lease) in [
            (Some(200), &tag, false),
            (Some(200), &none, false),
            (Some(304), &tag, false),
            (Some(412), &tag, false),
            (Some(412), &tag, true),
            (None, &none, false),
        ] {
            let status = status.map(|status| StatusCode::from_u16(status).unwrap());
            let conditions = ConditionSet::of(headers);
            metrics.finished(&FinishedRequest {
                method: method_index(&Method::GET),
                credentials: CredentialKind::None,
                status,
                conditions,
                by_lease,
                seconds,
            });
        }
        let text = metrics.render();
        for line in [
            r#"ifmatch_requests_total{method="GET",status="2xx"} 2"#,
            r#"ifmatch_requests_total{method="GET",status="aborted"} 1"#,
            r#"ifmatch_conditions_total{outcome="met",header="if-none-match"} 1"#,
            r#"ifmatch_conditions_total{outcome="met",header="if-match"} 0"#,
            r#"ifmatch_conditions_total{outcome="not_modified",header="if-none-match"} 1"#,
            r#"ifmatch_conditions_total{outcome="failed",header="if-none-match"} 1"#,
            r#"ifmatch_request_duration_seconds_bucket{method="GET",le="0.001"} 0"#,
            r#"ifmatch_request_duration_seconds_bucket{method="GET",le="0.0025"} 6"#,
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is missing in\n{text}"
            );
        }
    }

    #[test]
    fn samples_are_selected_by_name_and_labels() {
        let text = "# HELP a x\na{of=\"x\",as=\"y\"} 2\na{of=\"z\",as=\"y\"} 3\nab 7\n\n";
        let samples = MetricSamples::parse(text);
        for (name, labels, sum) in [
            ("a", &[][..], 5.0),
            ("a", &[("of", "x")], 2.0),
            ("a", &[("as", "y"), ("of", "z")], 3.0),
            ("ab", &[], 7.0),
            ("b", &[], 0.0),
        ] {
            assert!(
                (samples.sum(name, labels) - sum).abs() < 1e-9,
                "{name} {labels:?}"
            );
        }
    }
}
