//! The gateway or the server that a command asks: the flags that name it, the HTTP client, and errors in words that say what to do.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ifmatch_client::{Cause, Http};
use ifmatch_gateway_config::access::read_tokens;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::trust::Trust;
use reqwest::{Client, RequestBuilder};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::store_url::ObjectPlace;

/// URL of a gateway with the default settings.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:10000";
/// The ways to give a token.
pub(crate) const GIVE_TOKEN: &str = "with --token-file FILE or --token TOKEN, or set IFMATCH_TOKEN";

/// The gateway that a command is about.
#[derive(Args)]
pub(crate) struct GatewayArgs {
    /// URL of the gateway.
    #[arg(long, value_name = "URL", env = "IFMATCH_URL", hide_env_values = true, default_value = DEFAULT_URL, value_parser = gateway_url)]
    pub(crate) url: Url,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// The token and the certificates of a connection to a gateway.
#[derive(Args)]
pub(crate) struct ConnectionArgs {
    #[command(flatten)]
    token: TokenArgs,

    #[command(flatten)]
    trust: Trust,
}

/// The token of a command.
#[derive(Args)]
struct TokenArgs {
    /// Bearer token. Other users of this machine can see it: prefer --token-file.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "IFMATCH_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,

    /// File with the bearer token, instead of --token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TokenArgs {
    /// Returns the token: the first one of the file, if there is a file.
    fn read(&self) -> Result<Option<String>, Error> {
        match &self.token_file {
            Some(file) => Ok(read_tokens("--token-file", file)?.into_iter().next()),
            None => Ok(self.token.clone()),
        }
    }
}

impl ConnectionArgs {
    /// Creates a client for `url` that sends the token with each request. The timeout covers a whole exchange.
    ///
    /// # Errors
    /// Fails if the token is invalid, or a file can't be used.
    pub(crate) fn client(&self, url: &Url, timeout: Option<Duration>) -> Result<Client, Error> {
        let mut fields = HeaderMap::new();
        if let Some(token) = self.token.read()? {
            let wrong = |_| {
                Error::usage("the token has characters other than visible ASCII. Check the token.")
            };
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(wrong)?;
            value.set_sensitive(true);
            fields.insert(AUTHORIZATION, value);
        }
        self.trust.client(url, fields, timeout)
    }
}

/// Parses the URL of a gateway, for a flag.
pub(crate) fn gateway_url(text: &str) -> Result<Url, String> {
    let parse = |text: &str| {
        let url = Url::parse(text).ok();
        url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    };
    if let Some(url) = parse(text) {
        return Ok(url);
    }
    let is_address = text.contains([':', '.'])
        && !text.contains("://")
        && !text.starts_with(['.', '/', '~'])
        && parse(&format!("http://{text}")).is_some();
    Err(if is_address {
        format!("did you mean http://{text}?")
    } else {
        format!("write the URL of a gateway, such as {DEFAULT_URL}")
    })
}

/// Sends a request to an endpoint of a gateway, and returns its response, or the status and the detail of its refusal.
///
/// # Errors
/// Fails if the gateway can't be reached, or if the response isn't one of a gateway.
pub(crate) async fn ask<T: DeserializeOwned>(
    url: &Url,
    request: RequestBuilder,
) -> Result<Result<T, (StatusCode, String)>, Error> {
    let failed = |error: reqwest::Error| Error::runtime(unreachable(url, &error));
    let response = request
        .header(ACCEPT, "application/json")
        .send()
        .await
        .map_err(failed)?;
    let status = response.status();
    let body = response.bytes().await.map_err(failed)?;
    if !status.is_success() {
        return Ok(Err((status, detail(&body))));
    }
    serde_json::from_slice(&body)
        .map(Ok)
        .map_err(|_| Error::runtime(not_a_gateway(url)))
}

/// Returns the detail of a problem document, or an empty text.
pub(crate) fn detail(body: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    problem["detail"].as_str().unwrap_or_default().to_owned()
}

/// Returns the scheme, the host and the port of a URL.
pub(crate) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Says that the response of a server isn't one of a gateway.
pub(crate) fn not_a_gateway(url: &Url) -> String {
    format!("{} isn't an ifmatch gateway. Check the URL.", origin(url))
}

/// Says what a refusal of a server means, and what to do.
pub(crate) fn rejected(server: &str, status: StatusCode, detail: &str) -> String {
    match status {
        StatusCode::UNAUTHORIZED => {
            format!("{server} rejected the request (401). Pass a valid token {GIVE_TOKEN}.")
        }
        StatusCode::FORBIDDEN => {
            format!("{server} requires a write token (403). Pass one {GIVE_TOKEN}.")
        }
        _ if detail.is_empty() => format!("{server} responded {status}. Check the URL."),
        _ => format!("{server} responded {status}: {detail}"),
    }
}

/// Says why a server doesn't respond, and what to do.
pub(crate) fn unreachable(url: &Url, error: &reqwest::Error) -> String {
    let server = origin(url);
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| {
        error.source()
    });
    let innermost = causes
        .last()
        .and_then(|cause| cause.downcast_ref::<io::Error>());
    let text = Cause::of(error).text;
    match innermost.map(io::Error::kind) {
        Some(ErrorKind::ConnectionRefused) => {
            format!(
                "{server} refused the connection. Start the gateway with `ifmatch serve`, or correct the URL."
            )
        }
        _ if text.starts_with("failed to lookup address") => {
            format!(
                "can't find the host {}. Check the URL.",
                url.host_str().unwrap_or_default()
            )
        }
        _ if error.is_timeout() => {
            format!("{server} didn't respond in time. Check the URL and the network.")
        }
        _ => format!("{server}: {text}"),
    }
}

/// Describes an error of the library of clients, with the URL once. `url` has no query, which may contain a signature.
pub(crate) fn explained(url: &str, text: &str) -> String {
    let origin = Url::parse(url).map(|url| origin(&url)).unwrap_or_default();
    if text.contains("Connection refused") {
        return format!("{origin} refused the connection. Start the server, or correct the URL");
    }
    if !origin.is_empty() && text.contains(&origin) {
        text.to_owned()
    } else {
        format!("{url}: {text}")
    }
}

/// Access to the server or the store of a URL.
#[derive(Args)]
pub(crate) struct RemoteArgs {
    #[command(flatten)]
    token: TokenArgs,

    /// Header of every request, such as `x-ms-blob-type: BlockBlob`. Repeatable.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,

    #[command(flatten)]
    trust: Trust,
}

impl RemoteArgs {
    /// Creates a connection to the server of a URL.
    ///
    /// # Errors
    /// Fails if the URL or the token is invalid, or the file of certificates can't be used.
    pub(crate) fn connect(&self, url: &str) -> Result<Http, Error> {
        let usage = |error: ifmatch_client::HttpError| Error::usage(error.to_string());
        let server = match self.trust.pem()? {
            Some(pem) => Http::trusting(url, &pem),
            None => Http::new(url),
        };
        let mut server = server.map_err(usage)?;
        if let Some(token) = self.token.read()? {
            server = server.with_token(&token).map_err(usage)?;
        }
        Ok(self.headers.iter().fold(server, |server, (name, value)| {
            server.with_header(name.clone(), value.clone())
        }))
    }

    /// Opens the place of a store's URL.
    ///
    /// # Errors
    /// Fails if the URL or a setting is invalid, or if there is a `--header` or `--token-file`. Ignores `--token` and `--ca`, which
    /// variables may set for all commands.
    pub(crate) async fn place(&self, url: &str) -> Result<ObjectPlace, Error> {
        let flags = [
            ("--header", !self.headers.is_empty()),
            ("--token-file", self.token.token_file.is_some()),
        ];
        if let Some((flag, _)) = flags.into_iter().find(|(_, is_given)| *is_given) {
            return Err(Error::usage(format!(
                "{flag} is for http and https URLs. Remove it for {url}."
            )));
        }
        ObjectPlace::open(url).await
    }
}

/// Parses a header field, for a flag.
fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || "write NAME: VALUE, such as 'x-ms-blob-type: BlockBlob'".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    Ok((
        name.trim().parse().map_err(|_| wrong())?,
        value.trim().parse().map_err(|_| wrong())?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_scheme_gets_a_suggestion() {
        assert_eq!(
            gateway_url("https://a.example/").unwrap().as_str(),
            "https://a.example/"
        );
        for (wrong, expected) in [
            ("127.0.0.1:10000", "did you mean http://127.0.0.1:10000?"),
            ("localhost:10000", "did you mean http://localhost:10000?"),
            ("./site", "such as http://127.0.0.1:10000"),
            ("../site:1", "such as http://127.0.0.1:10000"),
            ("nonsense", "such as http://127.0.0.1:10000"),
            ("ftp://a.example", "such as http://127.0.0.1:10000"),
            ("", "such as http://127.0.0.1:10000"),
        ] {
            let error = gateway_url(wrong).unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_header_field_has_a_name_and_a_value() {
        let (name, value) = header("X-Ms-Version:  2021-12-02 ").unwrap();
        assert_eq!(
            (name.as_str(), value.to_str().unwrap()),
            ("x-ms-version", "2021-12-02")
        );
        for wrong in ["", "name", "a b: c", "a: \u{1}"] {
            assert!(header(wrong).is_err(), "{wrong}");
        }
    }
}
