//! Requests signed with `SharedKey`, by hand, so tests can introduce errors.

use bytes::Bytes;
use http::{HeaderValue, Method, Request};

pub use crate::signer::{Form, Signer};
use crate::{Answer, Client, full};

/// The account of `UseDevelopmentStorage=true`.
pub const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";
/// Its published key.
pub const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A client that signs its requests to one account.
#[derive(Clone)]
pub struct Azure {
    client: Client,
    signer: Signer,
}

impl Azure {
    /// A client of the development account.
    pub fn development(client: Client) -> Self {
        Self::new(client, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY)
    }

    /// Creates a client of this account, with a key in base64.
    pub fn new(client: Client, account: &str, key: &str) -> Self {
        Self {
            client,
            signer: Signer::new(account, key),
        }
    }

    /// Sends a request about blobs. The path begins after the account: `/container/blob?comp=lease`.
    pub async fn blob(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
    ) -> Answer {
        let request = signed(
            &self.signer,
            Form::Blob,
            method,
            path,
            headers,
            content.into(),
        );
        self.client.send(request.map(full)).await
    }

    /// Sends a request about tables.
    pub async fn table(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
    ) -> Answer {
        let request = signed(
            &self.signer,
            Form::Table,
            method,
            path,
            headers,
            content.into(),
        );
        self.client.send(request.map(full)).await
    }

    /// Creates a container.
    pub async fn create_container(&self, name: &str) -> Answer {
        self.blob(Method::PUT, &format!("/{name}?restype=container"), &[], "")
            .await
    }

    /// Writes a block blob.
    pub async fn put(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
    ) -> Answer {
        self.client
            .send(self.signed_put(path, headers, content).map(full))
            .await
    }

    /// The request of [`put`](Self::put), to be sent by other means.
    pub fn signed_put(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
    ) -> Request<Bytes> {
        let headers = [&[("x-ms-blob-type", "BlockBlob")], headers].concat();
        signed(
            &self.signer,
            Form::Blob,
            Method::PUT,
            path,
            &headers,
            content.into(),
        )
    }

    /// Carries out a lease operation on a blob, or with `restype=container` in the path's query on a container.
    pub async fn lease(&self, path: &str, action: &str, headers: &[(&str, &str)]) -> Answer {
        self.client
            .send(self.signed_lease(path, action, headers).map(full))
            .await
    }

    /// The request of [`lease`](Self::lease), to be sent by other means.
    pub fn signed_lease(
        &self,
        path: &str,
        action: &str,
        headers: &[(&str, &str)],
    ) -> Request<Bytes> {
        let and = if path.contains('?') { '&' } else { '?' };
        let headers = [&[("x-ms-lease-action", action)], headers].concat();
        signed(
            &self.signer,
            Form::Blob,
            Method::PUT,
            &format!("{path}{and}comp=lease"),
            &headers,
            Bytes::new(),
        )
    }
}

/// Returns a signed request. The path starts after the account. Headers in `own` override the version and the date.
pub fn signed(
    signer: &Signer,
    form: Form,
    method: Method,
    path: &str,
    own: &[(&str, &str)],
    content: Bytes,
) -> Request<Bytes> {
    let uri = format!("/{}{path}", signer.account());
    let mut request = Request::builder()
        .method(method)
        .uri(&uri)
        .body(content)
        .expect("a path");
    let length = HeaderValue::from(request.body().len());
    let headers = request.headers_mut();
    if length != "0" {
        headers.insert("content-length", length);
    }
    for (name, value) in own {
        let name: http::HeaderName = name.parse().expect("a field name");
        headers.append(name, value.parse().expect("a field value"));
    }
    headers.entry("x-ms-date").or_insert_with(now);
    headers
        .entry("x-ms-version")
        .or_insert(HeaderValue::from_static("2025-11-05"));
    signer.sign(form, &mut request);
    request
}

/// Returns the current time for `x-ms-date`.
#[expect(
    clippy::disallowed_methods,
    reason = "signatures carry the time of day"
)]
fn now() -> HeaderValue {
    httpdate::fmt_http_date(std::time::SystemTime::now())
        .parse()
        .expect("a date is text")
}
