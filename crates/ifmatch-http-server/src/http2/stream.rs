//! One stream, from its request to the end of its response.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Error, Reason, SendStream};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Body;
use ifmatch_core::date::HttpDate;
use ifmatch_core::fields::{self, hop_by_hop};
use ifmatch_runtime::{Clock, SystemClock};
use pin_project_lite::pin_project;
use tracing::debug;

use crate::handler::BoxError;
use crate::interim::InterimQueue;
use crate::limits::{ServerEvent, ServerObserver};
use crate::progress_timeout::ProgressTimeout;

pin_project! {
    /// Waits for a response and sends it. The work ends when the client resets the stream or disconnects.
    pub(super) struct ResponseStream<F, B> {
        reply: SendResponse<Bytes>,
        is_head: bool,
        queue: Option<Arc<InterimQueue>>,
        read_timeout: ReadTimeout,
        cancellations: Arc<Cancellations>,
        #[pin]
        state: StreamState<F, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    // The two phases of a response.
    enum StreamState<F, B> {
        Waiting { #[pin] response: F },
        Sending { #[pin] body: SendBody<B> },
    }
}

impl<F, B> ResponseStream<F, B>
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
        Self {
            reply,
            is_head,
            queue,
            read_timeout,
            cancellations,
            state: StreamState::Waiting { response },
        }
    }
}

impl<F, B> Future for ResponseStream<F, B>
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
                    Poll::Ready(Ok(response)) => {
                        send_head(this.reply, response, *this.is_head, this.read_timeout)
                    }
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
                Ok(Some(body)) => this.state.set(StreamState::Sending { body }),
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
    let never_has_content = matches!(
        head.status(),
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    let headers = head.headers_mut();
    hop_by_hop::remove(headers);
    if !fields::has(headers, &header::DATE) {
        headers.insert(header::DATE, date());
    }
    let is_empty = never_has_content || body.is_end_stream();
    if let Some(length) = body.size_hint().exact().filter(|_| !is_empty) {
        headers
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(|| HeaderValue::from(length));
    }
    let ends = is_empty || is_head;
    let sent = reply.send_response(head, ends);
    if sent.is_err() {
        reply.send_reset(Reason::INTERNAL_ERROR);
    }
    let stream = sent?;
    Ok((!ends).then(|| SendBody::new(stream, read_timeout.clone(), body)))
}

/// Bytes of capacity that a stream reserves at a time. Streams that share a slow connection take turns after this
/// amount.
const PART: usize = 16 << 10;

/// Minimum rate at which clients must read responses.
#[derive(Clone)]
pub(crate) struct ReadTimeout {
    /// Time for each [`MIN_PROGRESS`](crate::progress_timeout::MIN_PROGRESS) bytes.
    timeout: Duration,
    observer: Arc<dyn ServerObserver>,
}

impl ReadTimeout {
    /// Reports clients that are too slow to `observer`.
    pub(crate) fn new(timeout: Duration, observer: Arc<dyn ServerObserver>) -> Self {
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

/// Reason why a body wasn't sent completely.
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
        Self {
            stream,
            piece: None,
            progress: ProgressTimeout::new(read_timeout.timeout),
            read_timeout,
            body,
        }
    }

    /// Sends the rest of the body, as far as the client reads it.
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
                    this.read_timeout.observer.observe(ServerEvent::SlowReader);
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
                match frame
                    .map_err(|error| SendError::Broken(error.into()))?
                    .into_data()
                {
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
            let reason = if matches!(error, SendError::SlowReader) {
                Reason::CANCEL
            } else {
                Reason::INTERNAL_ERROR
            };
            self.project().stream.send_reset(reason);
        }
        Poll::Ready(sent)
    }
}

/// Counts a connection's cancelled requests. Each completed response offsets one of them.
///
/// The library limits requests cancelled before they are processed (CVE-2023-44487). This limits those cancelled
/// afterwards.
#[derive(Debug)]
pub(super) struct Cancellations {
    count: AtomicU32,
    max: u32,
}

impl Cancellations {
    /// Starts at zero, with a limit of `max`.
    pub(super) fn new(max: u32) -> Self {
        Self {
            count: AtomicU32::new(0),
            max,
        }
    }

    /// Records a cancelled request.
    pub(super) fn cancelled(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    /// Records a completed response.
    pub(super) fn completed(&self) {
        if self.count.load(Relaxed) > 0 {
            // An error means that another response was faster.
            let _ = self
                .count
                .fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
        }
    }

    /// Returns `true` if the client cancels too many requests to be worth serving.
    pub(super) fn exceeded(&self) -> bool {
        self.count.load(Relaxed) > self.max
    }
}

thread_local! {
    /// The last date, with its text, which changes once a second.
    static LAST: RefCell<(HttpDate, HeaderValue)> = RefCell::new(formatted(HttpDate::from_unix(0)));
}

/// Returns the current date, for `Date`.
pub(super) fn date() -> HeaderValue {
    let now = HttpDate::from_unix((SystemClock.wall().micros() / 1_000_000).cast_signed());
    LAST.with_borrow_mut(|last| {
        if last.0 != now {
            *last = formatted(now);
        }
        last.1.clone()
    })
}

fn formatted(date: HttpDate) -> (HttpDate, HeaderValue) {
    (date, date.to_header())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_responses_offset_cancellations() {
        let cancellations = Cancellations::new(2);
        cancellations.completed();
        for _ in 0..100 {
            cancellations.cancelled();
            cancellations.cancelled();
            assert!(!cancellations.exceeded());
            cancellations.completed();
            cancellations.completed();
        }
        (0..3).for_each(|_| cancellations.cancelled());
        assert!(cancellations.exceeded());
        cancellations.completed();
        assert!(!cancellations.exceeded());
    }
}
