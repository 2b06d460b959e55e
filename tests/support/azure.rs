//! Requests signed as Azure's SDKs sign them (`SharedKey`), made by hand so that they can be wrong in one place.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderValue, Method, Request};
use sha2::Sha256;

use crate::{Answer, Client, full};

/// The account of `UseDevelopmentStorage=true`.
pub const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";
/// Its key, which is published with every SDK.
pub const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A client that signs what it sends to one account.
#[derive(Clone)]
pub struct Azure {
    client: Client,
    account: String,
    key: Vec<u8>,
}

/// What is signed of a request: all of it for blobs, little for tables.
#[derive(Clone, Copy)]
enum Form {
    Blob,
    Table,
}

impl Azure {
    /// A client of the development account.
    pub fn development(client: Client) -> Self {
        Self::new(client, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY)
    }

    /// A client of this account, whose key is base64.
    pub fn new(client: Client, account: &str, key: &str) -> Self {
        let key = STANDARD.decode(key).expect("a key is base64");
        Self { client, account: account.to_owned(), key }
    }

    /// Sends a request about blobs. The path begins behind the account: `/container/blob?comp=lease`.
    pub async fn blob(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
    ) -> Answer {
        self.client.send(self.signed(Form::Blob, method, path, headers, content.into()).map(full)).await
    }

    /// Sends a request about tables.
    pub async fn table(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
    ) -> Answer {
        self.client.send(self.signed(Form::Table, method, path, headers, content.into()).map(full)).await
    }

    /// Creates a container.
    pub async fn create_container(&self, name: &str) -> Answer {
        self.blob(Method::PUT, &format!("/{name}?restype=container"), &[], "").await
    }

    /// Writes a block blob.
    pub async fn put(&self, path: &str, headers: &[(&str, &str)], content: impl Into<Bytes>) -> Answer {
        self.client.send(self.signed_put(path, headers, content).map(full)).await
    }

    /// The request of [`put`](Self::put), to be sent by other means.
    pub fn signed_put(&self, path: &str, headers: &[(&str, &str)], content: impl Into<Bytes>) -> Request<Bytes> {
        let headers = [&[("x-ms-blob-type", "BlockBlob")], headers].concat();
        self.signed(Form::Blob, Method::PUT, path, &headers, content.into())
    }

    /// Carries out a lease operation on a blob, or with `restype=container` in the path's query on a container.
    pub async fn lease(&self, path: &str, action: &str, headers: &[(&str, &str)]) -> Answer {
        self.client.send(self.signed_lease(path, action, headers).map(full)).await
    }

    /// The request of [`lease`](Self::lease), to be sent by other means.
    pub fn signed_lease(&self, path: &str, action: &str, headers: &[(&str, &str)]) -> Request<Bytes> {
        let and = if path.contains('?') { '&' } else { '?' };
        let headers = [&[("x-ms-lease-action", action)], headers].concat();
        self.signed(Form::Blob, Method::PUT, &format!("{path}{and}comp=lease"), &headers, Bytes::new())
    }

    fn signed(&self, form: Form, method: Method, path: &str, own: &[(&str, &str)], content: Bytes) -> Request<Bytes> {
        let uri = format!("/{}{path}", self.account);
        let mut request = Request::builder().method(method).uri(&uri).body(()).expect("a path");
        let headers = request.headers_mut();
        headers.insert("x-ms-date", now());
        headers.insert("x-ms-version", HeaderValue::from_static("2025-11-05"));
        if !content.is_empty() {
            headers.insert("content-length", HeaderValue::from(content.len()));
        }
        for (name, value) in own {
            let name: http::HeaderName = name.parse().expect("a field name");
            headers.append(name, value.parse().expect("a field value"));
        }
        let text = match form {
            Form::Blob => self.blob_text(&request),
            Form::Table => self.table_text(&request),
        };
        let authorization = format!("SharedKey {}:{}", self.account, self.signature(&text));
        request.headers_mut().insert("authorization", authorization.parse().expect("base64 is text"));
        request.map(|()| content)
    }

    /// Base64 of the HMAC of a text.
    fn signature(&self, text: &str) -> String {
        let mut hmac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any length");
        hmac.update(text.as_bytes());
        STANDARD.encode(hmac.finalize().into_bytes())
    }

    fn blob_text(&self, request: &Request<()>) -> String {
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
        let lines = standard.map(|name| field(request.headers(), name));
        let mut own: Vec<String> = request
            .headers()
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("x-ms-"))
            .map(|(name, value)| format!("{name}:{}", value.to_str().expect("text")))
            .collect();
        own.sort();
        let uri = request.uri();
        let mut query: Vec<String> =
            uri.query().unwrap_or_default().split('&').map(|pair| pair.replacen('=', ":", 1)).collect();
        query.retain(|pair| !pair.is_empty());
        query.sort();
        let resource = [vec![format!("/{}{}", self.account, uri.path())], query].concat().join("\n");
        format!("{}\n{}\n{}\n{resource}", request.method(), lines.join("\n"), own.join("\n"))
    }

    fn table_text(&self, request: &Request<()>) -> String {
        let headers = request.headers();
        let comp = request.uri().query().unwrap_or_default().split('&').find(|pair| pair.starts_with("comp="));
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

fn field(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(|value| value.to_str().expect("text").to_owned()).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "a signature holds for the moment")]
fn now() -> HeaderValue {
    httpdate::fmt_http_date(std::time::SystemTime::now()).parse().expect("a date is text")
}
