//! TLS by rustls, with one certificate, and HTTP/2 or HTTP/1.1 by ALPN.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::sign::SingleCertAndKey;
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;
use crate::error::Error;

/// Reads the certificate and its key.
///
/// # Errors
/// Fails if a file cannot be read or contains no certificate or key, or if they do not match.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::runtime(format!("cannot set up TLS: {error}")))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(files.certified_key()?)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
