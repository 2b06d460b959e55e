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
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tower_http::timeout::TimeoutBody;
use tower_service::Service;

use crate::builder::ProxyBuilder;
use crate::connect::HttpClient;
use crate::error::{ProxyError, ProxyErrorKind};
use crate::forward::{self, Client, Forwarding};
use crate::framing;
use crate::route::Routes;
use crate::sent::{BoxError, End, Interrupted, SentBody};
use crate::upgrade;
use crate::upstream::{Server, Upstream};
use crate::via::Name;

/// The body of a forwarded response: ends with an error when the upstream pauses for too long or closes early.
pub type ProxyBody = TimeoutBody<Incoming>;

/// The body of a forwarded request.
type RequestBody = UnsyncBoxBody<Bytes, Interrupted>;

/// Forwards requests to upstreams, as a [`tower_service::Service`]. Cheap to clone.
///
/// A request is sent once, and repeated only if it has no content and that is safe: when no connection to a server could
/// be made, the next server is asked; when a connection was closed before an answer, a safe method is tried once more.
#[derive(Clone)]
pub struct Proxy {
    pub(crate) shared: Arc<Shared>,
}

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) client: HttpClient<RequestBody>,
    pub(crate) routes: Routes,
    name: Name,
    forwarding: Forwarding,
    bounds: Bounds,
    pub(crate) health: Option<(String, Duration)>,
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

    /// Tells the fields of requests in which an upstream sees something that does not follow from what the client has said in
    /// them: the proxy sets, amends or drops them. A cache in front cannot select responses by them.
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
        client: HttpClient<RequestBody>,
        routes: Routes,
        forwarding: Forwarding,
        bounds: Bounds,
        health: Option<(String, Duration)>,
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
        let client =
            forward::wanted_upgrade(request.version(), request.headers()).map(|_| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        let (body, end) = SentBody::new(body);
        let body = Outgoing { empty: body.is_end_stream(), body: Some(body.boxed_unsync()), end };
        Box::pin(async move { shared.forward(head, body, client).await })
    }
}

/// The content of a request, which can be sent once; none can be sent again.
struct Outgoing {
    empty: bool,
    body: Option<RequestBody>,
    end: End,
}

impl Outgoing {
    fn take(&mut self) -> RequestBody {
        let nothing = || http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync();
        self.body.take().unwrap_or_else(nothing)
    }
}

impl Shared {
    async fn forward(
        &self,
        head: Parts,
        mut body: Outgoing,
        client: Option<OnUpgrade>,
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
        if self.routes.are_left_by(head.uri.path()) {
            return Err(ProxyErrorKind::DotSegments.into());
        }
        let upstream = self.routes.find(&head.uri, &head.headers).ok_or(ProxyErrorKind::NoRoute)?;
        let repeatable = body.empty && is_safe(&head.method);
        let mut repeated = false;
        let mut last = ProxyError::from(ProxyErrorKind::Unreachable);
        let mut servers = upstream.in_turn();
        let mut next = servers.next();
        while let Some(server) = next {
            match self.ask(upstream, server, &head, &mut body).await {
                Ok(response) => return self.answer(response, client),
                Err(error) => {
                    let unsent = error.kind() == ProxyErrorKind::Unreachable && body.empty;
                    let again = error.kind() == ProxyErrorKind::Broken && repeatable && !repeated;
                    repeated |= again;
                    last = error;
                    if !unsent && !again {
                        break;
                    }
                    next = if again { Some(server) } else { servers.next() };
                }
            }
        }
        Err(last)
    }

    /// Asks one server.
    async fn ask(
        &self,
        upstream: &Upstream,
        server: &Server,
        head: &Parts,
        body: &mut Outgoing,
    ) -> Result<Response<Incoming>, ProxyError> {
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let Some(address) = server.address(path) else { return Err(ProxyErrorKind::Unsupported.into()) };
        let end = body.end.clone();
        let mut request = Request::new(body.take());
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
            end.wait().await;
            tokio::time::sleep(self.bounds.answer).await;
        };
        let result = tokio::select! {
            result = self.client.request(request) => result,
            () = too_slow => return Err(ProxyErrorKind::Timeout.into()),
        };
        let reached = !matches!(&result, Err(error) if error.is_connect());
        upstream.note(server, reached);
        result.map_err(of)
    }

    fn answer(
        &self,
        mut response: Response<Incoming>,
        client: Option<OnUpgrade>,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if upgraded {
            let unasked = || ProxyError::new(ProxyErrorKind::Broken, "the answer changes to a protocol unasked");
            let client = client.ok_or_else(unasked)?;
            let upstream = hyper::upgrade::on(&mut response);
            tokio::spawn(upgrade::tunnel(client, upstream));
        }
        framing::check(response.headers_mut()).map_err(|error| ProxyError::new(ProxyErrorKind::Broken, error))?;
        if response.status() == StatusCode::NO_CONTENT {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        let version = response.version();
        forward::response(response.headers_mut(), version, upgraded);
        Ok(response.map(|body| TimeoutBody::new(self.bounds.answer, body)))
    }
}

/// What the client's failure means.
fn of(error: hyper_util::client::legacy::Error) -> ProxyError {
    let kind = if error.is_connect() {
        ProxyErrorKind::Unreachable
    } else if is_caused_by::<Interrupted>(&error) {
        ProxyErrorKind::Interrupted
    } else {
        ProxyErrorKind::Broken
    };
    ProxyError::new(kind, error)
}

fn is_caused_by<E: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<E>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// RFC 9110 §9.2.1, and QUERY.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE) || method.as_str() == "QUERY"
}
