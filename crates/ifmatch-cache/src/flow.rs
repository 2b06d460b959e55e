//! A body on its way from the origin to those who wait for it: one writes, many read, each at its own pace.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use crate::blocks::Blocks;
use crate::budget::Reserved;
use crate::content::Content;

/// How many bytes a body that is not kept may be ahead of its slowest reader.
const WINDOW: u64 = 256 * 1024;

/// The body. While it is kept, all of it stays for readers who come late; once it [grows](Flow::push) too long for that,
/// chunks go as soon as all readers have them.
pub(crate) struct Flow {
    /// The length that the origin promised.
    pub(crate) declared: Option<u64>,
    /// Whether there is room for the body in the store, as far as is known when it begins.
    pub(crate) has_room: bool,
    /// Whether it need not wait for readers while it is kept: it will fit, or go to a file.
    runs_ahead: bool,
    state: Mutex<State>,
}

struct State {
    blocks: Blocks,
    reserved: Reserved,
    kept: bool,
    end: Option<End>,
    readers: Vec<Option<Place>>,
    writer: Option<Waker>,
}

#[derive(Clone)]
enum End {
    Complete(Option<HeaderMap>),
    Broken(Broken),
}

/// Where a reader is.
struct Place {
    next: u64,
    waker: Option<Waker>,
    lost: bool,
}

/// Why a body ended early.
#[derive(Clone, Debug)]
pub(crate) struct Broken(Arc<dyn Error + Send + Sync>);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for Broken {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl From<Box<dyn Error + Send + Sync>> for Broken {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        Self(error.into())
    }
}

impl Flow {
    /// A body for which this memory is reserved. A longer one goes `to_file`, if there are files.
    pub(crate) fn new(declared: Option<u64>, mut reserved: Reserved, to_file: bool) -> Self {
        let fits = match declared {
            Some(declared) => reserved.cover(declared),
            None => reserved.has_room(),
        };
        let has_room = fits || to_file;
        let runs_ahead = to_file || declared.is_some();
        let state =
            State { blocks: Blocks::default(), reserved, kept: true, end: None, readers: Vec::new(), writer: None };
        Self { declared, has_room, runs_ahead, state: Mutex::new(state) }
    }

    /// A reader from the beginning. None: the beginning is gone.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Reader> {
        let mut state = self.lock();
        if state.blocks.start() > 0 || !state.kept && state.end.is_none() {
            return None;
        }
        let place = Place { next: 0, waker: None, lost: false };
        let free = state.readers.iter().position(Option::is_none);
        let at = free.unwrap_or(state.readers.len());
        match state.readers.get_mut(at) {
            Some(slot) => *slot = Some(place),
            None => state.readers.push(Some(place)),
        }
        Some(Reader { flow: Arc::clone(self), at, read: 0, done: false })
    }

    /// Adds bytes. An error: they are more than may be kept, so that nothing is kept from now on; with all that was kept
    /// until then.
    pub(crate) fn push(&self, chunk: Bytes) -> Result<(), VecDeque<Bytes>> {
        let mut state = self.lock();
        let before = state.kept;
        let len = state.blocks.end() + chunk.len() as u64;
        state.kept = before && state.reserved.cover(len);
        state.blocks.push(chunk);
        let overflow = if before && !state.kept { Some(state.blocks.all()) } else { None };
        state.trim();
        state.wake_readers();
        match overflow {
            _ if state.kept => Ok(()),
            overflow => Err(overflow.unwrap_or_default()),
        }
    }

    /// Reserves memory for so many bytes in all. False: there is none.
    pub(crate) fn covers(&self, len: u64) -> bool {
        self.lock().reserved.cover(len)
    }

    /// What is there of the body.
    pub(crate) fn chunks(&self) -> VecDeque<Bytes> {
        self.lock().blocks.all()
    }

    /// The body is complete. Readers go on with what is stored of it, if it is: they need no memory of their own.
    pub(crate) fn complete(&self, trailers: Option<HeaderMap>, stored: Option<&Content>) {
        if let Some(content) = stored {
            let mut state = self.lock();
            state.blocks = Blocks::default();
            content.chunks.iter().cloned().for_each(|chunk| state.blocks.push(chunk));
            state.reserved.shrink(0);
        }
        self.finish(End::Complete(trailers));
    }

    pub(crate) fn fail(&self, why: Broken) {
        self.finish(End::Broken(why));
    }

    /// The writer is gone. Without an end, the body has none.
    pub(crate) fn abandon(&self) {
        let ended = self.lock().end.is_some();
        if !ended {
            let why: Box<dyn Error + Send + Sync> = "the rest of the body was given up".into();
            self.fail(why.into());
        }
    }

    pub(crate) fn has_readers(&self) -> bool {
        self.lock().readers.iter().any(Option::is_some)
    }

    /// Ready once readers have caught up, or there are none: the fastest while the body is kept, and then the slowest.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if self.runs_ahead && state.kept || state.has_room() {
            return Poll::Ready(());
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Gives up the slowest readers, if they hold up others.
    pub(crate) fn lose_slowest(&self) {
        let mut state = self.lock();
        let (slowest, end) = (state.slowest(), state.blocks.end());
        if state.kept || !state.readers.iter().flatten().any(|place| place.next == end) {
            return;
        }
        for place in state.readers.iter_mut().flatten().filter(|place| place.next == slowest) {
            place.lost = true;
            place.next = u64::MAX;
        }
        state.trim();
        state.wake_readers();
    }

    fn finish(&self, end: End) {
        let mut state = self.lock();
        state.end = Some(end);
        state.wake_readers();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("declared", &self.declared).finish_non_exhaustive()
    }
}

impl State {
    /// Whether the writer may go on.
    fn has_room(&self) -> bool {
        let leader = if self.kept { self.fastest() } else { self.slowest() };
        self.blocks.end() - leader <= WINDOW
    }

    fn fastest(&self) -> u64 {
        let end = self.blocks.end();
        self.readers.iter().flatten().map(|place| place.next).max().unwrap_or(end).min(end)
    }

    fn slowest(&self) -> u64 {
        let end = self.blocks.end();
        self.readers.iter().flatten().map(|place| place.next).min().unwrap_or(end).min(end)
    }

    /// Drops what nobody will read, and lets the writer go on.
    fn trim(&mut self) {
        if !self.kept {
            self.blocks.release(self.slowest());
            let buffered = self.blocks.end() - self.blocks.start();
            self.reserved.shrink(buffered.saturating_sub(WINDOW));
        }
        if self.has_room()
            && let Some(writer) = self.writer.take()
        {
            writer.wake();
        }
    }

    fn wake_readers(&mut self) {
        self.readers.iter_mut().flatten().filter_map(|place| place.waker.take()).for_each(Waker::wake);
    }

    fn poll(&mut self, at: usize, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Some(Some(place)) = self.readers.get_mut(at) else { return Poll::Ready(None) };
        if place.lost {
            let why: Box<dyn Error + Send + Sync> = "the reader was too slow".into();
            return Poll::Ready(Some(Err(why.into())));
        }
        if let Some(chunk) = self.blocks.from(place.next) {
            place.next += chunk.len() as u64;
            self.trim();
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        match &self.end {
            None => {
                place.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(End::Broken(why)) => Poll::Ready(Some(Err(why.clone()))),
            Some(End::Complete(trailers)) => Poll::Ready(trailers.clone().map(Frame::trailers).map(Ok)),
        }
    }
}

/// One who reads the body from its beginning.
pub(crate) struct Reader {
    flow: Arc<Flow>,
    at: usize,
    /// How many bytes were read.
    read: u64,
    done: bool,
}

impl Reader {
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.done {
            return Poll::Ready(None);
        }
        let polled = self.flow.lock().poll(self.at, cx);
        self.done = match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.read += frame.data_ref().map_or(0, |data| data.len() as u64);
                frame.is_trailers()
            }
            Poll::Ready(_) => true,
            Poll::Pending => false,
        };
        polled
    }

    /// Whether nothing is to come.
    pub(crate) fn is_at_end(&self) -> bool {
        let state = self.flow.lock();
        let place = state.readers.get(self.at).and_then(Option::as_ref);
        let read = place.is_some_and(|place| place.next == state.blocks.end());
        self.done || read && matches!(state.end, Some(End::Complete(None)))
    }

    /// Whether there is room for the body in the store.
    pub(crate) fn has_room(&self) -> bool {
        self.flow.has_room
    }

    /// How many bytes are to come, if the origin has said so.
    pub(crate) fn left(&self) -> Option<u64> {
        self.flow.declared.map(|declared| declared.saturating_sub(self.read))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.flow.lock();
        if let Some(slot) = state.readers.get_mut(self.at) {
            *slot = None;
        }
        state.trim();
    }
}
