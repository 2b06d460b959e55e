//! One stream: a request on its way to its answer.

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

use super::date;
use super::recalls::Recalls;
use super::sending::{Ended, Pace, Sending};
use crate::interim::Interjections;
use crate::response_body::BoxError;

pin_project! {
    /// Waits for a response and sends it. The work ends when the client resets the stream or disconnects.
    pub(super) struct Stream<F, B> {
        reply: SendResponse<Bytes>,
        is_head: bool,
        interjections: Option<Arc<Interjections>>,
        pace: Pace,
        recalls: Arc<Recalls>,
        #[pin]
        state: State<F, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, B> {
        Answering { #[pin] answer: F },
        Sending { #[pin] sending: Sending<B> },
    }
}

impl<F, B> Stream<F, B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    /// Sends what comes of `answer`, and before it what is said in `interjections`.
    pub(super) fn new(
        answer: F,
        is_head: bool,
        interjections: Option<Arc<Interjections>>,
        pace: Pace,
        recalls: Arc<Recalls>,
        reply: SendResponse<Bytes>,
    ) -> Self {
        Self { reply, is_head, interjections, pace, recalls, state: State::Answering { answer } }
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
                StateProjection::Answering { answer } => match answer.poll(cx) {
                    Poll::Ready(Ok(answer)) => begin(this.reply, answer, *this.is_head, this.pace),
                    Poll::Pending => {
                        if let Poll::Ready(reset) = this.reply.poll_reset(cx) {
                            Err(reset.map_or_else(Ended::from, Ended::TakenBack))
                        } else {
                            interject(this.reply, this.interjections.as_deref(), cx);
                            return Poll::Pending;
                        }
                    }
                },
                StateProjection::Sending { sending } => ready!(sending.poll(cx)).map(|()| None),
            };
            match sending {
                Ok(Some(sending)) => this.state.set(State::Sending { sending }),
                Ok(None) => {
                    this.recalls.answered();
                    return Poll::Ready(());
                }
                Err(error) => {
                    if matches!(error, Ended::TakenBack(_)) {
                        this.recalls.taken_back();
                    }
                    debug!(%error, "a stream ended early");
                    return Poll::Ready(());
                }
            }
        }
    }
}

/// Says what is to be said before the answer. A client that has gone does not hear it.
fn interject(reply: &mut SendResponse<Bytes>, interjections: Option<&Interjections>, cx: &Context<'_>) {
    let Some(interjections) = interjections else { return };
    let messages = interjections.take(cx);
    if messages.is_empty() {
        return;
    }
    for message in messages {
        if let Err(error) = reply.send_informational(message) {
            debug!(%error, "an interim response was not sent");
        }
    }
    interjections.said();
}

/// Sends the head of an answer, and says how to go on if it has content.
fn begin<B>(
    reply: &mut SendResponse<Bytes>,
    answer: Response<B>,
    is_head: bool,
    pace: &Pace,
) -> Result<Option<Sending<B>>, Ended>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let (head, body) = answer.into_parts();
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
    Ok((!ends).then(|| Sending::new(stream, pace.clone(), body)))
}
