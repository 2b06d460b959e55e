//! Accepting connections, and stopping without cutting anybody short.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;
use tracing::{info, warn};

use crate::config::ServerConfig;
use crate::connection::Host;
use crate::error::Error;
use crate::gateway::{Desk, Gateway};
use crate::lobby::Lobby;
use crate::request_body::RequestBody;
use crate::response_body::BoxError;
use crate::signals::Signals;
use crate::tls;

/// How long to wait when the process has no file descriptor left for a further connection.
const BREATH: Duration = Duration::from_millis(100);

/// How often recorded durations are folded into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);

/// How a server came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All requests in flight were answered.
    Finished,
    /// Some were cut: the grace was over, or a second signal came.
    Cut,
}

/// A server with its listeners.
pub(crate) struct Server {
    desk: Arc<Desk>,
    tls: Option<TlsAcceptor>,
    lobby: Arc<Lobby>,
    stop: Sender<bool>,
    accepting: JoinSet<()>,
    shutdown_delay: Duration,
    shutdown_grace: Duration,
}

impl Server {
    /// A server that listens nowhere yet.
    ///
    /// # Errors
    /// The TLS files are of no use.
    pub(crate) fn new(config: &ServerConfig, desk: Arc<Desk>) -> Result<Self, Error> {
        Ok(Self {
            desk,
            tls: config.tls.as_ref().map(tls::acceptor).transpose()?,
            lobby: Arc::new(Lobby::new(config.limits.connections)),
            stop: Sender::new(false),
            accepting: JoinSet::new(),
            shutdown_delay: config.shutdown_delay,
            shutdown_grace: config.shutdown_grace,
        })
    }

    /// Accepts connections at `listeners` and serves them with `gateway`. All listeners share the connection slots.
    pub(crate) fn open<S, B>(&mut self, listeners: Vec<TcpListener>, gateway: Gateway<S>)
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let host = Arc::new(Host::new(Arc::new(gateway), self.tls.clone(), Arc::clone(&self.lobby)));
        for listener in listeners {
            let (desk, lobby) = (Arc::clone(&self.desk), Arc::clone(&self.lobby));
            self.accepting.spawn(accept(listener, Arc::clone(&host), desk, lobby, self.stop.subscribe()));
        }
    }

    /// Serves until a signal says stop, then lets the requests in flight finish. A second signal ends it at once.
    pub(crate) async fn run(mut self, mut signals: Signals) -> End {
        let upkeep = tokio::spawn(upkeep(Arc::clone(&self.desk)));
        let signal = signals.next().await;
        info!(signal, grace = ?self.shutdown_grace, "stopping: requests in flight may finish, a second signal stops at once");
        self.desk.stop();
        let stopped = async {
            sleep(self.shutdown_delay).await;
            self.stop.send_replace(true);
            // The ports close first: no connection may come while the last ones are waited for.
            while self.accepting.join_next().await.is_some() {}
            drop(timeout(self.shutdown_grace, self.lobby.empty()).await);
        };
        tokio::select! {
            () = stopped => {}
            _ = signals.next() => self.accepting.shutdown().await,
        }
        upkeep.abort();
        match self.lobby.taken() {
            0 => {
                info!("stopped");
                End::Finished
            }
            connections => {
                warn!(connections, "stopped with connections still open");
                End::Cut
            }
        }
    }
}

/// Accepts until `stopping`, then closes the port.
async fn accept<S, B>(
    listener: TcpListener,
    host: Arc<Host<S>>,
    desk: Arc<Desk>,
    lobby: Arc<Lobby>,
    mut stopping: Receiver<bool>,
) where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    loop {
        let next = async {
            let (stream, address) = next(&listener).await?;
            let place = lobby.place(address.ip(), &desk.metrics).await;
            Ok((stream, address, place))
        };
        let next = tokio::select! {
            next = next => next,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        let (stream, address, place) = match next {
            Ok((stream, address, Some(place))) => (stream, address, place),
            // The client has reached its limit, so the connection is closed.
            Ok((_, _, None)) => continue,
            Err(error) => {
                if !concerns_one_client(&error) {
                    warn!(%error, "cannot accept connections, trying again");
                    sleep(BREATH).await;
                }
                continue;
            }
        };
        let (host, desk, stopping) = (Arc::clone(&host), Arc::clone(&desk), stopping.clone());
        tokio::spawn(async move {
            desk.metrics.connections_total.increment(1);
            desk.metrics.connections.increment(1.0);
            host.serve(stream, address, place, stopping).await;
            desk.metrics.connections.decrement(1.0);
        });
    }
}

/// Accepts the next connection.
async fn next(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, address) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, address))
}

/// Whether an error of accepting tells of a client that has left, not of this machine.
fn concerns_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected)
}

async fn upkeep(desk: Arc<Desk>) {
    loop {
        sleep(UPKEEP).await;
        desk.metrics.upkeep();
    }
}
