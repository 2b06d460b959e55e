//! The service: a request goes to an upstream, and the answer comes back.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use tower_service::Service;

use crate::builder::ProxyBuilder;
use crate::choice::{Full, Place, Seat};
use crate::connect::HttpClient;
use crate::error::{ProxyError, ProxyErrorKind};
use crate::forward::{self, Client, Forwarding};
use crate::framing;
use crate::health::HealthCheck;
use crate::response_body::ProxyBody;
use crate::route::{Routes, Target};
use crate::sent::{BoxError, Interrupted, Lent, Outgoing};
use crate::upgrade::Asked;
use crate::upstream::Server;
use crate::via::Name;

/// Forwards requests to upstreams, as a [`tower_service::Service`]. Cheap to clone.
///
/// A request is sent once. If no connection to a server can be made, so that nothing was sent, the next server is
/// tried. If the connection closes before a response, a safe method without content is retried once.
#[derive(Clone)]
pub struct Proxy {
    pub(crate) shared: Arc<Shared>,
}

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) client: HttpClient<Lent>,
    pub(crate) routes: Routes,
    name: Name,
    forwarding: Forwarding,
    bounds: Bounds,
    pub(crate) health: Option<HealthCheck>,
}

/// How long to wait for an upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) connect: Duration,
    pub(crate) answer: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), answer: Duration::from_mins(1) }
    }
}

impl Proxy {
    /// Begins to describe a proxy.
    pub fn builder() -> ProxyBuilder {
        ProxyBuilder::default()
    }

    /// Whether a request with these header fields has been forwarded by this proxy before: an upstream is, or forwards to, the
    /// proxy itself. The proxy refuses such requests. Whatever holds requests up before it must do so itself, as a cache that
    /// waits for the answer to another request: that answer would wait for it.
    pub fn is_passed_again(&self, headers: &HeaderMap) -> bool {
        self.shared.name.is_in(headers)
    }

    /// Returns a predicate for request fields that the proxy sets, amends or drops, so that upstreams see another value
    /// than the client sent. A cache in front cannot select responses by these fields.
    ///
    /// ```
    /// use http::header::{ACCEPT, HeaderName};
    /// use ifmatch_proxy::{Proxy, Upstream};
    ///
    /// let upstream = Upstream::parse(&["http://127.0.0.1:8000"])?;
    /// let proxy = Proxy::builder().route("/", upstream)?.build().expect("root certificates");
    /// let overwritten = proxy.overwritten();
    /// assert!(overwritten(&HeaderName::from_static("x-forwarded-for")) && !overwritten(&ACCEPT));
    /// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
    /// ```
    pub fn overwritten(&self) -> fn(&HeaderName) -> bool {
        self.shared.forwarding.overwritten()
    }

    pub(crate) fn new(
        client: HttpClient<Lent>,
        routes: Routes,
        forwarding: Forwarding,
        bounds: Bounds,
        health: Option<HealthCheck>,
    ) -> Self {
        Self { shared: Arc::new(Shared { client, routes, name: Name::new(), forwarding, bounds, health }) }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("routes", &self.shared.routes).finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for Proxy
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ProxyBody>;
    type Error = ProxyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ProxyError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let client = Asked::by(&mut request);
        let (head, body) = request.into_parts();
        let body = Outgoing::new(body);
        Box::pin(async move { shared.forward(head, body, client).await })
    }
}

impl Shared {
    async fn forward(
        &self,
        head: Parts,
        body: Outgoing,
        client: Option<Asked>,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        if head.method == Method::CONNECT || !head.uri.path().starts_with('/') {
            return Err(ProxyErrorKind::Unsupported.into());
        }
        if forward::passages(&head) == Some(0) {
            return Err(ProxyErrorKind::Unsupported.into());
        }
        if self.name.is_in(&head.headers) {
            return Err(ProxyErrorKind::Loop.into());
        }
        let target = self.routes.find(&head.uri, &head.headers)?;
        let mut repeatable = body.is_empty() && is_safe(&head.method);
        let mut tried = Vec::new();
        let mut seat = self.seat(&target, &tried).await?;
        loop {
            let error = match self.ask(&target, seat.server, &head, &body).await {
                Ok(response) => return self.answer(response, client, seat.place),
                Err(error) => error,
            };
            if error.kind() == ProxyErrorKind::Broken && repeatable {
                repeatable = false;
                continue;
            }
            if error.kind() != ProxyErrorKind::Unreachable || !body.is_whole() {
                return Err(error);
            }
            tried.push(seat.server);
            // No server or slot is left: return the first error.
            let Ok(next) = self.seat(&target, &tried).await else { return Err(error) };
            seat = next;
        }
    }

    /// Finds a slot at a server that was not tried.
    async fn seat<'a>(&self, target: &Target<'a>, tried: &[&Server]) -> Result<Seat<'a>, ProxyError> {
        match target.upstream.seat(tried, self.bounds.connect).await {
            Ok(Some(seat)) => Ok(seat),
            Ok(None) => Err(ProxyErrorKind::Unreachable.into()),
            Err(Full) => Err(ProxyErrorKind::Overloaded.into()),
        }
    }

    /// Asks one server.
    async fn ask(
        &self,
        target: &Target<'_>,
        server: &Server,
        head: &Parts,
        body: &Outgoing,
    ) -> Result<Response<Incoming>, ProxyError> {
        let Some(address) = server.address(&target.path) else { return Err(ProxyErrorKind::Unsupported.into()) };
        let mut request = Request::new(body.lend());
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = address;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = self.forwarding.request(head, server, self.name);
        if !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
            // The library would leave out the content of a GET or HEAD whose length is not known.
            request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if let Some(interim) = head.extensions.get().and_then(|client: &Client| client.interim.clone()) {
            hyper::ext::on_informational(&mut request, move |response| {
                interim.tell(response.status(), response.headers());
            });
        }
        let too_slow = async {
            body.wait_for_end().await;
            tokio::time::sleep(self.bounds.answer).await;
        };
        let result = tokio::select! {
            result = self.client.request(request) => result,
            () = too_slow => return Err(ProxyErrorKind::Timeout.into()),
        };
        let reached = !matches!(&result, Err(error) if error.is_connect());
        target.upstream.note(server, reached);
        result.map_err(of)
    }

    fn answer(
        &self,
        mut response: Response<Incoming>,
        client: Option<Asked>,
        place: Place,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if upgraded {
            let unasked = || ProxyError::new(ProxyErrorKind::Broken, "the answer changes to a protocol unasked");
            let client = client.filter(|client| client.accepts(response.headers())).ok_or_else(unasked)?;
            let upstream = hyper::upgrade::on(&mut response);
            tokio::spawn(client.tunnel(upstream));
        }
        framing::check(response.headers_mut()).map_err(|error| ProxyError::new(ProxyErrorKind::Broken, error))?;
        if upgraded || response.status() == StatusCode::NO_CONTENT {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        // Each connection sets its own version.
        let version = std::mem::replace(response.version_mut(), Version::HTTP_11);
        forward::response(response.headers_mut(), version, upgraded);
        Ok(response.map(|body| ProxyBody::new(body, self.bounds.answer, place)))
    }
}

/// What the client's failure means.
fn of(error: hyper_util::client::legacy::Error) -> ProxyError {
    let kind = if error.is_connect() || is_unsent(&error) {
        ProxyErrorKind::Unreachable
    } else if causes(&error).any(<dyn Error>::is::<Interrupted>) {
        ProxyErrorKind::Interrupted
    } else {
        ProxyErrorKind::Broken
    };
    ProxyError::new(kind, error)
}

/// Returns `true` if the connection closed before any part of the request was written.
fn is_unsent(error: &(dyn Error + 'static)) -> bool {
    causes(error).filter_map(|cause| cause.downcast_ref::<hyper::Error>()).any(hyper::Error::is_canceled)
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// RFC 9110 §9.2.1, and QUERY.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE) || method.as_str() == "QUERY"
}
