//! HTTP/2: a connection with a task for each stream.
//!
//! [`h2`] provides frames, flow control and the limits on them. hyper isn't used because it can't send 102 or 103,
//! and because it hides a reset with `NO_ERROR` from the body.

mod request;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use request::StreamBody;
pub(crate) use stream::ReadTimeout;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::{self, Builder, Handshake, SendResponse};
use h2::{Error, Reason, RecvStream};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use crate::handler::BoxError;
use crate::interim::InterimQueue;
use crate::limits::{MAX_FIELDS, ServerLimits};
use stream::{Cancellations, ResponseStream};

/// Number of bytes that a client may send before they are read, per stream and per connection.
const WINDOW: u32 = 1 << 20;

/// Number of bytes of a response to buffer before the client reads any.
const SEND_BUFFER: usize = 128 << 10;

/// Returns the settings for connections within `limits`. The library's own limits apply to streams that are reset
/// immediately, and to empty frames.
pub(crate) fn builder(limits: &ServerLimits) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(limits.streams)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(u32::try_from(limits.header_size).unwrap_or(u32::MAX));
    builder
}

/// Returns `true` if the client waits for `100 Continue` before it sends content (RFC 9110 §10.1.1).
fn expects_continue(headers: &HeaderMap) -> bool {
    headers
        .get(header::EXPECT)
        .is_some_and(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// A connection. Completes when the client disconnects, or after [`Http2Connection::close`] with the last stream.
pub(crate) struct Http2Connection<T, A, R> {
    state: Http2State<T>,
    close: Option<CloseMode>,
    options: StreamOptions<R>,
    cancellations: Arc<Cancellations>,
    respond: A,
}

/// Options for the streams of a connection.
pub(crate) struct StreamOptions<R> {
    /// `true` if requests support interim responses.
    pub(crate) sends_interim: bool,
    /// Minimum rate at which the client must read responses.
    pub(crate) read_timeout: ReadTimeout,
    /// Decides if another request may begin.
    pub(crate) admits: R,
    /// Number of requests that may be cancelled, beyond the number of completed responses.
    pub(crate) max_cancelled: u32,
}

/// A way to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// Tells the client to send later requests elsewhere, and responds to those that it sends nevertheless. On HTTP/1, the next
    /// response does so.
    Drain,
    /// Responds to requests that have arrived or are on their way.
    Graceful,
    /// Closes immediately. The client must send requests that are on their way elsewhere.
    Immediate,
}

/// A connection before and after its handshake.
enum Http2State<T> {
    Handshake(Handshake<T, Bytes>),
    Serving(server::Connection<T, Bytes>),
}

impl<T, A, R> Http2Connection<T, A, R>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    /// Serves requests on `stream` with `respond`, which returns `None` to refuse one.
    pub(crate) fn new(builder: &Builder, stream: T, options: StreamOptions<R>, respond: A) -> Self {
        let state = Http2State::Handshake(builder.handshake(stream));
        let cancellations = Arc::new(Cancellations::new(options.max_cancelled));
        Self {
            state,
            close: None,
            cancellations,
            options,
            respond,
        }
    }

    /// Stops accepting requests, and sends GOAWAY.
    pub(crate) fn close(&mut self, close: CloseMode) {
        match &mut self.state {
            Http2State::Handshake(_) => self.close = Some(close),
            Http2State::Serving(connection) => shut_down(connection, close),
        }
    }

    /// Responds to a request, in a task of its own.
    fn begin<F, B>(&mut self, request: Request<RecvStream>, mut reply: SendResponse<Bytes>)
    where
        A: FnMut(Request<StreamBody>, Option<Arc<InterimQueue>>) -> Option<F>,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (mut head, stream) = request.into_parts();
        request::trim(&mut head.headers);
        request::join_cookies(&mut head.headers);
        if head.headers.len() > MAX_FIELDS {
            return refuse(&mut reply, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        }
        let is_head = head.method == Method::HEAD;
        let expects = !stream.is_end_stream() && expects_continue(&head.headers);
        let queue = (self.options.sends_interim || expects).then(Arc::<InterimQueue>::default);
        let waiting = queue.as_ref().filter(|_| expects).map(InterimQueue::sender);
        let body = StreamBody::new(&head.headers, stream, waiting);
        let Some(response) = (self.respond)(Request::from_parts(head, body), queue.clone()) else {
            return reply.send_reset(Reason::REFUSED_STREAM);
        };
        // The task ends with the connection, which resets the stream.
        let (read_timeout, cancellations) = (
            self.options.read_timeout.clone(),
            Arc::clone(&self.cancellations),
        );
        tokio::spawn(ResponseStream::new(
            response,
            is_head,
            queue,
            read_timeout,
            cancellations,
            reply,
        ));
    }
}

/// Answers a request that the handler doesn't get.
fn refuse(reply: &mut SendResponse<Bytes>, status: StatusCode) {
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(header::DATE, stream::date());
    if let Err(error) = reply.send_response(response, true) {
        debug!(%error, "a refusal was not sent");
    }
}

/// Sends GOAWAY.
fn shut_down<T: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut server::Connection<T, Bytes>,
    close: CloseMode,
) {
    match close {
        CloseMode::Drain | CloseMode::Graceful => connection.graceful_shutdown(),
        CloseMode::Immediate => connection.abrupt_shutdown(Reason::NO_ERROR),
    }
}

impl<T, A, R, F, B> Future for Http2Connection<T, A, R>
where
    T: AsyncRead + AsyncWrite + Unpin,
    R: Fn() -> bool + Unpin,
    A: FnMut(Request<StreamBody>, Option<Arc<InterimQueue>>) -> Option<F> + Unpin,
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            let close = self.close;
            let this = &mut *self;
            match &mut this.state {
                Http2State::Handshake(handshake) => {
                    let mut connection = ready!(Pin::new(handshake).poll(cx))?;
                    if let Some(close) = close {
                        shut_down(&mut connection, close);
                    }
                    this.state = Http2State::Serving(connection);
                }
                Http2State::Serving(connection) => {
                    let accepted = ready!(std::pin::pin!(connection.accept()).poll(cx));
                    let Some((request, mut reply)) = accepted.transpose()? else {
                        return Poll::Ready(Ok(()));
                    };
                    if this.cancellations.exceeded() {
                        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    } else if (this.options.admits)() {
                        this.begin(request, reply);
                    } else {
                        reply.send_reset(Reason::REFUSED_STREAM);
                    }
                }
            }
        }
    }
}
