//! HTTP/2: a connection whose streams are tasks, each from a request to the end of its answer.
//!
//! Frames, flow control and the bounds on them are the library's ([`h2`]). It is used without hyper in between, which has
//! no way to send 102 or 103.

mod body;
mod date;
mod sending;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use body::StreamBody;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::{self, Builder, Handshake, SendResponse};
use h2::{Error, RecvStream};
use http::{HeaderMap, Method, Request, Response, header};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Limits;
use crate::interim::Interjections;
use crate::response_body::BoxError;
use stream::Stream;

/// Bytes that a client may send ahead of what is read: on a stream, and on a connection.
const WINDOW: u32 = 1 << 20;

/// How connections are served within `limits`; with the library's own bounds on streams that are reset as soon as they
/// are opened, and on what waits to be sent.
pub(crate) fn within(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.header_size).unwrap_or(u32::MAX));
    builder
}

/// Whether the client waits with its content until it is told to go on (RFC 9110 §10.1.1).
fn expects_leave(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// A connection that is being served: ends when the client has left, or after a goodbye with the last stream.
pub(crate) struct Connection<T, A> {
    state: State<T>,
    says_goodbye: bool,
    interjects: bool,
    answer: A,
}

enum State<T> {
    ShakingHands(Handshake<T, Bytes>),
    Serving(server::Connection<T, Bytes>),
}

impl<T, A> Connection<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    /// Serves `stream` with `answer`, which gets a place for interim responses with each request if it `interjects`.
    pub(crate) fn new(builder: &Builder, stream: T, interjects: bool, answer: A) -> Self {
        Self { state: State::ShakingHands(builder.handshake(stream)), says_goodbye: false, interjects, answer }
    }

    /// Takes no more requests, and says so; those that came are answered.
    pub(crate) fn say_goodbye(&mut self) {
        match &mut self.state {
            State::ShakingHands(_) => self.says_goodbye = true,
            State::Serving(connection) => connection.graceful_shutdown(),
        }
    }

    fn begin<F, B>(&mut self, request: Request<RecvStream>, reply: SendResponse<Bytes>)
    where
        A: FnMut(Request<StreamBody>, Option<Arc<Interjections>>) -> F,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (head, stream) = request.into_parts();
        let is_head = head.method == Method::HEAD;
        let expects = !stream.is_end_stream() && expects_leave(&head.headers);
        let interjections = (self.interjects || expects).then(Arc::<Interjections>::default);
        let waiting = interjections.as_ref().filter(|_| expects).map(Interjections::open);
        let body = StreamBody::new(&head.headers, stream, waiting);
        let answer = (self.answer)(Request::from_parts(head, body), interjections.clone());
        // It ends with the connection: the library tells it then.
        tokio::spawn(Stream::new(answer, is_head, interjections, reply));
    }
}

impl<T, A, F, B> Future for Connection<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: FnMut(Request<StreamBody>, Option<Arc<Interjections>>) -> F + Unpin,
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            let says_goodbye = self.says_goodbye;
            match &mut self.state {
                State::ShakingHands(handshake) => {
                    let mut connection = ready!(Pin::new(handshake).poll(cx))?;
                    if says_goodbye {
                        connection.graceful_shutdown();
                    }
                    self.state = State::Serving(connection);
                }
                State::Serving(connection) => {
                    let accepted = ready!(std::pin::pin!(connection.accept()).poll(cx));
                    let Some((request, reply)) = accepted.transpose()? else { return Poll::Ready(Ok(())) };
                    self.begin(request, reply);
                }
            }
        }
    }
}
