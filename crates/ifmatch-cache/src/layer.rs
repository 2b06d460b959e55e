//! The layer.

use std::fmt;
use std::sync::Arc;

use ifmatch_runtime::{Clock, SystemClock};
use tower_layer::Layer;

use crate::builder::Builder;
use crate::handle::CacheHandle;
use crate::service::Cache;
use crate::shared::Shared;

/// Puts a shared cache in front of a service. All clones share one store.
///
/// Put it around the service that answers **all** methods of a resource: a write makes stored responses invalid.
///
/// ```
/// use axum::{Router, routing::get};
/// use ifmatch_cache::CacheLayer;
/// use tower::Layer;
///
/// let routes = Router::new().route("/", get(|| async { ([("cache-control", "max-age=60")], "hello") }));
/// let app: Router = Router::new().fallback_service(CacheLayer::new().layer(routes));
/// ```
pub struct CacheLayer<C = SystemClock> {
    shared: Arc<Shared<C>>,
}

impl CacheLayer {
    /// The layer with all defaults.
    ///
    /// ```
    /// let layer = ifmatch_cache::CacheLayer::new();
    /// ```
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A layer to measure.
    ///
    /// ```
    /// let layer = ifmatch_cache::CacheLayer::builder().capacity(1 << 30).build();
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<C: Clock> CacheLayer<C> {
    /// For counters and purging.
    ///
    /// ```
    /// let handle = ifmatch_cache::CacheLayer::new().handle();
    /// assert_eq!(handle.metrics().misses, 0);
    /// ```
    pub fn handle(&self) -> CacheHandle<C> {
        CacheHandle(Arc::clone(&self.shared))
    }
}

impl Default for CacheLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> From<Shared<C>> for CacheLayer<C> {
    fn from(shared: Shared<C>) -> Self {
        Self { shared: Arc::new(shared) }
    }
}

impl<C> Clone for CacheLayer<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C> fmt::Debug for CacheLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheLayer").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl<S, C> Layer<S> for CacheLayer<C> {
    type Service = Cache<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        Cache::new(inner, Arc::clone(&self.shared))
    }
}
