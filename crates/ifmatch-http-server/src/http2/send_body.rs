//! Sending of a response body.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Error, Reason, SendStream};
use http_body::Body;
use pin_project_lite::pin_project;

use crate::handler::BoxError;
use crate::observer::{Event, Observer};
use crate::progress_timeout::ProgressTimeout;

/// Bytes of capacity that a stream reserves at a time. Streams that share a slow connection take turns after this
/// amount.
const PART: usize = 16 << 10;

/// Minimum rate at which clients must read responses.
#[derive(Clone)]
pub(crate) struct ReadTimeout {
    /// Time for each [`MIN_PROGRESS`](crate::progress_timeout::MIN_PROGRESS) bytes.
    timeout: Duration,
    observer: Arc<dyn Observer>,
}

impl ReadTimeout {
    /// Reports clients that are too slow to `observer`.
    pub(crate) fn new(timeout: Duration, observer: Arc<dyn Observer>) -> Self {
        Self { timeout, observer }
    }
}

pin_project! {
    /// Sends a body in parts as the client reads it. Fails and resets the stream if the client cancels the request or
    /// is too slow, or if the body fails.
    pub(super) struct SendBody<B> {
        stream: SendStream<Bytes>,
        // A piece that waits for capacity, and `true` if it is the last one.
        piece: Option<(Bytes, bool)>,
        progress: ProgressTimeout,
        read_timeout: ReadTimeout,
        #[pin]
        body: B,
    }
}

/// Reason why a body was not sent completely.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("the client cancelled the request: {0}")]
    Cancelled(Reason),
    #[error("the client reads the response too slowly")]
    SlowReader,
    #[error("the stream has ended")]
    Closed,
    #[error(transparent)]
    Stream(#[from] Error),
    #[error("the response body failed: {0}")]
    Broken(BoxError),
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> SendBody<B> {
    /// Sends `body` on `stream`.
    pub(super) fn new(stream: SendStream<Bytes>, read_timeout: ReadTimeout, body: B) -> Self {
        Self { stream, piece: None, progress: ProgressTimeout::new(read_timeout.timeout), read_timeout, body }
    }

    fn poll_send(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let mut this = self.project();
        loop {
            if let Poll::Ready(reset) = this.stream.poll_reset(cx) {
                return Poll::Ready(Err(reset.map_or_else(SendError::from, SendError::Cancelled)));
            }
            if let Some((piece, is_last)) = this.piece {
                // Not earlier, because capacity reserved for one stream is taken from others.
                this.stream.reserve_capacity(piece.len().min(PART));
                let capacity = this.stream.capacity();
                if capacity == 0 {
                    if let Poll::Ready(capacity) = this.stream.poll_capacity(cx) {
                        capacity.ok_or(SendError::Closed)??;
                        continue;
                    }
                    ready!(this.progress.poll_expired(cx));
                    this.read_timeout.observer.observe(Event::SlowReader);
                    return Poll::Ready(Err(SendError::SlowReader));
                }
                let part = piece.split_to(piece.len().min(capacity));
                this.progress.transferred(part.len() as u64);
                let ends = *is_last && piece.is_empty();
                this.stream.send_data(part, ends)?;
                if ends {
                    return Poll::Ready(Ok(()));
                }
                this.piece.take_if(|(piece, _)| piece.is_empty());
            } else if let Some(frame) = ready!(this.body.as_mut().poll_frame(cx)) {
                match frame.map_err(|error| SendError::Broken(error.into()))?.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => *this.piece = Some((data, this.body.is_end_stream())),
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            return Poll::Ready(Ok(this.stream.send_trailers(trailers)?));
                        }
                    }
                }
            } else {
                return Poll::Ready(Ok(this.stream.send_data(Bytes::new(), true)?));
            }
        }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Future for SendBody<B> {
    type Output = Result<(), SendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let sent = ready!(self.as_mut().poll_send(cx));
        if let Err(error) = &sent {
            let reason = if matches!(error, SendError::SlowReader) { Reason::CANCEL } else { Reason::INTERNAL_ERROR };
            self.project().stream.send_reset(reason);
        }
        Poll::Ready(sent)
    }
}
