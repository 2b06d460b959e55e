//! Events that a server reports, for metrics.

/// An event of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection was accepted.
    ConnectionOpened,
    /// An accepted connection has ended.
    ConnectionClosed,
    /// A new connection was closed immediately because its client has reached its limit.
    ConnectionRefused,
    /// An idle connection was closed to make room for a new one.
    IdleConnectionEvicted,
    /// A request was refused because all slots are taken, or those of its client.
    RequestRefused,
    /// A connection was closed because a request head or a TLS handshake took too long.
    SlowHead,
    /// A response was cut off because the client read it too slowly.
    SlowReader,
}

/// Receives the events of a server, for example to count them. Must not block.
pub trait Observer: Send + Sync + 'static {
    /// Called for each event.
    fn observe(&self, event: Event);
}

impl<F: Fn(Event) + Send + Sync + 'static> Observer for F {
    fn observe(&self, event: Event) {
        self(event);
    }
}
