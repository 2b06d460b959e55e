//! What the gateway counts, in Prometheus' text form.

use http::{Method, StatusCode};
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::conditions::{self, Conditions, HEADERS};
use crate::error::Error;

const REQUESTS: &str = "ifmatch_requests_total";
const DURATION: &str = "ifmatch_request_duration_seconds";
const IN_FLIGHT: &str = "ifmatch_requests_in_flight";
const BODY_BYTES: &str = "ifmatch_body_bytes_total";
const CONDITIONS: &str = "ifmatch_conditions_total";
const STORE_ERRORS: &str = "ifmatch_store_errors_total";
const CONNECTIONS: &str = "ifmatch_connections";
const CONNECTIONS_TOTAL: &str = "ifmatch_connections_total";
const TURNED_AWAY: &str = "ifmatch_turned_away_total";
const TIMEOUTS: &str = "ifmatch_timeouts_total";
const BUILD_INFO: &str = "ifmatch_build_info";

/// Upper bounds of the duration buckets, in seconds.
const BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "other"];
const CLASSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "aborted"];

/// Handles of everything that is counted, looked up once.
pub(crate) struct Metrics {
    requests: [[Counter; CLASSES.len()]; METHODS.len()],
    durations: [Histogram; METHODS.len()],
    conditions_met: [Counter; conditions::COUNT],
    not_modified: [Counter; conditions::COUNT],
    conditions_failed: [Counter; conditions::COUNT],
    conditions_required: Counter,
    store_errors: [Counter; 3],
    /// Requests being worked on.
    pub(crate) in_flight: Gauge,
    /// Bytes of request bodies.
    pub(crate) bytes_in: Counter,
    /// Bytes of response bodies.
    pub(crate) bytes_out: Counter,
    /// Connections open now.
    pub(crate) connections: Gauge,
    /// Connections accepted so far.
    pub(crate) connections_total: Counter,
    /// Connections closed because a request head, or a TLS handshake, took too long.
    pub(crate) slow_heads: Counter,
    /// Requests given up because their body came too slowly.
    pub(crate) slow_bodies: Counter,
    /// Connections closed because the client did not take its answer.
    pub(crate) slow_readers: Counter,
    /// Clients turned away for lack of a slot.
    pub(crate) turned_away: TurnedAway,
    handle: PrometheusHandle,
}

/// Counters of requests and connections rejected or closed because slots are limited.
pub(crate) struct TurnedAway {
    /// Requests refused with 503.
    pub(crate) requests: Counter,
    /// New connections closed immediately because their client has reached its limit.
    pub(crate) connections: Counter,
    /// Idle connections closed to make room.
    pub(crate) idle: Counter,
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// Row of [`Metrics::requests`]: see [`method_index`].
    pub(crate) method: usize,
    /// `None` if the client went away before there was an answer.
    pub(crate) status: Option<StatusCode>,
    /// What it carried of conditions.
    pub(crate) conditions: Conditions,
    /// A lease did not allow it.
    pub(crate) by_lease: bool,
    /// From its head to the end of the answer, in seconds.
    pub(crate) seconds: f64,
}

impl Metrics {
    /// Registers everything with a new recorder.
    ///
    /// # Errors
    /// The recorder refuses its settings; they are constants, so this does not happen.
    pub(crate) fn new() -> Result<(Self, PrometheusRecorder), Error> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(DURATION.to_owned()), &BUCKETS)
            .map_err(|error| Error::runtime(format!("metrics cannot be set up: {error}")))?
            .build_recorder();
        let handle = recorder.handle();
        let metrics = metrics::with_local_recorder(&recorder, || {
            describe();
            gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
            Self::register(handle)
        });
        Ok((metrics, recorder))
    }

    /// Registers everything with the process's recorder.
    ///
    /// # Errors
    /// There is one already.
    pub(crate) fn global() -> Result<Self, Error> {
        let (metrics, recorder) = Self::new()?;
        ::metrics::set_global_recorder(recorder)
            .map_err(|error| Error::runtime(format!("metrics cannot be set up: {error}")))?;
        Ok(metrics)
    }

    fn register(handle: PrometheusHandle) -> Self {
        let conditions = |outcome: &'static str| {
            HEADERS.map(|header| counter!(CONDITIONS, "outcome" => outcome, "header" => header.to_string()))
        };
        let timeout = |of: &'static str| counter!(TIMEOUTS, "of" => of);
        let turned_away = |what: &'static str| counter!(TURNED_AWAY, "what" => what);
        Self {
            requests: METHODS
                .map(|method| CLASSES.map(|class| counter!(REQUESTS, "method" => method, "status" => class))),
            durations: METHODS.map(|method| histogram!(DURATION, "method" => method)),
            conditions_met: conditions("met"),
            not_modified: conditions("not_modified"),
            conditions_failed: conditions("failed"),
            conditions_required: counter!(CONDITIONS, "outcome" => "required"),
            store_errors: ["unreadable", "unavailable", "full"].map(|kind| counter!(STORE_ERRORS, "kind" => kind)),
            in_flight: gauge!(IN_FLIGHT),
            bytes_in: counter!(BODY_BYTES, "direction" => "in"),
            bytes_out: counter!(BODY_BYTES, "direction" => "out"),
            connections: gauge!(CONNECTIONS),
            connections_total: counter!(CONNECTIONS_TOTAL),
            slow_heads: timeout("head"),
            slow_bodies: timeout("body"),
            slow_readers: timeout("answer"),
            turned_away: TurnedAway {
                requests: turned_away("request"),
                connections: turned_away("connection"),
                idle: turned_away("idle"),
            },
            handle,
        }
    }

    /// Counts a request that is over.
    pub(crate) fn finished(&self, request: &Finished) {
        self.durations[request.method].record(request.seconds);
        self.requests[request.method][class_index(request.status)].increment(1);
        match request.status.map(|status| status.as_u16()) {
            Some(304) => count(&self.not_modified, request.conditions.not_modified()),
            Some(412) if !request.by_lease => count(&self.conditions_failed, request.conditions.failed()),
            Some(428) => self.conditions_required.increment(1),
            Some(200..300) => count(&self.conditions_met, request.conditions.all()),
            _ => {}
        }
    }

    /// Counts an answer that tells of trouble in the store.
    pub(crate) fn store_error(&self, status: StatusCode) {
        let kind = match status {
            StatusCode::SERVICE_UNAVAILABLE => 1,
            StatusCode::INSUFFICIENT_STORAGE => 2,
            _ => 0,
        };
        self.store_errors[kind].increment(1);
    }

    /// Everything counted so far, in Prometheus' text form.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds recorded durations into their buckets; without it, they pile up in memory until somebody reads them.
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

fn count(counters: &[Counter], places: impl IntoIterator<Item = usize>) {
    places.into_iter().for_each(|place| counters[place].increment(1));
}

/// The row of a method: the ones that clients make up share one, so that they cannot fill the memory.
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

fn class_index(status: Option<StatusCode>) -> usize {
    match status.map(|status| status.as_u16()) {
        Some(0..300) => 0,
        Some(300..400) => 1,
        Some(400..500) => 2,
        Some(_) => 3,
        None => 4,
    }
}

fn describe() {
    describe_counter!(
        REQUESTS,
        "Requests that are over, by method and class of their status; aborted: the client left first."
    );
    describe_histogram!(DURATION, "Seconds from a request's head to the end of its answer.");
    describe_gauge!(IN_FLIGHT, "Requests being worked on.");
    describe_counter!(BODY_BYTES, "Bytes of request bodies (in) and response bodies (out).");
    describe_counter!(
        CONDITIONS,
        "Conditions of requests: met, not_modified (304), failed (412); required (428): a condition was missing."
    );
    describe_counter!(
        STORE_ERRORS,
        "Answers that tell of trouble in the store: unavailable (503), full (507), unreadable (500)."
    );
    describe_gauge!(CONNECTIONS, "Open connections.");
    describe_counter!(CONNECTIONS_TOTAL, "Connections accepted.");
    describe_counter!(TIMEOUTS, "What a client was too slow for: to send a head or a body, or to take an answer.");
    describe_counter!(
        TURNED_AWAY,
        "What was refused for lack of a place: a request (503), a connection of a client that has its share; or an idle connection that was closed to make room."
    );
    describe_gauge!(BUILD_INFO, "1, with the version as a label.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_once_in_each_place() {
        let (metrics, _recorder) = Metrics::new().unwrap();
        let seconds = 0.002;
        let none = http::HeaderMap::new();
        let tag = http::HeaderMap::from_iter([(http::header::IF_NONE_MATCH, http::HeaderValue::from_static("*"))]);
        for (status, headers, by_lease) in [
            (Some(200), &tag, false),
            (Some(200), &none, false),
            (Some(304), &tag, false),
            (Some(412), &tag, false),
            (Some(412), &tag, true),
            (None, &none, false),
        ] {
            let status = status.map(|status| StatusCode::from_u16(status).unwrap());
            let conditions = Conditions::of(headers);
            metrics.finished(&Finished { method: method_index(&Method::GET), status, conditions, by_lease, seconds });
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
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
