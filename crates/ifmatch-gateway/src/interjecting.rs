//! Interim responses on HTTP/1.1: a stream that can say something before the answer.
//!
//! The library that serves connections has no way to send 102 or 103. But it flushes the stream whenever it has written
//! all it had to say: as long as a request has no answer, that is where an interim response goes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::interim::Interjections;

pin_project! {
    /// A stream that says what is to be said whenever it is flushed.
    pub(crate) struct Interjecting<T> {
        #[pin]
        stream: T,
        interjections: Option<Arc<Interjections>>,
        // What is being said.
        message: Vec<u8>,
        // How much of it was said.
        position: usize,
    }
}

impl<T> Interjecting<T> {
    /// Lets `interjections` be said on `stream`, if there can be any.
    pub(crate) fn new(stream: T, interjections: Option<Arc<Interjections>>) -> Self {
        Self { stream, interjections, message: Vec::new(), position: 0 }
    }
}

impl<T: AsyncWrite> Interjecting<T> {
    /// Says what waits, to its end.
    fn poll_say(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut this = self.project();
        if this.message.is_empty() {
            let messages = this.interjections.as_ref().map(|waiting| waiting.take(cx)).unwrap_or_default();
            *this.message = messages.iter().fold(Vec::new(), encode);
            if this.message.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
        while *this.position < this.message.len() {
            match ready!(this.stream.as_mut().poll_write(cx, &this.message[*this.position..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => *this.position += count,
            }
        }
        this.message.clear();
        *this.position = 0;
        if let Some(interjections) = this.interjections {
            interjections.said();
        }
        Poll::Ready(Ok(()))
    }
}

/// Writes a message at the end of others.
fn encode(mut message: Vec<u8>, response: &Response<()>) -> Vec<u8> {
    let status = response.status();
    for part in ["HTTP/1.1 ", status.as_str(), " ", status.canonical_reason().unwrap_or_default(), "\r\n"] {
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

impl<T: AsyncRead> AsyncRead for Interjecting<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_read(cx, buf)
    }
}

impl<T: AsyncWrite> AsyncWrite for Interjecting<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        // A message that was begun is ended first.
        if !self.message.is_empty() {
            ready!(self.as_mut().poll_say(cx))?;
        }
        self.project().stream.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.message.is_empty() {
            ready!(self.as_mut().poll_say(cx))?;
        }
        self.project().stream.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_say(cx))?;
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
    async fn what_comes_after_the_answer_is_not_said() {
        let interjections = Arc::new(Interjections::default());
        let ended = interjections.open();
        assert!(!interjections.end_turn());
        ended.say(StatusCode::EARLY_HINTS, HeaderMap::new());
        let (ours, mut theirs) = duplex(1024);
        let mut stream = Interjecting::new(ours, Some(Arc::clone(&interjections)));
        interjections.open().say(StatusCode::PROCESSING, HeaderMap::new());
        stream.flush().await.unwrap();
        stream.write_all(b"answer").await.unwrap();
        drop(stream);
        let mut said = String::new();
        theirs.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "HTTP/1.1 102 Processing\r\n\r\nanswer");
    }

    #[tokio::test]
    async fn a_message_that_was_begun_is_ended_before_the_answer() {
        let interjections = Arc::new(Interjections::default());
        interjections.open().say(StatusCode::EARLY_HINTS, HeaderMap::new());
        let (ours, mut theirs) = duplex(4);
        let mut stream = Interjecting::new(ours, Some(interjections));
        let writing = tokio::spawn(async move {
            // The stream takes four bytes: the flush stops in the middle.
            let stopped = poll_fn(|cx| Poll::Ready(Pin::new(&mut stream).poll_flush(cx).is_pending())).await;
            assert!(stopped);
            stream.write_all(b"answer").await.unwrap();
        });
        tokio::task::yield_now().await;
        let mut said = String::new();
        theirs.read_to_string(&mut said).await.unwrap();
        writing.await.unwrap();
        assert_eq!(said, "HTTP/1.1 103 Early Hints\r\n\r\nanswer");
    }
}
