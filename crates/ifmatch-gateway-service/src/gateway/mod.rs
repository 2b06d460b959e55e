//! The service around the blob service or the proxy: request ids, access, endpoints, slots and accounting.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HOST, LOCATION};
use http::uri::Authority;
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version,
};
use http_body::Body;
use http_body_util::Full;
use ifmatch_azure::auth::shared_access;
use ifmatch_blob::cors::{self, Cors};
use ifmatch_blob::dialect::{Client, Peer};
use ifmatch_blob::name::is_server_path;
use ifmatch_blob::waits;
use ifmatch_cache::Cache;
use ifmatch_core::fields;
use ifmatch_core::problem::Problem;
use ifmatch_gateway_config::access::{Access, Denied, host_check};
use ifmatch_http_server::{BoxError, RequestBody, RequestContext, RequestHandler, framing};
use ifmatch_proxy::LastExchange;
use tower_service::Service;
use tracker::{RequestTracker, ResponseBody};

use crate::console::guard::CROSS_ORIGIN_RESOURCE_POLICY;
use crate::console::session;
use crate::endpoints::Endpoint;
use crate::request_id::X_REQUEST_ID;
use crate::state::AppState;
use crate::traces::RequestSpan;

pub mod tracker;

/// Names the source of a copy.
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-ms-copy-source");
const SAME_SITE: HeaderValue = HeaderValue::from_static("same-site");
/// The name of this program in `Server` (RFC 9110 §10.2.4).
const SERVER: HeaderValue = HeaderValue::from_static("ifmatch");
/// The port of https, which URLs omit.
const HTTPS: u16 = 443;

/// The inner service, and the checks and endpoints in front of it.
#[derive(Clone)]
pub struct Gateway<S> {
    state: Arc<AppState>,
    listener: Listener,
    inner: S,
    /// Tells whether a request has a signature, which the inner service checks.
    is_signed: fn(&Uri, &HeaderMap) -> bool,
    /// Tells whether a query has a signature.
    is_presigned: fn(Option<&str>) -> bool,
    /// Passes the request context to the inner service, which forwards requests if this is set.
    set_context: Option<fn(&mut S, RequestContext, Option<LastExchange>)>,
    /// The origins of web pages that may send requests.
    cors: Option<Cors>,
    /// Passes the id of a request to the inner service, if that tells it in its own way.
    set_id: Option<fn(&mut Extensions, &HeaderValue)>,
}

/// The part of a server that a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    /// The site and the endpoints.
    All,
    /// The site.
    Site,
    /// The endpoints.
    Endpoints,
    /// Redirections to TLS.
    Redirect,
}

/// A service that needs the context of a request before it is called.
pub trait SetContext {
    /// Sets the context of the next request, and the place for its last exchange with an upstream, if that is logged.
    fn set_context(&mut self, context: RequestContext, exchange: Option<LastExchange>);
}

impl<S: SetContext> SetContext for Cache<S> {
    fn set_context(&mut self, context: RequestContext, exchange: Option<LastExchange>) {
        self.set_client(context.client());
        self.get_mut().set_context(context, exchange);
    }
}

/// An inner service that responds on its own.
#[derive(Clone, Copy)]
pub enum Standalone {
    /// Rejects each request, since the listener serves the endpoints only.
    EndpointsOnly,
    /// Redirects to the same URL with `https` and this port.
    ToTls(u16),
}

impl Service<Request<RequestBody>> for Standalone {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let response = match *self {
            Self::EndpointsOnly => elsewhere("only /-/ and PURGE are served here"),
            Self::ToTls(port) => redirect_to_tls(&request, port),
        };
        ready(Ok(response.map(Full::new)))
    }
}

impl Gateway<Standalone> {
    /// Serves the endpoints alone.
    pub fn of_endpoints(state: Arc<AppState>) -> Self {
        Self {
            listener: Listener::Endpoints,
            ..Self::new(state, Standalone::EndpointsOnly, |_, _| true)
        }
    }

    /// Redirects all requests to the same URL with `https` and this port.
    pub fn to_tls(state: Arc<AppState>, port: u16) -> Self {
        Self {
            listener: Listener::Redirect,
            ..Self::new(state, Standalone::ToTls(port), |_, _| true)
        }
    }
}

/// A response in the making.
enum PendingResponse<F> {
    /// By an endpoint of the gateway.
    Endpoint(Pin<Box<dyn Future<Output = Response<Bytes>> + Send>>),
    /// A rejection, or the response to a preflight request.
    Rejected(Response<Bytes>),
    /// By the inner service.
    Inner(F),
}

impl<S> Gateway<S> {
    /// Leaves the endpoints to another listener, if there is one.
    #[must_use]
    pub fn leaving_endpoints(self, to_another: bool) -> Self {
        let listener = if to_another {
            Listener::Site
        } else {
            self.listener
        };
        Self { listener, ..self }
    }

    /// Returns the state.
    pub fn state(&self) -> &Arc<AppState> {
        &self.state
    }
}

impl<S, B> Gateway<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    /// Puts the gateway in front of `inner`, which is always ready. Requests for which `is_signed` returns `true` need
    /// no token: `inner` must reject those without a valid signature.
    pub fn new(state: Arc<AppState>, inner: S, is_signed: fn(&Uri, &HeaderMap) -> bool) -> Self {
        Self {
            state,
            listener: Listener::All,
            inner,
            is_signed,
            is_presigned: |_| false,
            set_context: None,
            cors: None,
            set_id: None,
        }
    }

    /// Passes the request context to `inner`, which forwards requests and takes their slots.
    #[must_use]
    pub fn forwarding(self) -> Self
    where
        S: SetContext,
    {
        Self {
            set_context: Some(S::set_context),
            ..self
        }
    }

    /// Passes the id of a request to `inner`.
    #[must_use]
    pub fn naming(self, set_id: fn(&mut Extensions, &HeaderValue)) -> Self {
        Self {
            set_id: Some(set_id),
            ..self
        }
    }

    /// Lets pages of other sites embed the URLs whose query has a signature by this function, as they may with one of Azure.
    #[must_use]
    pub fn presigned(self, is_presigned: fn(Option<&str>) -> bool) -> Self {
        Self {
            is_presigned,
            ..self
        }
    }

    /// Allows web pages of these origins.
    #[must_use]
    pub fn allowing(self, cors: Option<Cors>) -> Self {
        Self { cors, ..self }
    }

    /// Returns `true` if pages of other sites must not embed the response. They may if pages of some origin may send requests, if
    /// everyone may read, or if the URL has a signature.
    fn is_for_same_site(&self, request: &Request<RequestBody>) -> bool {
        let query = request.uri().query();
        let is_signed = || shared_access::is_in(query) || (self.is_presigned)(query);
        // The signature last: to look for it decodes the query.
        !self.forwards()
            && self.cors.is_none()
            && !self.state.access.load().is_public_read()
            && !is_signed()
    }

    /// Returns the endpoint of this listener that a request is for, if it is for one.
    fn endpoint(&self, request: &Request<RequestBody>) -> Option<Endpoint> {
        let serves = matches!(self.listener, Listener::All | Listener::Endpoints);
        serves
            .then(|| Endpoint::of(&self.state, request.method(), request.uri().path()))
            .flatten()
    }

    /// Returns `true` for a proxy.
    fn forwards(&self) -> bool {
        self.set_context.is_some()
    }

    /// Checks a request, and starts to respond to it. The order is a matter of security:
    ///
    /// 1. **Framing.** Nothing can be decided about a request whose length, target or host another server may read differently.
    /// 2. **Host.** A page whose name resolves to this machine must reach nothing that needs no secret, neither blobs nor endpoints.
    /// 3. **Endpoints.** Before the tokens, since each checks them itself, and load balancers have none. Before the slots, since
    ///    operators need the endpoints most while all slots are taken.
    /// 4. **Endpoints of another listener.** The same paths are rejected, so the blob service never gets one.
    /// 5. **Preflight.** After the endpoints, which no page of another site may use. Before the tokens, which browsers don't send.
    /// 6. **Access.** Before everything that reads the body, takes a slot, or responds from the cache.
    /// 7. **A proxy.** No upstream may get the cookies of a console. The slot comes later, behind the cache.
    /// 8. **A slot.** Last, so no rejected request takes one.
    fn begin(
        &self,
        mut request: Request<RequestBody>,
        tracker: &mut RequestTracker,
        context: RequestContext,
    ) -> PendingResponse<S::Future> {
        // Once for all checks: a reload between them might relax one that relies on another.
        let access = self.state.access.load();
        if let Some(rejected) = framing::reject(&mut request) {
            PendingResponse::Rejected(rejected)
        } else if let Some(rejected) = self.check_host(&access, &request) {
            PendingResponse::Rejected(rejected)
        } else if let Some(endpoint) = self.endpoint(&request) {
            self.share(&mut request, &context);
            let state = Arc::clone(&self.state);
            PendingResponse::Endpoint(Box::pin(
                async move { endpoint.respond(&state, request).await },
            ))
        } else if self.listener == Listener::Site
            && !self.forwards()
            && is_server_path(request.uri().path())
        {
            PendingResponse::Rejected(elsewhere(
                "the endpoints of the gateway are at --admin-listen",
            ))
        } else if let Some(preflight) = self.cors.as_ref().and_then(|cors| cors.preflight(&request))
        {
            PendingResponse::Rejected(preflight)
        } else if let Err(denied) = self.check_access(&access, &request) {
            PendingResponse::Rejected(denied.to_problem().to_response())
        } else if let Some(set_context) = self.set_context {
            session::remove_cookies(request.headers_mut());
            // A forwarded request takes its slot behind the cache, so the cache can respond while all are taken.
            let mut inner = self.inner.clone();
            set_context(&mut inner, context, tracker.exchange());
            PendingResponse::Inner(inner.call(request))
        } else if !tracker.take_slot(&context) {
            PendingResponse::Rejected(overloaded())
        } else {
            self.share(&mut request, &context);
            // The URL of a copy's source may have a signature, too.
            if shared_access::is_in(request.uri().query())
                || request.headers().contains_key(COPY_SOURCE)
            {
                let peer = Peer {
                    address: context.remote_address().ip(),
                    is_secure: context.is_secure(),
                };
                request.extensions_mut().insert(peer);
            }
            PendingResponse::Inner(self.inner.clone().call(request))
        }
    }

    /// Names the client of a request, if it gets a share only.
    fn share(&self, request: &mut Request<RequestBody>, context: &RequestContext) {
        // What a client leaves unread counts in any case: behind a proxy that all clients share, it continues in small pieces.
        let only_reads = request.method().is_safe() && !waits::may_wait(request.headers());
        if self.state.has_shares || only_reads {
            request.extensions_mut().insert(Client(context.client()));
        }
    }

    /// Begins the span of a request, unless it is for an endpoint of the gateway. An upstream gets it as the parent.
    fn begin_span(&self, request: &mut Request<RequestBody>) -> Option<RequestSpan> {
        let traces = self
            .state
            .traces
            .as_ref()
            .filter(|_| self.endpoint(request).is_none())?;
        let span = traces.begin(request);
        if self.forwards() {
            span.put_into(request.headers_mut());
        }
        Some(span)
    }

    /// Rejects requests for foreign hosts that need no secret credentials. A proxy forwards requests for any host, and purges
    /// URLs of any, but its other endpoints are its own. A redirection is for any host, too.
    fn check_host(
        &self,
        access: &Access,
        request: &Request<RequestBody>,
    ) -> Option<Response<Bytes>> {
        let endpoint = self.endpoint(request);
        let needs_no_secret = || {
            self.state
                .blobs
                .as_ref()
                .is_some_and(|blobs| blobs.accepts_published_key)
                && (self.is_signed)(request.uri(), request.headers())
                && endpoint.is_none()
        };
        let is_for_any = match endpoint {
            Some(endpoint) => endpoint == Endpoint::Purge,
            None => self.forwards() || self.listener == Listener::Redirect,
        };
        if is_for_any || !(access.is_open() || needs_no_secret()) {
            return None;
        }
        host_check::reject(request)
    }

    /// Checks that a request has a token for what it does, or a signature.
    fn check_access(&self, access: &Access, request: &Request<RequestBody>) -> Result<(), Denied> {
        let headers = request.headers();
        let checked = access.check(request.method(), headers);
        // Where everyone may read, this is about what the first account has.
        let checked = checked.and_then(|()| {
            let is_withheld = self.state.is_withheld(request.uri().path());
            if is_withheld {
                access.check_token(request.method(), headers)
            } else {
                Ok(())
            }
        });
        checked.or_else(|denied| {
            if (self.is_signed)(request.uri(), headers) {
                Ok(())
            } else {
                Err(denied)
            }
        })
    }

    /// Returns the response of the inner service, or 408 or 413 if it failed because of the request body.
    fn finish(
        &self,
        version: Version,
        response: Response<B>,
        mut tracker: RequestTracker,
    ) -> Response<ResponseBody<B>> {
        if let Some(body) = tracker
            .request_body()
            .filter(|_| !response.status().is_success())
        {
            if body.too_slow() {
                self.state.metrics.slow_bodies.increment(1);
                return own(too_slow(version), tracker);
            }
            if body.too_large() {
                return own(too_large(), tracker);
            }
        }
        tracker.responded(&response);
        response.map(|body| ResponseBody::inner(body, tracker))
    }
}

impl<S, B> RequestHandler for Gateway<S>
where
    S: Service<
            Request<RequestBody>,
            Response = Response<B>,
            Error = Infallible,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = ResponseBody<B>;

    fn handle(
        self: Arc<Self>,
        mut request: Request<RequestBody>,
        context: RequestContext,
    ) -> impl Future<Output = Response<ResponseBody<B>>> + Send + 'static {
        let id = self
            .state
            .ids
            .of(fields::lines(request.headers(), X_REQUEST_ID).next());
        if let Some(set_id) = self.set_id {
            set_id(request.extensions_mut(), &id);
        }
        let span = self.begin_span(&mut request);
        let mut tracker = RequestTracker::start(&self.state, &context, &request, &id, span);
        let version = request.version();
        let cross_origin = self
            .cors
            .as_ref()
            .map(|cors| Box::new(cors.fields(&request)));
        let for_same_site = self.is_for_same_site(&request);
        // The future doesn't contain the request, because it is moved often.
        let pending = self.begin(request, &mut tracker, context);
        async move {
            let mut response = match pending {
                PendingResponse::Endpoint(response) => own(response.await, tracker),
                PendingResponse::Rejected(response) => own(response, tracker),
                PendingResponse::Inner(response) => {
                    let Ok(response) = response.await;
                    self.finish(version, response, tracker)
                }
            };
            let headers = response.headers_mut();
            if let Some(fields) = cross_origin {
                cors::add(*fields, headers);
            }
            if for_same_site {
                headers.insert(CROSS_ORIGIN_RESOURCE_POLICY, SAME_SITE);
            }
            // The values of an upstream are kept.
            if !fields::has(headers, &X_REQUEST_ID) {
                headers.insert(X_REQUEST_ID, id);
            }
            if !fields::has(headers, &header::SERVER) {
                headers.insert(header::SERVER, SERVER);
            }
            response
        }
    }

    fn sends_interim(&self) -> bool {
        self.forwards()
    }
}

/// Returns 404 for a request that another listener serves.
fn elsewhere(detail: &'static str) -> Response<Bytes> {
    Problem::not_found().detail(detail).to_response()
}

/// Wraps a response of the gateway itself, without its body if the request is a HEAD.
fn own<B>(mut response: Response<Bytes>, mut tracker: RequestTracker) -> Response<ResponseBody<B>> {
    tracker.responded(&response);
    if tracker.is_head() {
        let length = HeaderValue::from(response.body().len());
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, length);
        response.body_mut().clear();
    }
    response.map(|bytes| ResponseBody::own(bytes, tracker))
}

/// Returns 503 for a request without a slot.
fn overloaded() -> Response<Bytes> {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded")
        .detail("too many concurrent requests, in total or from this client. Retry in a second")
        .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
        .to_response()
}

/// Returns 413 for a request body beyond `--max-body-size` (RFC 9110 §15.5.14).
pub fn too_large() -> Response<Bytes> {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large")
        .detail("the body is larger than --max-body-size")
        .to_response()
}

/// Returns 408 (RFC 9110 §15.5.9). An HTTP/1 connection closes afterwards, since the rest of the body may still arrive.
fn too_slow(version: Version) -> Response<Bytes> {
    let mut response = Problem::new(StatusCode::REQUEST_TIMEOUT, "body-too-slow")
        .detail("the body arrived too slowly. Nothing was changed: send it again")
        .to_response();
    if version < Version::HTTP_2 {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Returns 308 to the URL of a request with `https` and this port, or 400 if the request names no valid host.
fn redirect_to_tls<B>(request: &Request<B>, port: u16) -> Response<Bytes> {
    let named = request
        .uri()
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    let field = || {
        fields::lines(request.headers(), HOST)
            .next()
            .map(HeaderValue::as_bytes)
    };
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    match named
        .or_else(field)
        .and_then(|host| location(host, port, path))
    {
        Some(location) => {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
            response.headers_mut().insert(LOCATION, location);
            response
        }
        None => {
            Problem::bad_request("the request has no valid host or path. Send both").to_response()
        }
    }
}

/// Returns the URL with `https` and this port, or `None` if the host or the path is invalid.
fn location(host: &[u8], port: u16, path: &str) -> Option<HeaderValue> {
    let authority = Authority::try_from(host)
        .ok()
        .filter(|authority| !authority.as_str().contains('@'))?;
    let host = authority.host();
    if host.is_empty() || !path.starts_with('/') {
        return None;
    }
    let url = if port == HTTPS {
        format!("https://{host}{path}")
    } else {
        format!("https://{host}:{port}{path}")
    };
    HeaderValue::from_str(&url).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_has_the_host_the_port_of_tls_and_the_path() {
        for (host, port, path, expected) in [
            ("a.example", 443, "/x?y", Some("https://a.example/x?y")),
            (
                "a.example:80",
                443,
                "//evil.example",
                Some("https://a.example//evil.example"),
            ),
            ("A.example:8080", 8443, "/", Some("https://A.example:8443/")),
            ("[::1]:80", 8443, "/", Some("https://[::1]:8443/")),
            ("user@a.example", 443, "/", None),
            ("a.example/b", 443, "/", None),
            ("a b", 443, "/", None),
            ("", 443, "/", None),
            ("a.example", 443, "*", None),
        ] {
            let found = location(host.as_bytes(), port, path);
            assert_eq!(
                found,
                expected.map(HeaderValue::from_static),
                "{host} {path}"
            );
        }
    }
}
