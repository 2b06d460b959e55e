//! Flags of commands that are clients of any server: `ifmatch lock`, `ifmatch elect` and `ifmatch check`.

use clap::Args;
use http::{HeaderName, HeaderValue};
use ifmatch_client::Http;

use super::http_client::Trust;
use super::store_url::Place;
use crate::error::Error;

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
