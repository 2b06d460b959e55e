//! Scripted bodies, frame by frame.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// Queued frames, followed by those sent later. Declares no length.
#[derive(Debug, Default)]
pub(crate) struct TestBody {
    frames: VecDeque<Result<Frame<Bytes>, io::Error>>,
    live: Option<mpsc::UnboundedReceiver<Result<Frame<Bytes>, io::Error>>>,
    waiting: Arc<AtomicUsize>,
    panics: bool,
}

/// Sends frames. Dropping it ends the body.
#[derive(Clone, Debug)]
pub(crate) struct Feed(
    mpsc::UnboundedSender<Result<Frame<Bytes>, io::Error>>,
    Arc<AtomicUsize>,
);

impl TestBody {
    /// Creates a body with its sender.
    pub(crate) fn live() -> (Feed, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let waiting = Arc::<AtomicUsize>::default();
        (
            Feed(sender, Arc::clone(&waiting)),
            Self {
                frames: VecDeque::new(),
                live: Some(receiver),
                waiting,
                panics: false,
            },
        )
    }

    pub(crate) fn and_trailers(mut self, trailers: HeaderMap) -> Self {
        self.frames.push_back(Ok(Frame::trailers(trailers)));
        self
    }

    pub(crate) fn and_panic(mut self) -> Self {
        self.panics = true;
        self
    }

    pub(crate) fn and_break(mut self) -> Self {
        self.frames
            .push_back(Err(io::Error::other("the connection was closed")));
        self
    }
}

impl From<&str> for TestBody {
    fn from(text: &str) -> Self {
        let chunk = Bytes::copy_from_slice(text.as_bytes());
        let frames = if chunk.is_empty() {
            VecDeque::new()
        } else {
            VecDeque::from([Ok(Frame::data(chunk))])
        };
        Self {
            frames,
            live: None,
            waiting: Arc::default(),
            panics: false,
        }
    }
}

impl Feed {
    /// Sends bytes. Returns `false` if the body was dropped.
    pub(crate) fn send(&self, chunk: impl Into<Bytes>) -> bool {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.send(Ok(Frame::data(chunk.into()))).is_ok()
    }

    /// Returns the number of chunks sent but not read.
    pub(crate) fn waiting(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }

    pub(crate) fn fail(&self) {
        let _ = self
            .0
            .send(Err(io::Error::other("the connection was closed")));
    }
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(frame));
        }
        assert!(!self.panics, "the body panics as instructed");
        let Some(live) = &mut self.live else {
            return Poll::Ready(None);
        };
        let frame = std::task::ready!(live.poll_recv(cx));
        if frame.as_ref().is_some_and(Result::is_ok) {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.live.is_none() && !self.panics
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
