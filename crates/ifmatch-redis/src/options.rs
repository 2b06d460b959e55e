//! The server to connect to, and how.

use ifmatch_register::{ConnectError, ConnectErrorKind};
use redis::{Client, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, TlsCertificates};

use crate::error::unusable;

/// Prefix of all keys, unless another is set.
const DEFAULT_PREFIX: &str = "ifmatch:";
/// Begins a certificate.
const PEM: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// The server to connect to, and how.
///
/// ```
/// use ifmatch_redis::Options;
///
/// let options = Options::new("redis://127.0.0.1:6379/1")?.with_prefix("notes:");
/// assert!(Options::new("http://127.0.0.1").is_err());
/// # Ok::<(), ifmatch_redis::ConnectError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) client: Client,
    pub(crate) prefix: String,
}

impl Options {
    /// Parses `redis://[user:password@]host[:port][/database]`, or `rediss://…` for TLS. The server's certificate is
    /// verified against the certificates of the system, or the file named by `SSL_CERT_FILE`.
    ///
    /// # Errors
    /// [`ConnectErrorKind::Url`] if it isn't such a URL.
    pub fn new(url: &str) -> Result<Self, ConnectError> {
        let client =
            Client::open(parse(url)?).map_err(|error| unusable(ConnectErrorKind::Url, error))?;
        Ok(Self {
            client,
            prefix: DEFAULT_PREFIX.to_owned(),
        })
    }

    /// Parses a `rediss://` URL. The server's certificate is verified against `root`, in PEM format.
    ///
    /// # Errors
    /// [`ConnectErrorKind::Url`] if it isn't such a URL, and [`ConnectErrorKind::Certificate`] if `root` isn't a certificate.
    pub fn with_root_certificate(url: &str, root: &[u8]) -> Result<Self, ConnectError> {
        if !root.windows(PEM.len()).any(|bytes| bytes == PEM) {
            return Err(unusable(
                ConnectErrorKind::Certificate,
                "it has no certificate in PEM format",
            ));
        }
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: Some(root.to_vec()),
        };
        let client = Client::build_with_tls(parse(url)?, certificates);
        let client = client.map_err(|error| unusable(ConnectErrorKind::Certificate, error))?;
        Ok(Self {
            client,
            prefix: DEFAULT_PREFIX.to_owned(),
        })
    }

    /// Sets the prefix of all keys, for several registers on one server. Defaults to `ifmatch:`.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }
}

/// Parses a URL. The client accepts `#insecure`, which turns the verification of certificates off. With version 3 of the
/// protocol, it reports the end of a connection.
fn parse(url: &str) -> Result<ConnectionInfo, ConnectError> {
    let is_url = url.starts_with("redis://") || url.starts_with("rediss://");
    if !is_url || url.contains('#') {
        let error = "use redis://[user:password@]host[:port][/database], or rediss:// for TLS";
        return Err(unusable(ConnectErrorKind::Url, error));
    }
    let info = url
        .into_connection_info()
        .map_err(|error| unusable(ConnectErrorKind::Url, error))?;
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3);
    Ok(info.set_redis_settings(settings))
}
