//! Requests to the server, and what their responses mean.

use std::error::Error;
use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::tag::EntityTag;
use ifmatch_register::{RegisterError, RegisterErrorKind};
use ifmatch_runtime::{SystemClock, task};
use tower_service::Service;

/// Time limit of a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum size of a response, in bytes: a record with the largest payload, or a page of names.
const LARGEST: usize = 4 << 20;
/// Maximum length of a server's text in a message, in characters.
const EXCERPT: usize = 200;

/// The client that sends a register's requests. Implemented by every tower service of requests with [`Full`] bodies that is
/// cheap to clone, such as hyper-util's client.
///
/// It mustn't send a request twice: a swap would meet its own success.
pub trait Transport: Clone + Send + Sync + 'static {
    /// Sends a request, and returns the whole response.
    fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> impl Future<Output = Result<Response<Bytes>, Box<dyn Error + Send + Sync>>> + Send;
}

impl<S, B> Transport for S
where
    S: Service<
            Request<Full<Bytes>>,
            Response = Response<B>,
            Future: Send,
            Error: Into<Box<dyn Error + Send + Sync>>,
        > + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send,
{
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, Box<dyn Error + Send + Sync>> {
        let mut service = self.clone();
        poll_fn(|cx| service.poll_ready(cx))
            .await
            .map_err(Into::into)?;
        let answering = service.call(request);
        drop(service);
        let (head, body) = answering.await.map_err(Into::into)?.into_parts();
        let body = Limited::new(body, LARGEST).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }
}

/// The condition of a write.
#[derive(Clone, Debug)]
pub(crate) enum When {
    /// There is nothing yet.
    Absent,
    /// The current version has this strong tag.
    Tagged(HeaderValue),
}

/// A response of the server, or of another one in its place.
#[derive(Debug)]
pub(crate) struct ServerResponse {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ServerResponse {
    /// Returns the strong tag, if there is one.
    pub(crate) fn tag(&self) -> Option<HeaderValue> {
        let value = self.headers.get(ETAG)?;
        let is_strong = EntityTag::from_header(value).is_ok_and(|tag| !tag.is_weak());
        is_strong.then(|| value.clone())
    }

    /// Returns `true` if the strong tag begins with the hash of this content, or with the half of it that short tags have. So the response
    /// is one of the server that has stored it.
    pub(crate) fn is_tagged_as(&self, content: &ContentHash) -> bool {
        let hex = content.hex();
        self.tag()
            .is_some_and(|tag| tag.as_bytes()[1..].starts_with(&hex.as_bytes()[..hex.len() / 2]))
    }

    /// Returns an error of this kind with what the server says to a request, which `asked` names.
    pub(crate) fn error(&self, kind: RegisterErrorKind, asked: &str) -> RegisterError {
        let hint = match self.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ": check the register's token",
            status if status.is_redirection() => ": use the URL to which it redirects",
            _ => "",
        };
        let text: String = String::from_utf8_lossy(&self.body)
            .chars()
            .take(EXCERPT)
            .collect();
        RegisterError::new(
            kind,
            format!("{asked} got {}{hint} {}", self.status, text.trim_end()).trim_end(),
        )
    }
}

/// Sends a request, within a time limit. Without a response, the error has the kind `unclear`.
pub(crate) async fn exchange<T: Transport>(
    transport: &T,
    request: Request<Full<Bytes>>,
    unclear: RegisterErrorKind,
) -> Result<ServerResponse, RegisterError> {
    let asked = format!("{} {}", request.method(), request.uri().path());
    let failed = |error: Box<dyn Error + Send + Sync>| {
        RegisterError::new(unclear, format!("{asked}: {}", with_causes(&*error)))
    };
    let answered = task::timeout(&SystemClock, PATIENCE, transport.send(request)).await;
    let (head, body) = answered
        .map_err(|elapsed| failed(elapsed.into()))?
        .map_err(failed)?
        .into_parts();
    Ok(ServerResponse {
        status: head.status,
        headers: head.headers,
        body,
    })
}

/// Makes a read, past all caches.
pub(crate) fn read(uri: Uri, authorization: Option<&HeaderValue>) -> Request<Full<Bytes>> {
    let mut request = request(Method::GET, uri, authorization, Bytes::new());
    request
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    request
}

/// Makes a PUT, or a DELETE if there is no content.
pub(crate) fn write(
    uri: Uri,
    authorization: Option<&HeaderValue>,
    when: &When,
    content: Option<Vec<u8>>,
) -> Request<Full<Bytes>> {
    let method = if content.is_some() {
        Method::PUT
    } else {
        Method::DELETE
    };
    let mut request = request(
        method,
        uri,
        authorization,
        content.unwrap_or_default().into(),
    );
    let (name, value) = match when {
        When::Absent => (IF_NONE_MATCH, HeaderValue::from_static("*")),
        When::Tagged(tag) => (IF_MATCH, tag.clone()),
    };
    request.headers_mut().insert(name, value);
    request.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    request
}

/// Makes a request with the token, if there is one.
fn request(
    method: Method,
    uri: Uri,
    authorization: Option<&HeaderValue>,
    content: Bytes,
) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(content));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request
        .headers_mut()
        .extend(authorization.map(|value| (AUTHORIZATION, value.clone())));
    request
}

/// Returns an error's message with the causes that it leaves out.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let added = cause.to_string();
        if !text.contains(&added) {
            text = format!("{text}: {added}");
        }
        source = cause.source();
    }
    text
}
