//! One connection, from its acceptance to its end.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Either;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ifmatch_proxy::Client;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch::Receiver;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower_service::Service;
use tracing::debug;

use crate::activity::{Activity, Counted};
use crate::config::Limits;
use crate::gateway::Gateway;
use crate::http2::{self, Goodbye, Pace, Terms};
use crate::interim::Interjections;
use crate::interjecting::Interjecting;
use crate::lobby::{Guest, Lobby, Place};
use crate::request_body::RequestBody;
use crate::response_body::BoxError;
use crate::version::{self, Protocol};
use crate::watch::{Sentence, Watch};

/// Time for a goodbye (GOAWAY, an answer's last bytes) on a connection that is ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// What is needed to serve any connection.
pub(crate) struct Host<S> {
    gateway: Arc<Gateway<S>>,
    http1: http1::Builder,
    http2: h2::server::Builder,
    tls: Option<TlsAcceptor>,
    lobby: Arc<Lobby>,
}

impl<S, B> Host<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    /// Serves connections with `gateway`, over TLS if there is an acceptor.
    pub(crate) fn new(gateway: Arc<Gateway<S>>, tls: Option<TlsAcceptor>, lobby: Arc<Lobby>) -> Self {
        let limits = &gateway.desk.limits;
        Self { http1: http1(limits), http2: http2::within(limits), gateway, tls, lobby }
    }

    /// Serves one connection until it ends, is ended, or `stopping` becomes true and its requests are done.
    ///
    /// Its `place` is released when the stream is dropped, which includes the end of an upgraded connection.
    pub(crate) async fn serve(&self, stream: TcpStream, address: SocketAddr, place: Place, stopping: Receiver<bool>) {
        let client = Client { address, secure: self.tls.is_some(), interim: None };
        let activity = Arc::new(Activity::new(Arc::clone(&place.peer)));
        let guest = self.lobby.welcome(&activity);
        let begun = timeout(self.gateway.desk.limits.head_timeout, self.begin(stream));
        let begun = tokio::select! {
            begun = begun => begun,
            () = stop(stopping.clone()) => return,
            () = guest.dismissed() => return self.count(Sentence::Dismissed),
        };
        let open = Open { activity, guest, stopping };
        match begun {
            Ok(Ok(Begun::Plain(stream, protocol))) => self.converse(stream, client, place, protocol, open).await,
            Ok(Ok(Begun::Tls(stream, protocol))) => self.converse(*stream, client, place, protocol, open).await,
            Ok(Err(error)) => debug!(%error, "a connection ended before its first request"),
            Err(_) => self.count(Sentence::SlowHead),
        }
    }

    /// Shakes hands, and finds out the protocol.
    async fn begin(&self, stream: TcpStream) -> io::Result<Begun> {
        let Some(tls) = &self.tls else {
            let protocol = version::of_plain(&stream).await?;
            return Ok(Begun::Plain(stream, protocol));
        };
        let stream = Box::new(tls.accept(stream).await?);
        let protocol = version::of_alpn(stream.get_ref().1.alpn_protocol());
        Ok(Begun::Tls(stream, protocol))
    }

    async fn converse<T>(&self, stream: T, client: Client, place: Place, protocol: Protocol, open: Open)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = &open.activity;
        let stream = Counted::new(stream, Arc::clone(activity), place);
        let interjects = self.gateway.forwards();
        let answer = |request, interjections| {
            Arc::clone(&self.gateway).answer(activity.begin(), &client, interjections, request)
        };
        let watch = Watch::new(&self.gateway.desk.limits, protocol);
        match protocol {
            Protocol::Http1 => {
                let interjections = interjects.then(Arc::<Interjections>::default);
                let io = TokioIo::new(Interjecting::new(stream, interjections.clone()));
                let service =
                    service_fn(|request: Request<_>| answer(request.map(Either::Left), interjections.clone()));
                let connection = self.http1.serve_connection(io, service).with_upgrades();
                let say_goodbye =
                    |connection: Pin<&mut _>, _| http1::UpgradeableConnection::graceful_shutdown(connection);
                self.follow(connection, say_goodbye, watch, &open).await;
            }
            Protocol::Http2 => {
                let desk = &self.gateway.desk;
                let answer = |request: Request<_>, interjections| answer(request.map(Either::Right), interjections);
                let has_room = || desk.admits(&activity.peer);
                let speed = Pace { timeout: desk.limits.body_timeout, slow_readers: desk.metrics.slow_readers.clone() };
                let conditions = Terms { interjects, pace: speed, admits: has_room, recalls: desk.limits.streams };
                let connection = http2::Connection::new(&self.http2, stream, conditions, answer);
                let say_goodbye =
                    |mut connection: Pin<&mut http2::Connection<_, _, _>>, goodbye| connection.say(goodbye);
                self.follow(connection, say_goodbye, watch, &open).await;
            }
        }
    }

    /// Lets a connection run, and ends it when its time has come, after a goodbye.
    async fn follow<C: Future<Output = Result<(), E>>, E: Display>(
        &self,
        connection: C,
        say: impl Fn(Pin<&mut C>, Goodbye),
        mut watch: Watch,
        open: &Open,
    ) {
        let mut connection = std::pin::pin!(connection);
        let mut tick = std::pin::pin!(in_line(sleep(watch.tick()), Sleep::is_elapsed));
        let mut stop = std::pin::pin!(stop(open.stopping.clone()));
        let mut dismissed = std::pin::pin!(open.guest.dismissed());
        let (mut told_to_stop, mut told_to_leave) = (false, false);
        let sentence = loop {
            tokio::select! {
                biased;
                end = connection.as_mut() => {
                    if let Err(error) = end {
                        debug!(%error, "a connection ended early");
                    }
                    return;
                }
                () = tick.as_mut() => match watch.look(open.activity.moment()) {
                    Sentence::Fine => tick.set(in_line(sleep(watch.tick()), Sleep::is_elapsed)),
                    sentence => break sentence,
                },
                () = stop.as_mut(), if !told_to_stop => {
                    say(connection.as_mut(), Goodbye::Finish);
                    told_to_stop = true;
                }
                () = dismissed.as_mut(), if !told_to_leave => {
                    if open.activity.idle().is_some() {
                        break Sentence::Dismissed;
                    }
                    // A request has arrived meanwhile: it is the last one.
                    say(connection.as_mut(), Goodbye::Finish);
                    told_to_leave = true;
                }
            }
        };
        self.count(sentence);
        match sentence {
            Sentence::SlowReader => {}
            Sentence::Dismissed => {
                say(connection.as_mut(), Goodbye::Leave);
                // Another client waits for the place: send only what can be sent immediately.
                poll_fn(|cx| {
                    let _ = connection.as_mut().poll(cx);
                    Poll::Ready(())
                })
                .await;
            }
            Sentence::Fine | Sentence::SlowHead | Sentence::Idle => {
                say(connection.as_mut(), Goodbye::Finish);
                // The connection ends here even if the shutdown fails.
                drop(timeout(FAREWELL, connection).await);
            }
        }
    }

    fn count(&self, sentence: Sentence) {
        let metrics = &self.gateway.desk.metrics;
        match sentence {
            Sentence::SlowHead => metrics.slow_heads.increment(1),
            Sentence::SlowReader => metrics.slow_readers.increment(1),
            Sentence::Fine | Sentence::Idle | Sentence::Dismissed => {}
        }
        debug!(?sentence, "a connection was ended");
    }
}

/// State that accompanies an open connection.
struct Open {
    activity: Arc<Activity>,
    guest: Guest,
    stopping: Receiver<bool>,
}

/// A connection that is ready for its first request.
enum Begun {
    Plain(TcpStream, Protocol),
    Tls(Box<TlsStream<TcpStream>>, Protocol),
}

/// Waits until the server stops; a server that is gone has stopped.
async fn stop(mut stopping: Receiver<bool>) {
    let sent = stopping.clone();
    let stops = stopping.wait_for(|stopping| *stopping);
    drop(in_line(stops, |_| !matches!(sent.has_changed(), Ok(false))).await);
}

/// Waits for what is polled at each step of a connection. It waits in line once, to be woken; as long as it cannot be over, it
/// was not.
async fn in_line<F: Future>(awaited: F, may_be_over: impl Fn(&F) -> bool) -> F::Output {
    let mut awaited = std::pin::pin!(awaited);
    let mut in_line = false;
    poll_fn(|cx| {
        if mem::replace(&mut in_line, true) && !may_be_over(&awaited) {
            return Poll::Pending;
        }
        awaited.as_mut().poll(cx)
    })
    .await
}

/// HTTP/1 within `limits`. The timeouts are the watch's: hyper's own would cost a timer for each request.
fn http1(limits: &Limits) -> http1::Builder {
    let mut http1 = http1::Builder::new();
    http1.timer(TokioTimer::new()).header_read_timeout(None).max_header_size(limits.header_size);
    // A client that has said all it has to say, and closes its side, still waits for the answer.
    http1.half_close(true);
    http1
}
