//! One connection, from its acceptance to its end.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use activity::{ConnectedClient, ConnectionActivity, CountedStream, InFlight, ServerPhase};
use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONNECTION, EXPECT};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;
use hyper::server::conn::http1 as hyper_http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ifmatch_runtime::Cause;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch::Receiver;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;
use watchdog::{CloseReason, LINGER, Watchdog};

use crate::handler::{AnyBody, AnyError, AnyHandler, RequestContext};
use crate::http1::{self, InterimStream};
use crate::http2::{self, CloseMode, ReadTimeout, StreamOptions};
use crate::interim::InterimQueue;
use crate::limits::{ServerEvent, ServerLimits, ServerObserver};
use crate::request_body::{ReceivedBody, RequestBody};
use crate::slots::{ConnectionSlot, ConnectionSlots, EvictionRegistration, RequestSlots};

pub(crate) mod activity;

mod watchdog;

/// Maximum number of bytes to read of a request without TLS on a port with it.
const LONGEST_REFUSED: u64 = 64 * 1024;
/// Time to send GOAWAY, or the last bytes of a response, on a connection that is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Resources shared by all connections of a server, or of some of its listeners.
#[derive(Clone)]
pub(crate) struct ServerResources {
    /// Limits on clients.
    pub(crate) limits: ServerLimits,
    /// TLS settings, or `None` for plain connections.
    pub(crate) tls: Option<TlsAcceptor>,
    /// Connection slots.
    pub(crate) connections: Arc<ConnectionSlots>,
    /// Request slots.
    pub(crate) requests: Arc<RequestSlots>,
    /// Receiver of events.
    pub(crate) observer: Arc<dyn ServerObserver>,
}

impl ServerResources {
    /// Creates the resources, with all slots free.
    pub(crate) fn new(
        limits: ServerLimits,
        tls: Option<TlsAcceptor>,
        observer: Arc<dyn ServerObserver>,
    ) -> Self {
        let connections = Arc::new(ConnectionSlots::new(
            limits.connections,
            Arc::clone(&observer),
        ));
        let requests = Arc::new(RequestSlots::new(&limits, Arc::clone(&observer)));
        Self {
            limits,
            tls,
            connections,
            requests,
            observer,
        }
    }
}

/// Serves connections with a handler.
pub(crate) struct ConnectionHandler {
    handler: AnyHandler,
    shared: ServerResources,
    http1: hyper_http1::Builder,
    http2: h2::server::Builder,
}

impl ConnectionHandler {
    /// Serves connections with `handler`.
    pub(crate) fn new(handler: AnyHandler, shared: ServerResources) -> Self {
        let limits = &shared.limits;
        Self {
            http1: http1::builder(limits),
            http2: http2::builder(limits),
            handler,
            shared,
        }
    }

    /// Serves one connection until it ends, a timeout expires, or the server stops and its requests are done.
    ///
    /// Its `slot` is released when the stream is dropped, which includes the end of an upgraded connection.
    pub(crate) async fn serve(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        slot: ConnectionSlot,
        phase: Receiver<ServerPhase>,
    ) {
        let client = ConnectedClient {
            address,
            is_secure: self.shared.tls.is_some(),
            peer: Arc::clone(slot.peer()),
            requests: Arc::clone(&self.shared.requests),
            phase: phase.clone(),
        };
        let activity = Arc::new(ConnectionActivity::new(client));
        let registration = self.shared.connections.register(&activity);
        let negotiated = timeout(self.shared.limits.head_timeout, self.negotiate(stream));
        let negotiated = tokio::select! {
            negotiated = negotiated => negotiated,
            () = reached(ServerPhase::Stopping, phase).then(|()| sleep(LINGER)) => return,
            () = registration.evicted() => return self.report(CloseReason::Evicted),
        };
        let state = ConnectionState {
            activity,
            registration,
        };
        match negotiated {
            Ok(Ok(Negotiated::Plain(stream, protocol))) => {
                self.run(stream, slot, protocol, state).await;
            }
            Ok(Ok(Negotiated::Tls(stream, protocol))) => {
                self.run(*stream, slot, protocol, state).await;
            }
            Ok(Err(error)) => debug!(
                error = Cause::of_client(&error),
                "a connection ended before its first request"
            ),
            Err(_) => self.report(CloseReason::SlowHead),
        }
    }

    /// Performs the TLS handshake, and determines the protocol.
    async fn negotiate(&self, stream: TcpStream) -> io::Result<Negotiated> {
        let Some(tls) = &self.shared.tls else {
            let protocol = detect(&stream).await?;
            return Ok(Negotiated::Plain(stream, protocol));
        };
        let mut first = [0];
        // A handshake begins with 22, and a request of HTTP without TLS with a method.
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
            ask_for_tls(stream).await?;
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the client doesn't speak TLS: use https:// in its URL",
            ));
        }
        let stream = Box::new(tls.accept(stream).await?);
        let protocol = from_alpn(stream.get_ref().1.alpn_protocol());
        Ok(Negotiated::Tls(stream, protocol))
    }

    /// Serves the requests of a connection, whose protocol is known.
    async fn run<T>(
        &self,
        stream: T,
        slot: ConnectionSlot,
        protocol: HttpProtocol,
        state: ConnectionState,
    ) where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = &state.activity;
        let stream = CountedStream::new(stream, Arc::clone(activity), slot);
        let sends_interim = self.handler.sends_interim();
        let limits = &self.shared.limits;
        let respond =
            |request, queue| respond(&self.handler, activity, limits.body_timeout, queue, request);
        let watchdog = Watchdog::new(limits, protocol);
        match protocol {
            HttpProtocol::Http1 => {
                let queue = sends_interim.then(Arc::<InterimQueue>::default);
                let io = TokioIo::new(InterimStream::new(stream, queue.clone()));
                let service = service_fn(|request: Request<_>| {
                    let response = respond(
                        request.map(|body| Either::Left(Either::Left(body))),
                        queue.clone(),
                    );
                    async move {
                        let Ok(response) = response.ok_or(Evicted)?.await;
                        Ok::<_, Evicted>(response)
                    }
                });
                let connection = self.http1.serve_connection(io, service).with_upgrades();
                let close = |connection: Pin<&mut _>, close| {
                    // hyper would close an idle connection at once, on which a request may be on its way.
                    if close != CloseMode::Drain {
                        hyper_http1::UpgradeableConnection::graceful_shutdown(connection);
                    }
                };
                self.drive(connection, close, watchdog, &state).await;
            }
            HttpProtocol::Http2 => {
                let respond = |request: Request<_>, queue| {
                    respond(request.map(|body| Either::Left(Either::Right(body))), queue)
                };
                let options = StreamOptions {
                    sends_interim,
                    read_timeout: ReadTimeout::new(
                        limits.body_timeout,
                        Arc::clone(&self.shared.observer),
                    ),
                    admits: || self.shared.requests.admits(&activity.client.peer),
                    max_cancelled: limits.streams,
                };
                let connection = http2::Http2Connection::new(&self.http2, stream, options, respond);
                let close = |mut connection: Pin<&mut http2::Http2Connection<_, _, _>>, close| {
                    connection.close(close);
                };
                self.drive(connection, close, watchdog, &state).await;
            }
        }
    }

    /// Drives a connection to its end, and closes it when the watchdog, the server or an eviction asks for it.
    async fn drive<C: Future<Output = Result<(), E>>, E: Display>(
        &self,
        connection: C,
        close: impl Fn(Pin<&mut C>, CloseMode),
        mut watchdog: Watchdog,
        state: &ConnectionState,
    ) {
        let mut connection = std::pin::pin!(connection);
        let mut tick = std::pin::pin!(poll_once(sleep(watchdog.tick()), Sleep::is_elapsed));
        let phase = || state.activity.client.phase.clone();
        let mut draining = std::pin::pin!(reached(ServerPhase::Draining, phase()));
        let mut stopped = std::pin::pin!(async {
            reached(ServerPhase::Stopping, phase()).await;
            if state.activity.snapshot().transitions == 0 {
                // The first request is most likely on its way.
                sleep(LINGER).await;
            }
        });
        let mut evicted = std::pin::pin!(state.registration.evicted());
        let (mut is_draining, mut is_drained, mut is_stopping) = (false, false, false);
        let reason = loop {
            if is_draining && !is_drained && state.activity.snapshot().transitions > 0 {
                // Not before its first request, or a client that connects again and again would never be served.
                close(connection.as_mut(), CloseMode::Drain);
                is_drained = true;
            }
            tokio::select! {
                biased;
                end = connection.as_mut() => {
                    if let Err(error) = end {
                        debug!(%error, "a connection ended early");
                    }
                    return;
                }
                () = tick.as_mut() => match watchdog.check(state.activity.snapshot()) {
                    None => tick.set(poll_once(sleep(watchdog.tick()), Sleep::is_elapsed)),
                    Some(reason) => break reason,
                },
                () = draining.as_mut(), if !is_draining => is_draining = true,
                () = stopped.as_mut(), if !is_stopping => {
                    close(connection.as_mut(), CloseMode::Graceful);
                    watchdog.stop();
                    is_stopping = true;
                }
                () = evicted.as_mut() => break CloseReason::Evicted,
            }
        };
        self.report(reason);
        match reason {
            CloseReason::SlowReader => {}
            CloseReason::Evicted => {
                close(connection.as_mut(), CloseMode::Immediate);
                // Another client waits for the slot: send only what the stream accepts now.
                poll_fn(|cx| {
                    let _ = connection.as_mut().poll(cx);
                    Poll::Ready(())
                })
                .await;
            }
            CloseReason::SlowHead | CloseReason::Idle => {
                close(connection.as_mut(), CloseMode::Graceful);
                // The connection ends here even if the shutdown fails.
                drop(timeout(CLOSE_TIMEOUT, connection).await);
            }
        }
    }

    /// Reports that a connection is closed.
    fn report(&self, reason: CloseReason) {
        match reason {
            CloseReason::SlowHead => self.shared.observer.observe(ServerEvent::SlowHead),
            CloseReason::SlowReader => self.shared.observer.observe(ServerEvent::SlowReader),
            CloseReason::Idle | CloseReason::Evicted => {}
        }
        debug!(?reason, "closed a connection");
    }
}

/// State that accompanies an open connection.
struct ConnectionState {
    activity: Arc<ConnectionActivity>,
    registration: EvictionRegistration,
}

/// A connection that is ready for its first request.
enum Negotiated {
    Plain(TcpStream, HttpProtocol),
    Tls(Box<TlsStream<TcpStream>>, HttpProtocol),
}

/// The response to a request without TLS, as other servers give it. A client would show the alert of TLS as garbage.
const TLS_REQUIRED: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: 95\r\nconnection: close\r\n\r\n\
    {\"status\":400,\"title\":\"Bad Request\",\"detail\":\"this port expects TLS. Use https:// in the URL\"}\n";

/// Refuses a request without TLS, and closes the connection.
async fn ask_for_tls(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(TLS_REQUIRED).await?;
    stream.shutdown().await?;
    // Bytes that are left unread would reset the connection, and the client could miss the response.
    drop(
        timeout(
            CLOSE_TIMEOUT,
            tokio::io::copy(&mut stream.take(LONGEST_REFUSED), &mut tokio::io::sink()),
        )
        .await,
    );
    Ok(())
}

/// A request arrived on a connection that is evicted. It hasn't been processed.
#[derive(Debug, thiserror::Error)]
#[error("the connection is evicted")]
struct Evicted;

/// Passes a request to the handler, and returns its response once all interim responses have been sent. Returns `None` if the
/// connection is evicted.
fn respond(
    handler: &AnyHandler,
    activity: &Arc<ConnectionActivity>,
    body_timeout: Duration,
    queue: Option<Arc<InterimQueue>>,
    request: Request<ReceivedBody>,
) -> Option<impl Future<Output = Result<Response<InFlightBody>, Infallible>> + Send + use<>> {
    let in_flight = activity.begin()?;
    // HTTP/1.0 has no interim responses (RFC 9110 §15.2).
    let interim = queue
        .as_ref()
        .filter(|_| request.version() > Version::HTTP_10)
        .map(InterimQueue::sender);
    let context = RequestContext::new(Arc::clone(activity), interim);
    let is_http1 = request.version() < Version::HTTP_2;
    let may_omit_body = is_http1 && request.headers().contains_key(EXPECT);
    let request = RequestBody::wrap(request, body_timeout);
    let expected = request.body().progress().filter(|_| may_omit_body);
    let response = handler.handle(request, context);
    Some(async move {
        let mut response = response.await;
        // The client may omit the body, or send it nevertheless. The first bytes of its next request must not count as the body.
        let may_omit_body = expected.is_some_and(|body| !body.asked());
        let is_last = is_http1
            && in_flight.is_draining()
            && response.status() != StatusCode::SWITCHING_PROTOCOLS;
        if may_omit_body || is_last {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(queue) = queue.filter(|queue| queue.end_request()) {
            Box::pin(queue.flushed()).await;
        }
        Ok(response.map(|body| InFlightBody {
            body,
            _in_flight: in_flight,
        }))
    })
}

pin_project! {
    /// The body of a response. Its request is in progress until this is dropped.
    struct InFlightBody {
        #[pin]
        body: AnyBody,
        _in_flight: InFlight,
    }
}

impl Body for InFlightBody {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Waits until the server reaches a phase, or is dropped.
async fn reached(wanted: ServerPhase, mut phase: Receiver<ServerPhase>) {
    let sent = phase.clone();
    let reaches = phase.wait_for(|phase| *phase >= wanted);
    drop(poll_once(reaches, |_| !matches!(sent.has_changed(), Ok(false))).await);
}

/// Polls a future once to register its waker, and again only if it `may_be_ready`. The future is polled at each step of
/// a connection, so a needless poll is expensive.
async fn poll_once<F: Future>(future: F, may_be_ready: impl Fn(&F) -> bool) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut is_registered = false;
    poll_fn(|cx| {
        if mem::replace(&mut is_registered, true) && !may_be_ready(&future) {
            return Poll::Pending;
        }
        future.as_mut().poll(cx)
    })
    .await
}

/// A major version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpProtocol {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Start of the HTTP/2 preface (RFC 9113 §3.4) that no HTTP/1 method shares.
const PREFACE: &[u8] = b"PRI ";

/// Interval at which the rest of a partial preface is awaited.
const PAUSE: Duration = Duration::from_millis(5);

/// Peeks at the first bytes of a plain connection. Waits until there are enough; the caller sets a timeout.
///
/// # Errors
/// Fails if the connection breaks.
async fn detect(stream: &TcpStream) -> io::Result<HttpProtocol> {
    let mut start = [0; PREFACE.len()];
    let mut seen = 0;
    loop {
        let count = stream.peek(&mut start).await?;
        if start[..count] == *PREFACE {
            return Ok(HttpProtocol::Http2);
        }
        // Anything else is HTTP/1, including a partial preface: hyper responds with an error.
        if count == 0 || start[..count] != PREFACE[..count] {
            return Ok(HttpProtocol::Http1);
        }
        if count == seen {
            sleep(PAUSE).await;
        }
        seen = count;
    }
}

/// Returns the protocol that ALPN has selected, or HTTP/1 if it has selected none.
fn from_alpn(selected: Option<&[u8]>) -> HttpProtocol {
    if selected == Some(b"h2") {
        HttpProtocol::Http2
    } else {
        HttpProtocol::Http1
    }
}
