//! Interim responses on HTTP/1.1: a stream that can say something before the answer.
//!
//! The library that serves connections has no way to send 102 or 103. But it flushes the stream whenever it has written
//! all it had to say. While a request has no answer yet, that is a moment between two messages: the one before is
//! complete, and the next one has not begun. The answer waits until what came before it has been said.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use ifmatch_proxy::Interim;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::timeout;

/// The most that may wait: an upstream that sends more is not worth it.
const ROOM: usize = 64 * 1024;

/// How long an answer waits for a client that does not take what comes before it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is to be said on a connection before the answer.
#[derive(Debug, Default)]
pub(crate) struct Interjections {
    waiting: Mutex<Waiting>,
    said: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The request that may say something: others have their answer already.
    turn: u64,
    bytes: Vec<u8>,
    /// The connection's task, which has to flush.
    connection: Option<Waker>,
}

/// The leave of one request's upstreams to speak.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    interjections: Arc<Interjections>,
    number: u64,
}

impl Turn {
    /// How an upstream is to use it.
    pub(crate) fn interim(&self) -> Interim {
        let Self { interjections, number } = self.clone();
        Interim::new(move |status, headers| interjections.say(number, status, &headers))
    }
}

impl Interjections {
    /// Lets a request's upstreams speak until [`Interjections::end_turn`].
    pub(crate) fn open(self: &Arc<Self>) -> Turn {
        Turn { number: self.lock().turn, interjections: Arc::clone(self) }
    }

    /// Says this as soon as the stream is between two messages. What comes after its request was answered, from work that
    /// went on, is not said.
    fn say(&self, turn: u64, status: StatusCode, headers: &HeaderMap) {
        let mut waiting = self.lock();
        let message = encode(status, headers);
        if waiting.turn != turn || waiting.bytes.len() + message.len() > ROOM {
            return;
        }
        waiting.bytes.extend(message);
        if let Some(connection) = waiting.connection.take() {
            connection.wake();
        }
    }

    /// Ends the turn of a request; `true` if something is still to be said before its answer.
    pub(crate) fn end_turn(&self) -> bool {
        let mut waiting = self.lock();
        waiting.turn += 1;
        !waiting.bytes.is_empty()
    }

    /// Waits until all has been said. What a client does not take in time is not said at all.
    pub(crate) async fn settle(&self) {
        let all_said = async {
            loop {
                let said = self.said.notified();
                if self.lock().bytes.is_empty() {
                    return;
                }
                said.await;
            }
        };
        if timeout(PATIENCE, all_said).await.is_err() {
            self.lock().bytes.clear();
        }
    }

    fn take(&self, cx: &Context<'_>) -> Vec<u8> {
        let mut waiting = self.lock();
        if !waiting.connection.as_ref().is_some_and(|connection| connection.will_wake(cx.waker())) {
            waiting.connection = Some(cx.waker().clone());
        }
        std::mem::take(&mut waiting.bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn encode(status: StatusCode, headers: &HeaderMap) -> Vec<u8> {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut message = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            message.extend_from_slice(part);
        }
    }
    message.extend_from_slice(b"\r\n");
    message
}

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
            *this.message = this.interjections.as_ref().map(|waiting| waiting.take(cx)).unwrap_or_default();
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
            interjections.said.notify_waiters();
        }
        Poll::Ready(Ok(()))
    }
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

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn what_comes_after_the_answer_is_not_said() {
        let interjections = Arc::new(Interjections::default());
        assert!(!interjections.end_turn());
        interjections.say(0, StatusCode::EARLY_HINTS, &HeaderMap::new());
        let (ours, mut theirs) = duplex(1024);
        let mut stream = Interjecting::new(ours, Some(Arc::clone(&interjections)));
        interjections.say(1, StatusCode::PROCESSING, &HeaderMap::new());
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
        interjections.say(0, StatusCode::EARLY_HINTS, &HeaderMap::new());
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
