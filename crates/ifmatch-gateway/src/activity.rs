//! What a connection is doing: counted by its stream and its requests, read by its watch.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::lobby::Place;
use crate::peer::Peer;

/// Counters of one connection. They guide timeouts only, so relaxed loads and stores are enough.
#[derive(Debug)]
pub(crate) struct Activity {
    /// The connected client.
    pub(crate) peer: Arc<Peer>,
    opened: Instant,
    /// Requests being worked on, answers still being sent included.
    in_flight: AtomicU32,
    /// Requests begun and ended: changes with each.
    turns: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    /// `true` while the stream accepts no more bytes until the client reads.
    blocked: AtomicBool,
    /// End of the last request, in microseconds since the connection was opened.
    rested: AtomicU64,
}

/// What [`Activity`] was at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) in_flight: u32,
    pub(crate) turns: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) blocked: bool,
}

/// A request in flight; over when dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Activity>);

impl Activity {
    /// Tracks a connection that this client has just opened.
    pub(crate) fn new(peer: Arc<Peer>) -> Self {
        Self {
            peer,
            opened: Instant::now(),
            in_flight: AtomicU32::new(0),
            turns: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            rested: AtomicU64::new(0),
        }
    }

    /// Notes that a request has begun.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        self.turns.fetch_add(1, Relaxed);
        InFlight(Arc::clone(self))
    }

    /// What it is now.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            in_flight: self.in_flight.load(Relaxed),
            turns: self.turns.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
            blocked: self.blocked.load(Relaxed),
        }
    }

    /// Returns the time since the last request ended, or since the connection was opened. Returns `None` while a
    /// request is in progress or the end of its response is still being sent.
    pub(crate) fn idle(&self) -> Option<Duration> {
        let is_busy = self.in_flight.load(Relaxed) > 0 || self.blocked.load(Relaxed);
        let rested = Duration::from_micros(self.rested.load(Relaxed));
        (!is_busy).then(|| self.opened.elapsed().saturating_sub(rested))
    }

    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        self.tried(written.is_pending());
        if let Poll::Ready(Ok(count)) = written {
            add(&self.bytes_written, *count);
        }
    }

    /// Records if the stream was blocked on a write.
    fn tried(&self, is_blocked: bool) {
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
    /// The client that sent the request.
    pub(crate) fn peer(&self) -> &Arc<Peer> {
        &self.0.peer
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let activity = &self.0;
        if activity.in_flight.fetch_sub(1, Relaxed) == 1 {
            let rested = activity.opened.elapsed().as_micros();
            activity.rested.store(u64::try_from(rested).unwrap_or(u64::MAX), Relaxed);
        }
        activity.turns.fetch_add(1, Relaxed);
    }
}

pin_project! {
    /// A stream that counts its bytes.
    pub(crate) struct Counted<T> {
        #[pin]
        stream: T,
        activity: Arc<Activity>,
        joined: Vec<u8>,
        place: Place,
    }
}

/// Up to so many bytes in several pieces are joined before they are written: that takes less than the system takes for
/// several pieces.
const JOINED: usize = 4 * 1024;

impl<T> Counted<T> {
    /// Counts the traffic of `stream` in `activity`, and holds its `place` for the lifetime of the stream.
    pub(crate) fn new(stream: T, activity: Arc<Activity>, place: Place) -> Self {
        Self { stream, activity, joined: Vec::new(), place }
    }
}

impl<T: AsyncRead> AsyncRead for Counted<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        let read = this.stream.poll_read(cx, buf);
        add(&this.activity.bytes_read, buf.filled().len() - before);
        read
    }
}

impl<T: AsyncWrite> AsyncWrite for Counted<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
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
        this.activity.tried(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }
}
