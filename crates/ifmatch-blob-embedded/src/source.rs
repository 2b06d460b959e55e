//! The bytes of a blob being read: from memory, or from an open file in chunks.
//!
//! Recently read bodies of files up to 128 KiB stay in memory. A body never changes under its name, so an entry is never stale.
//! A read from memory needs no blocking thread.

use std::fs::File;
use std::future::{Future, ready};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::store::{Reply, Source, StoreError, StoreErrorKind};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::task::{JoinHandle, spawn_blocking};

use super::body_files::BodyName;
use super::error::{disk, lost};

/// Number of bytes per read. A shorter file is read in one piece. A longer one uses twice as much memory: one chunk is read
/// while the previous one is sent.
const CHUNK: u64 = 128 * 1024;

/// Opens a file of a known length. Returns `None` if there is no such file. Passes the bytes of a file read in one piece to
/// `keep`.
///
/// An open file stays readable after its removal.
pub(super) async fn open(
    path: PathBuf,
    length: u64,
    keep: impl FnOnce(Bytes) + Send + 'static,
) -> Result<Option<Box<dyn Source>>, StoreError> {
    let opened = spawn_blocking(move || {
        let file = match File::open(path) {
            Ok(file) => Arc::new(Mutex::new(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let source: Box<dyn Source> = if length <= CHUNK {
            let bytes = read(&file, 0..length)?;
            keep(bytes.clone());
            Box::new(Memory::from(bytes))
        } else {
            Box::new(Opened { file, length })
        };
        Ok(Some(source))
    });
    opened.await.map_err(lost)?.map_err(unreadable)
}

/// Bytes in memory.
pub(super) struct Memory(Bytes);

impl Memory {
    pub(super) const fn empty() -> Self {
        Self(Bytes::new())
    }
}

impl From<Bytes> for Memory {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Source for Memory {
    fn read(&mut self, range: Option<Range<u64>>) -> Reply<'_, BlobBody> {
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.0.len());
        let bytes = match range {
            Some(range) => self.0.slice(index(range.start)..index(range.end)),
            None => self.0.clone(),
        };
        Box::pin(ready(Ok(bytes.into())))
    }
}

struct Opened {
    file: Arc<Mutex<File>>,
    length: u64,
}

impl Source for Opened {
    fn read(&mut self, range: Option<Range<u64>>) -> Reply<'_, BlobBody> {
        let range = range.unwrap_or(0..self.length);
        let body = Chunks { file: Arc::clone(&self.file), unread: range.clone(), unsent: range, reading: None };
        Box::pin(ready(Ok(BlobBody::stream(body))))
    }
}

/// A part of a file, in chunks.
struct Chunks {
    file: Arc<Mutex<File>>,
    unread: Range<u64>,
    unsent: Range<u64>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl Chunks {
    /// Starts to read the next chunk, if any, on a blocking thread.
    fn read_next(&mut self) -> Option<JoinHandle<io::Result<Bytes>>> {
        if self.unread.is_empty() {
            return None;
        }
        let end = self.unread.end.min(self.unread.start.saturating_add(CHUNK));
        let chunk = std::mem::replace(&mut self.unread.start, end)..end;
        let file = Arc::clone(&self.file);
        Some(spawn_blocking(move || read(&file, chunk)))
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = StoreError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StoreError>>> {
        let Some(mut reading) = self.reading.take().or_else(|| self.read_next()) else { return Poll::Ready(None) };
        let Poll::Ready(chunk) = Pin::new(&mut reading).poll(context) else {
            self.reading = Some(reading);
            return Poll::Pending;
        };
        let chunk = chunk.map_err(lost).and_then(|chunk| chunk.map_err(unreadable));
        match &chunk {
            Ok(bytes) => {
                self.unsent.start += bytes.len() as u64;
                self.reading = self.read_next();
            }
            Err(error) => {
                tracing::error!(%error, "a response body was cut short");
                self.unread = 0..0;
            }
        }
        Poll::Ready(Some(chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.unsent.end - self.unsent.start)
    }
}

/// Reads a part of a file. Blocks. Several bodies may share the file, so each read seeks first.
fn read(file: &Mutex<File>, part: Range<u64>) -> io::Result<Bytes> {
    let length = usize::try_from(part.end - part.start).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(part.start))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes.into())
}

fn unreadable(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => StoreError::new(StoreErrorKind::Unreadable, "the body's file is too short"),
        _ => disk(error),
    }
}

/// Maximum size of all bodies, in bytes.
const CAPACITY: u64 = 16 * 1024 * 1024;
/// Approximate size of a body, in bytes.
const USUAL_SIZE: u64 = 64 * 1024;

/// Bodies in memory. Cheap to clone; clones share the memory.
#[derive(Clone, Debug)]
pub(super) struct SmallBodies(Arc<Cache<BodyName, Bytes, BySize>>);

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<BodyName, Bytes> for BySize {
    fn weight(&self, _: &BodyName, body: &Bytes) -> u64 {
        (size_of::<BodyName>() + body.len()) as u64
    }
}

impl SmallBodies {
    pub(super) fn new() -> Self {
        let bodies = usize::try_from(CAPACITY / USUAL_SIZE).unwrap_or(usize::MAX);
        Self(Arc::new(Cache::with_weighter(bodies, CAPACITY, BySize)))
    }

    pub(super) fn get(&self, name: &BodyName) -> Option<Bytes> {
        self.0.get(name)
    }

    pub(super) fn keep(&self, name: BodyName, body: Bytes) {
        self.0.insert(name, body);
    }
}
