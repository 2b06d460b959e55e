//! Messages that arrive: requests from the host, and responses from the guest or from a server.
//!
//! Not by wasip3's `http_compat`, whose bodies wait for the end of the stream before they look at the result. A writer that
//! reports an error first and ends the stream when the error was read, as that library's own does, then waits for ever:
//!
//! ```text
//!   writer                                      reader
//!   write "he"  ─────────────── stream ───────▶ read "he"
//!   its source fails                            read: waits for more, or for the end of the stream
//!   write the error ─────────── result ───────▶ not read before the end of the stream
//!   drop the stream: only once the error is read
//! ```

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode, Uri};
use http_body::{Frame, SizeHint};
use wasip3::http::types::{self, ErrorCode, Trailers};
use wasip3::http_compat::RequestOptionsExtension;
use wasip3::wit_bindgen::{FutureReader, FutureWriter, StreamReader, StreamResult};
use wasip3::wit_future;

use crate::failed::FailedRequest;

/// Bytes that are read at once. Guests in JavaScript may pass the bytes of a chunk as arguments of a function, of which there can be
/// 65,535.
const FRAME: usize = 32 * 1024;

/// How a body ended, with its trailers.
pub(crate) type BodyEnd = Result<Option<Trailers>, ErrorCode>;

/// A message of WASI.
pub(crate) trait Message: Send + Unpin + 'static {
    /// Starts to read its body. `handled` tells its writer whether the reader could use it.
    fn open(
        self,
        handled: FutureReader<Result<(), ErrorCode>>,
    ) -> (StreamReader<u8>, FutureReader<BodyEnd>);

    /// Returns the error of a body that hasn't the length that its head states.
    fn other_length(stated: u64) -> ErrorCode;
}

impl Message for types::Request {
    fn open(
        self,
        handled: FutureReader<Result<(), ErrorCode>>,
    ) -> (StreamReader<u8>, FutureReader<BodyEnd>) {
        Self::consume_body(self, handled)
    }

    fn other_length(stated: u64) -> ErrorCode {
        ErrorCode::HttpRequestBodySize(Some(stated))
    }
}

impl Message for types::Response {
    fn open(
        self,
        handled: FutureReader<Result<(), ErrorCode>>,
    ) -> (StreamReader<u8>, FutureReader<BodyEnd>) {
        Self::consume_body(self, handled)
    }

    fn other_length(stated: u64) -> ErrorCode {
        ErrorCode::HttpResponseBodySize(Some(stated))
    }
}

/// Reads the head of a request.
pub(crate) fn request(
    request: types::Request,
) -> Result<http::Request<Incoming<types::Request>>, FailedRequest> {
    let headers = HeaderMap::try_from(request.get_headers()).map_err(FailedRequest)?;
    let mut uri = Uri::builder();
    if let Some(scheme) = request.get_scheme() {
        uri = uri.scheme(scheme);
    }
    if let Some(authority) = request.get_authority() {
        uri = uri.authority(authority);
    }
    if let Some(path) = request.get_path_with_query() {
        uri = uri.path_and_query(path);
    }
    let mut head = http::Request::new(());
    *head.uri_mut() = uri
        .build()
        .map_err(|_| FailedRequest(ErrorCode::HttpRequestUriInvalid))?;
    *head.method_mut() = request
        .get_method()
        .try_into()
        .map_err(|_| FailedRequest(ErrorCode::HttpRequestMethodInvalid))?;
    *head.headers_mut() = headers;
    if let Some(options) = request.get_options() {
        head.extensions_mut()
            .insert(RequestOptionsExtension(options));
    }
    let length = content_length(head.headers());
    Ok(head.map(|()| Incoming::new(request, length)))
}

/// Reads the head of a response.
pub(crate) fn response(
    response: types::Response,
) -> Result<http::Response<Incoming<types::Response>>, FailedRequest> {
    let unusable = |_| FailedRequest(ErrorCode::HttpProtocolError);
    let mut head = http::Response::new(());
    *head.status_mut() = StatusCode::from_u16(response.get_status_code()).map_err(unusable)?;
    *head.headers_mut() = HeaderMap::try_from(response.get_headers()).map_err(FailedRequest)?;
    let has_body = ![StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&head.status());
    let length = content_length(head.headers()).filter(|_| has_body);
    Ok(head.map(|()| Incoming::new(response, length)))
}

/// Returns the path of a request without its query, if it is one.
pub(crate) fn path(request: &types::Request) -> Option<PathAndQuery> {
    request.get_path_with_query()?.parse().ok()
}

/// Returns the length in `Content-Length`, if there is exactly one.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let digits = std::str::from_utf8(line.as_bytes()).ok()?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

/// The body of a message that arrives.
pub(crate) struct Incoming<M> {
    state: IncomingState<M>,
    length: Option<Length>,
}

/// The length that the head states.
#[derive(Clone, Copy)]
struct Length {
    stated: u64,
    left: u64,
}

enum IncomingState<M> {
    /// Nothing was read.
    Untouched(M),
    Open(OpenBody),
    Ended,
}

/// A body that is being read.
struct OpenBody {
    /// The next read, or `None` after the end of the stream.
    reading: Option<Pin<Box<dyn Future<Output = ReadChunk> + Send>>>,
    result: Ending,
    /// Says on drop that the body could be used.
    _handled: FutureWriter<Result<(), ErrorCode>>,
}

/// How a body ends. Its writer tells that once.
enum Ending {
    NotYet(Pin<Box<dyn Future<Output = BodyEnd> + Send>>),
    Trailers(Option<Trailers>),
}

/// The outcome of a read, and what the next one takes.
struct ReadChunk {
    result: StreamResult,
    buffer: Vec<u8>,
    stream: StreamReader<u8>,
}

impl<M: Message> Incoming<M> {
    fn new(message: M, length: Option<u64>) -> Self {
        let length = length.map(|stated| Length {
            stated,
            left: stated,
        });
        Self {
            state: IncomingState::Untouched(message),
            length,
        }
    }

    /// Takes the whole message back, if nothing of its body was read.
    pub(crate) fn take_untouched(&mut self) -> Option<M> {
        match mem::replace(&mut self.state, IncomingState::Ended) {
            IncomingState::Untouched(message) => Some(message),
            state => {
                self.state = state;
                None
            }
        }
    }

    fn open(&mut self) -> Option<&mut OpenBody> {
        if let Some(message) = self.take_untouched() {
            let (handled, reader) = wit_future::new(|| Ok(()));
            let (stream, result) = message.open(reader);
            let reading = Some(read(stream, Vec::new()));
            let result = Ending::NotYet(Box::pin(result.into_future()));
            self.state = IncomingState::Open(OpenBody {
                reading,
                result,
                _handled: handled,
            });
        }
        match &mut self.state {
            IncomingState::Open(open) => Some(open),
            IncomingState::Untouched(_) | IncomingState::Ended => None,
        }
    }

    /// Checks that the body has the stated length, so that a part of it can't pass for the whole.
    fn check(&mut self, frame: Option<&Result<Frame<Bytes>, ErrorCode>>) -> Result<(), ErrorCode> {
        let Some(Length { stated, left }) = &mut self.length else {
            return Ok(());
        };
        let fits = match frame {
            Some(Ok(frame)) if frame.is_data() => {
                let rest = left.checked_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
                *left = rest.unwrap_or_default();
                rest.is_some()
            }
            Some(Err(_)) => true,
            Some(Ok(_)) | None => *left == 0,
        };
        if fits {
            Ok(())
        } else {
            Err(M::other_length(*stated))
        }
    }
}

/// Starts to read the next bytes into a buffer.
fn read(
    mut stream: StreamReader<u8>,
    mut buffer: Vec<u8>,
) -> Pin<Box<dyn Future<Output = ReadChunk> + Send>> {
    Box::pin(async move {
        buffer.reserve(FRAME);
        let (result, buffer) = stream.read(buffer).await;
        ReadChunk {
            result,
            buffer,
            stream,
        }
    })
}

impl OpenBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ErrorCode>>> {
        while let Some(reading) = &mut self.reading {
            let Poll::Ready(ReadChunk {
                result,
                mut buffer,
                stream,
            }) = reading.as_mut().poll(cx)
            else {
                break;
            };
            self.reading = None;
            if matches!(result, StreamResult::Complete(_)) {
                let data = take(&mut buffer);
                self.reading = Some(read(stream, buffer));
                if !data.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
            }
        }
        // While the stream is open, too: see above.
        if let Ending::NotYet(told) = &mut self.result {
            match ready!(told.as_mut().poll(cx)) {
                Ok(trailers) => self.result = Ending::Trailers(trailers),
                Err(code) => return Poll::Ready(Some(Err(code))),
            }
        }
        match &mut self.result {
            Ending::Trailers(trailers) if self.reading.is_none() => {
                let trailers = trailers
                    .take()
                    .map(|trailers| HeaderMap::try_from(trailers).map(Frame::trailers));
                Poll::Ready(trailers)
            }
            _ => Poll::Pending,
        }
    }
}

/// Takes the bytes out of a buffer. Few of them are copied, or else each would keep a whole buffer.
fn take(buffer: &mut Vec<u8>) -> Bytes {
    if buffer.len() > buffer.capacity() / 2 {
        return mem::take(buffer).into();
    }
    let data = Bytes::copy_from_slice(buffer);
    buffer.clear();
    data
}

impl<M: Message> http_body::Body for Incoming<M> {
    type Data = Bytes;
    type Error = FailedRequest;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FailedRequest>>> {
        let Some(open) = self.open() else {
            return Poll::Ready(None);
        };
        let frame = ready!(open.poll_frame(cx));
        let frame = match self.check(frame.as_ref()) {
            Ok(()) => frame,
            Err(code) => Some(Err(code)),
        };
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            self.state = IncomingState::Ended;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(FailedRequest)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, IncomingState::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, |length| {
            SizeHint::with_exact(length.left)
        })
    }
}
