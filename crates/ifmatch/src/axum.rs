//! axum: the whole router behind the layer, `axum::serve`, extractors and response parts.

use std::any::TypeId;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts, Request};
use axum::handler::Handler;
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use axum::routing::{Route, any};
use axum::serve::{IncomingStream, Listener};
use futures_util::FutureExt;
use http::StatusCode;
use http::request::Parts;
use ifmatch_core::precondition::Preconditions;
use tower_layer::{Layer, layer_fn};
use tower_service::Service;

use crate::inner::InnerService;
use crate::{
    ConditionalLayer, ConditionalService, ExpectedVersion, NewVersion, Permit, PreconditionFailed,
};

/// All paths but `/`, under axum's own name for the rest of a nested path, which it leaves out of the extractors `Path` and
/// `MatchedPath`. Under another name, handlers would get one parameter too many, and fail.
const ALL_PATHS: &str = "/{*__private__axum_nest_tail_param}";

/// Adds [`guarded_by`](Self::guarded_by) to axum's `Router`.
///
/// axum's own [`Router::layer`] wraps each method's handler separately, so the GET before a conditional PUT would run
/// the PUT handler. `guarded_by` wraps the whole router, and returns a router that takes other layers as usual, such as
/// authentication with [`Router::route_layer`].
///
/// ```
/// use axum::{Router, routing::get};
/// use ifmatch::ConditionalLayer;
/// use ifmatch::axum::RouterExt;
///
/// let notes = Router::new().route("/note", get(|| async { "hello" }));
/// let app: Router = Router::new()
///     .route("/health", get(|| async {}))
///     .nest("/v1", notes.guarded_by(ConditionalLayer::new()));
/// ```
pub trait RouterExt<S> {
    /// Wraps all routes and the fallback in a layer. Call it before or after `with_state`.
    ///
    /// The result handles every path. Merged with a router that has plain routes, it takes the paths and methods that
    /// those routes leave. axum panics if you merge two guarded routers, or a guarded router with one that has a route
    /// such as `/{id}`: merge the routers first, or nest them under two prefixes. Set `fallback` and
    /// `method_not_allowed_fallback` before you call this, because an outer router's don't apply. Middleware outside
    /// sees neither the `MatchedPath` nor the parameters of the routes inside.
    ///
    /// Apps built from one guarded router with different states share its layer, records and memory included. If their
    /// resources differ, give each app its own layer. Nested under `/notes`, the router serves `/notes` and `/notes/a`,
    /// while `/notes/` gets 404, as in every nested router. The `MatchedPath` of `/notes` is `/notes/`.
    ///
    /// If you call the router as a service (with `oneshot`, for example), end with `with_state(())`, as axum advises
    /// for its own handlers. `axum::serve` does it once per connection.
    ///
    /// ```
    /// use axum::{Router, extract::State, routing::get};
    /// use ifmatch::{ConditionalLayer, axum::RouterExt};
    ///
    /// async fn greet(State(name): State<String>) -> String {
    ///     format!("hello, {name}")
    /// }
    ///
    /// let greetings = Router::new().route("/greeting", get(greet)).guarded_by(ConditionalLayer::new());
    /// let app: Router = Router::new().nest("/v1", greetings).with_state("world".to_owned());
    /// ```
    #[must_use]
    fn guarded_by(self, layer: ConditionalLayer) -> Self;
}

impl<S: Clone + Send + Sync + 'static> RouterExt<S> for Router<S> {
    /// Routes, not a fallback: [`Router::route_layer`] skips fallbacks, and with them an authentication.
    ///
    /// The layer needs a complete router, since it also sends it the GET before a conditional PUT. axum gives the state
    /// to handlers, so the router becomes one, which responds with itself and its state. axum wraps it in the layer
    /// once it has the state.
    fn guarded_by(self, layer: ConditionalLayer) -> Self {
        let guarded = any(Stateless::new(self))
            .layer(layer_fn(move |route: Route| layer.layer(complete(route))));
        Self::new()
            .route("/", guarded.clone())
            .route(ALL_PATHS, guarded)
    }
}

/// A router without its state, as a handler that responds with the router that has it.
#[derive(Clone)]
struct Stateless<S> {
    router: Router<S>,
    /// The router with the state `()`, which `axum::serve` gives to each connection anew, for both routes.
    complete: Arc<OnceLock<Router>>,
}

impl<S> Stateless<S> {
    fn new(router: Router<S>) -> Self {
        Self {
            router,
            complete: Arc::default(),
        }
    }
}

/// A router with its state, as a response extension.
#[derive(Clone)]
struct Complete(Router);

impl<S: Clone + Send + Sync + 'static> Handler<(), S> for Stateless<S> {
    type Future = Ready<Response>;

    fn call(self, _: Request, state: S) -> Self::Future {
        let mut response = Response::default();
        let complete = || self.router.clone().with_state(state);
        let is_stateless = TypeId::of::<S>() == TypeId::of::<()>();
        let router = if is_stateless {
            self.complete.get_or_init(complete).clone()
        } else {
            complete()
        };
        response.extensions_mut().insert(Complete(router));
        ready(response)
    }
}

/// Asks a [`Stateless`] router that has its state for the complete one.
#[expect(
    clippy::expect_used,
    reason = "the handler's future is ready, and axum adds no other to it"
)]
fn complete(mut route: Route) -> Router {
    let answered = Service::<Request>::call(&mut route, Request::default()).now_or_never();
    let complete = answered.and_then(|Ok(mut response)| response.extensions_mut().remove());
    let Complete(router) = complete.expect("axum answers a handler that is ready at once");
    router
}

/// A connection of `axum::serve`, so it takes a layered router as it is.
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use ifmatch::ConditionalLayer;
/// use tower::Layer;
///
/// # async fn run() -> std::io::Result<()> {
/// let routes = Router::new().route("/note", get(|| async { "hello" }));
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
/// axum::serve(listener, ConditionalLayer::new().layer(routes)).await
/// # }
/// ```
impl<L, S> Service<IncomingStream<'_, L>> for ConditionalService<S>
where
    L: Listener,
    S: InnerService<Body, Error = Infallible> + Sync,
    S::Body: http_body::Body<Error: Into<axum::BoxError>>,
{
    type Response = Router;
    type Error = Infallible;
    type Future = Ready<Result<Router, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: IncomingStream<'_, L>) -> Self::Future {
        ready(Ok(Router::new().fallback_service(self.clone())))
    }
}

/// The request has no [`Permit`]: the route isn't behind a layer, or the layer doesn't guard this request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingPermit;

impl IntoResponse for MissingPermit {
    fn into_response(self) -> Response {
        let text = "the request has no permit: put the router behind ifmatch::ConditionalLayer, and guard this request";
        (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Permit {
    type Rejection = MissingPermit;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingPermit> {
        parts.extensions.get::<Self>().cloned().ok_or(MissingPermit)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Permit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

impl<S: Sync> FromRequestParts<S> for ExpectedVersion {
    type Rejection = MissingPermit;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingPermit> {
        let is_conditional = || {
            Preconditions::WRITE_HEADERS
                .iter()
                .any(|name| parts.headers.contains_key(name))
        };
        match parts.extensions.get::<Permit>() {
            Some(permit) => Ok(permit.expected_version()),
            // The layer doesn't guard it: a POST without a condition, for example.
            None if !is_conditional() => Ok(Self::Any),
            None => Err(MissingPermit),
        }
    }
}

impl IntoResponse for PreconditionFailed {
    fn into_response(self) -> Response {
        self.into()
    }
}

/// `(NewVersion::Body, Json(note))` is a response with the new representation.
impl IntoResponseParts for NewVersion {
    type Error = Infallible;

    fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Infallible> {
        response.extensions_mut().insert(self);
        Ok(response)
    }
}
