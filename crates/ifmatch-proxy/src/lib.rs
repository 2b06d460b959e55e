//! A reverse proxy as a Tower service: forwards requests to upstreams over HTTP/1.1 or HTTP/2, plain or over TLS.
//!
//! ```
//! use ifmatch_proxy::{Proxy, Upstream};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let images = Upstream::parse(&["http://10.0.0.7:8080", "http://10.0.0.8:8080"])?;
//! let proxy = Proxy::builder()
//!     .route("example.com/images/", images)?
//!     .route("/", Upstream::parse(&["http://127.0.0.1:8000"])?)?
//!     .build()?;
//! # drop(proxy);
//! # Ok(())
//! # }
//! ```
//!
//! In the source, a request passes through these modules:
//!
//! 1. `builder` makes the `state`, which [`Proxy`] shares among its requests. `proxy` is the service, which calls the others.
//! 2. `route` finds the upstream by host and path, or redirects.
//! 3. `upstream::selection` takes a slot at a server. `balance`, `breaker` and `health` decide at which.
//! 4. `forward::headers` and `forward::outgoing` make the request for the server, and `upstream::client` sends it.
//! 5. `forward::framing` validates the response, and `forward::attempts` decides whether to try again.
//! 6. `forward::headers`, `route::public_url`, `route::fields` and `forward::response_body` make the client's response.
//!
//! Callers can watch requests by an `observer`. Failures are in `error`.

pub use builder::ProxyBuilder;
pub use error::{ProxyError, ProxyErrorKind};
pub use forward::headers::ForwardedClient;
pub use forward::interim::Interim;
pub use forward::response_body::ProxyBody;
pub use observer::{
    Exchange, LastExchange, ProxyEvent, ProxyObserver, ServerFailure, ServerState, UpstreamState,
};
pub use proxy::Proxy;
pub use route::Route;
pub use route::fields::{FieldRules, Messages};
pub use route::redirect::Redirect;
pub use upstream::balance::Balance;
pub use upstream::health::HealthCheck;
pub use upstream::{InvalidUpstream, Upstream};

mod builder;
mod error;
mod forward;
mod observer;
mod proxy;
mod route;
mod state;
mod upstream;
