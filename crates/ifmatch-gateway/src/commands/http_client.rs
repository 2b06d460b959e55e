//! The HTTP client of commands that ask a running gateway.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use reqwest::{Certificate, Client};
use url::Url;

use crate::error::Error;

/// The way out if nothing listens at the address.
const NOT_LISTENING: &str = ": start the gateway (`ifmatch serve`), or correct the URL";
/// Maximum time to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// Creates a client for `url` that trusts the certificates in the file `ca`, or the system's. The timeout is that of
/// a whole exchange.
///
/// # Errors
/// Fails if the file cannot be used.
pub(crate) fn new(url: &Url, ca: Option<&Path>, timeout: Option<Duration>) -> Result<Client, Error> {
    // Fails if the process already has a provider.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let mut http = reqwest::Client::builder().connect_timeout(CONNECT).redirect(reqwest::redirect::Policy::none());
    if let Some(timeout) = timeout {
        http = http.timeout(timeout);
    }
    if let Some(file) = ca {
        http = http.tls_certs_only(certificates(file)?);
    } else if url.scheme() == "http" {
        // The system's certificates, which may be missing, are not needed.
        http = http.tls_certs_only([]);
    }
    http.build().map_err(|error| Error::runtime(format!("cannot create an HTTP client: {error}")))
}

/// Returns the innermost cause, which is the most specific, and suggests a fix if nothing listens at the address.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let Some(cause) = causes.last() else { return String::new() };
    let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
    let hint = if kind == Some(ErrorKind::ConnectionRefused) { NOT_LISTENING } else { "" };
    format!("{cause}{hint}")
}

fn certificates(file: &Path) -> Result<Vec<Certificate>, Error> {
    let wrong = |error: &dyn std::error::Error| Error::usage(format!("--ca {}: {error}", file.display()));
    let pem = std::fs::read(file).map_err(|error| wrong(&error))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| wrong(&error))?;
    if certificates.is_empty() {
        return Err(Error::usage(format!("--ca {} contains no certificate in PEM format", file.display())));
    }
    Ok(certificates)
}
