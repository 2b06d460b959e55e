//! Certificates for connections to upstreams.

use std::path::Path;
use std::sync::Arc;

use ifmatch_proxy::ProxyBuilder;
use rustls::RootCertStore;

use super::pem::{self, PemFile};
use super::proxy_settings::ProxySettings;
use crate::error::Error;

/// Adds the certificates in `settings` to `builder`. `secure` states if any upstream uses TLS.
///
/// # Errors
/// Fails if a file cannot be used, if no upstream uses TLS, or if one of two flags is missing.
pub(super) fn configure(
    mut builder: ProxyBuilder,
    settings: &ProxySettings,
    secure: bool,
) -> Result<ProxyBuilder, Error> {
    let (cert, key) = (settings.upstream_client_cert.as_deref(), settings.upstream_client_key.as_deref());
    let flags = [
        ("--upstream-ca", settings.upstream_ca.is_some()),
        ("--upstream-client-cert", cert.is_some()),
        ("--upstream-client-key", key.is_some()),
    ];
    if let Some((flag, _)) = flags.into_iter().find(|(_, set)| *set && !secure) {
        return Err(Error::usage(format!("{flag} needs an upstream with TLS: write https:// in place of http://")));
    }
    if let Some(path) = &settings.upstream_ca {
        builder = builder.trust(roots(path)?);
    }
    match (cert, key) {
        (Some(cert), Some(key)) => {
            let cert = PemFile { flag: "--upstream-client-cert", path: cert };
            let key = PemFile { flag: "--upstream-client-key", path: key };
            Ok(builder.client_certificate(Arc::new(pem::certified_key(cert, key)?)))
        }
        (None, None) => Ok(builder),
        (Some(_), None) => {
            Err(Error::usage("--upstream-client-cert needs --upstream-client-key, the private key of the certificate"))
        }
        (None, Some(_)) => {
            Err(Error::usage("--upstream-client-key needs --upstream-client-cert, the certificate of the key"))
        }
    }
}

fn roots(path: &Path) -> Result<RootCertStore, Error> {
    let flag = "--upstream-ca";
    let mut roots = RootCertStore::empty();
    for certificate in (PemFile { flag, path }).certificates()? {
        roots.add(certificate).map_err(|error| {
            Error::usage(format!("{flag} {} contains a certificate that cannot be used: {error}", path.display()))
        })?;
    }
    Ok(roots)
}
