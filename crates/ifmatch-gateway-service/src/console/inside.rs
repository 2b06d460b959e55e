//! The console as a client of its gateway, in the same process.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use ifmatch_blob::name::is_server_path;
use ifmatch_http_server::{AnyBody, AnyHandler, RequestBody, RequestContext};
use serde::de::DeserializeOwned;

use crate::metrics::UncountedRequest;
use crate::text::Text;

/// Maximum size of a response that is shown, in bytes.
const LONGEST: usize = 4 << 20;

/// Sends requests to the gateway with an operator's token.
pub(super) struct InsideClient<'a> {
    pub(super) gateway: &'a AnyHandler,
    pub(super) context: RequestContext,
    pub(super) token: Option<String>,
    /// `false` if the gateway would forward everything but its endpoints, and the token with it.
    pub(super) has_blobs: bool,
    /// `true` to count and log reads of endpoints as a client's. An open page doesn't count as a client.
    pub(super) counts_looks: bool,
    /// `true` for an open page that looks for changes, which no client asked for.
    pub(super) is_live: bool,
}

/// A request that failed, for the operator to read.
#[derive(Clone, Debug)]
pub(super) struct RequestFailure {
    pub(super) status: StatusCode,
    pub(super) detail: String,
    /// Text that the operator entered and would otherwise lose.
    pub(super) unsaved: Option<String>,
    /// What is down, if that is the cause.
    pub(super) outage: Option<Box<Outage>>,
    /// The path, the prefix or the URL that the request was about.
    pub(super) about: Option<Text>,
}

/// What is down, and why, as the overview shows it.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    pub(super) component: Text,
    pub(super) reason: Text,
    /// When it was noticed, in seconds since 1970.
    pub(super) since: Option<f64>,
}

impl RequestFailure {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            unsaved: None,
            outage: None,
            about: None,
        }
    }
}

/// A response in memory.
pub(super) struct WholeResponse {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl WholeResponse {
    /// Returns the first line of a field as text.
    pub(super) fn field(&self, name: &HeaderName) -> Option<String> {
        self.headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    }
}

impl InsideClient<'_> {
    /// Sends a request. The response may have any status.
    pub(super) async fn send(
        &self,
        method: Method,
        target: &str,
        fields: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Response<AnyBody>, RequestFailure> {
        let is_endpoint = is_server_path(target);
        if !self.has_blobs && !is_endpoint {
            return Err(RequestFailure::new(
                StatusCode::NOT_FOUND,
                "This gateway is a proxy, which has no blobs.",
            ));
        }
        let invalid = |_| {
            RequestFailure::new(
                StatusCode::BAD_REQUEST,
                "This isn't a valid request. Check what you entered.",
            )
        };
        let is_uncounted = !self.counts_looks && method.is_safe() && (is_endpoint || self.is_live);
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, "localhost");
        request = request
            .header(USER_AGENT, "ifmatch-console")
            .header(CONTENT_LENGTH, body.len());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let mut request = request.body(RequestBody::from(body)).map_err(invalid)?;
        request.headers_mut().extend(fields.iter().cloned());
        if is_uncounted {
            request.extensions_mut().insert(UncountedRequest);
        }
        Ok(self.gateway.handle(request, self.context.clone()).await)
    }

    /// Sends a request, and reads its response. Fails unless the response is a success.
    pub(super) async fn whole(
        &self,
        method: Method,
        target: &str,
        fields: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<WholeResponse, RequestFailure> {
        let (head, body) = self.send(method, target, fields, body).await?.into_parts();
        let read = Limited::new(body, LONGEST).collect().await;
        let body = read.map_err(|error| {
            let detail =
                format!("The gateway's response can't be read ({error}). Load the page again.");
            RequestFailure::new(StatusCode::BAD_GATEWAY, detail)
        })?;
        let body = body.to_bytes();
        if head.status.is_success() {
            return Ok(WholeResponse {
                headers: head.headers,
                body,
            });
        }
        let problem = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default();
        let detail = problem["detail"]
            .as_str()
            .or(head.status.canonical_reason())
            .unwrap_or_default();
        Err(RequestFailure::new(head.status, detail))
    }

    /// Reads a resource.
    pub(super) async fn get(&self, target: &str) -> Result<WholeResponse, RequestFailure> {
        self.whole(Method::GET, target, &[], Bytes::new()).await
    }

    /// Reads the header fields of a resource.
    pub(super) async fn look(&self, target: &str) -> Result<WholeResponse, RequestFailure> {
        self.whole(Method::HEAD, target, &[], Bytes::new()).await
    }

    /// Reads a resource that is JSON.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        target: &str,
    ) -> Result<T, RequestFailure> {
        let answer = self.get(target).await?;
        serde_json::from_slice(&answer.body).map_err(|error| {
            RequestFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        })
    }
}
