//! Certificates and private keys in PEM files.

use std::path::Path;

use rustls::crypto::ring;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::Error;

/// A PEM file, and the flag that names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PemFile<'a> {
    pub(crate) flag: &'static str,
    pub(crate) path: &'a Path,
}

impl PemFile<'_> {
    /// Reads certificates, at least one.
    ///
    /// # Errors
    /// Fails if the file cannot be read or contains no certificate.
    pub(crate) fn certificates(self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(self.path).and_then(Iterator::collect);
        match found {
            Ok(chain) if chain.is_empty() => Err(self.lacks("certificate")),
            Ok(chain) => Ok(chain),
            Err(error) => Err(self.unreadable("certificate", &error)),
        }
    }

    fn private_key(self) -> Result<PrivateKeyDer<'static>, Error> {
        PrivateKeyDer::from_pem_file(self.path).map_err(|error| self.unreadable("private key", &error))
    }

    fn unreadable(self, what: &str, error: &pem::Error) -> Error {
        let Self { flag, path } = self;
        match error {
            pem::Error::NoItemsFound => self.lacks(what),
            pem::Error::Io(error) => Error::usage(format!("cannot read {flag} {}: {error}", path.display())),
            error => Error::usage(format!("{flag} {} is not a PEM file: {error}", path.display())),
        }
    }

    fn lacks(self, what: &str) -> Error {
        Error::usage(format!("{} {} contains no {what} in PEM format", self.flag, self.path.display()))
    }
}

/// Reads a certificate chain and its key.
///
/// # Errors
/// Fails if a file cannot be read or contains no certificate or key, or if they do not match.
pub(crate) fn certified_key(cert: PemFile<'_>, key: PemFile<'_>) -> Result<CertifiedKey, Error> {
    let (chain, private) = (cert.certificates()?, key.private_key()?);
    let (cert, key) = (cert.path.display(), key.path.display());
    CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            Error::usage(format!("the key in {key} does not match the certificate in {cert}"))
        }
        error => Error::usage(format!("cannot use the certificate in {cert} and the key in {key}: {error}")),
    })
}
