//! Certificates and private keys in PEM files: those that clients see, and those for connections to upstreams.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ifmatch_proxy::ProxyBuilder;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::proxy_settings::ProxySettings;
use crate::error::Error;

/// The files of a TLS certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Reads the certificate and its key.
    ///
    /// # Errors
    /// Fails if a file can't be read or contains no certificate or key, or if they don't match.
    pub fn certified_key(&self) -> Result<CertifiedKey, Error> {
        let cert = PemFile {
            flag: "--tls-cert",
            path: &self.cert,
        };
        certified_key(
            cert,
            PemFile {
                flag: "--tls-key",
                path: &self.key,
            },
        )
    }
}

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
    /// Fails if the file can't be read or contains no certificate.
    pub(crate) fn certificates(self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let found: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(self.path).and_then(Iterator::collect);
        match found {
            Ok(chain) if chain.is_empty() => Err(self.lacks("certificate")),
            Ok(chain) => Ok(chain),
            Err(error) => Err(self.unreadable("certificate", &error)),
        }
    }

    /// Reads the first private key.
    fn private_key(self) -> Result<PrivateKeyDer<'static>, Error> {
        PrivateKeyDer::from_pem_file(self.path).map_err(|error| {
            if self.is_encrypted() {
                let Self { flag, path } = self;
                let path = path.display();
                return Error::setting(flag, format!(
                    "{path} is encrypted, and there is no way to pass its password. Decrypt it: openssl pkey -in {path} -out \
                     decrypted.pem"
                ));
            }
            self.unreadable("private key", &error)
        })
    }

    /// Returns `true` for a private key that needs a password: in PKCS #8, or in the older form of OpenSSL.
    fn is_encrypted(self) -> bool {
        let text = std::fs::read_to_string(self.path).unwrap_or_default();
        [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----",
            "Proc-Type: 4,ENCRYPTED",
        ]
        .iter()
        .any(|sign| text.contains(sign))
    }

    /// Returns the error for a file that can't be read or parsed.
    fn unreadable(self, what: &str, error: &pem::Error) -> Error {
        let Self { flag, path } = self;
        match error {
            pem::Error::NoItemsFound => self.lacks(what),
            pem::Error::Io(error) => Error::usage(format!(
                "can't read {flag} {}: {error}. Check the path and its permissions.",
                path.display()
            ))
            .about(flag),
            error => Error::setting(
                flag,
                format!(
                    "{} isn't a valid PEM file ({error}). Convert it with openssl.",
                    path.display()
                ),
            ),
        }
    }

    /// Returns the error for a file without a certificate or a key.
    fn lacks(self, what: &str) -> Error {
        let problem = format!(
            "{} contains no {what} in PEM format. Check the file.",
            self.path.display()
        );
        Error::setting(self.flag, problem)
    }
}

/// Reads a certificate chain and its key.
///
/// # Errors
/// Fails if a file can't be read or contains no certificate or key, or if they don't match.
pub(crate) fn certified_key(cert: PemFile<'_>, key: PemFile<'_>) -> Result<CertifiedKey, Error> {
    let (chain, private) = (cert.certificates()?, key.private_key()?);
    CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|error| {
        let (flag, cert, key) = (cert.flag, cert.path.display(), key.path.display());
        let message = match error {
            rustls::Error::InconsistentKeys(_) => {
                format!(
                    "the key in {key} doesn't match the certificate in {cert}. Use the pair that was issued together."
                )
            }
            error => {
                format!("can't use the certificate in {cert} with the key in {key}: {error}. Check both files.")
            }
        };
        Error::usage(message).about(flag)
    })
}

/// Adds the certificates in `settings` to `builder`. `is_secure` states if any upstream uses TLS.
///
/// # Errors
/// Fails if a file can't be used, if no upstream uses TLS, or if one of two flags is missing.
pub(super) fn configure_upstreams(
    mut builder: ProxyBuilder,
    settings: &ProxySettings,
    is_secure: bool,
) -> Result<ProxyBuilder, Error> {
    let (cert, key) = (
        settings.upstream_client_cert.as_deref(),
        settings.upstream_client_key.as_deref(),
    );
    let flags = [
        ("--upstream-ca", settings.upstream_ca.is_some()),
        ("--upstream-client-cert", cert.is_some()),
        ("--upstream-client-key", key.is_some()),
    ];
    if let Some((flag, _)) = flags.into_iter().find(|(_, is_set)| *is_set && !is_secure) {
        return Err(Error::setting(
            flag,
            "needs an upstream with TLS. Write https:// in --upstream.",
        ));
    }
    if let Some(path) = &settings.upstream_ca {
        builder = builder.trust(roots(path)?);
    }
    match (cert, key) {
        (Some(cert), Some(key)) => {
            let cert = PemFile {
                flag: "--upstream-client-cert",
                path: cert,
            };
            let key = PemFile {
                flag: "--upstream-client-key",
                path: key,
            };
            Ok(builder.client_certificate(Arc::new(certified_key(cert, key)?)))
        }
        (None, None) => Ok(builder),
        (Some(_), None) => Err(Error::setting(
            "--upstream-client-cert",
            "needs --upstream-client-key, its private key. Set both.",
        )),
        (None, Some(_)) => Err(Error::setting(
            "--upstream-client-key",
            "needs --upstream-client-cert, its certificate. Set both.",
        )),
    }
}

/// Reads the certificate authorities in the file of `--upstream-ca`.
fn roots(path: &Path) -> Result<RootCertStore, Error> {
    let flag = "--upstream-ca";
    let mut roots = RootCertStore::empty();
    for certificate in (PemFile { flag, path }).certificates()? {
        roots.add(certificate).map_err(|error| {
            Error::setting(
                flag,
                format!(
                    "{} contains an unusable certificate: {error}. Remove it from the file.",
                    path.display()
                ),
            )
        })?;
    }
    Ok(roots)
}
