//! What happens to each request around the inner service: id, access, limits, accounts.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::Body;
use ifmatch_cache::CacheHandle;
use ifmatch_core::fields;
use ifmatch_core::problem::Problem;
use ifmatch_proxy::Client;
use tower_service::Service;

use crate::access::{Access, Denied};
use crate::activity::InFlight;
use crate::config::{Limits, ServerConfig};
use crate::endpoints;
use crate::framing;
use crate::interim::Interjections;
use crate::leases::observed::Observed;
use crate::metrics::Metrics;
use crate::misdirected;
use crate::peer::Peer;
use crate::proxy::acquainted::{Introduce, Visitor};
use crate::request_body::{self, Received, RequestBody};
use crate::request_id::{RequestIds, X_REQUEST_ID};
use crate::response_body::{BoxError, ResponseBody};
use crate::share::Share;
use crate::ticket::Ticket;

const SERVER: HeaderValue = HeaderValue::from_static("ifmatch");

/// What all requests share.
pub(crate) struct Desk {
    /// Who may do what.
    pub(crate) access: Access,
    /// What one client may ask for.
    pub(crate) limits: Limits,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// The blobs, for the operator's questions, if any are served.
    pub(crate) blobs: Option<Observed>,
    /// The cache, for the operator's questions, if there is one.
    pub(crate) cache: Option<CacheHandle>,
    /// `true` if client information from proxies in front is trusted.
    pub(crate) trusts_forwarded: bool,
    ids: RequestIds,
    requests: AtomicU32,
    open: AtomicU32,
    stopping: AtomicBool,
}

/// The inner service with the desk in front of it.
pub(crate) struct Gateway<S> {
    /// What all requests share.
    pub(crate) desk: Arc<Desk>,
    inner: S,
    signed: fn(&HeaderMap) -> bool,
    /// The inner service forwards: it wants to know who asks, and to pass on interim responses.
    introduce: Option<fn(&mut S, Visitor)>,
}

/// How a request is answered.
enum Course<F> {
    /// By the gateway, which may take its time.
    Own(Pin<Box<dyn Future<Output = Response<Bytes>> + Send>>),
    /// With a refusal.
    Refused(Response<Bytes>),
    /// By the inner service.
    Inner(F),
}

impl Desk {
    /// A desk with nothing to do yet.
    pub(crate) fn new(config: &ServerConfig, metrics: Metrics) -> Self {
        Self {
            access: config.access.clone(),
            limits: config.limits,
            metrics,
            blobs: None,
            cache: None,
            trusts_forwarded: false,
            ids: RequestIds::new(),
            requests: AtomicU32::new(0),
            open: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// Lets operators ask about the leases of `blobs`.
    pub(crate) fn with_blobs(self, blobs: Observed) -> Self {
        Self { blobs: Some(blobs), ..self }
    }

    /// Lets operators ask about `cache`, and purge it.
    pub(crate) fn with_cache(self, cache: CacheHandle) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// Sets if client information from proxies in front is trusted.
    pub(crate) fn trusting_forwarded(self, trusts_forwarded: bool) -> Self {
        Self { trusts_forwarded, ..self }
    }

    /// Notes that the gateway is about to stop: `/-/health` says so from now on.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// Whether the gateway is about to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Returns `true` if this client may begin another request, including one that gets refused. This also limits
    /// refusals and the gateway's own responses. The limit allows as many of those as there are request slots, plus one
    /// connection's streams.
    pub(crate) fn admits(&self, peer: &Peer) -> bool {
        let Share { all, per_client } = self.limits.requests;
        let room = |places: u32| places.saturating_mul(2).saturating_add(self.limits.streams);
        let share = Share { all: room(all), per_client: per_client.map(room) };
        let admits = share.grants(self.open.load(Relaxed), peer.open.load(Relaxed));
        if !admits {
            self.metrics.turned_away.requests.increment(1);
        }
        admits
    }

    /// Records the start of a request.
    pub(crate) fn began(&self, peer: &Peer) {
        self.open.fetch_add(1, Relaxed);
        peer.open.fetch_add(1, Relaxed);
    }

    /// Records the end of a request.
    pub(crate) fn ended(&self, peer: &Peer) {
        self.open.fetch_sub(1, Relaxed);
        peer.open.fetch_sub(1, Relaxed);
    }

    /// Takes a request slot, to be released with [`Desk::leave`]. Returns `false` if there is none for this client.
    pub(crate) fn enter(&self, peer: &Peer) -> bool {
        let taken = self.requests.fetch_add(1, Relaxed);
        let own = peer.requests.fetch_add(1, Relaxed);
        let entered = self.limits.requests.grants(taken, own);
        if !entered {
            self.leave(peer);
            self.metrics.turned_away.requests.increment(1);
        }
        entered
    }

    /// Gives a place back.
    pub(crate) fn leave(&self, peer: &Peer) {
        self.requests.fetch_sub(1, Relaxed);
        peer.requests.fetch_sub(1, Relaxed);
    }
}

impl<S, B> Gateway<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    /// Puts a desk in front of `inner`, which is always ready, and itself checks the signatures of the requests that
    /// `signed` names: they need no token. It must let none of those pass without a signature.
    pub(crate) fn new(desk: Arc<Desk>, inner: S, signed: fn(&HeaderMap) -> bool) -> Self {
        Self { desk, inner, signed, introduce: None }
    }

    /// Tells `inner`, which forwards, who asks, and passes on what it has to say before its answer.
    pub(crate) fn forwarding(self) -> Self
    where
        S: Introduce,
    {
        Self { introduce: Some(S::introduce), ..self }
    }

    /// Whether the inner service forwards.
    pub(crate) fn forwards(&self) -> bool {
        self.introduce.is_some()
    }

    /// Answers one request of a connection, once all that is to be said there before has been said.
    pub(crate) fn answer(
        self: Arc<Self>,
        in_flight: InFlight,
        client: &Client,
        interjections: Option<Arc<Interjections>>,
        request: Request<Received>,
    ) -> impl Future<Output = Result<Response<ResponseBody<B>>, Infallible>> + use<S, B> {
        let id = self.desk.ids.of(fields::lines(request.headers(), X_REQUEST_ID).next());
        let mut ticket = Ticket::open(&self.desk, in_flight, client, &request, &id);
        let version = request.version();
        // The future below has what is left of the request, not the request: it is moved often.
        let course = self.begin(request, &mut ticket, client, interjections.as_ref());
        async move {
            let mut response = match course {
                Course::Own(answer) => own(answer.await, ticket),
                Course::Refused(refused) => own(refused, ticket),
                Course::Inner(answer) => {
                    let Ok(response) = answer.await;
                    self.answered(version, response, ticket)
                }
            };
            let headers = response.headers_mut();
            // What another server has said stays.
            if !fields::has(headers, &X_REQUEST_ID) {
                headers.insert(X_REQUEST_ID, id);
            }
            if !fields::has(headers, &header::SERVER) {
                headers.insert(header::SERVER, SERVER);
            }
            if let Some(interjections) = interjections.filter(|interjections| interjections.end_turn()) {
                Box::pin(interjections.settle()).await;
            }
            Ok(response)
        }
    }

    /// Hands a request to whom it is for.
    fn begin(
        &self,
        request: Request<Received>,
        ticket: &mut Ticket,
        client: &Client,
        interjections: Option<&Arc<Interjections>>,
    ) -> Course<S::Future> {
        let (mut request, fate) = RequestBody::of(request, self.desk.limits.body_timeout);
        ticket.expect_body(fate);
        if let Some(refused) = framing::refuse(&mut request) {
            Course::Refused(refused)
        } else if let Some(refused) = self.misdirected(&request) {
            Course::Refused(refused)
        } else if endpoints::is_own(request.uri().path()) {
            let desk = Arc::clone(&self.desk);
            Course::Own(Box::pin(async move { endpoints::answer(&desk, request).await }))
        } else if let Some(refused) = self.refuse(&request, ticket) {
            Course::Refused(refused)
        } else {
            let mut inner = self.inner.clone();
            if let Some(introduce) = self.introduce {
                // Not to clients of HTTP/1.0 (RFC 9110 §15.2).
                let interjections = interjections.filter(|_| request.version() > Version::HTTP_10);
                let turn = interjections.map(Interjections::open);
                introduce(&mut inner, Visitor { client: client.clone(), turn, entrance: ticket.entrance() });
            }
            Course::Inner(inner.call(request))
        }
    }

    /// The answer to a request under a foreign name, where being on this machine is all that it takes. What a proxy forwards
    /// has its upstream's name.
    fn misdirected(&self, request: &Request<RequestBody>) -> Option<Response<Bytes>> {
        if self.forwards() || !self.desk.access.is_open() {
            return None;
        }
        misdirected::refuse(request)
    }

    /// The answer to a request that the inner service is not to see.
    fn refuse(&self, request: &Request<RequestBody>, ticket: &mut Ticket) -> Option<Response<Bytes>> {
        if let Err(why) = self.check(request) {
            return Some(why.to_problem().to_response());
        }
        // Forwarded requests take their slot behind the cache: stored responses are served regardless of the upstreams.
        (!self.forwards() && !ticket.enter()).then(overloaded)
    }

    fn check(&self, request: &Request<RequestBody>) -> Result<(), Denied> {
        let headers = request.headers();
        self.desk
            .access
            .check(request.method(), headers)
            .or_else(|why| if (self.signed)(headers) { Ok(()) } else { Err(why) })
    }

    /// What the inner service has answered, or what was wrong with the body that it has read.
    fn answered(&self, version: Version, response: Response<B>, mut ticket: Ticket) -> Response<ResponseBody<B>> {
        if let Some(fate) = ticket.fate().filter(|_| !response.status().is_success()) {
            if fate.too_slow() {
                self.desk.metrics.slow_bodies.increment(1);
                return own(too_slow(version), ticket);
            }
            if fate.too_large() {
                return own(request_body::too_large(), ticket);
            }
        }
        if self.desk.blobs.is_some() && response.status().is_server_error() {
            self.desk.metrics.store_error(response.status());
        }
        ticket.answered(&response);
        response.map(|body| ResponseBody::inner(body, ticket))
    }
}

fn own<B>(mut response: Response<Bytes>, mut ticket: Ticket) -> Response<ResponseBody<B>> {
    ticket.answered(&response);
    if ticket.is_head() {
        let length = HeaderValue::from(response.body().len());
        response.headers_mut().insert(header::CONTENT_LENGTH, length);
        response.body_mut().clear();
    }
    response.map(|bytes| ResponseBody::own(bytes, ticket))
}

fn overloaded() -> Response<Bytes> {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded")
        .detail("too many requests at a time, of all clients or of yours: try again in a second")
        .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
        .to_response()
}

/// 408, after which an HTTP/1 connection cannot be used again: the rest of the body may still come.
fn too_slow(version: Version) -> Response<Bytes> {
    let mut response = Problem::new(StatusCode::REQUEST_TIMEOUT, "body-too-slow")
        .detail("the body came too slowly: nothing was changed, send the request again")
        .to_response();
    if version < Version::HTTP_2 {
        close(response.headers_mut());
    }
    response
}

fn close(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
}
