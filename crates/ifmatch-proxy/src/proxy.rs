//! The service, which forwards a request and returns the response.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::future::{Future, pending};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body;
use hyper::body::Incoming;
use ifmatch_core::share::network;
use tokio::sync::watch;
use tokio::time::Instant;
use tower_service::Service;

use crate::error::{ProxyError, ProxyErrorKind};
use crate::forward::attempts::{NextAttempt, RequestAttempts, is_faulty};
use crate::forward::framing;
use crate::forward::headers::{self, ForwardedClient, ForwardingRules};
use crate::forward::outgoing;
use crate::forward::request_body::{BoxError, InterruptedBody, RequestBody};
use crate::forward::response_body::ProxyBody;
use crate::forward::upgrade::UpgradeRequest;
use crate::observer::{Exchange, LastExchange, ProxyEvent, UpstreamState};
use crate::route::public_url::ForwardedRequest;
use crate::route::{Route, Target};
use crate::state::{ProxyState, UpstreamTimeouts};
use crate::upstream::breaker::{RequestOutcome, Requester};
use crate::upstream::client::{self, SendError};
use crate::upstream::health;
use crate::upstream::selection::{NoServerReason, ServerAdmission, ServerSlot};
use crate::upstream::server::UpstreamServer;
use crate::upstream::slots::RequestSlot;

/// Forwards requests to upstreams, as a [`tower_service::Service`]. Cheap to clone.
///
/// If no connection to a server can be made, so nothing was sent, the next server is tried. A safe request without
/// content is sent again if the connection closes before a response, and goes to up to two other servers if that
/// repeats, or if a server returns 502, 503 or 504. Any other request is sent once.
#[derive(Clone)]
pub struct Proxy {
    /// Requests keep the state with which they began.
    shared: Arc<watch::Sender<Arc<ProxyState>>>,
}

impl Proxy {
    /// Returns `true` if this proxy has forwarded a request with these header fields before, because an upstream leads
    /// back to the proxy. The proxy rejects such requests. A layer in front that makes requests wait for each other, such
    /// as a cache, must reject them itself: they would wait for themselves.
    pub fn is_loop(&self, headers: &HeaderMap) -> bool {
        self.shared.borrow().name.is_in(headers)
    }

    /// Returns a predicate for request fields that the proxy sets, amends or drops, so upstreams see another value
    /// than the client sent. A cache in front can't select responses by these fields.
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
        self.shared.borrow().forwarding.overwritten()
    }

    /// Returns the redirection of a request, if its route has one. A cache in front must not store it, since it would outlive a
    /// [replacement](Self::replace) of the routes, so layers in front may ask here first.
    ///
    /// ```
    /// use ifmatch_proxy::{Proxy, Redirect};
    ///
    /// let proxy = Proxy::builder().route("/old", Redirect::new(301, "https://b.example{path}")?)?.build().expect("no TLS");
    /// let redirection = proxy.redirection(&"/old/a".parse().expect("a path"), &http::HeaderMap::new()).expect("a redirection");
    /// assert_eq!(redirection.headers()["location"], "https://b.example/old/a");
    /// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
    /// ```
    pub fn redirection(&self, uri: &Uri, headers: &HeaderMap) -> Option<Response<()>> {
        let shared = self.shared.borrow();
        let target = shared
            .routes
            .has_redirect()
            .then(|| shared.routes.find(uri, headers).ok())
            .flatten()?;
        target.redirection()?.ok()
    }

    /// Returns what is [attached](crate::Route::attach) to the route of a request, for layers in front, such as their own settings.
    ///
    /// ```
    /// use ifmatch_proxy::{Proxy, Route, Upstream};
    ///
    /// let route = Route::from(Upstream::parse(&["http://127.0.0.1:8000"])?).attach("slow");
    /// let proxy = Proxy::builder().route("/reports", route)?.build().expect("no TLS");
    /// let attached = |path: &str| proxy.attached::<&str>(&path.parse().expect("a path"), &http::HeaderMap::new());
    /// assert_eq!((attached("/reports/1").as_deref(), attached("/").as_deref()), (Some(&"slow"), None));
    /// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
    /// ```
    pub fn attached<T: Any + Send + Sync>(&self, uri: &Uri, headers: &HeaderMap) -> Option<Arc<T>> {
        let shared = self.shared.borrow();
        let target = shared
            .routes
            .has_attachment()
            .then(|| shared.routes.find(uri, headers).ok())
            .flatten()?;
        target.route.attached()
    }

    /// Returns the current state of all upstreams, for metrics.
    ///
    /// ```
    /// use ifmatch_proxy::{Proxy, Upstream};
    ///
    /// let upstream = Upstream::parse(&["http://10.0.0.7:8080"])?;
    /// let proxy = Proxy::builder().route("/", upstream)?.build().expect("no TLS");
    /// let state = &proxy.upstreams()[0];
    /// assert_eq!((state.route.as_str(), state.servers[0].name.as_str()), ("/", "10.0.0.7:8080"));
    /// assert!(state.servers[0].healthy);
    /// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
    /// ```
    pub fn upstreams(&self) -> Vec<UpstreamState> {
        self.shared.borrow().routes.states()
    }

    /// Replaces the routes, the upstreams and their settings with `other`'s, for this proxy and its clones.
    ///
    /// Requests in progress, including queued ones, end as they began, so none is lost. Servers that remain keep
    /// their health. The proxy also keeps its name, [`trust_forwarded`](crate::ProxyBuilder::trust_forwarded) and
    /// [`answer_timeout`](crate::ProxyBuilder::answer_timeout), on which layers in front may depend.
    ///
    /// ```
    /// use ifmatch_proxy::{Proxy, Upstream};
    ///
    /// let to = |url| Proxy::builder().route("/", Upstream::parse(&[url])?).map(|builder| builder.build().expect("no TLS"));
    /// let proxy = to("http://10.0.0.7:8080")?;
    /// proxy.replace(to("http://10.0.0.8:8080")?);
    /// assert_eq!(proxy.upstreams()[0].servers[0].name, "10.0.0.8:8080");
    /// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
    /// ```
    pub fn replace(&self, other: Self) {
        let new = Arc::clone(&other.shared.borrow());
        drop(other);
        self.shared.send_modify(|shared| {
            new.routes.inherit(&shared.routes, new.health.as_ref());
            let forwarding = ForwardingRules {
                trust_forwarded: shared.forwarding.trust_forwarded,
                ..new.forwarding
            };
            let timeouts = UpstreamTimeouts {
                answer: shared.timeouts.answer,
                ..new.timeouts
            };
            *shared = Arc::new(ProxyState {
                client: new.client.clone(),
                routes: new.routes.clone(),
                name: shared.name,
                forwarding,
                timeouts,
                health: new.health.clone(),
                observer: new.observer.clone(),
            });
        });
    }

    /// Checks the health of the servers forever, as far as the builder or their route set a
    /// [health check](crate::ProxyBuilder::health_check).
    /// Spawn this next to the server.
    pub async fn watch_health(self) {
        let mut changes = self.shared.subscribe();
        loop {
            let shared = Arc::clone(&changes.borrow_and_update());
            let watch = async {
                health::watch(
                    &shared.client,
                    shared.routes.checked(shared.health.as_ref()),
                )
                .await;
                pending::<()>().await;
            };
            tokio::select! {
                () = watch => {}
                _ = changes.changed() => {}
            }
        }
    }

    pub(crate) fn new(shared: ProxyState) -> Self {
        Self {
            shared: Arc::new(watch::Sender::new(Arc::new(shared))),
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("routes", &self.shared.borrow().routes)
            .finish_non_exhaustive()
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
        let shared = Arc::clone(&self.shared.borrow());
        let client = UpgradeRequest::of(&mut request);
        let (head, body) = request.into_parts();
        let body = RequestBody::new(body);
        Box::pin(async move { shared.forward(head, body, client).await })
    }
}

impl ProxyState {
    async fn forward(
        &self,
        head: Parts,
        body: RequestBody,
        client: Option<UpgradeRequest>,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        if head.method == Method::CONNECT || !head.uri.path().starts_with('/') {
            return Err(ProxyErrorKind::Unsupported.into());
        }
        if headers::max_forwards(&head) == Some(0) {
            return Err(ProxyErrorKind::Unsupported.into());
        }
        if self.name.is_in(&head.headers) {
            return Err(ProxyErrorKind::Loop.into());
        }
        let target = self.routes.find(&head.uri, &head.headers)?;
        if let Some(redirection) = target.redirection() {
            return Ok(redirection?.map(|()| ProxyBody::empty()));
        }
        let mut attempts = RequestAttempts::of(&head.method, body.is_empty());
        let mut tried = Vec::new();
        let requester = requester(&head);
        let mut slot = self.first_slot(&target, requester).await?;
        // The latest response that asks for another server, for the case that no other server responds.
        let mut kept = None;
        loop {
            let ServerSlot {
                server,
                slot: permit,
                admission,
            } = slot;
            let start = Instant::now();
            let response = self.send(&target, server, admission, &head, &body).await;
            self.observe(&target, server, &head, &response, start.elapsed());
            let outcome = response
                .as_ref()
                .map(Response::status)
                .map_err(ProxyError::kind);
            let next = attempts.next(outcome);
            let admit = || {
                target
                    .route
                    .upstream()
                    .and_then(|upstream| upstream.admit(server, requester))
            };
            if next == NextAttempt::Same
                && let Some(admission) = admit()
            {
                slot = ServerSlot {
                    server,
                    slot: permit,
                    admission,
                };
                continue;
            }
            let mut other = None;
            if next != NextAttempt::Return {
                body.wait_for_return().await;
                tried.push(server);
                // With a slot in hand, a request doesn't wait for another one, which may belong to a request that waits for this one.
                let holds_slot = kept.is_some() || outcome != Err(ProxyErrorKind::Unreachable);
                let patience = if holds_slot {
                    Duration::ZERO
                } else {
                    self.timeouts_of(&target).connect
                };
                if body.is_whole()
                    && let Some(upstream) = target.route.upstream()
                {
                    other = upstream
                        .acquire(&tried, requester, patience)
                        .await
                        .ok()
                        .flatten();
                }
            }
            let Some(other) = other else {
                // No server or slot is left, or none is wanted.
                let (server, response, permit) = match (response, kept) {
                    (Err(_), Some(kept)) => kept,
                    (response, _) => (server, response?, permit),
                };
                let prefix = target.prefix.unwrap_or_default();
                let forwarded = ForwardedRequest {
                    server,
                    path: &target.path,
                    prefix,
                    host: headers::host(&head),
                };
                return self.respond(&target, &forwarded, response, client, permit);
            };
            if let Ok(response) = response {
                kept = Some((server, response, permit));
            }
            slot = other;
        }
    }

    /// Returns a route's timeouts.
    fn timeouts_of(&self, target: &Target<'_>) -> UpstreamTimeouts {
        let Route {
            connect_timeout,
            answer_timeout,
            ..
        } = target.route;
        UpstreamTimeouts {
            connect: connect_timeout.unwrap_or(self.timeouts.connect),
            answer: answer_timeout.unwrap_or(self.timeouts.answer),
        }
    }

    /// Finds a slot at any server.
    async fn first_slot<'a>(
        &self,
        target: &Target<'a>,
        requester: Requester,
    ) -> Result<ServerSlot<'a>, ProxyError> {
        let Some(upstream) = target.route.upstream() else {
            return Err(ProxyErrorKind::NoRoute.into());
        };
        match upstream
            .acquire(&[], requester, self.timeouts_of(target).connect)
            .await
        {
            Ok(Some(slot)) => Ok(slot),
            Ok(None) => Err(ProxyErrorKind::Unreachable.into()),
            Err(rejected) => {
                let error = match rejected {
                    NoServerReason::NoSlot => ProxyErrorKind::Overloaded.into(),
                    NoServerReason::Unavailable(pause) => ProxyError::unavailable(pause),
                };
                if let Some(observer) = &self.observer {
                    observer.observe(ProxyEvent::Rejected {
                        route: target.name,
                        reason: error.kind(),
                    });
                }
                Err(error)
            }
        }
    }

    fn observe(
        &self,
        target: &Target<'_>,
        server: &UpstreamServer,
        head: &Parts,
        response: &Result<Response<Incoming>, ProxyError>,
        duration: Duration,
    ) {
        let outcome = response
            .as_ref()
            .map(Response::status)
            .map_err(ProxyError::kind);
        let exchange = Exchange {
            server: server.authority.clone(),
            outcome,
            duration,
        };
        if let Some(observer) = &self.observer {
            observer.observe(ProxyEvent::Exchange {
                route: target.name,
                exchange: &exchange,
            });
        }
        if let Some(last) = head.extensions.get::<LastExchange>() {
            last.set(exchange);
        }
    }

    /// Sends the request to one server.
    async fn send(
        &self,
        target: &Target<'_>,
        server: &UpstreamServer,
        admission: ServerAdmission<'_>,
        head: &Parts,
        body: &RequestBody,
    ) -> Result<Response<Incoming>, ProxyError> {
        let Some(path) = server.path(&target.path) else {
            return Err(ProxyErrorKind::Unsupported.into());
        };
        let upgrade = headers::requested_upgrade(head.version, &head.headers).is_some();
        let interim = head
            .extensions
            .get()
            .and_then(|client: &ForwardedClient| client.interim.as_ref());
        let outgoing = |version| {
            let body = body
                .is_whole()
                .then(|| body.lend(version == Version::HTTP_2))?;
            let mut headers = self
                .forwarding
                .request(head, server, self.name, target.prefix);
            target.route.request.apply(&mut headers);
            let mut request =
                outgoing::request(version, head.method.clone(), (server, &path), headers, body)?;
            if let Some(interim) = interim.cloned() {
                let rules = target.route.response.clone();
                hyper::ext::on_informational(&mut request, move |response| {
                    interim.send(response.status(), response.headers(), &rules);
                });
            }
            Some(request)
        };
        let too_slow = body.wait_for_stall(self.timeouts_of(target).answer);
        let client = target.route.client.as_ref().unwrap_or(&self.client);
        let result = tokio::select! {
            result = client.send(server, upgrade, body, outgoing) => result,
            () = too_slow => {
                admission.record(RequestOutcome::Hung);
                return Err(ProxyErrorKind::Timeout.into());
            }
        };
        if let Some(outcome) = outcome(&result) {
            admission.record(outcome);
        }
        let mut response = result.map_err(|error| ProxyError::new(kind(&error), error))?;
        framing::check(response.headers_mut())
            .map_err(|error| ProxyError::new(ProxyErrorKind::Broken, error))?;
        Ok(response)
    }

    /// Turns an upstream's response into the one for the client.
    fn respond(
        &self,
        target: &Target<'_>,
        forwarded: &ForwardedRequest<'_>,
        mut response: Response<Incoming>,
        client: Option<UpgradeRequest>,
        slot: RequestSlot,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if upgraded {
            let unrequested = || {
                ProxyError::new(
                    ProxyErrorKind::Broken,
                    "the upstream switched to a protocol that was not requested",
                )
            };
            let client = client
                .filter(|client| client.accepts(response.headers()))
                .ok_or_else(unrequested)?;
            let upstream = hyper::upgrade::on(&mut response);
            tokio::spawn(client.tunnel(upstream));
        }
        if upgraded || response.status() == StatusCode::NO_CONTENT {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        // Each connection sets its own version.
        let version = std::mem::replace(response.version_mut(), Version::HTTP_11);
        headers::response(response.headers_mut(), version, upgraded);
        forwarded.publish(response.headers_mut());
        target.route.response.apply(response.headers_mut());
        let pause = self.timeouts_of(target).answer;
        Ok(response.map(|body| ProxyBody::new(body, pause, slot)))
    }
}

/// Returns the kind of an error of the HTTP client.
fn kind(error: &SendError) -> ProxyErrorKind {
    match error {
        SendError::Connect(_) | SendError::Consumed => ProxyErrorKind::Unreachable,
        SendError::Exchange(error) if client::is_unprocessed(error) => ProxyErrorKind::Unreachable,
        SendError::Exchange(error)
            if client::causes(error).any(<dyn Error>::is::<InterruptedBody>) =>
        {
            ProxyErrorKind::Interrupted
        }
        SendError::Exchange(_) => ProxyErrorKind::Broken,
    }
}

/// Returns the result of a request for the server's breaker. `None` if it says nothing about the server: the client
/// left, or the server ended the connection properly.
fn outcome(result: &Result<Response<Incoming>, SendError>) -> Option<RequestOutcome> {
    match result {
        Ok(response) => Some(if is_faulty(response.status()) {
            RequestOutcome::Faulty
        } else {
            RequestOutcome::Answered
        }),
        Err(SendError::Connect(error)) if client::is_timeout(error.as_ref()) => {
            Some(RequestOutcome::ConnectTimeout)
        }
        Err(SendError::Connect(_)) => Some(RequestOutcome::Unreachable),
        Err(error) => (kind(error) == ProxyErrorKind::Broken).then_some(RequestOutcome::Faulty),
    }
}

/// Returns the client of a request, and what it asks for.
fn requester(head: &Parts) -> Requester {
    let client = head
        .extensions
        .get::<ForwardedClient>()
        .map(|client| network(client.address.ip()));
    Requester {
        client,
        path: BuildHasherDefault::<DefaultHasher>::default().hash_one(head.uri.path()),
    }
}
