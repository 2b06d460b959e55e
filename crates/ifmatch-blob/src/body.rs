//! The bodies that a blob service sends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::store::StoreError;

/// The body of a response: nothing, some bytes in memory, or a stream.
///
/// ```
/// use http_body::Body;
/// use ifmatch_blob::body::BlobBody;
///
/// assert!(BlobBody::empty().is_end_stream());
/// assert_eq!(BlobBody::from("hello").size_hint().exact(), Some(5));
/// ```
pub struct BlobBody(Kind);

enum Kind {
    Full(Option<Bytes>),
    Stream(UnsyncBoxBody<Bytes, StoreError>),
}

impl BlobBody {
    /// No bytes.
    pub const fn empty() -> Self {
        Self(Kind::Full(None))
    }

    /// Bytes that come one after the other.
    pub fn stream(body: impl Body<Data = Bytes, Error = StoreError> + Send + 'static) -> Self {
        Self(Kind::Stream(body.boxed_unsync()))
    }
}

/// Bytes in memory.
impl<B: Into<Bytes>> From<B> for BlobBody {
    fn from(bytes: B) -> Self {
        let bytes = bytes.into();
        Self(Kind::Full((!bytes.is_empty()).then_some(bytes)))
    }
}

impl fmt::Debug for BlobBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobBody").field("size", &self.size_hint()).finish_non_exhaustive()
    }
}

impl Body for BlobBody {
    type Data = Bytes;
    type Error = StoreError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StoreError>>> {
        match &mut self.0 {
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(bytes) => bytes.is_none(),
            Kind::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Stream(body) => body.size_hint(),
        }
    }
}
