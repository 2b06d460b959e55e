//! `SharedKey` signatures, independent of the product's own implementation.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, Request};
use percent_encoding::percent_decode_str;
use sha2::Sha256;

/// Signs requests for an account.
#[derive(Clone)]
pub struct Signer {
    account: String,
    key: Vec<u8>,
}

/// The form of the string to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A request to the blob service.
    Blob,
    /// A request to the table service.
    Table,
}

impl Signer {
    /// Creates a signer for an account with a key in base64.
    pub fn new(account: &str, key: &str) -> Self {
        let key = STANDARD.decode(key).expect("a key is base64");
        Self {
            account: account.to_owned(),
            key,
        }
    }

    /// Returns the account's name.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Adds `Authorization`. All other headers must be set, including `x-ms-date`.
    pub fn sign<B>(&self, form: Form, request: &mut Request<B>) {
        let text = match form {
            Form::Blob => self.blob_text(request),
            Form::Table => self.table_text(request),
        };
        let authorization = format!("SharedKey {}:{}", self.account, self.signature(&text));
        request.headers_mut().insert(
            "authorization",
            authorization.parse().expect("base64 is text"),
        );
    }

    /// Returns the signature of a text, in base64.
    pub fn signature(&self, text: &str) -> String {
        let mut hmac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any length");
        hmac.update(text.as_bytes());
        STANDARD.encode(hmac.finalize().into_bytes())
    }

    /// Returns the string to sign of a request to the blob service.
    fn blob_text<B>(&self, request: &Request<B>) -> String {
        let standard = [
            "content-encoding",
            "content-language",
            "content-length",
            "content-md5",
            "content-type",
            "date",
            "if-modified-since",
            "if-match",
            "if-none-match",
            "if-unmodified-since",
            "range",
        ];
        let headers = request.headers();
        let lines = standard.map(|name| match field(headers, name) {
            length if name == "content-length" && length == "0" => String::new(),
            value => value,
        });
        let names = headers
            .keys()
            .map(http::HeaderName::as_str)
            .filter(|name| name.starts_with("x-ms-"));
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        let own: Vec<String> = names
            .into_iter()
            .map(|name| format!("{name}:{}", field(headers, name)))
            .collect();
        let uri = request.uri();
        let pairs = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty());
        let mut query: Vec<String> = pairs.map(parameter).collect();
        query.sort();
        let resource = [vec![format!("/{}{}", self.account, uri.path())], query]
            .concat()
            .join("\n");
        format!(
            "{}\n{}\n{}\n{resource}",
            request.method(),
            lines.join("\n"),
            own.join("\n")
        )
    }

    /// Returns the string to sign of a request to the table service.
    fn table_text<B>(&self, request: &Request<B>) -> String {
        let headers = request.headers();
        let comp = request
            .uri()
            .query()
            .unwrap_or_default()
            .split('&')
            .find(|pair| pair.starts_with("comp="));
        let comp = comp.map(|comp| format!("?{comp}")).unwrap_or_default();
        format!(
            "{}\n{}\n{}\n{}\n/{}{}{comp}",
            request.method(),
            field(headers, "content-md5"),
            field(headers, "content-type"),
            field(headers, "x-ms-date"),
            self.account,
            request.uri().path()
        )
    }
}

/// Returns a query parameter with its name in lower case and its value decoded, in which a plus is a space.
fn parameter(pair: &str) -> String {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    format!(
        "{}:{}",
        name.to_ascii_lowercase(),
        percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy()
    )
}

/// Returns the lines of a header, joined.
fn field(headers: &HeaderMap, name: &str) -> String {
    let lines = headers
        .get_all(name)
        .iter()
        .map(|value| value.to_str().expect("text"));
    lines.collect::<Vec<_>>().join(",")
}
