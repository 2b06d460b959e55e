//! The HTTP client of commands that ask a running gateway or any server, and its flags.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_client::{Cause, Http};
use reqwest::{Certificate, Client, RequestBuilder};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::store_url::Place;
use crate::error::Error;

/// The way out if nothing listens at the address.
const NOT_LISTENING: &str = ": start the gateway (`ifmatch serve`), or correct the URL";
/// Maximum time to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// The token and the certificates of a connection to a gateway.
#[derive(Args)]
pub(crate) struct Connection {
    /// Bearer token, if the gateway requires one.
    #[arg(long, env = "IFMATCH_TOKEN", hide_env_values = true)]
    token: Option<String>,

    #[command(flatten)]
    trust: Trust,
}

/// The certificates to trust, by default the system's.
#[derive(Args, Default)]
pub(crate) struct Trust {
    /// PEM file of certificates to trust instead of the system's, for example of a private certificate authority.
    #[arg(long, value_name = "FILE", env = "IFMATCH_CA")]
    ca: Option<PathBuf>,
}

impl Connection {
    /// Creates a client for `url` that sends the token with each request. The timeout is that of a whole exchange.
    ///
    /// # Errors
    /// Fails if the token is invalid, or the file of certificates cannot be used.
    pub(crate) fn client(&self, url: &Url, timeout: Option<Duration>) -> Result<Client, Error> {
        let mut fields = HeaderMap::new();
        if let Some(token) = &self.token {
            let wrong = |_| Error::usage("--token has characters other than visible ASCII ones");
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(wrong)?;
            value.set_sensitive(true);
            fields.insert(AUTHORIZATION, value);
        }
        create(url, self.trust.ca.as_deref(), fields, timeout)
    }
}

impl Trust {
    /// Creates a client for `url` without a token.
    ///
    /// # Errors
    /// Fails if the file of certificates cannot be used.
    pub(crate) fn client(&self, url: &Url, timeout: Duration) -> Result<Client, Error> {
        create(url, self.ca.as_deref(), HeaderMap::new(), Some(timeout))
    }

    /// Reads the certificates in PEM format. Returns `None` if those of the system are trusted.
    ///
    /// # Errors
    /// Fails if the file cannot be used.
    pub(crate) fn pem(&self) -> Result<Option<Vec<u8>>, Error> {
        let Some(file) = &self.ca else { return Ok(None) };
        let (pem, _) = read(file)?;
        Ok(Some(pem))
    }
}

fn create(url: &Url, ca: Option<&Path>, fields: HeaderMap, timeout: Option<Duration>) -> Result<Client, Error> {
    // Fails if the process already has a provider.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let mut http = reqwest::Client::builder().connect_timeout(CONNECT).redirect(reqwest::redirect::Policy::none());
    http = http.default_headers(fields);
    if let Some(timeout) = timeout {
        http = http.timeout(timeout);
    }
    if let Some(file) = ca {
        http = http.tls_certs_only(read(file)?.1);
    } else if url.scheme() == "http" {
        // The system's certificates, which may be missing, are not needed.
        http = http.tls_certs_only([]);
    }
    http.build().map_err(|error| Error::runtime(format!("cannot create an HTTP client: {error}")))
}

/// Sends a request to an endpoint of a gateway, and returns its answer.
///
/// # Errors
/// Fails if the gateway cannot be reached or refuses the request, or if the answer is not one of a gateway.
pub(crate) async fn send<T: DeserializeOwned>(url: &Url, request: RequestBuilder) -> Result<T, Error> {
    let failed = |error: reqwest::Error| Error::runtime(format!("{url}: {}", reason(&error)));
    let response = request.header(ACCEPT, "application/json").send().await.map_err(failed)?;
    let status = response.status();
    let body = response.bytes().await.map_err(failed)?;
    if !status.is_success() {
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or("no details");
        return Err(Error::runtime(format!("{url} responded {status}: {detail}")));
    }
    serde_json::from_slice(&body)
        .map_err(|error| Error::runtime(format!("the response of {url} is not from an ifmatch gateway: {error}")))
}

/// Returns the innermost cause, which is the most specific, and suggests a fix if nothing listens at the address.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let Some(cause) = causes.last() else { return String::new() };
    let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
    let hint = if kind == Some(ErrorKind::ConnectionRefused) { NOT_LISTENING } else { "" };
    format!("{}{hint}", Cause::of(error).text)
}

/// Reads a file in PEM format, and returns its content and the certificates in it.
fn read(file: &Path) -> Result<(Vec<u8>, Vec<Certificate>), Error> {
    let wrong = |error: &dyn std::error::Error| Error::usage(format!("--ca {}: {error}", file.display()));
    let pem = std::fs::read(file).map_err(|error| wrong(&error))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| wrong(&error))?;
    if certificates.is_empty() {
        return Err(Error::usage(format!("--ca {} contains no certificate in PEM format", file.display())));
    }
    Ok((pem, certificates))
}

/// Access to a server.
#[derive(Args)]
pub(crate) struct Remote {
    /// Bearer token, if the server requires one. Stores have credentials of their own.
    #[arg(long, env = "IFMATCH_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// Header field of every request, such as `x-ms-blob-type: BlockBlob`. May be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,

    #[command(flatten)]
    trust: Trust,
}

impl Remote {
    /// Creates a connection to the server of a URL.
    ///
    /// # Errors
    /// Fails if the URL or the token is invalid, or the file of certificates cannot be used.
    pub(crate) fn connect(&self, url: &str) -> Result<Http, Error> {
        let usage = |error: ifmatch_client::HttpError| Error::usage(error.to_string());
        let server = match self.trust.pem()? {
            Some(pem) => Http::trusting(url, &pem),
            None => Http::new(url),
        };
        let mut server = server.map_err(usage)?;
        if let Some(token) = &self.token {
            server = server.with_token(token).map_err(usage)?;
        }
        Ok(self.headers.iter().fold(server, |server, (name, value)| server.with_header(name.clone(), value.clone())))
    }

    /// Opens the place of a store's URL.
    ///
    /// # Errors
    /// Fails if the URL or a setting is invalid, or if there are flags that only HTTP has.
    pub(crate) async fn place(&self, url: &str) -> Result<Place, Error> {
        if !self.headers.is_empty() {
            return Err(Error::usage(format!("{url}: --header is for http and https URLs only")));
        }
        Place::open(url).await
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("{text:?} is not a header field such as `name: value`");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    Ok((name.trim().parse().map_err(|_| wrong())?, value.trim().parse().map_err(|_| wrong())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_field_has_a_name_and_a_value() {
        let (name, value) = header("X-Ms-Version:  2021-12-02 ").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-ms-version", "2021-12-02"));
        for wrong in ["", "name", "a b: c", "a: \u{1}"] {
            assert!(header(wrong).is_err(), "{wrong}");
        }
    }
}
