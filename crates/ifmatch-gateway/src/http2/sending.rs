//! The content of an answer on its way to the client.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Error, Reason, SendStream};
use http_body::Body;
use pin_project_lite::pin_project;

use crate::response_body::BoxError;

/// The most that is handed over at once, in bytes. What was handed over counts as sent, so it is not all that there is.
const PART: usize = 256 << 10;

pin_project! {
    /// Hands over a body, part by part, as the client takes it. Fails when the client wants no more, or the body is broken:
    /// then the client gets no more.
    pub(super) struct Sending<B> {
        stream: SendStream<Bytes>,
        // A piece that waits for room, and whether it is the last.
        piece: Option<(Bytes, bool)>,
        #[pin]
        body: B,
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Sending<B> {
    /// Sends `body` on `stream`.
    pub(super) fn new(stream: SendStream<Bytes>, body: B) -> Self {
        Self { stream, piece: None, body }
    }

    fn poll_send(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let mut this = self.project();
        loop {
            if let Poll::Ready(reset) = this.stream.poll_reset(cx) {
                return Poll::Ready(Err(reset.map_or_else(BoxError::from, |reason| Error::from(reason).into())));
            }
            if let Some((piece, is_last)) = this.piece {
                // One byte of room is asked for, and only now: room that is given to a stream is taken from others.
                this.stream.reserve_capacity(1);
                if this.stream.capacity() == 0 {
                    ready!(this.stream.poll_capacity(cx)).ok_or("the stream has ended")??;
                    continue;
                }
                let part = piece.split_to(piece.len().min(PART));
                let ends = *is_last && piece.is_empty();
                this.stream.send_data(part, ends)?;
                if ends {
                    return Poll::Ready(Ok(()));
                }
                this.piece.take_if(|(piece, _)| piece.is_empty());
            } else if let Some(frame) = ready!(this.body.as_mut().poll_frame(cx)) {
                match frame.map_err(Into::into)?.into_data() {
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
    type Output = Result<(), BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let sent = ready!(self.as_mut().poll_send(cx));
        if sent.is_err() {
            self.project().stream.send_reset(Reason::INTERNAL_ERROR);
        }
        Poll::Ready(sent)
    }
}
