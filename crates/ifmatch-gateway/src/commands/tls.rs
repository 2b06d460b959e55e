//! TLS by rustls, with one certificate, and HTTP/2 or HTTP/1.1 by ALPN.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;
use crate::error::Error;

/// Reads the certificate and its key.
///
/// # Errors
/// Fails if a file cannot be read or contains no certificate or key, or if they do not match.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, Error> {
    let chain = certificates(&files.cert)?;
    let key = private_key(&files.key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::runtime(format!("cannot set up TLS: {error}")))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unfit(files, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found {
        Ok(chain) if chain.is_empty() => Err(lacks(path, "--tls-cert", "certificate")),
        Ok(chain) => Ok(chain),
        Err(error) => Err(unreadable(path, "--tls-cert", "certificate", &error)),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unreadable(path, "--tls-key", "private key", &error))
}

fn unreadable(path: &Path, flag: &str, what: &str, error: &pem::Error) -> Error {
    match error {
        pem::Error::NoItemsFound => lacks(path, flag, what),
        pem::Error::Io(error) => Error::usage(format!("cannot read {flag} {}: {error}", path.display())),
        error => Error::usage(format!("{flag} {} is not a PEM file: {error}", path.display())),
    }
}

fn lacks(path: &Path, flag: &str, what: &str) -> Error {
    Error::usage(format!("{flag} {} contains no {what} in PEM format", path.display()))
}

fn unfit(files: &TlsFiles, error: &rustls::Error) -> Error {
    let (cert, key) = (files.cert.display(), files.key.display());
    match error {
        rustls::Error::InconsistentKeys(_) => {
            Error::usage(format!("the key in {key} does not match the certificate in {cert}"))
        }
        error => Error::usage(format!("cannot use the certificate in {cert} and the key in {key}: {error}")),
    }
}
