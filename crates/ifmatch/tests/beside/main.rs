//! The layer with services, layers and clients of other crates.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod beside;
mod comparisons;
mod counter;

use std::convert::Infallible;
use std::error::Error;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use support::Server;
use tower::{Service, ServiceBuilder};

/// Serves a service that takes a buffered body, which has a default.
async fn serve<S, B>(service: S) -> Server
where
    S: Service<Request<axum::body::Body>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let adapt = |request: Request<Incoming>| request.map(axum::body::Body::new);
    Server::start(ServiceBuilder::new().map_request(adapt).service(service)).await
}
