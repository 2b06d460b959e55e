//! New connections to upstreams, over TCP and TLS.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, Uri};
use hyper::client::conn::{http1, http2};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector, HttpInfo};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::crypto::ring;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tower_service::Service;

use super::pool::{Http1, Http2, PooledConnection};
use super::resolver::NameResolver;
use crate::forward::request_body::BoxError;

/// Window of an HTTP/2 stream: the bytes that an upstream may send ahead of a slow client.
const STREAM_WINDOW: u32 = 256 << 10;
/// Window of an HTTP/2 connection: the maximum, so slow clients don't stall others on the same connection.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Bytes of a request's content that wait for the window of the upstream.
const SEND_BUFFER: usize = 64 << 10;
/// Maximum size of the header fields of a response over HTTP/2.
const HEADER_LIST: u32 = 64 << 10;
/// Size of the buffer for reading a response over HTTP/1.1, and maximum size of its head.
const READ_BUFFER: usize = 64 << 10;
/// Pause after which a used HTTP/2 connection is probed by a PING, and the maximum time until its response.
const PING: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(10));

/// The certificates of both sides of a TLS connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsCertificates {
    /// The trusted authorities, or `None` for the system's.
    pub(crate) roots: Option<RootCertStore>,
    /// The proxy's own certificate and its key, for servers that ask for them.
    pub(crate) own: Option<Arc<CertifiedKey>>,
}

impl TlsCertificates {
    /// Returns certificates that trust no server, which are enough without TLS.
    pub(crate) fn unused() -> Self {
        Self {
            roots: Some(RootCertStore::empty()),
            own: None,
        }
    }

    /// Returns the configuration of TLS.
    fn config(self) -> io::Result<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
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

/// The protocol of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionProtocol {
    Http1,
    /// HTTP/2 without negotiation (RFC 9113 §3.3).
    Http2,
    /// HTTP/2 or HTTP/1.1, selected by the server during the TLS handshake (ALPN).
    Negotiated,
}

/// A new connection.
pub(crate) enum OpenedConnection {
    Http1(Http1),
    Http2(Arc<Http2>),
}

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector {
    http1: HttpsConnector<HttpConnector<NameResolver>>,
    negotiated: HttpsConnector<HttpConnector<NameResolver>>,
}

type ServerStream = MaybeHttpsStream<TokioIo<TcpStream>>;

impl Connector {
    /// Creates a connector. `timeout` is the maximum time for all addresses of a server together.
    ///
    /// # Errors
    /// Fails if the authorities of the system are needed, and it has none.
    pub(crate) fn new(
        resolver: NameResolver,
        timeout: Duration,
        certificates: TlsCertificates,
    ) -> io::Result<Self> {
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(timeout));
        let config = certificates.config()?;
        let builder = || {
            HttpsConnectorBuilder::new()
                .with_tls_config(config.clone())
                .https_or_http()
                .enable_http1()
        };
        Ok(Self {
            http1: builder().wrap_connector(tcp.clone()),
            negotiated: builder().enable_http2().wrap_connector(tcp),
        })
    }

    /// Opens a connection to the server of this URL.
    pub(crate) async fn open(
        &self,
        url: Uri,
        protocol: ConnectionProtocol,
    ) -> Result<OpenedConnection, BoxError> {
        let mut connector = match protocol {
            ConnectionProtocol::Http1 | ConnectionProtocol::Http2 => self.http1.clone(),
            ConnectionProtocol::Negotiated => self.negotiated.clone(),
        };
        poll_fn(|cx| connector.poll_ready(cx)).await?;
        let stream = connector.call(url).await?;
        let connected = stream.connected();
        let mut extras = Extensions::new();
        connected.get_extras(&mut extras);
        let peer = extras.get::<HttpInfo>().map(|info| info.remote_addr().ip());
        Ok(
            if protocol == ConnectionProtocol::Http2 || connected.is_negotiated_h2() {
                OpenedConnection::Http2(Arc::new(speak_http2(stream, peer).await?))
            } else {
                OpenedConnection::Http1(speak_http1(stream, peer).await?)
            },
        )
    }
}

async fn speak_http1(stream: ServerStream, peer: Option<IpAddr>) -> hyper::Result<Http1> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(READ_BUFFER);
    let (mut sender, connection) = builder.handshake(stream).await?;
    spawn(connection.with_upgrades());
    sender.ready().await?;
    Ok(PooledConnection { sender, peer })
}

async fn speak_http2(stream: ServerStream, peer: Option<IpAddr>) -> hyper::Result<Http2> {
    let (interval, timeout) = PING;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADER_LIST)
        .keep_alive_interval(interval)
        .keep_alive_timeout(timeout);
    let (mut sender, connection) = builder.handshake(stream).await?;
    spawn(connection);
    sender.ready().await?;
    Ok(PooledConnection { sender, peer })
}

fn spawn<E: Error + Send>(connection: impl Future<Output = Result<(), E>> + Send + 'static) {
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to an upstream server failed");
        }
    });
}
