//! Bodies and errors of WASI, as the layer takes them.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use send_wrapper::SendWrapper;
use wasip3::http::types::ErrorCode;

/// A body that arrives from the host or from the guest. A component has one thread, so `Send` asks for nothing.
pub(crate) struct Body<T>(SendWrapper<T>);

impl<T> Body<T> {
    pub(crate) fn new(body: T) -> Self {
        Self(SendWrapper::new(body))
    }
}

impl<T: http_body::Body<Data = Bytes, Error = ErrorCode> + Unpin> http_body::Body for Body<T> {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        Pin::new(&mut *self.0).poll_frame(cx).map_err(Failed)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// The host or the guest has failed.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) ErrorCode);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Failed {}
