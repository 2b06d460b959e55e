//! [`ConditionalLayer`].

use std::any::type_name;
use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use crate::builder::Builder;
use crate::service::ConditionalService;
use crate::shared::LayerState;

/// The service that axum's `Router::layer` wraps: the handlers of a single route.
const AXUM_ROUTE: &str = "axum::routing::route::Route";

/// Layer that adds strong entity tags, conditional requests and race-free conditional writes, with
/// [`ConditionalService`].
///
/// It must wrap the service that handles **all** methods of a resource: before a conditional write, the layer sends
/// that service a GET for the current tag. All clones share one register and one memory.
///
/// See the [crate documentation](crate) for an overview, and [`Builder`] for the settings.
///
/// ```
/// use axum::{Router, routing::get};
/// use ifmatch::ConditionalLayer;
/// use tower::Layer;
///
/// let routes: Router = Router::new().route("/greeting", get(|| async { "hello" }));
/// let service = ConditionalLayer::new().layer(routes); // with the feature `axum`: routes.guarded_by(layer)
/// ```
pub struct ConditionalLayer {
    pub(crate) shared: Arc<LayerState>,
}

impl ConditionalLayer {
    /// Creates a layer with the default settings: resources may change in ways that the layer doesn't see, tags are
    /// SHA-256 hashes, and records are in this process's memory.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for a customised layer.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Default for ConditionalLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl From<LayerState> for ConditionalLayer {
    fn from(shared: LayerState) -> Self {
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Clone for ConditionalLayer {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl fmt::Debug for ConditionalLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConditionalLayer")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for ConditionalLayer {
    type Service = ConditionalService<S>;

    /// Wraps a service.
    ///
    /// # Panics
    /// Panics in axum's `Router::layer`, which wraps each method's handler separately: the GET before a conditional PUT
    /// would run the PUT handler.
    fn layer(&self, inner: S) -> Self::Service {
        assert!(
            !type_name::<S>().contains(AXUM_ROUTE),
            "ConditionalLayer must wrap the whole router, not its routes: replace router.layer(layer) by \
             router.guarded_by(layer), with ifmatch::axum::RouterExt and the feature axum"
        );
        ConditionalService::new(inner, Arc::clone(&self.shared))
    }
}
