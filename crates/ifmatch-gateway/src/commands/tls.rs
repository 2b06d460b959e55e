//! TLS by rustls, with a certificate for the name that a client requests, and HTTP/2 or HTTP/1.1 by ALPN.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsAcceptor;

use ifmatch_gateway_config::TlsFiles;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_service::certificate::Validity;
use ifmatch_gateway_service::state::AppState;

/// TLS with certificates that can be replaced.
#[derive(Debug)]
pub(crate) struct ReplaceableTls(Arc<LiveCertificates>);

/// The certificates of new connections, with their keys.
#[derive(Debug)]
struct LiveCertificates(ArcSwap<Vec<Arc<CertifiedKey>>>);

/// Certificates that have been read, with their keys.
pub(crate) struct CertificateKeys(Vec<(Arc<CertifiedKey>, Option<Validity>)>);

impl CertificateKeys {
    /// Reads the certificates and their keys.
    ///
    /// # Errors
    /// Fails if a file can't be read or contains no certificate or key, or if they don't match.
    pub(crate) fn read(files: &[TlsFiles]) -> Result<Self, Error> {
        let read = |files: &TlsFiles| {
            let key = files.certified_key()?;
            let validity = Validity::of(&key, &files.cert);
            Ok((Arc::new(key), validity))
        };
        files
            .iter()
            .map(read)
            .collect::<Result<_, Error>>()
            .map(Self)
    }

    /// Returns the times for which the certificates are valid.
    pub(crate) fn validities(&self) -> impl Iterator<Item = &Validity> {
        self.0.iter().filter_map(|(_, validity)| validity.as_ref())
    }
}

impl ReplaceableTls {
    /// Reads the certificates and their keys, and tells `state` about them. Returns `None` if there are none.
    ///
    /// # Errors
    /// Fails if a file can't be read or contains no certificate or key, or if they don't match.
    pub(crate) fn open(files: &[TlsFiles], state: &AppState) -> Result<Option<Self>, Error> {
        if files.is_empty() {
            return Ok(None);
        }
        let tls = Self(Arc::new(LiveCertificates(ArcSwap::default())));
        tls.replace(CertificateKeys::read(files)?, state);
        Ok(Some(tls))
    }

    /// Returns the acceptor of connections.
    ///
    /// # Errors
    /// Fails if the library rejects its settings. They are constants, so this doesn't happen.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::runtime(format!("can't set up TLS: {error}")))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::<LiveCertificates>::clone(&self.0));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Replaces the certificates, for new connections, and tells `state` about them.
    pub(crate) fn replace(&self, keys: CertificateKeys, state: &AppState) {
        state.set_certificates(keys.validities().cloned().collect());
        self.0
            .0
            .store(Arc::new(keys.0.into_iter().map(|(key, _)| key).collect()));
    }
}

impl ResolvesServerCert for LiveCertificates {
    /// Returns the first certificate for the requested name, or the first of all.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let keys = self.0.load();
        let name = hello
            .server_name()
            .and_then(|name| ServerName::try_from(name).ok());
        let named = name.and_then(|name| keys.iter().find(|key| is_for(key, &name)));
        named.or(keys.first()).cloned()
    }
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let certificate = key
        .cert
        .first()
        .and_then(|der| ParsedCertificate::try_from(der).ok());
    certificate.is_some_and(|certificate| verify_server_name(&certificate, name).is_ok())
}
