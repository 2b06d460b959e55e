//! The layer.

use std::any::type_name;
use std::fmt;
use std::sync::Arc;

use ifmatch_register::{MemoryRegister, Register};
use ifmatch_runtime::{Clock, SystemClock};
use tower_layer::Layer;

use crate::builder::Builder;
use crate::service::ConditionalService;
use crate::shared::Shared;

/// The type that axum passes to layers inside a router: the handlers of one method of one route.
const AXUM_ROUTE: &str = "axum::routing::route::Route";

/// Gives a service strong entity tags, conditional requests and race-free conditional writes.
///
/// Put it around the service that answers **all** methods of a resource: before a conditional write, the layer asks the
/// same service with GET for the current tag. All clones share one register and one memory.
///
/// ```
/// use axum::{Router, routing::get};
/// use ifmatch::ConditionalLayer;
/// use tower::Layer;
///
/// let routes = Router::new().route("/greeting", get(|| async { "hello" }));
/// let app: Router = Router::new().fallback_service(ConditionalLayer::new().layer(routes));
/// ```
pub struct ConditionalLayer<R = MemoryRegister, C = SystemClock> {
    shared: Arc<Shared<R, C>>,
}

impl ConditionalLayer {
    /// The layer with all defaults: any resource may change behind its back, tags are SHA-256 hashes, records are kept in
    /// this process's memory.
    ///
    /// ```
    /// let layer = ifmatch::ConditionalLayer::new();
    /// ```
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A layer to measure.
    ///
    /// ```
    /// let layer = ifmatch::ConditionalLayer::builder().hash_limit(64 * 1024).build();
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Default for ConditionalLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<R, C> From<Shared<R, C>> for ConditionalLayer<R, C> {
    fn from(shared: Shared<R, C>) -> Self {
        Self { shared: Arc::new(shared) }
    }
}

impl<R, C> Clone for ConditionalLayer<R, C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<R, C> fmt::Debug for ConditionalLayer<R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConditionalLayer").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl<S, R: Register, C: Clock> Layer<S> for ConditionalLayer<R, C> {
    type Service = ConditionalService<S, R, C>;

    /// Wraps a service.
    ///
    /// # Panics
    /// If it was passed to axum's `Router::layer`, which hands over each method's handlers by themselves: the GET before
    /// a conditional PUT would then run the handler of PUT.
    fn layer(&self, inner: S) -> Self::Service {
        assert!(
            !type_name::<S>().contains(AXUM_ROUTE),
            "ConditionalLayer must wrap a whole router, not a route of it: instead of router.layer(layer) write \
             Router::new().fallback_service(layer.layer(router))"
        );
        ConditionalService::new(inner, Arc::clone(&self.shared))
    }
}
