//! Connections to upstreams, pooled and optionally encrypted.

use std::io;
use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// An HTTP client over TCP and TLS.
pub(crate) type HttpClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// Maximum time for which an unused connection is kept. Shorter than the timeouts of common servers, some of which use
/// 5 seconds.
const IDLE: Duration = Duration::from_secs(4);

/// Creates a client with a connection pool and the system's root certificates.
///
/// # Errors
/// Fails if an upstream uses TLS and the system has no root certificates.
pub(crate) fn client<B>(timeout: Duration, secure: bool) -> io::Result<HttpClient<B>>
where
    B: http_body::Body<Data: Send> + Send + 'static,
{
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(timeout));
    let provider = rustls::crypto::ring::default_provider();
    let builder = HttpsConnectorBuilder::new();
    let builder = if secure {
        builder.with_provider_and_native_roots(provider)?
    } else {
        let config = rustls::ClientConfig::builder_with_provider(provider.into());
        let config = config.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        builder.with_tls_config(config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
    };
    let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
    let mut client = Client::builder(TokioExecutor::new());
    client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
    // The header fields already contain the Host.
    client.set_host(false);
    Ok(client.build(connector))
}
