//! State shared by all requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ifmatch_blob::documents::Documents;
use ifmatch_blob::waits::Waits;
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_cache::CacheHandle;
use ifmatch_core::date::Timestamp;
use ifmatch_gateway_config::ServerConfig;
use ifmatch_gateway_config::access::Access;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::sources::InForce;
use ifmatch_http_server::{ServerEvent, ServerObserver};
use ifmatch_proxy::Proxy;
use ifmatch_register::Register;
use ifmatch_runtime::{Clock, SystemClock};
use percent_encoding::percent_decode_str;
use tokio::sync::watch;

use crate::certificate::Validity;
use crate::conflicts::ConflictLog;
use crate::metrics::Metrics;
use crate::metrics::leases::MeteredStore;
use crate::purges::{Following, Purges};
use crate::readiness::StoreReadiness;
use crate::request_id::RequestIds;
use crate::traces::Traces;

/// State shared by all requests.
pub struct AppState {
    /// Access by tokens, which a reload replaces.
    pub access: ArcSwap<Access>,
    /// All metrics.
    pub metrics: Metrics,
    /// The blobs, if the gateway stores them.
    pub(crate) blobs: Option<ServedBlobs>,
    /// The upstreams, if the gateway forwards to them.
    pub(crate) upstreams: Option<Upstreams>,
    /// The cache, for `/-/cache`, if there is one.
    pub(crate) cache: Option<ServedCache>,
    /// The requests that lost lately.
    pub(crate) conflicts: ConflictLog,
    /// The memory for listings until they are sent: that of the blobs, if there are any.
    pub(crate) documents: Documents,
    /// Source of request ids.
    pub(crate) ids: RequestIds,
    /// The last response of the store to `/-/ready`.
    pub(crate) readiness: StoreReadiness,
    /// `true` if each client gets a share of the waits, and of the memory for documents.
    pub(crate) has_shares: bool,
    /// The traces, if they are sent.
    pub traces: Option<Traces>,
    /// The settings at the start, with their sources.
    pub(crate) settings: Vec<InForce>,
    /// When the gateway started, by the time of day.
    pub(crate) started: Timestamp,
    certificates: ArcSwap<Vec<Validity>>,
    stopping: watch::Sender<bool>,
}

/// The blobs of a gateway, and what its endpoints show of them.
pub struct ServedBlobs {
    /// The blobs, for `/-/leases`.
    pub store: MeteredStore,
    /// Describes where they are.
    pub location: String,
    /// The folder of the blobs or their records.
    pub data: Option<PathBuf>,
    /// The register of the blobs in an object store, for `/-/ready`.
    pub register: Option<Arc<dyn Register>>,
    /// The data folder, for `/-/snapshot`, if it has the blobs.
    pub folder: Option<IndexedStore>,
    /// `true` if everyone can sign requests, with a published key.
    pub accepts_published_key: bool,
    /// Prefixes of the containers of all accounts but the first one. They aren't for readers without credentials.
    pub withheld: Vec<String>,
    /// The reads that wait for a change.
    pub waits: Arc<Waits>,
    /// The memory for bodies and responses that are held in full.
    pub documents: Documents,
}

/// The upstreams of a proxy.
pub struct Upstreams {
    /// The proxy, for its metrics.
    pub proxy: Proxy,
    /// `true` if client information from proxies in front is trusted.
    pub trusts_forwarded: bool,
}

/// A cache, and what its purges reach.
pub struct ServedCache {
    /// The cache.
    pub handle: CacheHandle,
    /// The other proxies that its purges are for.
    pub purges: Purges,
}

impl AppState {
    /// Creates the state of a gateway that stores blobs, and starts the traces, if they are sent.
    ///
    /// # Errors
    /// Fails if the traces can't be sent.
    pub fn of_blobs(
        config: &ServerConfig,
        metrics: Metrics,
        blobs: ServedBlobs,
        cache: Option<CacheHandle>,
    ) -> Result<Self, Error> {
        let cache = cache.map(|handle| ServedCache {
            handle,
            purges: Purges::Alone,
        });
        Self::new(config, metrics, Some(blobs), None, cache)
    }

    /// Creates the state of a proxy, and starts the traces, if they are sent.
    ///
    /// # Errors
    /// Fails if the traces can't be sent.
    pub fn of_proxy(
        config: &ServerConfig,
        metrics: Metrics,
        upstreams: Upstreams,
        cache: Option<ServedCache>,
    ) -> Result<Self, Error> {
        Self::new(config, metrics, None, Some(upstreams), cache)
    }

    fn new(
        config: &ServerConfig,
        metrics: Metrics,
        blobs: Option<ServedBlobs>,
        upstreams: Option<Upstreams>,
        cache: Option<ServedCache>,
    ) -> Result<Self, Error> {
        Ok(Self {
            access: ArcSwap::from_pointee(config.access.clone()),
            metrics,
            documents: blobs
                .as_ref()
                .map(|blobs| blobs.documents.clone())
                .unwrap_or_default(),
            blobs,
            upstreams,
            cache,
            conflicts: ConflictLog::default(),
            ids: RequestIds::new(),
            readiness: StoreReadiness::default(),
            // If the operator has set a limit of requests per client, clients may share an address, and that limit applies instead.
            has_shares: config.limits.requests.per_client.is_none(),
            traces: config.traces.as_ref().map(Traces::start).transpose()?,
            settings: config.in_force.clone(),
            started: SystemClock.wall(),
            certificates: ArcSwap::default(),
            stopping: watch::Sender::new(false),
        })
    }

    /// Returns the connection to the log of purges, if the proxies share one.
    pub(crate) fn following(&self) -> Option<&Following> {
        self.cache.as_ref()?.purges.following()
    }

    /// Sets the certificates of the server, and warns of those that have expired or soon will.
    pub fn set_certificates(&self, certificates: Vec<Validity>) {
        self.certificates.load().iter().for_each(Validity::withdraw);
        certificates.iter().for_each(Validity::announce);
        self.certificates.store(Arc::new(certificates));
    }

    /// Returns what is wrong with the certificates of the server, if anything is.
    pub(crate) fn certificate_problem(&self) -> Option<String> {
        let problems: Vec<String> = self
            .certificates
            .load()
            .iter()
            .filter_map(Validity::problem)
            .collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// Returns the file of each certificate, when it should have been renewed, and when it ends, since 1970.
    pub(crate) fn certificate_ends(&self) -> Vec<(String, Duration, Duration)> {
        self.certificates.load().iter().map(Validity::end).collect()
    }

    /// Returns `true` for paths in a withheld container, and for the list of all containers. If none is withheld, always `false`.
    pub(crate) fn is_withheld(&self, path: &str) -> bool {
        let withheld = self.blobs.as_ref().map_or(&[][..], |blobs| &blobs.withheld);
        if withheld.is_empty() {
            return false;
        }
        let path = percent_decode_str(path).decode_utf8_lossy();
        let name = path.trim_start_matches('/');
        name.is_empty() || withheld.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Records that the gateway is about to stop, which `/-/health` reports from now on, and ends the reads that wait.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
        if let Some(blobs) = &self.blobs {
            blobs.waits.end();
        }
    }

    /// Waits until the gateway is about to stop.
    pub(crate) async fn stopped(&self) {
        // It fails if the sender is gone, which is part of this state.
        drop(
            self.stopping
                .subscribe()
                .wait_for(|stopping| *stopping)
                .await,
        );
    }

    /// Returns `true` if the gateway is about to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

impl ServerObserver for AppState {
    fn observe(&self, event: ServerEvent) {
        self.metrics.server_event(event);
    }
}
