//! The content of an answer on its way to the client.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Error, Reason, SendStream};
use http_body::Body;
use metrics::Counter;
use pin_project_lite::pin_project;

use crate::patience::Patience;
use crate::response_body::BoxError;

/// Bytes of capacity that a stream reserves at a time. Streams that share a slow connection take turns after this
/// amount.
const PART: usize = 16 << 10;

/// Minimum rate at which clients must read responses.
#[derive(Clone)]
pub(crate) struct Pace {
    /// Time for each [`LEAST_PROGRESS`](crate::patience::LEAST_PROGRESS) bytes.
    pub(crate) timeout: Duration,
    /// Number of clients that were too slow.
    pub(crate) slow_readers: Counter,
}

pin_project! {
    /// Hands over a body, part by part, as the client takes it. Fails when the client wants no more, or the body is broken:
    /// then the client gets no more.
    pub(super) struct Sending<B> {
        stream: SendStream<Bytes>,
        // A piece that waits for room, and whether it is the last.
        piece: Option<(Bytes, bool)>,
        patience: Patience,
        pace: Pace,
        #[pin]
        body: B,
    }
}

/// Reason why a body was not sent completely.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the client cancelled the request: {0}")]
    TakenBack(Reason),
    #[error("the client reads the response too slowly")]
    NotTaken,
    #[error("the stream has ended")]
    Over,
    #[error(transparent)]
    Stream(#[from] Error),
    #[error("the response body failed: {0}")]
    Broken(BoxError),
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Sending<B> {
    /// Sends `body` on `stream`.
    pub(super) fn new(stream: SendStream<Bytes>, pace: Pace, body: B) -> Self {
        Self { stream, piece: None, patience: Patience::new(pace.timeout), pace, body }
    }

    fn poll_send(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let mut this = self.project();
        loop {
            if let Poll::Ready(reset) = this.stream.poll_reset(cx) {
                return Poll::Ready(Err(reset.map_or_else(Ended::from, Ended::TakenBack)));
            }
            if let Some((piece, is_last)) = this.piece {
                // Not earlier: capacity reserved for one stream is taken from others.
                this.stream.reserve_capacity(piece.len().min(PART));
                let room = this.stream.capacity();
                if room == 0 {
                    if let Poll::Ready(room) = this.stream.poll_capacity(cx) {
                        room.ok_or(Ended::Over)??;
                        continue;
                    }
                    ready!(this.patience.poll_end(cx));
                    this.pace.slow_readers.increment(1);
                    return Poll::Ready(Err(Ended::NotTaken));
                }
                let part = piece.split_to(piece.len().min(room));
                this.patience.moved(part.len() as u64);
                let ends = *is_last && piece.is_empty();
                this.stream.send_data(part, ends)?;
                if ends {
                    return Poll::Ready(Ok(()));
                }
                this.piece.take_if(|(piece, _)| piece.is_empty());
            } else if let Some(frame) = ready!(this.body.as_mut().poll_frame(cx)) {
                match frame.map_err(|error| Ended::Broken(error.into()))?.into_data() {
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

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Future for Sending<B> {
    type Output = Result<(), Ended>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let sent = ready!(self.as_mut().poll_send(cx));
        if let Err(ended) = &sent {
            let reason = if matches!(ended, Ended::NotTaken) { Reason::CANCEL } else { Reason::INTERNAL_ERROR };
            self.project().stream.send_reset(reason);
        }
        Poll::Ready(sent)
    }
}
