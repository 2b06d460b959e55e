//! Limits on clients, in total and per client, and events for each connection and each limit that takes effect.

use std::time::Duration;

use ifmatch_core::share::SlotLimit;

/// Maximum number of header fields of a request, over HTTP/1 and HTTP/2. A `Cookie` in several fields counts as one.
pub(crate) const MAX_FIELDS: usize = 100;

/// Limits on what clients may hold, and for how long.
///
/// A *client* is an IPv4 address or an IPv6 network (/64).
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Maximum size of a request head, in bytes; at least 8 KiB.
    pub header_size: usize,
    /// Limits on connections. Zero slots aren't allowed.
    pub connections: SlotLimit,
    /// Limits on concurrent requests. Zero slots aren't allowed.
    pub requests: SlotLimit,
    /// Maximum number of concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    /// Time to send a request head, or to finish a TLS handshake.
    pub head_timeout: Duration,
    /// Time in which a client must send or read at least 1 KiB of a body.
    pub body_timeout: Duration,
    /// Time that a connection without requests stays open.
    pub keep_alive: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        let thousand = SlotLimit {
            total: 1_000,
            per_client: None,
        };
        Self {
            header_size: 32 << 10,
            connections: thousand,
            requests: thousand,
            streams: 200,
            head_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
        }
    }
}

/// An event of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerEvent {
    /// A connection was accepted.
    ConnectionOpened,
    /// An accepted connection has ended.
    ConnectionClosed,
    /// A new connection was closed immediately because its client has reached its limit.
    ConnectionRefused,
    /// An idle connection was closed to make room for a new one.
    IdleConnectionEvicted,
    /// A request was refused because all slots are taken, or all of its client's.
    RequestRefused,
    /// A connection was closed because a request head or a TLS handshake took too long.
    SlowHead,
    /// A response was cut off because the client read it too slowly.
    SlowReader,
}

/// Receives the events of a server, for example to count them. Must not block.
pub trait ServerObserver: Send + Sync + 'static {
    /// Called for each event.
    fn observe(&self, event: ServerEvent);
}

impl<F: Fn(ServerEvent) + Send + Sync + 'static> ServerObserver for F {
    fn observe(&self, event: ServerEvent) {
        self(event);
    }
}
