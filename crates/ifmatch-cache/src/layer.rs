//! The layer.

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use crate::builder::Builder;
use crate::handle::CacheHandle;
use crate::service::Cache;
use crate::state::CacheState;

/// Puts a cache in front of a service. All clones share one store.
///
/// Put it around the service that handles **all** methods of a resource, since writes invalidate stored responses.
///
/// ```
/// use axum::{Router, routing::get};
/// use ifmatch_cache::CacheLayer;
/// use tower::Layer;
///
/// let routes = Router::new().route("/", get(|| async { ([("cache-control", "max-age=60")], "hello") }));
/// let app: Router = Router::new().fallback_service(CacheLayer::new().layer(routes));
/// ```
pub struct CacheLayer {
    state: Arc<CacheState>,
}

impl CacheLayer {
    /// Creates a layer with default settings.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for a customised layer.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a handle for counters and purging.
    pub fn handle(&self) -> CacheHandle {
        CacheHandle(Arc::clone(&self.state))
    }
}

impl Default for CacheLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Arc<CacheState>> for CacheLayer {
    fn from(state: Arc<CacheState>) -> Self {
        Self { state }
    }
}

impl Clone for CacheLayer {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
        }
    }
}

impl fmt::Debug for CacheLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheLayer")
            .field("config", &self.state.config)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for CacheLayer {
    type Service = Cache<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Cache::new(inner, Arc::clone(&self.state))
    }
}
