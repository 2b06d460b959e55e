//! What a request needs of its proxy: the routes, the client, and the settings.

use std::sync::Arc;
use std::time::Duration;

use crate::forward::headers::{ForwardingRules, ProxyName};
use crate::observer::ProxyObserver;
use crate::route::Routes;
use crate::upstream::client::HttpClient;
use crate::upstream::health::HealthCheck;

/// State shared by all requests.
pub(crate) struct ProxyState {
    pub(crate) client: HttpClient,
    pub(crate) routes: Routes,
    pub(crate) name: ProxyName,
    pub(crate) forwarding: ForwardingRules,
    pub(crate) timeouts: UpstreamTimeouts,
    pub(crate) health: Option<HealthCheck>,
    pub(crate) observer: Option<Arc<dyn ProxyObserver>>,
}

/// Timeouts for upstreams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamTimeouts {
    /// To open a connection, or to wait in the queue.
    pub(crate) connect: Duration,
    /// Until a response begins, and for each pause within it.
    pub(crate) answer: Duration,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_mins(1),
        }
    }
}
