//! A body that is still arriving: one writer, and many readers at their own pace.
//!
//! A reader takes bytes from memory, or from the file that the body is written to. If they are in neither, it requests the
//! rest from the origin. So the writer waits for the fastest reader at most, and for slower ones only if they can't
//! request the rest.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use crate::body::budget::ByteReservation;
use crate::body::chunk_buffer::ChunkBuffer;
use crate::body::disk_reader::DiskReader;
use crate::body::held::MemoryHold;
use crate::body::in_memory::MemoryBody;
use crate::body::on_disk::DiskBody;

/// Number of bytes kept in memory for the readers of a body that isn't stored there, and maximum lead of the writer.
const WINDOW: u64 = 64 * 1024;

/// A body that is still arriving.
pub(crate) struct BodyBroadcast {
    /// The length declared by the origin.
    pub(crate) declared: Option<u64>,
    /// `true` if memory or disk space is reserved for the whole body.
    pub(crate) is_reserved: bool,
    /// `true` if the writer needn't wait for readers while the body is in memory: it will fit, or move to disk.
    runs_ahead: bool,
    state: Mutex<BroadcastState>,
}

/// What the writer and the readers change under the lock.
struct BroadcastState {
    buffer: ChunkBuffer,
    reservation: ByteReservation,
    storage: BroadcastStorage,
    /// The file with the beginning of the body, if any.
    file: Option<(Arc<DiskBody>, Arc<File>)>,
    /// The stored body, if the readers may not keep it in memory.
    stored: Weak<MemoryBody>,
    /// Permission to keep the stored body in the buffer.
    hold: Option<MemoryHold>,
    end: Option<BodyEnd>,
    readers: Vec<Option<ReaderPosition>>,
    writer: Option<Waker>,
}

/// The place where the bytes received so far are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BroadcastStorage {
    Memory,
    /// On disk, except for bytes that aren't written yet.
    Disk,
    /// Nowhere: only a window for current readers stays in memory.
    None,
}

/// How a body has ended.
#[derive(Clone)]
enum BodyEnd {
    Complete(Option<HeaderMap>),
    Broken(BrokenBody),
}

/// The position of a reader.
struct ReaderPosition {
    next: u64,
    waker: Option<Waker>,
    /// `true` if it can request the rest from the origin.
    can_resume: bool,
    lost: bool,
}

/// Why a reader stopped early.
#[derive(Clone, Debug)]
pub(crate) enum ReaderStop {
    /// The body ended early.
    Broken(BrokenBody),
    /// The bytes from this position on are no longer kept.
    Behind(u64),
}

/// The error with which a body ended early.
#[derive(Clone, Debug)]
pub(crate) struct BrokenBody(Arc<dyn Error + Send + Sync>);

impl fmt::Display for BrokenBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for BrokenBody {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl From<Box<dyn Error + Send + Sync>> for BrokenBody {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        Self(error.into())
    }
}

impl BodyBroadcast {
    /// Creates a body with a memory reservation. With `to_disk`, longer bodies move to disk. `is_reserved` states if there
    /// is room for all of it, in memory or on disk.
    pub(crate) fn new(
        declared: Option<u64>,
        reservation: ByteReservation,
        is_reserved: bool,
        to_disk: bool,
    ) -> Self {
        let state = BroadcastState {
            buffer: ChunkBuffer::default(),
            reservation,
            storage: BroadcastStorage::Memory,
            file: None,
            stored: Weak::new(),
            hold: None,
            end: None,
            readers: Vec::new(),
            writer: None,
        };
        let runs_ahead = to_disk || declared.is_some();
        Self {
            declared,
            is_reserved,
            runs_ahead,
            state: Mutex::new(state),
        }
    }

    /// Creates a reader from the beginning. Returns `None` if the beginning is gone, or if the body is broken.
    pub(crate) fn join(self: &Arc<Self>) -> Option<BroadcastReader> {
        let mut state = self.lock();
        let (broken, starts) = (
            matches!(state.end, Some(BodyEnd::Broken(_))),
            state.buffer.start() == 0,
        );
        if broken || state.storage == BroadcastStorage::None && !(starts && state.end.is_some()) {
            return None;
        }
        let place = ReaderPosition {
            next: 0,
            waker: None,
            can_resume: false,
            lost: false,
        };
        let free = state.readers.iter().position(Option::is_none);
        let at = free.unwrap_or(state.readers.len());
        match state.readers.get_mut(at) {
            Some(slot) => *slot = Some(place),
            None => state.readers.push(Some(place)),
        }
        Some(BroadcastReader {
            broadcast: Arc::clone(self),
            at,
            read: 0,
            file: None,
            done: false,
        })
    }

    /// Appends bytes. Returns `false` if the body is now too long for the memory. The writer must then call
    /// [`move_to_disk`](Self::move_to_disk) or [`stop_storing`](Self::stop_storing).
    pub(crate) fn push(&self, chunk: Bytes) -> bool {
        let mut state = self.lock();
        let len = state.buffer.end() + chunk.len() as u64;
        let fits = state.storage != BroadcastStorage::Memory || state.reservation.cover(len);
        state.buffer.push(chunk);
        state.trim();
        state.wake_readers();
        fits
    }

    /// Reserves memory for a body of this length. Returns `false` if there isn't enough.
    pub(crate) fn covers(&self, len: u64) -> bool {
        self.lock().reservation.cover(len)
    }

    /// Returns the bytes of the body that are in memory.
    pub(crate) fn chunks(&self) -> VecDeque<Bytes> {
        self.lock().buffer.all()
    }

    /// Continues the body on disk. The file has all bytes except those not written yet.
    pub(crate) fn move_to_disk(&self, body: Arc<DiskBody>, open: Arc<File>) {
        let mut state = self.lock();
        state.file = Some((body, open));
        state.set_storage(BroadcastStorage::Disk);
    }

    /// Stops storing the body. Readers can still read the part on disk.
    pub(crate) fn stop_storing(&self) {
        self.lock().set_storage(BroadcastStorage::None);
    }

    /// Ends the body. If it was stored in memory, readers continue with the stored bytes.
    pub(crate) fn complete(&self, trailers: Option<HeaderMap>, stored: Option<&Arc<MemoryBody>>) {
        if let Some(content) = stored {
            let mut state = self.lock();
            state.hold = content.hold();
            if state.hold.is_some() {
                state.buffer = ChunkBuffer::default();
                content
                    .chunks
                    .iter()
                    .cloned()
                    .for_each(|chunk| state.buffer.push(chunk));
            } else {
                state.buffer = ChunkBuffer::ended_at(content.len);
                state.stored = Arc::downgrade(content);
            }
            state.reservation.shrink(0);
        }
        self.finish(BodyEnd::Complete(trailers));
    }

    pub(crate) fn fail(&self, why: BrokenBody) {
        self.finish(BodyEnd::Broken(why));
    }

    /// Ends the body with an error if the writer stops without ending it.
    pub(crate) fn abandon(&self) {
        let ended = self.lock().end.is_some();
        if !ended {
            let why: Box<dyn Error + Send + Sync> = "the rest of the body was abandoned".into();
            self.fail(why.into());
        }
    }

    pub(crate) fn has_readers(&self) -> bool {
        self.lock().readers.iter().any(Option::is_some)
    }

    /// Ready once the writer may continue: the bytes are stored, the readers have caught up, or there are none.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if self.runs_ahead && state.storage == BroadcastStorage::Memory || state.has_room() {
            return Poll::Ready(());
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Drops the slowest readers that can't request the rest, if they hold up others.
    pub(crate) fn drop_slowest(&self) {
        let mut state = self.lock();
        let end = state.buffer.end();
        let Some(slowest) = state
            .held_by()
            .filter(|_| state.storage == BroadcastStorage::None)
        else {
            return;
        };
        if !state
            .readers
            .iter()
            .flatten()
            .any(|place| place.next == end)
        {
            return;
        }
        for place in state
            .readers
            .iter_mut()
            .flatten()
            .filter(|place| place.next == slowest && !place.can_resume)
        {
            place.lost = true;
        }
        state.trim();
        state.wake_readers();
    }

    fn finish(&self, end: BodyEnd) {
        let mut state = self.lock();
        state.end = Some(end);
        state.wake_readers();
    }

    fn lock(&self) -> MutexGuard<'_, BroadcastState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BodyBroadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyBroadcast")
            .field("declared", &self.declared)
            .finish_non_exhaustive()
    }
}

/// The next step of a reader.
enum ReaderStep {
    Frame(Frame<Bytes>),
    /// The bytes up to a position are on disk.
    OnDisk(Arc<DiskBody>, Arc<File>, u64),
    Stop(ReaderStop),
    End,
}

impl BroadcastState {
    fn set_storage(&mut self, storage: BroadcastStorage) {
        self.storage = storage;
        self.trim();
        self.wake_readers();
    }

    /// Returns `true` if the writer may continue.
    fn has_room(&self) -> bool {
        let leader = match self.storage {
            BroadcastStorage::Disk => return true,
            BroadcastStorage::Memory => self.fastest(),
            BroadcastStorage::None => self.held_by().unwrap_or_else(|| self.fastest()),
        };
        self.buffer.end() - leader <= WINDOW
    }

    fn present(&self) -> impl Iterator<Item = &ReaderPosition> {
        self.readers.iter().flatten().filter(|place| !place.lost)
    }

    fn fastest(&self) -> u64 {
        self.present()
            .map(|place| place.next)
            .max()
            .unwrap_or_else(|| self.buffer.end())
    }

    /// Returns the position of the slowest reader that can't request the rest.
    fn held_by(&self) -> Option<u64> {
        self.present()
            .filter(|place| !place.can_resume)
            .map(|place| place.next)
            .min()
    }

    /// Returns the number of bytes on disk.
    fn written(&self) -> u64 {
        self.file.as_ref().map_or(0, |(body, _)| body.len())
    }

    /// Releases bytes that readers don't need in memory, and wakes the writer.
    fn trim(&mut self) {
        let end = self.buffer.end();
        match self.storage {
            BroadcastStorage::Memory => {}
            BroadcastStorage::Disk => {
                self.buffer
                    .release(self.written().min(end.saturating_sub(WINDOW)));
                self.reservation.shrink(0);
            }
            BroadcastStorage::None => {
                let slowest = self.present().map(|place| place.next).min().unwrap_or(end);
                let wanted = slowest.max(self.fastest().saturating_sub(WINDOW));
                let needed = self
                    .held_by()
                    .map_or(wanted, |held| held.min(wanted))
                    .max(self.written());
                self.buffer.release(needed);
                if slowest >= self.written() {
                    self.file = None;
                }
                self.reservation
                    .shrink((end - self.buffer.start()).saturating_sub(2 * WINDOW));
            }
        }
        if self.has_room()
            && let Some(writer) = self.writer.take()
        {
            writer.wake();
        }
    }

    fn wake_readers(&mut self) {
        self.readers
            .iter_mut()
            .flatten()
            .filter_map(|place| place.waker.take())
            .for_each(Waker::wake);
    }

    fn advance(&mut self, at: usize, read: u64) {
        if let Some(Some(place)) = self.readers.get_mut(at) {
            place.next += read;
        }
        self.trim();
    }

    fn poll(&mut self, at: usize, cx: &mut Context<'_>) -> Poll<ReaderStep> {
        let written = self.written();
        let Some(Some(place)) = self.readers.get_mut(at) else {
            return Poll::Ready(ReaderStep::End);
        };
        let next = place.next;
        if place.lost {
            return Poll::Ready(ReaderStep::Stop(ReaderStop::Behind(next)));
        }
        if let Some(chunk) = self.buffer.from(next) {
            self.advance(at, chunk.len() as u64);
            return Poll::Ready(ReaderStep::Frame(Frame::data(chunk)));
        }
        if next < self.buffer.start() {
            if let Some(bytes) = self.stored.upgrade().and_then(|content| content.copy(next)) {
                self.advance(at, bytes.len() as u64);
                return Poll::Ready(ReaderStep::Frame(Frame::data(bytes)));
            }
            return Poll::Ready(match &self.file {
                Some((body, open)) if next < written => {
                    ReaderStep::OnDisk(Arc::clone(body), Arc::clone(open), written)
                }
                _ => ReaderStep::Stop(ReaderStop::Behind(next)),
            });
        }
        match &self.end {
            None => {
                place.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(BodyEnd::Broken(why)) => {
                Poll::Ready(ReaderStep::Stop(ReaderStop::Broken(why.clone())))
            }
            Some(BodyEnd::Complete(None)) => Poll::Ready(ReaderStep::End),
            Some(BodyEnd::Complete(Some(trailers))) => {
                Poll::Ready(ReaderStep::Frame(Frame::trailers(trailers.clone())))
            }
        }
    }
}

/// Reads a body from its beginning.
pub(crate) struct BroadcastReader {
    broadcast: Arc<BodyBroadcast>,
    /// Index of its position among the readers.
    at: usize,
    /// Number of bytes read so far.
    read: u64,
    /// Reader of the part on disk.
    file: Option<Box<DiskReader>>,
    done: bool,
}

impl BroadcastReader {
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReaderStop>>> {
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
                    // The origin may still have the bytes.
                    Some(Err(_)) => break Some(Err(ReaderStop::Behind(self.read))),
                    None => self.file = None,
                }
            }
            let found = ready!(self.broadcast.lock().poll(self.at, cx));
            match found {
                ReaderStep::Frame(frame) => break Some(Ok(frame)),
                ReaderStep::OnDisk(body, open, end) => {
                    self.file = Some(Box::new(DiskReader::between(&body, &open, self.read, end)));
                }
                ReaderStep::Stop(stop) => break Some(Err(stop)),
                ReaderStep::End => break None,
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

    /// Marks the reader as able to request the rest, so the writer doesn't wait for it.
    pub(crate) fn can_resume(&self) {
        let mut state = self.broadcast.lock();
        if let Some(Some(place)) = state.readers.get_mut(self.at) {
            place.can_resume = true;
        }
        state.trim();
    }

    /// Returns `true` at the end of the body.
    pub(crate) fn is_at_end(&self) -> bool {
        let state = self.broadcast.lock();
        self.done
            || self.read == state.buffer.end() && matches!(state.end, Some(BodyEnd::Complete(None)))
    }

    /// Returns `true` if memory or disk space is reserved for the whole body.
    pub(crate) fn is_reserved(&self) -> bool {
        self.broadcast.is_reserved
    }

    /// Returns the length declared by the origin.
    pub(crate) fn declared(&self) -> Option<u64> {
        self.broadcast.declared
    }

    /// Returns the number of remaining bytes, if the origin declared a length.
    pub(crate) fn left(&self) -> Option<u64> {
        self.broadcast
            .declared
            .map(|declared| declared.saturating_sub(self.read))
    }
}

impl Drop for BroadcastReader {
    fn drop(&mut self) {
        let mut state = self.broadcast.lock();
        if let Some(slot) = state.readers.get_mut(self.at) {
            *slot = None;
        }
        state.trim();
    }
}

#[cfg(test)]
#[path = "broadcast_tests.rs"]
mod tests;
