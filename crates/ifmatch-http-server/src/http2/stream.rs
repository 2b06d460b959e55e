//! One stream, from its request to the end of its response.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Body;
use ifmatch_core::fields::{self, hop_by_hop};
use pin_project_lite::pin_project;
use tracing::debug;

use super::cancellations::Cancellations;
use super::date;
use super::send_body::{ReadTimeout, SendBody, SendError};
use crate::handler::BoxError;
use crate::interim::InterimQueue;

pin_project! {
    /// Waits for a response and sends it. The work ends when the client resets the stream or disconnects.
    pub(super) struct Stream<F, B> {
        reply: SendResponse<Bytes>,
        is_head: bool,
        queue: Option<Arc<InterimQueue>>,
        read_timeout: ReadTimeout,
        cancellations: Arc<Cancellations>,
        #[pin]
        state: State<F, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, B> {
        Waiting { #[pin] response: F },
        Sending { #[pin] body: SendBody<B> },
    }
}

impl<F, B> Stream<F, B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    /// Sends the messages of `queue`, and then the response.
    pub(super) fn new(
        response: F,
        is_head: bool,
        queue: Option<Arc<InterimQueue>>,
        read_timeout: ReadTimeout,
        cancellations: Arc<Cancellations>,
        reply: SendResponse<Bytes>,
    ) -> Self {
        Self { reply, is_head, queue, read_timeout, cancellations, state: State::Waiting { response } }
    }
}

impl<F, B> Future for Stream<F, B>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            let sending = match this.state.as_mut().project() {
                StateProjection::Waiting { response } => match response.poll(cx) {
                    Poll::Ready(Ok(response)) => send_head(this.reply, response, *this.is_head, this.read_timeout),
                    Poll::Pending => {
                        if let Poll::Ready(reset) = this.reply.poll_reset(cx) {
                            Err(reset.map_or_else(SendError::from, SendError::Cancelled))
                        } else {
                            send_interim(this.reply, this.queue.as_deref(), cx);
                            return Poll::Pending;
                        }
                    }
                },
                StateProjection::Sending { body } => ready!(body.poll(cx)).map(|()| None),
            };
            match sending {
                Ok(Some(body)) => this.state.set(State::Sending { body }),
                Ok(None) => {
                    this.cancellations.completed();
                    return Poll::Ready(());
                }
                Err(error) => {
                    if matches!(error, SendError::Cancelled(_)) {
                        this.cancellations.cancelled();
                    }
                    debug!(%error, "a stream ended early");
                    return Poll::Ready(());
                }
            }
        }
    }
}

/// Sends the waiting interim responses, which a disconnected client misses.
fn send_interim(reply: &mut SendResponse<Bytes>, queue: Option<&InterimQueue>, cx: &Context<'_>) {
    let Some(queue) = queue else { return };
    let messages = queue.take(cx);
    if messages.is_empty() {
        return;
    }
    for message in messages {
        if let Err(error) = reply.send_informational(message) {
            debug!(%error, "an interim response was not sent");
        }
    }
    queue.notify_sent();
}

/// Sends the head of a response. Returns the body that remains to be sent, if any.
fn send_head<B>(
    reply: &mut SendResponse<Bytes>,
    response: Response<B>,
    is_head: bool,
    read_timeout: &ReadTimeout,
) -> Result<Option<SendBody<B>>, SendError>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let (head, body) = response.into_parts();
    let mut head = Response::from_parts(head, ());
    let never_has_content = matches!(head.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let headers = head.headers_mut();
    hop_by_hop::remove(headers);
    if !fields::has(headers, &header::DATE) {
        headers.insert(header::DATE, date::now());
    }
    let is_empty = never_has_content || body.is_end_stream();
    if let Some(length) = body.size_hint().exact().filter(|_| !is_empty) {
        headers.entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    let ends = is_empty || is_head;
    let sent = reply.send_response(head, ends);
    if sent.is_err() {
        reply.send_reset(Reason::INTERNAL_ERROR);
    }
    let stream = sent?;
    Ok((!ends).then(|| SendBody::new(stream, read_timeout.clone(), body)))
}
