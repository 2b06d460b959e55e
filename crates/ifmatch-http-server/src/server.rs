//! A server: accepts connections, and shuts down gracefully.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use crate::connection::activity::ServerPhase;
use crate::connection::{ConnectionHandler, ServerResources};
use crate::handler::AnyHandler;
use crate::limits::{ServerEvent, ServerLimits, ServerObserver};
use crate::slots::{ConnectionSlot, ConnectionSlots};

/// Pause before the next attempt when the process has run out of file descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of waiting connections that a port accepts before it closes.
const MAX_WAITING: usize = 4096;

/// A server with any number of listeners.
///
/// Dropping it closes the ports, and closes the connections gracefully.
pub struct Server {
    shared: ServerResources,
    /// Slots of listeners with limits of their own.
    others: Vec<Arc<ConnectionSlots>>,
    phase: Sender<ServerPhase>,
    /// A task for each port.
    accepting: JoinSet<()>,
}

/// Listeners, and how they differ from the others of a server.
#[derive(Debug)]
pub struct ServerListeners {
    listeners: Vec<TcpListener>,
    is_plain: bool,
    limits: Option<ServerLimits>,
}

impl From<Vec<TcpListener>> for ServerListeners {
    fn from(listeners: Vec<TcpListener>) -> Self {
        Self {
            listeners,
            is_plain: false,
            limits: None,
        }
    }
}

impl ServerListeners {
    /// Serves without TLS, even if the server has it.
    #[must_use]
    pub fn plain(self) -> Self {
        Self {
            is_plain: true,
            ..self
        }
    }

    /// Sets limits for these listeners alone, so clients of the others can't exhaust them.
    #[must_use]
    pub fn limits(self, limits: ServerLimits) -> Self {
        Self {
            limits: Some(limits),
            ..self
        }
    }
}

impl Server {
    /// Creates a server without listeners.
    pub fn new(limits: ServerLimits, observer: Arc<dyn ServerObserver>) -> Self {
        let shared = ServerResources::new(limits, None, observer);
        Self {
            shared,
            others: Vec::new(),
            phase: Sender::new(ServerPhase::Serving),
            accepting: JoinSet::new(),
        }
    }

    /// Serves over TLS. The protocol is HTTP/2 if ALPN selects `h2`, and HTTP/1 otherwise.
    #[must_use]
    pub fn tls(mut self, acceptor: Option<TlsAcceptor>) -> Self {
        self.shared.tls = acceptor;
        self
    }

    /// Accepts connections and serves them with `handler`. Listeners without [limits of their own](ServerListeners::limits) share those
    /// of the server.
    pub fn serve(&mut self, listening: impl Into<ServerListeners>, handler: impl Into<AnyHandler>) {
        let ServerListeners {
            listeners,
            is_plain,
            limits,
        } = listening.into();
        let tls = self.shared.tls.clone().filter(|_| !is_plain);
        let shared = match limits {
            Some(limits) => ServerResources::new(limits, tls, Arc::clone(&self.shared.observer)),
            None => ServerResources {
                tls,
                ..self.shared.clone()
            },
        };
        if limits.is_some() {
            self.others.push(Arc::clone(&shared.connections));
        }
        let handler = Arc::new(ConnectionHandler::new(handler.into(), shared.clone()));
        for listener in listeners {
            self.accepting.spawn(accept(
                listener,
                Arc::clone(&handler),
                shared.clone(),
                self.phase.subscribe(),
            ));
        }
    }

    /// Prepares a shutdown while the server goes on: each response tells its client to send later requests elsewhere
    /// (`Connection: close`, or GOAWAY on HTTP/2). The shutdown then finds no connection on which a request is on its way.
    pub fn drain(&self) {
        self.phase.send_replace(ServerPhase::Draining);
    }

    /// Closes the ports, and waits up to `grace` until the requests in progress have ended.
    pub async fn shut_down(&mut self, grace: Duration) {
        self.phase.send_replace(ServerPhase::Stopping);
        // The ports close first, so no connection arrives during the wait.
        while self.accepting.join_next().await.is_some() {}
        let all_free = async {
            for connections in self.slots() {
                connections.all_free().await;
            }
        };
        drop(timeout(grace, all_free).await);
    }

    /// Closes the ports without waiting for requests.
    pub async fn close_ports(&mut self) {
        self.accepting.shutdown().await;
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> u32 {
        self.slots().map(|connections| connections.taken()).sum()
    }

    /// Returns the connection slots of all listeners.
    fn slots(&self) -> impl Iterator<Item = &Arc<ConnectionSlots>> {
        std::iter::once(&self.shared.connections).chain(&self.others)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

/// Accepts connections until the server stops, then those that wait, and closes the port. A client whose connection was
/// established has most likely sent its request.
async fn accept(
    listener: TcpListener,
    handler: Arc<ConnectionHandler>,
    shared: ServerResources,
    mut phase: Receiver<ServerPhase>,
) {
    let served = phase.clone();
    let serve = |stream: TcpStream, address: SocketAddr, slot: ConnectionSlot| {
        let (handler, observer, phase) = (
            Arc::clone(&handler),
            Arc::clone(&shared.observer),
            served.clone(),
        );
        tokio::spawn(async move {
            observer.observe(ServerEvent::ConnectionOpened);
            handler.serve(stream, address, slot, phase).await;
            observer.observe(ServerEvent::ConnectionClosed);
        });
    };
    loop {
        let next = async {
            let (stream, address) = listener.accept().await?;
            // Fails only if the client has disconnected, which the first read tells.
            drop(stream.set_nodelay(true));
            let slot = shared.connections.take(address.ip()).await;
            Ok((stream, address, slot))
        };
        let next = tokio::select! {
            next = next => next,
            _ = phase.wait_for(|phase| *phase == ServerPhase::Stopping) => break,
        };
        match next {
            Ok((stream, address, Some(slot))) => serve(stream, address, slot),
            // The client has reached its limit, so the connection is closed.
            Ok((_, _, None)) => {}
            Err(error) => {
                if !is_caused_by_client(&error) {
                    warn!(%error, "cannot accept connections; retrying");
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
    // Not by tokio, which may not know of them yet.
    let Ok(listener) = listener.into_std() else {
        return;
    };
    for _ in 0..MAX_WAITING {
        let (stream, address) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if is_caused_by_client(&error) => continue,
            Err(_) => return,
        };
        let stream = stream
            .set_nonblocking(true)
            .and_then(|()| TcpStream::from_std(stream));
        let slot = shared
            .connections
            .take(address.ip())
            .now_or_never()
            .flatten();
        if let (Ok(stream), Some(slot)) = (stream, slot) {
            serve(stream, address, slot);
        }
    }
}

/// Returns `true` if an error of `accept` means that the client has disconnected, rather than a problem of this machine, which may
/// last.
fn is_caused_by_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, NotConnected};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | NotConnected
    )
}
