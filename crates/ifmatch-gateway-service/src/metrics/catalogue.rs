//! All metrics of the gateway and the proxy, for the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ifmatch_gateway_config::error::Error;
use ifmatch_proxy::{Proxy, Upstream};
use ifmatch_register::MemoryRegister;
use ifmatch_register::metrics::{AMBIGUOUS, BATCH_SIZE, CONTENTION};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, counter,
    histogram, with_local_recorder,
};

use super::leases::LeaseMetrics;
use super::{Metrics, cache, recorder, register, set_certificate_end, table, upstreams};

/// A server that is never asked.
const SERVER: &str = "http://127.0.0.1:8000";
/// Labels whose values depend on the configuration, or on the program's version.
const OPEN: [&str; 4] = ["file", "route", "server", "version"];

/// A metric.
#[derive(Default)]
pub struct Metric {
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its description.
    pub help: String,
    /// Its labels with their values. A label without values is one whose values depend on the configuration or the version.
    pub labels: BTreeMap<String, BTreeSet<String>>,
}

/// Returns all metrics by name.
///
/// # Errors
/// Fails if the recorder rejects its settings. They are constants, so this doesn't happen.
pub fn all() -> Result<BTreeMap<String, Metric>, Error> {
    let catalogue = Catalogue::default();
    with_local_recorder(&catalogue, || {
        drop(Metrics::registered(&catalogue, recorder()?.handle()));
        LeaseMetrics::new();
        register::MeteredRegister::new(Arc::new(MemoryRegister::unbounded()));
        for (operation, outcome) in register::labels() {
            drop(
                histogram!(table::register::SECONDS, "operation" => operation, "outcome" => outcome),
            );
        }
        for operation in ["load", "swap"] {
            drop(histogram!(BATCH_SIZE, "operation" => operation));
        }
        for outcome in ["done", "not-done", "unknown"] {
            drop(counter!(AMBIGUOUS, "outcome" => outcome));
        }
        drop(counter!(CONTENTION));
        set_certificate_end("cert.pem", Duration::ZERO);
        cache::update(&ifmatch_cache::Metrics::default());
        cache::update_purges(0, Duration::ZERO, false);
        let proxy =
            Upstream::parse(&[SERVER]).and_then(|upstream| Proxy::builder().route("/", upstream));
        let proxy = proxy
            .map_err(|error| Error::runtime(error.to_string()))?
            .build();
        let proxy = proxy.map_err(|error| Error::runtime(error.to_string()))?;
        upstreams::UpstreamMetrics::new(&proxy.upstreams());
        upstreams::update(&proxy);
        Ok(())
    })?;
    Ok(catalogue
        .0
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner))
}

/// A recorder that keeps the names, descriptions and labels of metrics, but no values.
#[derive(Default)]
struct Catalogue(Mutex<BTreeMap<String, Metric>>);

impl Catalogue {
    fn describe(&self, kind: &'static str, key: &KeyName, help: &SharedString) {
        let mut metrics = self.metrics();
        let metric = metrics.entry(key.as_str().to_owned()).or_default();
        (metric.kind, metric.help) = (kind, help.to_string());
    }

    fn register(&self, key: &Key) {
        let mut metrics = self.metrics();
        let metric = metrics.entry(key.name().to_owned()).or_default();
        for label in key.labels() {
            let values = metric.labels.entry(label.key().to_owned()).or_default();
            if !OPEN.contains(&label.key()) {
                values.insert(label.value().to_owned());
            }
        }
    }

    fn metrics(&self) -> MutexGuard<'_, BTreeMap<String, Metric>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder for Catalogue {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe("counter", &key, &help);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe("gauge", &key, &help);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe("histogram", &key, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.register(key);
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.register(key);
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.register(key);
        Histogram::noop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_description() {
        let metrics = all().unwrap();
        assert!(metrics.len() > 30, "{}", metrics.len());
        for (name, metric) in &metrics {
            assert!(metric.help.ends_with('.'), "{name}: {}", metric.help);
        }
        let labels: Vec<_> = metrics["ifmatch_requests_total"]
            .labels
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(labels, ["method", "status"]);
    }
}
