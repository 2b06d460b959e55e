//! Reading a body in order to hash it: to its end, or until it proves too long, too slow or broken.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use ifmatch_runtime::Clock;

use crate::body::{Content, ResponseBody, Rest, as_bytes};

/// How long a body of unknown length may take. A slow stream is passed on then, as a long one is.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a body may take that said its length: it is no stream, but its source may have stopped.
const PATIENCE_WITH_LENGTH: Duration = Duration::from_secs(10);

/// What came of reading a body.
pub(crate) enum Collected<B: Body> {
    /// All of it.
    Whole(Content),
    /// It is to be passed on, together with what was read of it.
    Passed(ResponseBody<B>),
}

/// Reads a body to its end unless it is longer than `limit` bytes, or a stream that is meant to stay open.
pub(crate) async fn collect<B: Body>(headers: &HeaderMap, body: B, limit: u64, clock: &impl Clock) -> Collected<B> {
    if body.size_hint().lower() > limit || is_live(headers) {
        return Collected::Passed(ResponseBody::inner(body));
    }
    if body.is_end_stream() {
        return Collected::Whole(Content::default());
    }
    let patience = if body.size_hint().exact().is_some() { PATIENCE_WITH_LENGTH } else { PATIENCE };
    let mut reader = Reader { body: Box::pin(body), chunks: VecDeque::new(), left: limit };
    let read = match select(pin!(reader.read()), pin!(clock.sleep(patience))).await {
        Either::Left((read, _)) => read,
        Either::Right(_) => Read::TooMuch,
    };
    match read {
        Read::End(trailers) => Collected::Whole(Content { chunks: reader.chunks, trailers }),
        Read::TooMuch => Collected::Passed(ResponseBody::replay(reader.chunks, Rest::Body(reader.body))),
        Read::Failed(error) => Collected::Passed(ResponseBody::replay(reader.chunks, Rest::Error(Some(error)))),
    }
}

struct Reader<B> {
    body: Pin<Box<B>>,
    chunks: VecDeque<Bytes>,
    left: u64,
}

enum Read<E> {
    End(Option<Box<HeaderMap>>),
    TooMuch,
    Failed(E),
}

impl<B: Body> Reader<B> {
    /// Each frame is kept as soon as it is there, so that nothing is lost where this is given up.
    async fn read(&mut self) -> Read<B::Error> {
        loop {
            let frame = match as_bytes(self.body.frame().await) {
                None => return Read::End(None),
                Some(Err(error)) => return Read::Failed(error),
                Some(Ok(frame)) => frame,
            };
            match frame.into_data().map_err(Frame::into_trailers) {
                Err(trailers) => return Read::End(trailers.ok().map(Box::new)),
                Ok(data) => {
                    let len = data.len() as u64;
                    self.chunks.push_back(data);
                    match self.left.checked_sub(len) {
                        Some(left) => self.left = left,
                        None => return Read::TooMuch,
                    }
                }
            }
        }
    }
}

/// Whether a response of this type is meant to stay open: its reader waits for each event.
fn is_live(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes).to_ascii_lowercase();
    [&b"text/event-stream"[..], b"multipart/x-mixed-replace", b"application/grpc"]
        .iter()
        .any(|live| kind.starts_with(live))
}
