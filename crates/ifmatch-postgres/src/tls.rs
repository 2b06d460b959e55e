//! The encryption of connections by URL: rustls, with the system's authorities or a file's.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use ifmatch_register::{ConnectError, ConnectErrorKind};
use ifmatch_runtime::Cause;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connection::{PostgresConnector, TlsConnector};

/// Returns the connector that trusts the authorities in a file, or the system's.
pub(crate) fn connector(
    roots: Option<PathBuf>,
) -> Result<Arc<dyn PostgresConnector>, ConnectError> {
    Ok(Arc::new(TlsConnector(MakeRustlsConnect::new(config(
        roots,
    )?))))
}

/// Returns the settings of rustls.
fn config(file: Option<PathBuf>) -> Result<ClientConfig, ConnectError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = file {
        let unusable = || {
            let text = format!(
                "sslrootcert: {} is not a PEM file with the certificate of an authority",
                file.display()
            );
            ConnectError::new(ConnectErrorKind::Url, text)
        };
        let certificates =
            CertificateDer::pem_file_iter(&file).map_err(|error| unusable().because(error))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unusable().because(error))?;
            roots
                .add(certificate)
                .map_err(|error| unusable().because(error))?;
        }
        if roots.is_empty() {
            return Err(unusable());
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let versions = versions.map_err(|error| {
        ConnectError::new(ConnectErrorKind::Certificate, "no TLS").because(error)
    })?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

/// Returns `true` for errors of the TLS handshake.
pub(crate) fn is_of_handshake(error: &tokio_postgres::Error) -> bool {
    std::iter::successors(error.source(), |error| (*error).source()).any(|error| {
        error.is::<rustls::Error>()
            || error
                .downcast_ref::<std::io::Error>()
                .and_then(std::io::Error::get_ref)
                .is_some_and(<dyn Error + Send + Sync>::is::<rustls::Error>)
    })
}

/// Returns the cause of an error, in words that say what to do where there is something.
pub(crate) fn explain(error: tokio_postgres::Error) -> Box<dyn Error + Send + Sync> {
    Cause::explain(error, "sslmode=disable", "sslrootcert")
}
