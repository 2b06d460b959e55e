//! The open connections to one server.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use tokio::time::{Instant, sleep};

use crate::forward::request_body::LentBody;

/// Maximum time for which an unused HTTP/1.1 connection is kept. Shorter than the timeouts of common servers, some of
/// which use 5 seconds.
const IDLE: Duration = Duration::from_secs(4);

/// Maximum time for which an unused HTTP/2 connection is kept. A server announces the end of a connection, so no
/// request is lost.
const IDLE_HTTP2: Duration = Duration::from_mins(1);

/// Number of cancelled requests after which a connection isn't used for new ones. Servers close a connection, and with it
/// the requests of other clients, after too many: those on Rust's h2 from 20 on, before they have looked at the requests.
const CANCELLED: u32 = 8;

/// A connection for one request at a time.
pub(crate) type Http1 = PooledConnection<http1::SendRequest<LentBody>>;
/// A connection for many requests at a time.
pub(crate) type Http2 = PooledConnection<http2::SendRequest<LentBody>>;

/// A connection, and the address of the server.
pub(crate) struct PooledConnection<S> {
    pub(crate) sender: S,
    /// `None` if the connection doesn't tell.
    pub(crate) peer: Option<IpAddr>,
}

/// The connections to a server that can be used again.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    connections: Arc<Mutex<OpenConnections>>,
    /// `true` if the server has been asked for HTTP/2 and chose HTTP/1.1.
    declines_http2: AtomicBool,
    /// Held while a connection is opened that other requests may share.
    pub(crate) opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct OpenConnections {
    /// Unused connections, with the times of their last use, in this order.
    idle: Vec<(Http1, Instant)>,
    /// The connection over HTTP/2, if any.
    shared: Option<CurrentConnection>,
    /// `true` while a task closes connections that aren't used.
    watched: bool,
}

/// The connection for new requests.
struct CurrentConnection {
    connection: Arc<Http2>,
    used: Instant,
    /// Number of its requests that were cancelled before their response.
    cancelled: u32,
}

impl ConnectionPool {
    /// Takes the unused connection that was used last. Closes those with addresses that aren't `current`.
    pub(crate) fn take(&self, current: impl Fn(IpAddr) -> bool) -> Option<Http1> {
        let mut connections = self.lock();
        connections.expire();
        while let Some((connection, _)) = connections.idle.pop() {
            if connection.sender.is_ready() && connection.peer.is_none_or(&current) {
                return Some(connection);
            }
        }
        None
    }

    /// Returns the shared connection, unless it was closed or its address isn't `current`.
    pub(crate) fn shared(&self, current: impl Fn(IpAddr) -> bool) -> Option<Arc<Http2>> {
        let mut connections = self.lock();
        let shared = connections.shared.as_mut()?;
        if shared.connection.sender.is_closed() || !shared.connection.peer.is_none_or(current) {
            // Requests in progress are completed.
            connections.shared = None;
            return None;
        }
        shared.used = Instant::now();
        Some(Arc::clone(&shared.connection))
    }

    /// Takes back a connection, once it is ready for the next request.
    pub(crate) fn put(&self, mut connection: Http1) {
        let connections = Arc::downgrade(&self.connections);
        tokio::spawn(async move {
            if connection.sender.ready().await.is_ok()
                && let Some(connections) = connections.upgrade()
            {
                lock(&connections).idle.push((connection, Instant::now()));
                watch(&connections);
            }
        });
    }

    /// Sends new requests over this connection.
    pub(crate) fn share(&self, connection: &Arc<Http2>) {
        self.lock().shared = Some(CurrentConnection {
            connection: Arc::clone(connection),
            used: Instant::now(),
            cancelled: 0,
        });
        watch(&self.connections);
    }

    /// Sends no new requests over this connection.
    pub(crate) fn retire(&self, connection: &Arc<Http2>) {
        self.lock()
            .shared
            .take_if(|shared| Arc::ptr_eq(&shared.connection, connection));
    }

    /// Records that a request was cancelled before its response. After [`CANCELLED`], the connection gets no new requests.
    pub(crate) fn cancelled(&self, connection: &Arc<Http2>) {
        self.lock().shared.take_if(|shared| {
            let is_shared = Arc::ptr_eq(&shared.connection, connection);
            shared.cancelled += u32::from(is_shared);
            is_shared && shared.cancelled >= CANCELLED
        });
    }

    /// Records the protocol of a new connection for which HTTP/2 was offered.
    pub(crate) fn negotiated(&self, http2: bool) {
        self.declines_http2.store(!http2, Relaxed);
    }

    /// Returns `true` if the server chose HTTP/1.1 when it was last asked.
    pub(crate) fn declines_http2(&self) -> bool {
        self.declines_http2.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        lock(&self.connections)
    }
}

impl OpenConnections {
    fn expire(&mut self) {
        self.idle
            .retain(|(connection, used)| used.elapsed() < IDLE && !connection.sender.is_closed());
        self.shared.take_if(|shared| {
            shared.used.elapsed() >= IDLE_HTTP2 || shared.connection.sender.is_closed()
        });
    }
}

impl std::fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionPool").finish_non_exhaustive()
    }
}

/// Closes unused connections in time, until none is left.
fn watch(connections: &Arc<Mutex<OpenConnections>>) {
    if std::mem::replace(&mut lock(connections).watched, true) {
        return;
    }
    let connections = Arc::downgrade(connections);
    tokio::spawn(async move { while expire_soon(&connections).await {} });
}

/// Returns `false` if no connection is left.
async fn expire_soon(connections: &Weak<Mutex<OpenConnections>>) -> bool {
    sleep(IDLE / 2).await;
    let Some(connections) = connections.upgrade() else {
        return false;
    };
    let mut connections = lock(&connections);
    connections.expire();
    connections.watched = !connections.idle.is_empty() || connections.shared.is_some();
    connections.watched
}

fn lock(connections: &Mutex<OpenConnections>) -> MutexGuard<'_, OpenConnections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}
