//! TLS by rustls, with one certificate, and HTTP/2 or HTTP/1.1 by ALPN.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;
use crate::error::Error;
use crate::gateway::state::AppState;

/// TLS with a certificate that can be replaced.
#[derive(Debug)]
pub(crate) struct Tls(Arc<Certificate>);

/// The certificate of new connections, with its key.
#[derive(Debug)]
struct Certificate(ArcSwap<CertifiedKey>);

impl Tls {
    /// Reads the certificate and its key, and tells `state` about it.
    ///
    /// # Errors
    /// Fails if a file cannot be read or contains no certificate or key, or if they do not match.
    pub(crate) fn open(files: &TlsFiles, state: &AppState) -> Result<Self, Error> {
        let key = files.certified_key()?;
        state.set_certificate(&key);
        Ok(Self(Arc::new(Certificate(ArcSwap::from_pointee(key)))))
    }

    /// Returns the acceptor of connections.
    ///
    /// # Errors
    /// Fails if the library rejects its settings. They are constants, so this does not happen.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::runtime(format!("cannot set up TLS: {error}")))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::<Certificate>::clone(&self.0));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Replaces the certificate, for new connections, and tells `state` about it.
    pub(crate) fn replace(&self, key: CertifiedKey, state: &AppState) {
        state.set_certificate(&key);
        self.0.0.store(Arc::new(key));
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}
