//! A body on its way from the origin to its clients: one task writes, many readers read, each at its own pace.
//!
//! A reader takes bytes from the memory where they are there, then from the file that the body goes to. If they are in neither, it
//! asks for the rest by a request of its own. So the writer waits for the fastest reader at most; for a slower one only if
//! that cannot ask for the rest.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use crate::blocks::Blocks;
use crate::budget::Reserved;
use crate::content::Content;
use crate::file::FileBody;
use crate::file_reader::FileReader;

/// Number of bytes that stay in memory for readers of a body that is not kept there, and maximum lead of the writer.
const WINDOW: u64 = 256 * 1024;

/// The body.
pub(crate) struct Broadcast {
    /// The length that the origin promised.
    pub(crate) declared: Option<u64>,
    /// Whether there is room for the body in the store, as far as is known when it begins.
    pub(crate) has_room: bool,
    /// Whether it need not wait for readers while it is kept in memory: it will fit, or go to a file.
    runs_ahead: bool,
    state: Mutex<State>,
}

struct State {
    blocks: Blocks,
    reserved: Reserved,
    kept: Kept,
    /// The file with the beginning of the body, if there is one.
    file: Option<(Arc<FileBody>, Arc<File>)>,
    end: Option<End>,
    readers: Vec<Option<Place>>,
    writer: Option<Waker>,
}

/// The place of all bytes that have come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Memory,
    /// The bytes that are not written yet are in memory.
    File,
    Nowhere,
}

#[derive(Clone)]
enum End {
    Complete(Option<HeaderMap>),
    Broken(Broken),
}

/// The position of a reader.
struct Place {
    next: u64,
    waker: Option<Waker>,
    /// It can ask for the rest itself.
    can_resume: bool,
    lost: bool,
}

/// Why a reader gets no more.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    /// The body ended early.
    Broken(Broken),
    /// The next bytes, from this position on, are gone.
    Behind(u64),
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

impl Broadcast {
    /// A body for which this memory is reserved. A longer one goes `to_file`, if there are files.
    pub(crate) fn new(declared: Option<u64>, mut reserved: Reserved, to_file: bool) -> Self {
        let fits = match declared {
            Some(declared) => reserved.cover(declared),
            None => reserved.has_room(),
        };
        let state = State {
            blocks: Blocks::default(),
            reserved,
            kept: Kept::Memory,
            file: None,
            end: None,
            readers: Vec::new(),
            writer: None,
        };
        let runs_ahead = to_file || declared.is_some();
        Self { declared, has_room: fits || to_file, runs_ahead, state: Mutex::new(state) }
    }

    /// A reader from the beginning. None: the beginning is gone, or there is no end.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Reader> {
        let mut state = self.lock();
        let (broken, starts) = (matches!(state.end, Some(End::Broken(_))), state.blocks.start() == 0);
        if broken || state.kept == Kept::Nowhere && !(starts && state.end.is_some()) {
            return None;
        }
        let place = Place { next: 0, waker: None, can_resume: false, lost: false };
        let free = state.readers.iter().position(Option::is_none);
        let at = free.unwrap_or(state.readers.len());
        match state.readers.get_mut(at) {
            Some(slot) => *slot = Some(place),
            None => state.readers.push(Some(place)),
        }
        Some(Reader { broadcast: Arc::clone(self), at, read: 0, file: None, done: false })
    }

    /// Adds bytes. False: they are more than may be kept in memory. The writer then says where they go.
    pub(crate) fn push(&self, chunk: Bytes) -> bool {
        let mut state = self.lock();
        let len = state.blocks.end() + chunk.len() as u64;
        let fits = state.kept != Kept::Memory || state.reserved.cover(len);
        state.blocks.push(chunk);
        state.trim();
        state.wake_readers();
        fits
    }

    /// Reserves memory for so many bytes in all. False: there is none.
    pub(crate) fn covers(&self, len: u64) -> bool {
        self.lock().reserved.cover(len)
    }

    /// Returns the bytes of the body that are in memory.
    pub(crate) fn chunks(&self) -> VecDeque<Bytes> {
        self.lock().blocks.all()
    }

    /// Keeps the body in a file from now on. The file has all bytes but those that are still to be written.
    pub(crate) fn keep_in(&self, body: Arc<FileBody>, open: Arc<File>) {
        let mut state = self.lock();
        state.file = Some((body, open));
        state.turn_to(Kept::File);
    }

    /// Keeps the body nowhere from now on. Readers can still read what the file has.
    pub(crate) fn keep_nowhere(&self) {
        self.lock().turn_to(Kept::Nowhere);
    }

    /// Ends the body. Readers go on with the stored content, if there is one, and need no memory of their own.
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

    /// Ready once the writer may go on: all that comes is kept, or readers have caught up, or there are none.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if self.runs_ahead && state.kept == Kept::Memory || state.has_room() {
            return Poll::Ready(());
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Gives up the slowest readers that cannot ask for the rest themselves, if they hold up others.
    pub(crate) fn lose_slowest(&self) {
        let mut state = self.lock();
        let end = state.blocks.end();
        let Some(slowest) = state.held_by().filter(|_| state.kept == Kept::Nowhere) else { return };
        if !state.readers.iter().flatten().any(|place| place.next == end) {
            return;
        }
        for place in state.readers.iter_mut().flatten().filter(|place| place.next == slowest && !place.can_resume) {
            place.lost = true;
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

impl fmt::Debug for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broadcast").field("declared", &self.declared).finish_non_exhaustive()
    }
}

/// The next step of a reader.
enum Step {
    Frame(Frame<Bytes>),
    /// The bytes to a position are in the file.
    Written(Arc<FileBody>, Arc<File>, u64),
    Stop(Stop),
    End,
}

impl State {
    fn turn_to(&mut self, kept: Kept) {
        self.kept = kept;
        self.trim();
        self.wake_readers();
    }

    /// Whether the writer may go on.
    fn has_room(&self) -> bool {
        let leader = match self.kept {
            Kept::File => return true,
            Kept::Memory => self.fastest(),
            Kept::Nowhere => self.held_by().unwrap_or_else(|| self.fastest()),
        };
        self.blocks.end() - leader <= WINDOW
    }

    fn present(&self) -> impl Iterator<Item = &Place> {
        self.readers.iter().flatten().filter(|place| !place.lost)
    }

    fn fastest(&self) -> u64 {
        self.present().map(|place| place.next).max().unwrap_or_else(|| self.blocks.end())
    }

    /// The position of the slowest reader that cannot ask for the rest itself.
    fn held_by(&self) -> Option<u64> {
        self.present().filter(|place| !place.can_resume).map(|place| place.next).min()
    }

    /// Returns the number of bytes in the file.
    fn written(&self) -> u64 {
        self.file.as_ref().map_or(0, |(body, _)| body.len())
    }

    /// Drops the bytes that readers need not find in memory, and wakes the writer.
    fn trim(&mut self) {
        let end = self.blocks.end();
        match self.kept {
            Kept::Memory => {}
            Kept::File => {
                self.blocks.release(self.written().min(end.saturating_sub(WINDOW)));
                self.reserved.shrink(0);
            }
            Kept::Nowhere => {
                let slowest = self.present().map(|place| place.next).min().unwrap_or(end);
                let wanted = slowest.max(self.fastest().saturating_sub(WINDOW));
                let needed = self.held_by().map_or(wanted, |held| held.min(wanted)).max(self.written());
                self.blocks.release(needed);
                if slowest >= self.written() {
                    self.file = None;
                }
                self.reserved.shrink((end - self.blocks.start()).saturating_sub(2 * WINDOW));
            }
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

    fn advance(&mut self, at: usize, read: u64) {
        if let Some(Some(place)) = self.readers.get_mut(at) {
            place.next += read;
        }
        self.trim();
    }

    fn poll(&mut self, at: usize, cx: &mut Context<'_>) -> Poll<Step> {
        let written = self.written();
        let Some(Some(place)) = self.readers.get_mut(at) else { return Poll::Ready(Step::End) };
        let next = place.next;
        if place.lost {
            return Poll::Ready(Step::Stop(Stop::Behind(next)));
        }
        if let Some(chunk) = self.blocks.from(next) {
            self.advance(at, chunk.len() as u64);
            return Poll::Ready(Step::Frame(Frame::data(chunk)));
        }
        if next < self.blocks.start() {
            return Poll::Ready(match &self.file {
                Some((body, open)) if next < written => Step::Written(Arc::clone(body), Arc::clone(open), written),
                _ => Step::Stop(Stop::Behind(next)),
            });
        }
        match &self.end {
            None => {
                place.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(End::Broken(why)) => Poll::Ready(Step::Stop(Stop::Broken(why.clone()))),
            Some(End::Complete(None)) => Poll::Ready(Step::End),
            Some(End::Complete(Some(trailers))) => Poll::Ready(Step::Frame(Frame::trailers(trailers.clone()))),
        }
    }
}

/// A reader that began at the beginning of the body.
pub(crate) struct Reader {
    broadcast: Arc<Broadcast>,
    at: usize,
    /// Number of bytes that were read.
    read: u64,
    /// The bytes of the file that are read now.
    file: Option<Box<FileReader>>,
    done: bool,
}

impl Reader {
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Stop>>> {
        if self.done {
            return Poll::Ready(None);
        }
        let next = loop {
            if let Some(file) = &mut self.file {
                match ready!(file.poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        let read = frame.data_ref().map_or(0, |data| data.len() as u64);
                        self.broadcast.lock().advance(self.at, read);
                        break Some(Ok(frame));
                    }
                    // A request may give what the disk does not.
                    Some(Err(_)) => break Some(Err(Stop::Behind(self.read))),
                    None => self.file = None,
                }
            }
            let found = ready!(self.broadcast.lock().poll(self.at, cx));
            match found {
                Step::Frame(frame) => break Some(Ok(frame)),
                Step::Written(body, open, end) => {
                    self.file = Some(Box::new(FileReader::between(&body, &open, self.read, end)));
                }
                Step::Stop(stop) => break Some(Err(stop)),
                Step::End => break None,
            }
        };
        self.done = match &next {
            Some(Ok(frame)) => {
                self.read += frame.data_ref().map_or(0, |data| data.len() as u64);
                frame.is_trailers()
            }
            Some(Err(_)) | None => true,
        };
        Poll::Ready(next)
    }

    /// Notes that the reader can ask for the rest itself, so that the writer need not wait for it.
    pub(crate) fn can_resume(&self) {
        let mut state = self.broadcast.lock();
        if let Some(Some(place)) = state.readers.get_mut(self.at) {
            place.can_resume = true;
        }
        state.trim();
    }

    /// Returns whether the reader has come to the end.
    pub(crate) fn is_at_end(&self) -> bool {
        let state = self.broadcast.lock();
        self.done || self.read == state.blocks.end() && matches!(state.end, Some(End::Complete(None)))
    }

    /// Whether there is room for the body in the store.
    pub(crate) fn has_room(&self) -> bool {
        self.broadcast.has_room
    }

    /// The length that the origin promised.
    pub(crate) fn declared(&self) -> Option<u64> {
        self.broadcast.declared
    }

    /// Returns the number of bytes that are to come, if the origin has said so.
    pub(crate) fn left(&self) -> Option<u64> {
        self.broadcast.declared.map(|declared| declared.saturating_sub(self.read))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.broadcast.lock();
        if let Some(slot) = state.readers.get_mut(self.at) {
            *slot = None;
        }
        state.trim();
    }
}

#[cfg(test)]
mod tests;
