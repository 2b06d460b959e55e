//! The activity of a connection: counted by its stream and its requests, read by its watchdog.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use crate::slots::{ConnectedPeer, ConnectionSlot, RequestSlots};

/// Counters of one connection. They guide timeouts only, so relaxed loads and stores are enough.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    /// The connected client.
    pub(crate) client: ConnectedClient,
    opened: Instant,
    /// Requests in progress, including responses still being sent. [`EVICTED`] is set if no other may begin.
    in_flight: AtomicU32,
    /// Number of request starts and ends.
    transitions: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    /// `true` while the stream accepts no more bytes until the client reads.
    blocked: AtomicBool,
    /// End of the last request, in microseconds since the connection was opened.
    idle_since: AtomicU64,
}

/// The client of a connection.
#[derive(Debug)]
pub(crate) struct ConnectedClient {
    /// Remote address.
    pub(crate) address: SocketAddr,
    /// `true` if the connection uses TLS.
    pub(crate) is_secure: bool,
    /// All connections of the client.
    pub(crate) peer: Arc<ConnectedPeer>,
    /// The server's request slots.
    pub(crate) requests: Arc<RequestSlots>,
    /// The server's phase.
    pub(crate) phase: Receiver<ServerPhase>,
}

/// A server's phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerPhase {
    /// The server accepts connections, and keeps them alive.
    Serving,
    /// The server will stop. Each response closes its connection, so no client has one open when the server does.
    Draining,
    /// The server has closed its ports. Requests in progress end.
    Stopping,
}

/// The counters of a [`ConnectionActivity`] at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ActivitySnapshot {
    pub(crate) in_flight: u32,
    pub(crate) transitions: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) blocked: bool,
}

/// Marks a connection that is closed for another one. It is part of the number of requests in progress, so a connection
/// is either evicted or begins a request, but not both.
const EVICTED: u32 = 1 << 31;

/// A request in progress, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<ConnectionActivity>);

impl ConnectionActivity {
    /// Tracks a new connection of this client.
    pub(crate) fn new(client: ConnectedClient) -> Self {
        Self {
            client,
            opened: Instant::now(),
            in_flight: AtomicU32::new(0),
            transitions: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            idle_since: AtomicU64::new(0),
        }
    }

    /// Records the start of a request. Returns `None` if the connection is evicted.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<InFlight> {
        self.client.requests.begin(&self.client.peer);
        let before = self.in_flight.fetch_add(1, Relaxed);
        self.transitions.fetch_add(1, Relaxed);
        let request = InFlight(Arc::clone(self));
        (before & EVICTED == 0).then_some(request)
    }

    /// Evicts the connection unless a request is in progress: none begins from now on. Returns `true` if it is evicted.
    pub(crate) fn evict(&self) -> bool {
        self.in_flight
            .compare_exchange(0, EVICTED, Relaxed, Relaxed)
            .is_ok()
    }

    /// Returns the current counters.
    pub(crate) fn snapshot(&self) -> ActivitySnapshot {
        ActivitySnapshot {
            in_flight: self.in_flight.load(Relaxed) & !EVICTED,
            transitions: self.transitions.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
            blocked: self.blocked.load(Relaxed),
        }
    }

    /// Returns when the last request ended, or when the connection was opened. Returns `None` while a request is in
    /// progress, the end of its response is still being sent, or the connection is evicted.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let is_busy = self.in_flight.load(Relaxed) > 0 || self.blocked.load(Relaxed);
        let since_opened = Duration::from_micros(self.idle_since.load(Relaxed));
        (!is_busy).then(|| self.opened + since_opened)
    }

    /// Counts bytes read from the stream.
    pub(super) fn read(&self, count: usize) {
        add(&self.bytes_read, count);
    }

    /// Records the result of a write to the stream.
    pub(super) fn wrote(&self, written: &Poll<io::Result<usize>>) {
        self.set_blocked(written.is_pending());
        if let Poll::Ready(Ok(count)) = written {
            add(&self.bytes_written, *count);
        }
    }

    /// Records if the stream was blocked on a write.
    pub(super) fn set_blocked(&self, is_blocked: bool) {
        if self.blocked.load(Relaxed) != is_blocked {
            self.blocked.store(is_blocked, Relaxed);
        }
    }
}

/// Counts bytes of a stream. Only one task at a time has the stream.
fn add(counter: &AtomicU64, bytes: usize) {
    counter.store(counter.load(Relaxed) + bytes as u64, Relaxed);
}

impl InFlight {
    /// Returns `true` if the server stops soon, or has begun to.
    pub(crate) fn is_draining(&self) -> bool {
        *self.0.client.phase.borrow() > ServerPhase::Serving
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let activity = &self.0;
        if activity.in_flight.fetch_sub(1, Relaxed) == 1 {
            let now = activity.opened.elapsed().as_micros();
            activity
                .idle_since
                .store(u64::try_from(now).unwrap_or(u64::MAX), Relaxed);
        }
        activity.transitions.fetch_add(1, Relaxed);
        activity.client.requests.end(&activity.client.peer);
    }
}

pin_project! {
    /// A stream that counts its traffic, and holds the slot of its connection.
    pub(crate) struct CountedStream<T> {
        #[pin]
        stream: T,
        activity: Arc<ConnectionActivity>,
        // Small buffers that are written at once.
        joined: Vec<u8>,
        slot: ConnectionSlot,
    }
}

/// Several buffers of up to this size in total, in bytes, are joined, which costs less than a vectored write.
const JOINED: usize = 4 * 1024;

impl<T> CountedStream<T> {
    /// Counts the traffic of `stream` in `activity`, and holds the `slot` for the lifetime of the stream.
    pub(crate) fn new(stream: T, activity: Arc<ConnectionActivity>, slot: ConnectionSlot) -> Self {
        Self {
            stream,
            activity,
            joined: Vec::new(),
            slot,
        }
    }
}

impl<T: AsyncRead> AsyncRead for CountedStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        let read = this.stream.poll_read(cx, buf);
        this.activity.read(buf.filled().len() - before);
        read
    }
}

impl<T: AsyncWrite> AsyncWrite for CountedStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let written = this.stream.poll_write(cx, buf);
        this.activity.wrote(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let written = match bufs {
            [one] => this.stream.poll_write(cx, one),
            several if several.iter().map(|buf| buf.len()).sum::<usize>() <= JOINED => {
                this.joined.clear();
                for buf in several {
                    this.joined.extend_from_slice(buf);
                }
                this.stream.poll_write(cx, this.joined)
            }
            several => this.stream.poll_write_vectored(cx, several),
        };
        this.activity.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let flushed = this.stream.poll_flush(cx);
        this.activity.set_blocked(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }
}
