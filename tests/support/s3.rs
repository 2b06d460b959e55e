//! Requests to S3 with Signature Version 4, by hand, so that tests can introduce errors.

use std::net::SocketAddr;
use std::time::SystemTime;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{Method, Request};
use sha2::{Digest, Sha256};

use crate::azure::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use crate::{Answer, Client, full};

/// A client that signs its requests to one account.
#[derive(Clone)]
pub struct S3 {
    client: Client,
    host: String,
    access_key: String,
    secret_key: String,
}

impl S3 {
    /// A client of the development account.
    pub fn development(address: SocketAddr) -> Self {
        Self::new(address, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY)
    }

    /// Creates a client with this access key id and secret key.
    pub fn new(address: SocketAddr, access_key: &str, secret_key: &str) -> Self {
        let (access_key, secret_key) = (access_key.to_owned(), secret_key.to_owned());
        Self { client: Client::new(address), host: address.to_string(), access_key, secret_key }
    }

    /// The same client, which names another host.
    #[must_use]
    pub fn at_host(self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self }
    }

    /// Sends a request. The path is percent-encoded, and the parameters of its query are in the order of their names.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
    ) -> Answer {
        let request = self.signed(method, path, headers, content, now());
        self.client.send(request.map(full)).await
    }

    /// Sends a request as it is.
    pub async fn send_signed(&self, request: Request<Bytes>) -> Answer {
        self.client.send(request.map(full)).await
    }

    /// GET.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::GET, path, headers, "").await
    }

    /// PUT.
    pub async fn put(&self, path: &str, headers: &[(&str, &str)], content: impl Into<Bytes>) -> Answer {
        self.send(Method::PUT, path, headers, content).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::DELETE, path, headers, "").await
    }

    /// Returns a request signed at this time. Its signature covers the host and the headers that begin with `x-amz-`.
    pub fn signed(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
        time: SystemTime,
    ) -> Request<Bytes> {
        let (content, time) = (content.into(), amz_date(time));
        let hash = hex(&Sha256::digest(&content));
        let given = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut headers: Vec<(String, String)> = given.collect();
        headers.push(("host".into(), self.host.clone()));
        headers.push(("x-amz-date".into(), time.clone()));
        if !headers.iter().any(|(name, _)| name == "x-amz-content-sha256") {
            headers.push(("x-amz-content-sha256".into(), hash));
        }
        headers.sort();
        let body = headers.iter().find(|(name, _)| name == "x-amz-content-sha256").map(|(_, value)| value.clone());
        let signed: Vec<_> = headers.iter().filter(|(name, _)| name == "host" || name.starts_with("x-amz-")).collect();
        let names = signed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
        let lines = signed.iter().fold(String::new(), |lines, (name, value)| lines + name + ":" + value + "\n");
        let canonical = canonical(&method, path, &lines, &names, &body.expect("it was added"));
        let scope = format!("{}/us-east-1/s3/aws4_request", &time[..8]);
        let signature = self.signature(&time, &scope, &canonical);
        let credential = format!("{}/{scope}", self.access_key);
        let text = format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}");
        let request = Request::builder().method(method).uri(path).header("authorization", text);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        request.body(content).expect("valid names and values")
    }

    /// Returns a presigned URL without its host, for `expires` seconds. Its signature covers the host.
    pub fn presigned(&self, method: &Method, path: &str, time: SystemTime, expires: u64) -> String {
        let time = amz_date(time);
        let scope = format!("{}/us-east-1/s3/aws4_request", &time[..8]);
        let credential = format!("{}/{scope}", self.access_key).replace('/', "%2F");
        let path = format!(
            "{path}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={time}&X-Amz-Expires={expires}\
             &X-Amz-SignedHeaders=host"
        );
        let canonical = canonical(method, &path, &format!("host:{}\n", self.host), "host", "UNSIGNED-PAYLOAD");
        format!("{path}&X-Amz-Signature={}", self.signature(&time, &scope, &canonical))
    }

    fn signature(&self, time: &str, scope: &str, canonical: &str) -> String {
        let hash = hex(&Sha256::digest(canonical));
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
        let first = format!("AWS4{}", self.secret_key).into_bytes();
        let key = scope.split('/').fold(first, |key, part| mac(&key, part));
        hex(&mac(&key, &text))
    }
}

fn canonical(method: &Method, path: &str, lines: &str, names: &str, body: &str) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let with_value = |part: &str| if part.contains('=') { part.to_owned() } else { format!("{part}=") };
    let query = query.split('&').filter(|part| !part.is_empty()).map(with_value).collect::<Vec<_>>().join("&");
    format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body}")
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    hmac.update(text.as_bytes());
    hmac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Returns the time of day.
#[expect(clippy::disallowed_methods, reason = "signatures carry the time of day")]
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// Returns a time as `20261124T192224Z`.
fn amz_date(time: SystemTime) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = httpdate::fmt_http_date(time);
    let parts: Vec<&str> = text.split(' ').collect();
    let [_, day, month, year, time, _] = parts[..] else { panic!("an HTTP date: {text}") };
    let month = MONTHS.iter().position(|name| *name == month).expect("a month") + 1;
    format!("{year}{month:02}{day}T{}Z", time.replace(':', ""))
}
