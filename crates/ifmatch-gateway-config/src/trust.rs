//! The certificates that the gateway and its commands trust as HTTP clients.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::HeaderMap;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};
use url::Url;

use crate::error::Error;

/// Maximum time to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// The certificates to trust, by default the system's.
#[derive(Args, Default)]
pub struct Trust {
    /// PEM file with the authorities to trust, instead of the system's.
    #[arg(long, value_name = "FILE", env = "IFMATCH_CA", hide_env_values = true)]
    ca: Option<PathBuf>,
}

impl Trust {
    /// Creates a client for `url` that sends `fields` with each request. The timeout covers a whole exchange.
    ///
    /// # Errors
    /// Fails if the file of certificates can't be used.
    pub fn client(
        &self,
        url: &Url,
        fields: HeaderMap,
        timeout: Option<Duration>,
    ) -> Result<Client, Error> {
        // Fails if the process already has a provider.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let mut http = Client::builder()
            .connect_timeout(CONNECT)
            .redirect(Policy::none())
            .default_headers(fields);
        if let Some(timeout) = timeout {
            http = http.timeout(timeout);
        }
        if let Some(file) = &self.ca {
            http = http.tls_certs_only(read(file)?.1);
        } else if url.scheme() == "http" {
            // The system's certificates, which may be missing, aren't needed.
            http = http.tls_certs_only([]);
        }
        http.build()
            .map_err(|error| Error::runtime(format!("can't create an HTTP client: {error}")))
    }

    /// Reads the certificates in PEM format. Returns `None` if the system's are trusted.
    ///
    /// # Errors
    /// Fails if the file can't be used.
    pub fn pem(&self) -> Result<Option<Vec<u8>>, Error> {
        let Some(file) = &self.ca else {
            return Ok(None);
        };
        let (pem, _) = read(file)?;
        Ok(Some(pem))
    }
}

/// Reads a file in PEM format, and returns its content and the certificates in it.
fn read(file: &Path) -> Result<(Vec<u8>, Vec<Certificate>), Error> {
    let shown = file.display();
    let pem = std::fs::read(file).map_err(|error| {
        Error::usage(format!(
            "can't read --ca {shown}: {error}. Check the path and its permissions."
        ))
    })?;
    let lacks = || {
        Error::usage(format!(
            "--ca {shown} contains no certificate in PEM format. Check the file."
        ))
    };
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|_| lacks())?;
    if certificates.is_empty() {
        return Err(lacks());
    }
    Ok((pem, certificates))
}
