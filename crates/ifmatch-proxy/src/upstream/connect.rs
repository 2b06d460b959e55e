//! Connections to upstreams, pooled and optionally encrypted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::ring;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};

/// An HTTP client over TCP and TLS.
pub(crate) type HttpClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// Maximum time for which an unused connection is kept. Shorter than the timeouts of common servers, some of which use
/// 5 seconds.
const IDLE: Duration = Duration::from_secs(4);

/// The certificates of both sides of a TLS connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Certificates {
    /// The trusted authorities, or `None` for those of the system.
    pub(crate) roots: Option<RootCertStore>,
    /// The proxy's own certificate and its key, for servers that ask for them.
    pub(crate) own: Option<Arc<CertifiedKey>>,
}

impl Certificates {
    /// Returns the configuration of TLS.
    ///
    /// # Errors
    /// Fails if the authorities of the system are needed, and it has none.
    fn config(self) -> io::Result<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let builder = match self.roots {
            Some(roots) => builder.with_root_certificates(roots),
            None => builder.with_native_roots()?,
        };
        Ok(match self.own {
            Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own))),
            None => builder.with_no_client_auth(),
        })
    }
}

/// Creates a client with a connection pool. `secure` states if any upstream uses TLS.
///
/// # Errors
/// Fails if the authorities of the system are needed, and it has none.
pub(crate) fn client<B>(timeout: Duration, secure: bool, certificates: Certificates) -> io::Result<HttpClient<B>>
where
    B: http_body::Body<Data: Send> + Send + 'static,
{
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(timeout));
    let unused = Certificates { roots: Some(RootCertStore::empty()), own: None };
    let config = if secure { certificates } else { unused }.config()?;
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().wrap_connector(tcp);
    let mut client = Client::builder(TokioExecutor::new());
    client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
    // The header fields already contain the Host.
    client.set_host(false);
    Ok(client.build(connector))
}
