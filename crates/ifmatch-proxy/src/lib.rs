//! The reverse proxy's way to its upstreams: a Tower service that forwards requests over HTTP/1.1, plain or over TLS.
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

pub use builder::ProxyBuilder;
pub use error::{ProxyError, ProxyErrorKind};
pub use forward::Client;
pub use health::HealthCheck;
pub use interim::Interim;
pub use proxy::Proxy;
pub use response_body::ProxyBody;
pub use upstream::{InvalidUpstream, Upstream};

mod builder;
mod choice;
mod connect;
mod error;
mod forward;
mod framing;
mod health;
mod hop;
mod interim;
mod path;
mod proxy;
mod response_body;
mod route;
mod sent;
mod trailers;
mod upgrade;
mod upstream;
mod via;
