//! A backend over HTTP: the ifmatch gateway, or any API with strong entity tags (RFC 9110 §8.8.3, §13).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH,
    IF_NONE_MATCH,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ifmatch_runtime::Cause;
use ifmatch_runtime::nonce;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use super::answer::{failure, is_done, modified, strong_tag};
use super::{Backend, Found, Put, REPEATED_PAGE, Read, When};
use crate::error::{Error, ErrorKind};
use crate::version::Version;

/// Maximum length of a response's content, in bytes.
const MAX_BODY: usize = 64 << 20;
/// Maximum number of versions that a probe is sent for, while other clients replace them.
const PROBES: usize = 5;
/// A request's identity, for servers that remember the response to it.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// A fencing token, for an ifmatch gateway.
const LEASE_TOKEN: HeaderName = HeaderName::from_static("lease-token");
/// Asks the server to wait for a change (RFC 7240 §2).
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Tells that the server has waited (RFC 7240 §3).
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// The type of the gateway's problem document (RFC 9457) for a container that doesn't exist yet.
const NOT_FOUND: &str = "urn:ifmatch:problem:not-found";
/// Everything but the characters of a path segment (RFC 3986 §3.3). Of these, `&`, `+` and `=` have a meaning in a query, so they are
/// encoded as well.
const NOT_IN_SEGMENTS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b'&')
    .add(b'+')
    .add(b'=');

/// An HTTP server. Keys are appended to a folder's URL.
///
/// ```
/// use ifmatch_client::{Client, Http};
///
/// # fn main() -> Result<(), ifmatch_client::HttpError> {
/// let server = Http::new("https://blobs.example.com/conf/")?.with_token("secret")?;
/// let client = Client::new(server);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Http {
    client: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    origin: String,
    /// With a slash at both ends.
    pub(super) path: String,
    /// Query of the URL, sent with every request.
    query: Option<Arc<str>>,
    headers: HeaderMap,
    finish: Option<Finish>,
}

/// Completes the head of a request.
type Finish = Arc<dyn Fn(&mut Parts) -> Result<(), Error> + Send + Sync>;

/// A server's address or token is invalid, or the system has no certificates to trust.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HttpError(pub(super) String);

impl Http {
    /// Creates a backend for keys below a URL. Trusts the system's certificates.
    ///
    /// Sends the URL's query, such as Azure's shared access signature, with every request.
    ///
    /// # Errors
    /// Fails if the URL isn't an absolute `http` or `https` URL, or if TLS is needed and the system has no certificates.
    ///
    /// ```
    /// # use ifmatch_client::Http;
    /// assert!(Http::new("http://127.0.0.1:10000").is_ok());
    /// assert!(Http::new("127.0.0.1").is_err());
    /// ```
    pub fn new(url: &str) -> Result<Self, HttpError> {
        Self::with_roots(url, None)
    }

    /// Creates a backend like [`new`](Self::new) that trusts only these certificates in PEM format, such as a private
    /// certificate authority's.
    ///
    /// # Errors
    /// Same as [`new`](Self::new); also fails if the text contains no certificate, or an invalid one.
    pub fn trusting(url: &str, pem: &[u8]) -> Result<Self, HttpError> {
        let wrong = |error: &dyn fmt::Display| {
            HttpError(format!("can't use the certificates to trust: {error}"))
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots
                .add(certificate.map_err(|error| wrong(&error))?)
                .map_err(|error| wrong(&error))?;
        }
        if roots.is_empty() {
            return Err(wrong(&"there is none in PEM format"));
        }
        Self::with_roots(url, Some(roots))
    }

    fn with_roots(url: &str, roots: Option<RootCertStore>) -> Result<Self, HttpError> {
        let wrong = |why: &str| {
            // The query may contain a signature.
            let url = url.split('?').next().unwrap_or_default();
            HttpError(format!(
                "{url} is not a server's URL: {why}. Use one such as http://127.0.0.1:10000/box."
            ))
        };
        let uri: Uri = url.parse().map_err(|_| wrong("it is malformed"))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong("it needs http:// or https://, and a host"));
        };
        if !matches!(scheme, "http" | "https") {
            return Err(wrong("its scheme is neither http nor https"));
        }
        let config = tls(scheme == "https", roots)?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(tls);
        let path = format!("/{}/", uri.path().trim_matches('/')).replace("//", "/");
        let query = uri.query().map(Arc::from);
        Ok(Self {
            client,
            origin: format!("{scheme}://{authority}"),
            path,
            query,
            headers: HeaderMap::new(),
            finish: None,
        })
    }

    /// Sets a bearer token (RFC 6750).
    ///
    /// # Errors
    /// Fails if the token contains anything but visible ASCII characters.
    pub fn with_token(self, token: &str) -> Result<Self, HttpError> {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.map_err(|_| {
            HttpError("the token has characters other than visible ASCII. Check the token".into())
        })?;
        value.set_sensitive(true);
        Ok(self.with_header(AUTHORIZATION, value))
    }

    /// Sets a header field of every request, such as `x-ms-blob-type` for Azure.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets a function that gets each request's head last, for example to sign it or to add a rotating token. If the
    /// function fails, the request isn't sent, and the call returns the same error.
    ///
    /// ```
    /// # use ifmatch_client::Http;
    /// # use http::header::AUTHORIZATION;
    /// # fn current_token() -> http::HeaderValue { http::HeaderValue::from_static("Bearer a") }
    /// let server = Http::new("http://127.0.0.1")?.with_last_step(|head| {
    ///     head.headers.insert(AUTHORIZATION, current_token());
    ///     Ok(())
    /// });
    /// # Ok::<(), ifmatch_client::HttpError>(())
    /// ```
    #[must_use]
    pub fn with_last_step(
        mut self,
        step: impl Fn(&mut Parts) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        self.finish = Some(Arc::new(step));
        self
    }

    /// Sends a request for a key, with these header fields, and reads the whole response.
    ///
    /// # Errors
    /// `Unknown` if there is no complete response, `Refused` if the key is invalid.
    ///
    /// ```no_run
    /// # async fn read(server: ifmatch_client::Http) -> Result<(), ifmatch_client::Error> {
    /// let response = server.send(http::Method::GET, "a/b", http::HeaderMap::new(), bytes::Bytes::new()).await?;
    /// assert_eq!(response.status(), 200);
    /// # Ok(()) }
    /// ```
    pub async fn send(
        &self,
        method: Method,
        key: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Bytes>, Error> {
        self.send_to(method, self.target(key)?, headers, body).await
    }

    pub(super) async fn send_to(
        &self,
        method: Method,
        path: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Bytes>, Error> {
        let uri = self.uri(&path)?;
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.uri, head.headers) = (method, uri, self.headers.clone());
        head.headers.extend(headers);
        // Each coding has a tag of its own, and a write must name the version of the resource.
        head.headers
            .insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if !body.is_empty() {
            head.headers
                .insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        if let Some(finish) = &self.finish {
            finish(&mut head)?;
        }
        let request = Request::from_parts(head, Full::new(body));
        // A connection that failed has carried no request, and a read has no effect.
        let is_read = *request.method() == Method::GET;
        let failed = |error: &(dyn std::error::Error + 'static), had_no_effect: bool| {
            let cause = Cause::of(error);
            let kind = if cause.is_lasting && had_no_effect {
                ErrorKind::Refused
            } else {
                ErrorKind::Unknown
            };
            Error::new(kind, format!("{}: {}", self.origin, cause.text))
        };
        let response = self.client.request(request).await;
        let response = response.map_err(|error| failed(&error, is_read || error.is_connect()))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY)
            .collect()
            .await
            .map_err(|error| failed(&*error, is_read))?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }

    /// Sends a write that must be rejected, since its condition is false. Returns the current version, if the server
    /// sends it.
    async fn send_false(
        &self,
        condition: &str,
        key: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Option<Version>, Error> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = self.send(Method::PUT, key, headers, body).await?;
        if response.status().is_success() {
            return Err(Error::ignores(condition));
        }
        // Another rejection doesn't concern the conditions: the write that follows gets it, too.
        let error = failure(&response);
        if error.is_unknown() {
            Err(error)
        } else {
            Ok(strong_tag(response.headers()))
        }
    }

    /// Makes sure that the server honours `If-None-Match: *`, along with an `If-Match` that is true: alone, it could
    /// bring back a document that another client has deleted.
    async fn probe_both(
        &self,
        key: &str,
        mut body: Bytes,
        mut version: Version,
    ) -> Result<(), Error> {
        for _ in 0..PROBES {
            let both = [
                (IF_MATCH, field(version.as_str())?),
                (IF_NONE_MATCH, HeaderValue::from_static("*")),
            ];
            let told = self
                .send_false("If-None-Match: *", key, HeaderMap::from_iter(both), body)
                .await?;
            if told.as_ref() == Some(&version) {
                break;
            }
            // If there is another version, it may have been If-Match that was false.
            match self.get(key, Some(&version), None).await? {
                Read::Found(Found {
                    body: content,
                    version: Some(current),
                    ..
                }) if current != version => {
                    (body, version) = (content, current);
                }
                Read::Absent => {
                    let kind = ErrorKind::Conflict { current: None };
                    return Err(Error::new(kind, format!("{key} has been deleted")));
                }
                Read::Found(_) | Read::Unchanged { .. } => break,
            }
        }
        Ok(())
    }

    pub(super) async fn send_delete(
        &self,
        key: &str,
        version: &Version,
    ) -> Result<Response<Bytes>, Error> {
        let headers = HeaderMap::from_iter([(IF_MATCH, field(version.as_str())?)]);
        self.send(Method::DELETE, key, headers, Bytes::new()).await
    }

    /// Returns the URL of a path, which may have a query.
    fn uri(&self, path: &str) -> Result<Uri, Error> {
        let query = match &self.query {
            Some(query) if path.contains('?') => format!("&{query}"),
            Some(query) => format!("?{query}"),
            None => String::new(),
        };
        let uri = format!("{}{path}{query}", self.origin).parse();
        uri.map_err(|_| Error::refused(format!("{path} is not a path")))
    }

    /// Returns the path of a key.
    fn target(&self, key: &str) -> Result<String, Error> {
        if key.is_empty()
            || key
                .split('/')
                .any(|segment| matches!(segment, "" | "." | ".."))
        {
            return Err(Error::refused(format!(
                "{key:?} is not a key: its segments must not be empty, `.` or `..`"
            )));
        }
        let segments: Vec<String> = key.split('/').map(encode).collect();
        Ok(format!("{}{}", self.path, segments.join("/")))
    }

    /// Returns a page of the gateway's listing, and the name after which the next one begins.
    async fn page(
        &self,
        container: &str,
        prefix: &str,
        after: Option<&str>,
    ) -> Result<(Vec<String>, Option<String>), Error> {
        let after = after
            .map(|after| format!("&after={}", encode(after)))
            .unwrap_or_default();
        let path = format!("/{}?prefix={}{after}", encode(container), encode(prefix));
        let response = self
            .send_to(Method::GET, path, HeaderMap::new(), Bytes::new())
            .await?;
        let listing: Value = serde_json::from_slice(response.body()).unwrap_or_default();
        match response.status() {
            StatusCode::NOT_FOUND if listing["type"] == NOT_FOUND => return Ok((Vec::new(), None)),
            // Any other 404 is another server's, which has no listing.
            StatusCode::OK | StatusCode::NOT_FOUND => {}
            _ => return Err(failure(&response)),
        }
        let Some(blobs) = listing["blobs"].as_array() else {
            return Err(Error::refused(format!(
                "{} has no listing of an ifmatch gateway. Check the URL",
                self.origin
            )));
        };
        let names = blobs
            .iter()
            .filter_map(|blob| blob["name"].as_str().map(str::to_owned))
            .collect();
        Ok((names, listing["next"].as_str().map(str::to_owned)))
    }
}

/// Returns the settings of TLS. The system's certificates, which may be missing, are loaded only if they are needed.
fn tls(needed: bool, roots: Option<RootCertStore>) -> Result<ClientConfig, HttpError> {
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| HttpError(error.to_string()))?;
    let without = |error| {
        HttpError(format!(
            "this machine has no root certificates. Install ca-certificates, or name a CA ({error})."
        ))
    };
    let builder = match roots {
        Some(roots) => builder.with_root_certificates(roots),
        None if needed => builder.with_native_roots().map_err(without)?,
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

/// Without the query and the header fields, which may contain secrets.
impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("origin", &self.origin)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Backend for Http {
    fn get<'a>(
        &'a self,
        key: &'a str,
        known: Option<&'a Version>,
        wait: Option<Duration>,
    ) -> BoxFuture<'a, Result<Read, Error>> {
        async move {
            // A cache on the way may have an older version.
            let mut headers =
                HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("no-cache"))]);
            if let Some(known) = known {
                headers.insert(IF_NONE_MATCH, field(known.as_str())?);
            }
            if let Some(wait) = wait.filter(|wait| known.is_some() && wait.as_secs() > 0) {
                headers.insert(PREFER, field(&format!("wait={}", wait.as_secs()))?);
            }
            let response = self.send(Method::GET, key, headers, Bytes::new()).await?;
            match response.status() {
                StatusCode::OK => {
                    let (version, modified) =
                        (strong_tag(response.headers()), modified(response.headers()));
                    let waited = has_waited(&response);
                    Ok(Read::Found(Found {
                        body: response.into_body(),
                        version,
                        modified,
                        waited,
                    }))
                }
                StatusCode::NOT_MODIFIED if known.is_some() => Ok(Read::Unchanged {
                    waited: has_waited(&response),
                }),
                StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Read::Absent),
                _ => Err(failure(&response)),
            }
        }
        .boxed()
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        put: &'a Put,
    ) -> BoxFuture<'a, Result<Option<Version>, Error>> {
        async move {
            let mut headers = HeaderMap::new();
            match &put.when {
                When::Absent => headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*")),
                When::Is(version) => headers.insert(IF_MATCH, field(version.as_str())?),
            };
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(IDEMPOTENCY_KEY, field(&put.id)?);
            headers.extend(
                put.fence
                    .map(|fence| (LEASE_TOKEN, HeaderValue::from(fence))),
            );
            let response = self
                .send(Method::PUT, key, headers, put.body.clone())
                .await?;
            if is_done(response.status()) {
                Ok(strong_tag(response.headers()))
            } else {
                Err(failure(&response))
            }
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            let response = self.send_delete(key, version).await?;
            if is_done(response.status()) {
                Ok(())
            } else {
                Err(failure(&response))
            }
        }
        .boxed()
    }

    fn probe<'a>(
        &'a self,
        key: &'a str,
        body: &'a Bytes,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            let random = nonce().map_err(|error| Error::refused(error.to_string()))?;
            let never = HeaderMap::from_iter([(IF_MATCH, field(&format!("\"{random:016x}\""))?)]);
            let never = self.send_false("If-Match", key, never, body.clone());
            // Both to the end: a write that was abandoned could arrive later.
            let (never, both) =
                join(never, self.probe_both(key, body.clone(), version.clone())).await;
            never.and(both)
        }
        .boxed()
    }

    fn discard<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            let response = self
                .send(Method::DELETE, key, HeaderMap::new(), Bytes::new())
                .await?;
            match response.status() {
                status if is_done(status) => Ok(()),
                StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
                _ => Err(failure(&response)),
            }
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        async move {
            // Listings have names without percent escapes.
            let folder = percent_decode_str(&self.path).decode_utf8();
            let folder = folder.map_err(|_| {
                Error::refused("the URL's path is not UTF-8, so the server can't list it")
            })?;
            let full = format!("{folder}{prefix}");
            let (container, prefix) = full
                .trim_start_matches('/')
                .split_once('/')
                .unwrap_or_default();
            if container.is_empty() {
                return Err(Error::refused(
                    "a listing needs a container: the first segment of the URL or of the prefix",
                ));
            }
            let (mut keys, mut after) = (Vec::new(), None::<String>);
            loop {
                let (names, next) = self.page(container, prefix, after.as_deref()).await?;
                let paths = names.into_iter().map(|name| format!("/{container}/{name}"));
                keys.extend(
                    paths.filter_map(|path| path.strip_prefix(&*folder).map(str::to_owned)),
                );
                match next {
                    Some(_) if next == after => return Err(Error::refused(REPEATED_PAGE)),
                    Some(next) => after = Some(next),
                    None => return Ok(keys),
                }
            }
        }
        .boxed()
    }
}

/// Returns `true` if the server has waited for a change (RFC 7240 §4.3).
fn has_waited(response: &Response<Bytes>) -> bool {
    let applied = response.headers().get_all(PREFERENCE_APPLIED).iter();
    applied
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|one| one.trim().starts_with("wait")))
}

fn field(text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(text)
        .map_err(|_| Error::refused(format!("{text:?} cannot be sent in a header field")))
}

pub(super) fn encode(segment: &str) -> String {
    utf8_percent_encode(segment, NOT_IN_SEGMENTS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_appended_to_the_path_of_the_url() {
        let target = |url: &str, key: &str| Http::new(url).unwrap().target(key);
        assert_eq!(target("http://a", "b/c").unwrap(), "/b/c");
        assert_eq!(
            target("http://a/box/", "b c/50%").unwrap(),
            "/box/b%20c/50%25"
        );
        assert_eq!(target("http://a/box", "ä?").unwrap(), "/box/%C3%A4%3F");
        for key in ["", "a//b", "../b", "a/.", "/a", "a/"] {
            assert!(target("http://a", key).is_err(), "{key}");
        }
    }

    #[test]
    fn the_query_of_the_url_is_sent_but_not_shown() {
        let server = Http::new("http://a/box?sig=secret").unwrap();
        assert_eq!(server.uri("/box/b").unwrap(), "http://a/box/b?sig=secret");
        assert_eq!(
            server.uri("/box?prefix=b").unwrap(),
            "http://a/box?prefix=b&sig=secret"
        );
        assert!(!format!("{server:?}").contains("secret"));
    }

    #[test]
    fn only_absolute_urls_are_accepted() {
        for url in ["", "a/b", "ftp://a", "http://"] {
            assert!(Http::new(url).is_err(), "{url}");
        }
    }
}
