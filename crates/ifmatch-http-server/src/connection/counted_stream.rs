//! A stream that counts its traffic.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;
use crate::slots::ConnectionSlot;

pin_project! {
    /// A stream that counts its traffic, and holds the slot of its connection.
    pub(crate) struct CountedStream<T> {
        #[pin]
        stream: T,
        activity: Arc<Activity>,
        joined: Vec<u8>,
        slot: ConnectionSlot,
    }
}

/// Several buffers of up to this size in total are joined, which costs less than a vectored write.
const JOINED: usize = 4 * 1024;

impl<T> CountedStream<T> {
    /// Counts the traffic of `stream` in `activity`, and holds the `slot` for the lifetime of the stream.
    pub(crate) fn new(stream: T, activity: Arc<Activity>, slot: ConnectionSlot) -> Self {
        Self { stream, activity, joined: Vec::new(), slot }
    }
}

impl<T: AsyncRead> AsyncRead for CountedStream<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        let read = this.stream.poll_read(cx, buf);
        this.activity.read(buf.filled().len() - before);
        read
    }
}

impl<T: AsyncWrite> AsyncWrite for CountedStream<T> {
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
        this.activity.set_blocked(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }
}
