//! HTTP/2: a connection whose streams are tasks, each from a request to the end of its answer.
//!
//! Frames, flow control and the bounds on them are the library's ([`h2`]). It is used without hyper in between, which has
//! no way to send 102 or 103.

mod body;
mod cookie;
mod date;
mod recalls;
mod sending;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use body::StreamBody;
pub(crate) use sending::Pace;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::{self, Builder, Handshake, SendResponse};
use h2::{Error, Reason, RecvStream};
use http::{HeaderMap, Method, Request, Response, header};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Limits;
use crate::interim::Interjections;
use crate::response_body::BoxError;
use recalls::Recalls;
use stream::Stream;

/// Bytes that a client may send ahead of what is read: on a stream, and on a connection.
const WINDOW: u32 = 1 << 20;

/// Bytes of a response to buffer before the client reads any.
const SEND_BUFFER: usize = 128 << 10;

/// Returns the settings for connections within `limits`. The library's own limits apply to streams that are reset
/// immediately, and to empty frames.
pub(crate) fn within(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(limits.streams)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(u32::try_from(limits.header_size).unwrap_or(u32::MAX));
    builder
}

/// Whether the client waits with its content until it is told to go on (RFC 9110 §10.1.1).
fn expects_leave(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// A connection that is being served: ends when the client has left, or after a goodbye with the last stream.
pub(crate) struct Connection<T, A, R> {
    state: State<T>,
    goodbye: Option<Goodbye>,
    terms: Terms<R>,
    recalls: Arc<Recalls>,
    answer: A,
}

/// Limits that a client must observe.
pub(crate) struct Terms<R> {
    /// `true` if requests support interim responses.
    pub(crate) interjects: bool,
    /// Minimum rate at which the client must read responses.
    pub(crate) pace: Pace,
    /// Decides if another request may begin.
    pub(crate) admits: R,
    /// Number of requests that may be cancelled, beyond the number of completed responses.
    pub(crate) recalls: u32,
}

/// The way to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goodbye {
    /// Answers the requests that have arrived or are on their way.
    Finish,
    /// Closes immediately: there are no requests, and the client must send any on their way elsewhere.
    Leave,
}

enum State<T> {
    ShakingHands(Handshake<T, Bytes>),
    Serving(server::Connection<T, Bytes>),
}

impl<T, A, R> Connection<T, A, R>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    /// Serves `stream` with `answer` on these terms.
    pub(crate) fn new(builder: &Builder, stream: T, terms: Terms<R>, answer: A) -> Self {
        let state = State::ShakingHands(builder.handshake(stream));
        Self { state, goodbye: None, recalls: Arc::new(Recalls::new(terms.recalls)), terms, answer }
    }

    /// Stops accepting requests and tells the client.
    pub(crate) fn say(&mut self, goodbye: Goodbye) {
        match &mut self.state {
            State::ShakingHands(_) => self.goodbye = Some(goodbye),
            State::Serving(connection) => end(connection, goodbye),
        }
    }

    fn begin<F, B>(&mut self, request: Request<RecvStream>, reply: SendResponse<Bytes>)
    where
        A: FnMut(Request<StreamBody>, Option<Arc<Interjections>>) -> F,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (mut head, stream) = request.into_parts();
        cookie::join(&mut head.headers);
        let is_head = head.method == Method::HEAD;
        let expects = !stream.is_end_stream() && expects_leave(&head.headers);
        let interjections = (self.terms.interjects || expects).then(Arc::<Interjections>::default);
        let waiting = interjections.as_ref().filter(|_| expects).map(Interjections::open);
        let body = StreamBody::new(&head.headers, stream, waiting);
        let answer = (self.answer)(Request::from_parts(head, body), interjections.clone());
        // It ends with the connection: the library tells it then.
        let (pace, recalls) = (self.terms.pace.clone(), Arc::clone(&self.recalls));
        tokio::spawn(Stream::new(answer, is_head, interjections, pace, recalls, reply));
    }
}

fn end<T: AsyncRead + AsyncWrite + Unpin>(connection: &mut server::Connection<T, Bytes>, goodbye: Goodbye) {
    match goodbye {
        Goodbye::Finish => connection.graceful_shutdown(),
        Goodbye::Leave => connection.abrupt_shutdown(Reason::NO_ERROR),
    }
}

impl<T, A, R, F, B> Future for Connection<T, A, R>
where
    T: AsyncRead + AsyncWrite + Unpin,
    R: Fn() -> bool + Unpin,
    A: FnMut(Request<StreamBody>, Option<Arc<Interjections>>) -> F + Unpin,
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            let goodbye = self.goodbye;
            let this = &mut *self;
            match &mut this.state {
                State::ShakingHands(handshake) => {
                    let mut connection = ready!(Pin::new(handshake).poll(cx))?;
                    if let Some(goodbye) = goodbye {
                        end(&mut connection, goodbye);
                    }
                    this.state = State::Serving(connection);
                }
                State::Serving(connection) => {
                    let accepted = ready!(std::pin::pin!(connection.accept()).poll(cx));
                    let Some((request, mut reply)) = accepted.transpose()? else { return Poll::Ready(Ok(())) };
                    if this.recalls.are_too_many() {
                        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    } else if (this.terms.admits)() {
                        this.begin(request, reply);
                    } else {
                        reply.send_reset(Reason::REFUSED_STREAM);
                    }
                }
            }
        }
    }
}
