//! The body of a response, and bodies of any type.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::documents;
use crate::error::{BoxError, StoreError};

/// The body of a response: empty, bytes in memory, or a stream.
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
    Stream(AnyBody<StoreError>),
}

impl BlobBody {
    /// Returns an empty body.
    pub const fn empty() -> Self {
        Self(Kind::Full(None))
    }

    /// Wraps a stream of bytes.
    pub fn stream(body: impl Body<Data = Bytes, Error: Into<StoreError>> + Send + 'static) -> Self {
        Self(Kind::Stream(AnyBody::new(body)))
    }

    /// Returns this body as the response to a document of about its length. Its bytes occupy the document's memory until they are
    /// sent. So it needs none of its own, and can't be refused any more.
    #[must_use]
    pub fn in_place_of(self, document: Bytes) -> Self {
        self.try_map_bytes(|answer| Ok::<_, Infallible>(documents::in_place_of(document, answer)))
            .unwrap_or_else(|never| match never {})
    }

    /// Replaces the bytes in memory. Leaves an empty body and a stream as they are.
    pub(crate) fn try_map_bytes<E>(
        self,
        map: impl FnOnce(Bytes) -> Result<Bytes, E>,
    ) -> Result<Self, E> {
        Ok(match self.0 {
            Kind::Full(Some(bytes)) => Self(Kind::Full(Some(map(bytes)?))),
            other => Self(other),
        })
    }

    /// Returns the argument of [`stream`](Self::stream) if it has this type: see [`AnyBody::downcast`].
    ///
    /// # Errors
    /// Returns the body itself if it has another type, or if it was read from.
    pub fn downcast<B: 'static>(self) -> Result<B, Self> {
        match self.0 {
            Kind::Stream(stream) => stream
                .downcast()
                .map_err(|stream| Self(Kind::Stream(stream))),
            full @ Kind::Full(_) => Err(Self(full)),
        }
    }
}

/// Wraps bytes in memory.
impl<B: Into<Bytes>> From<B> for BlobBody {
    fn from(bytes: B) -> Self {
        let bytes = bytes.into();
        Self(Kind::Full((!bytes.is_empty()).then_some(bytes)))
    }
}

impl fmt::Debug for BlobBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobBody")
            .field("size", &self.size_hint())
            .finish_non_exhaustive()
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
            Kind::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Stream(body) => body.size_hint(),
        }
    }
}

/// A body of any type, which can be recovered until it is first read.
///
/// A platform that can forward a stream without reading it, such as a Cloudflare Worker, recovers its own body at the
/// other end: a request's body in the object store, an object's body in the server.
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use ifmatch_blob::store::Upload;
///
/// let upload = Upload::new(Full::new(Bytes::from("hello")));
/// let whole: Full<Bytes> = upload.downcast().unwrap();
/// # let _ = whole;
/// ```
pub struct AnyBody<E> {
    /// The body before the first read, so not pinned.
    whole: Option<Box<dyn Erased<E>>>,
    /// The body while it is read.
    begun: Option<Pin<Box<dyn Erased<E>>>>,
}

/// The body of a request, with the client's error.
pub type Upload = AnyBody<BoxError>;

/// A body with errors of type `E`.
trait Erased<E>: Any + Send {
    fn frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, E>>>;
    fn has_ended(&self) -> bool;
    fn size(&self) -> SizeHint;
}

impl<E, B> Erased<E> for B
where
    B: Body<Data = Bytes, Error: Into<E>> + Send + 'static,
{
    fn frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        self.poll_frame(context).map_err(Into::into)
    }

    fn has_ended(&self) -> bool {
        self.is_end_stream()
    }

    fn size(&self) -> SizeHint {
        self.size_hint()
    }
}

impl<E: 'static> AnyBody<E> {
    /// Wraps a body.
    pub fn new(body: impl Body<Data = Bytes, Error: Into<E>> + Send + 'static) -> Self {
        Self {
            whole: Some(Box::new(body)),
            begun: None,
        }
    }

    /// Returns the body if it has this type and nothing was read from it.
    ///
    /// # Errors
    /// Returns this body unchanged otherwise.
    pub fn downcast<B: 'static>(mut self) -> Result<B, Self> {
        let Some(whole) = self.whole.take_if(|whole| (&**whole as &dyn Any).is::<B>()) else {
            return Err(self);
        };
        match (whole as Box<dyn Any>).downcast() {
            Ok(body) => Ok(*body),
            // The type was checked above.
            Err(_) => Err(self),
        }
    }

    fn erased(&self) -> Option<&dyn Erased<E>> {
        self.whole.as_deref().or(self.begun.as_deref())
    }
}

impl<E: 'static> Body for AnyBody<E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        if let Some(whole) = self.whole.take() {
            self.begun = Some(Box::into_pin(whole));
        }
        match &mut self.begun {
            Some(body) => body.as_mut().frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.erased().is_none_or(Erased::has_ended)
    }

    fn size_hint(&self) -> SizeHint {
        self.erased().map(Erased::size).unwrap_or_default()
    }
}

impl<E: 'static> fmt::Debug for AnyBody<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyBody")
            .field("size", &self.size_hint())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::{BodyExt, Empty, Full};

    use super::*;

    fn upload() -> Upload {
        Upload::new(Full::<Bytes>::from("hello"))
    }

    #[test]
    fn an_unread_body_can_be_recovered() {
        let Err(upload) = upload().downcast::<Empty<Bytes>>() else {
            panic!("it is not empty")
        };
        assert_eq!(
            (upload.size_hint().exact(), upload.is_end_stream()),
            (Some(5), false)
        );
        let full: Full<Bytes> = upload.downcast().unwrap();
        let collected: Result<_, Infallible> = full.collect().now_or_never().unwrap();
        assert_eq!(collected.unwrap().to_bytes(), "hello");
    }

    #[test]
    fn a_body_that_was_read_cannot_be_recovered() {
        let mut upload = upload();
        assert!(upload.frame().now_or_never().unwrap().unwrap().is_ok());
        let Err(mut upload) = upload.downcast::<Full<Bytes>>() else {
            panic!("a part of it is gone")
        };
        assert!(upload.is_end_stream());
        assert!(upload.frame().now_or_never().unwrap().is_none());
    }

    #[test]
    fn bytes_in_memory_are_not_a_stream() {
        let Err(body) = BlobBody::from("hello").downcast::<Full<Bytes>>() else {
            panic!("it never was one")
        };
        assert_eq!(body.size_hint().exact(), Some(5));
    }
}
