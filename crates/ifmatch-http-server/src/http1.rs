//! HTTP/1 by hyper, with interim responses: a stream that sends them before the final response.
//!
//! hyper can't send 102 or 103, but it flushes the stream whenever it has nothing more to write. As long as a request
//! has no response, an interim response can be written at each flush.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioTimer;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::interim::InterimQueue;
use crate::limits::{MAX_FIELDS, ServerLimits};

/// Maximum number of bytes of a response that wait for a slow client, in addition to the last chunk.
const BUFFER: usize = 64 * 1024;

/// Returns the settings for connections within `limits`. The watchdog enforces the timeouts: hyper's own timeouts cost
/// a timer per request.
pub(crate) fn builder(limits: &ServerLimits) -> Builder {
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_header_size(limits.header_size);
    builder.max_headers(MAX_FIELDS);
    builder.max_buf_size(limits.header_size.max(BUFFER));
    // A client may shut down its side after the request, and still read the response.
    builder.half_close(true);
    builder
}

pin_project! {
    /// A stream that sends waiting interim responses whenever it is flushed.
    pub(crate) struct InterimStream<T> {
        #[pin]
        stream: T,
        queue: Option<Arc<InterimQueue>>,
        // The bytes being written.
        message: Vec<u8>,
        // Number of bytes already written.
        position: usize,
    }
}

impl<T> InterimStream<T> {
    /// Sends the messages of `queue` on `stream`.
    pub(crate) fn new(stream: T, queue: Option<Arc<InterimQueue>>) -> Self {
        Self {
            stream,
            queue,
            message: Vec::new(),
            position: 0,
        }
    }
}

impl<T: AsyncWrite> InterimStream<T> {
    /// Writes the waiting messages completely.
    fn poll_send(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut this = self.project();
        if this.message.is_empty() {
            let messages = this
                .queue
                .as_ref()
                .map(|queue| queue.take(cx))
                .unwrap_or_default();
            *this.message = messages.iter().fold(Vec::new(), encode);
            if this.message.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
        while *this.position < this.message.len() {
            match ready!(
                this.stream
                    .as_mut()
                    .poll_write(cx, &this.message[*this.position..])
            )? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => *this.position += count,
            }
        }
        this.message.clear();
        *this.position = 0;
        if let Some(queue) = this.queue {
            queue.notify_sent();
        }
        Poll::Ready(Ok(()))
    }
}

/// Appends a message to others.
fn encode(mut message: Vec<u8>, response: &Response<()>) -> Vec<u8> {
    let status = response.status();
    for part in [
        "HTTP/1.1 ",
        status.as_str(),
        " ",
        status.canonical_reason().unwrap_or_default(),
        "\r\n",
    ] {
        message.extend_from_slice(part.as_bytes());
    }
    for (name, value) in response.headers() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            message.extend_from_slice(part);
        }
    }
    message.extend_from_slice(b"\r\n");
    message
}

impl<T: AsyncRead> AsyncRead for InterimStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.project().stream.poll_read(cx, buf)
    }
}

impl<T: AsyncWrite> AsyncWrite for InterimStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        // A message that was started is completed first.
        if !self.message.is_empty() {
            ready!(self.as_mut().poll_send(cx))?;
        }
        self.project().stream.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.message.is_empty() {
            ready!(self.as_mut().poll_send(cx))?;
        }
        self.project().stream.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_send(cx))?;
        self.project().stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http::{HeaderMap, StatusCode};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_message_after_the_final_response_is_dropped() {
        let queue = Arc::new(InterimQueue::default());
        let ended = queue.sender();
        assert!(!queue.end_request());
        ended.send(StatusCode::EARLY_HINTS, HeaderMap::new());
        let (ours, mut theirs) = duplex(1024);
        let mut stream = InterimStream::new(ours, Some(Arc::clone(&queue)));
        queue
            .sender()
            .send(StatusCode::PROCESSING, HeaderMap::new());
        stream.flush().await.unwrap();
        stream.write_all(b"answer").await.unwrap();
        drop(stream);
        let mut sent = String::new();
        theirs.read_to_string(&mut sent).await.unwrap();
        assert_eq!(sent, "HTTP/1.1 102 Processing\r\n\r\nanswer");
    }

    #[tokio::test]
    async fn a_partial_message_is_completed_before_the_response() {
        let queue = Arc::new(InterimQueue::default());
        queue
            .sender()
            .send(StatusCode::EARLY_HINTS, HeaderMap::new());
        let (ours, mut theirs) = duplex(4);
        let mut stream = InterimStream::new(ours, Some(queue));
        let writing = tokio::spawn(async move {
            // The stream accepts four bytes, so the flush stops in the middle.
            let stopped =
                poll_fn(|cx| Poll::Ready(Pin::new(&mut stream).poll_flush(cx).is_pending())).await;
            assert!(stopped);
            stream.write_all(b"answer").await.unwrap();
        });
        tokio::task::yield_now().await;
        let mut sent = String::new();
        theirs.read_to_string(&mut sent).await.unwrap();
        writing.await.unwrap();
        assert_eq!(sent, "HTTP/1.1 103 Early Hints\r\n\r\nanswer");
    }
}
