//! What a connection is doing: counted by its stream and its requests, read by its watch.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

/// Counters of one connection. They guide timeouts only, so relaxed loads and stores are enough.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Requests being worked on, answers still being sent included.
    in_flight: AtomicU32,
    /// Those of them whose answer is being sent.
    answering: AtomicU32,
    /// Requests begun and ended: changes with each.
    turns: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// What [`Activity`] was at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) in_flight: u32,
    pub(crate) answering: u32,
    pub(crate) turns: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
}

/// A request in flight; over when dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    activity: Arc<Activity>,
    answering: bool,
}

impl Activity {
    /// Notes that a request has begun.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        self.turns.fetch_add(1, Relaxed);
        InFlight { activity: Arc::clone(self), answering: false }
    }

    /// What it is now.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            in_flight: self.in_flight.load(Relaxed),
            answering: self.answering.load(Relaxed),
            turns: self.turns.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
        }
    }

    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = written {
            add(&self.bytes_written, *count);
        }
    }
}

/// Counts bytes of a stream. Only one task at a time has the stream.
fn add(counter: &AtomicU64, bytes: usize) {
    counter.store(counter.load(Relaxed) + bytes as u64, Relaxed);
}

impl InFlight {
    /// Notes that the head of the answer is there, and its body being sent from now on.
    pub(crate) fn answering(&mut self) {
        self.answering = true;
        self.activity.answering.fetch_add(1, Relaxed);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.activity.in_flight.fetch_sub(1, Relaxed);
        self.activity.answering.fetch_sub(u32::from(self.answering), Relaxed);
        self.activity.turns.fetch_add(1, Relaxed);
    }
}

pin_project! {
    /// A stream that counts its bytes.
    pub(crate) struct Counted<T> {
        #[pin]
        stream: T,
        activity: Arc<Activity>,
        joined: Vec<u8>,
        slot: OwnedSemaphorePermit,
    }
}

/// Up to so many bytes in several pieces are joined before they are written: that takes less than the system takes for
/// several pieces.
const JOINED: usize = 4 * 1024;

impl<T> Counted<T> {
    /// Counts what goes through `stream` in `activity`, and keeps its `slot` as long as it is there.
    pub(crate) fn new(stream: T, activity: Arc<Activity>, slot: OwnedSemaphorePermit) -> Self {
        Self { stream, activity, joined: Vec::new(), slot }
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
        self.project().stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }
}
