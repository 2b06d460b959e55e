//! The bytes of a blob being read: from memory, or from an open file in chunks.
//!
//! Recently read bodies of files up to 128 KiB stay in memory. The bytes up to a recorded length never change, so a name and a length
//! stand for one body. A read from memory needs no blocking thread.
//!
//! A client that doesn't read its responses fills their buffers. So the chunks that are read for clients share a limited memory, and each
//! client leaves some of it to others.

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
use ifmatch_blob::dialect::Client;
use ifmatch_blob::shares::{Share, Shares};
use ifmatch_blob::store::{Reply, Source, StoreError, StoreErrorKind};
use ifmatch_core::share::SlotLimit;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::task::{JoinHandle, spawn_blocking};

use super::body_files::BodyName;
use super::error::{disk, lost};

/// Number of bytes per read. A shorter file is read in one piece. A longer one uses twice as much memory: one chunk is read
/// while the previous one is sent.
const CHUNK: u64 = 128 * 1024;
/// Number of bytes per read beyond the memory for [unsent bytes](UnsentBytes). No chunk is read ahead then.
const SMALL_CHUNK: u64 = 16 * 1024;

/// Length up to which a body is read in one piece, and kept in memory.
pub(super) const SHORT: u64 = CHUNK;

/// Opens a file of a known length. Returns `None` if there is no such file. Passes the bytes of a file read in one piece to
/// `keep`. The chunks of a longer one take memory from the budget.
///
/// An open file stays readable after its removal.
pub(super) async fn open(
    path: PathBuf,
    length: u64,
    budget: Option<Budget>,
    keep: impl FnOnce(Bytes) + Send + 'static,
) -> Result<Option<Box<dyn Source>>, StoreError> {
    let piece = buffer(if length <= CHUNK { length } else { 0 });
    let opened = spawn_blocking(move || {
        let file = match File::open(path) {
            Ok(file) => Arc::new(Mutex::new(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let source: Box<dyn Source> = if length <= CHUNK {
            let bytes = Bytes::from(read(&file, 0, piece)?);
            keep(bytes.clone());
            Box::new(Memory::from(bytes))
        } else {
            Box::new(LongFile {
                file,
                length,
                budget,
            })
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

/// Maximum number of bytes that were read for clients and not yet sent, of which one client takes at most half.
const UNSENT: u32 = 64 * 1024 * 1024;

/// The memory for chunks that were read and not yet sent. Cheap to clone: clones share the memory.
///
/// Without memory, a response goes on in small chunks, so no response waits for another client to read.
#[derive(Clone, Debug)]
pub(super) struct UnsentBytes(Arc<Shares<Client>>);

impl UnsentBytes {
    pub(super) fn new() -> Self {
        Self(Shares::new(SlotLimit {
            total: UNSENT,
            per_client: None,
        }))
    }

    /// Returns the memory for a response to this client.
    pub(super) fn of(&self, client: Client) -> Budget {
        Budget {
            unsent: self.clone(),
            client,
        }
    }
}

/// The memory for the chunks of a response.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    unsent: UnsentBytes,
    client: Client,
}

impl Budget {
    /// Takes memory for a chunk, if there is some.
    fn take(&self) -> Option<Share<Client>> {
        self.unsent
            .0
            .take(Some(self.client), u32::try_from(CHUNK).unwrap_or(u32::MAX))
    }
}

/// A chunk, which occupies its share until it is sent.
struct Chunk {
    bytes: Vec<u8>,
    _share: Option<Share<Client>>,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An open file, which is read in chunks.
struct LongFile {
    file: Arc<Mutex<File>>,
    length: u64,
    budget: Option<Budget>,
}

impl Source for LongFile {
    fn read(&mut self, range: Option<Range<u64>>) -> Reply<'_, BlobBody> {
        let range = range.unwrap_or(0..self.length);
        let (file, budget) = (Arc::clone(&self.file), self.budget.clone());
        let body = Chunks {
            file,
            budget,
            unread: range.clone(),
            unsent: range,
            reading: None,
        };
        Box::pin(ready(Ok(BlobBody::stream(body))))
    }
}

/// A part of a file, in chunks.
struct Chunks {
    file: Arc<Mutex<File>>,
    /// `None` if the bytes aren't sent to a client: their reader takes them at once, or holds all of them.
    budget: Option<Budget>,
    unread: Range<u64>,
    unsent: Range<u64>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl Chunks {
    /// Starts to read the next chunk, if any, on a blocking thread. The chunk is small if there is no memory for another one.
    fn read_next(&mut self) -> Option<JoinHandle<io::Result<Bytes>>> {
        let share = self.budget.as_ref().and_then(Budget::take);
        let is_small = self.budget.is_some() && share.is_none();
        self.begin(if is_small { SMALL_CHUNK } else { CHUNK }, share)
    }

    /// Starts to read the next chunk before it is needed, if there is memory for it.
    fn read_ahead(&mut self) -> Option<JoinHandle<io::Result<Bytes>>> {
        match &self.budget {
            Some(budget) => budget
                .take()
                .and_then(|share| self.begin(CHUNK, Some(share))),
            None => self.begin(CHUNK, None),
        }
    }

    fn begin(
        &mut self,
        length: u64,
        share: Option<Share<Client>>,
    ) -> Option<JoinHandle<io::Result<Bytes>>> {
        if self.unread.is_empty() {
            return None;
        }
        let end = self
            .unread
            .end
            .min(self.unread.start.saturating_add(length));
        let part = std::mem::replace(&mut self.unread.start, end)..end;
        let (file, piece) = (Arc::clone(&self.file), buffer(part.end - part.start));
        Some(spawn_blocking(move || {
            Ok(Bytes::from_owner(Chunk {
                bytes: read(&file, part.start, piece)?,
                _share: share,
            }))
        }))
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = StoreError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StoreError>>> {
        let Some(mut reading) = self.reading.take().or_else(|| self.read_next()) else {
            return Poll::Ready(None);
        };
        let Poll::Ready(chunk) = Pin::new(&mut reading).poll(context) else {
            self.reading = Some(reading);
            return Poll::Pending;
        };
        let chunk = chunk
            .map_err(lost)
            .and_then(|chunk| chunk.map_err(unreadable));
        match &chunk {
            Ok(bytes) => {
                self.unsent.start += bytes.len() as u64;
                self.reading = self.read_ahead();
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

/// Returns the memory for a piece of a file. It is allocated by the thread that asks for the piece, not by the one that reads it: an
/// allocator keeps some megabytes for each thread that has allocated large pieces.
fn buffer(length: u64) -> Vec<u8> {
    vec![0; usize::try_from(length).unwrap_or(usize::MAX)]
}

/// Fills a piece with the bytes of a file from `start`. Blocks. Several bodies may share the file, so each read seeks first.
fn read(file: &Mutex<File>, start: u64, mut piece: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut piece)?;
    Ok(piece)
}

fn unreadable(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            StoreError::new(StoreErrorKind::Unreadable, "the body's file is too short")
        }
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

    /// Returns the body of this length. Others of another length may be at the beginning of the same file.
    pub(super) fn get(&self, name: &BodyName, length: u64) -> Option<Bytes> {
        self.0.get(name).filter(|body| body.len() as u64 == length)
    }

    pub(super) fn keep(&self, name: BodyName, body: Bytes) {
        self.0.insert(name, body);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn body(folder: &tempfile::TempDir, length: u64, budget: Option<Budget>) -> BlobBody {
        let path = folder.path().join(length.to_string());
        std::fs::write(&path, vec![7; usize::try_from(length).unwrap()]).unwrap();
        let mut source = open(path, length, budget, drop).await.unwrap().unwrap();
        source.read(None).await.unwrap()
    }

    async fn next(body: &mut BlobBody) -> Bytes {
        body.frame().await.unwrap().unwrap().into_data().unwrap()
    }

    #[tokio::test]
    async fn unsent_chunks_of_a_client_take_half_of_the_memory_and_then_become_small() {
        let folder = tempfile::tempdir().unwrap();
        let unsent = UnsentBytes(Shares::new(SlotLimit {
            total: 8 * u32::try_from(CHUNK).unwrap(),
            per_client: None,
        }));
        let (slow, other) = (Client([192, 0, 2, 7].into()), Client([192, 0, 2, 8].into()));
        let mut held = Vec::new();
        let mut lengths = Vec::new();
        let mut unread = body(&folder, 20 * CHUNK, Some(unsent.of(slow))).await;
        for _ in 0..6 {
            held.push(next(&mut unread).await);
            lengths.push(held.last().map_or(0, Bytes::len) as u64);
        }
        assert_eq!(
            lengths,
            [CHUNK, CHUNK, CHUNK, CHUNK, SMALL_CHUNK, SMALL_CHUNK]
        );
        assert_eq!(u64::from(unsent.0.taken()), 4 * CHUNK);
        let mut own = body(&folder, 2 * CHUNK, Some(unsent.of(slow))).await;
        assert_eq!(
            next(&mut own).await.len() as u64,
            SMALL_CHUNK,
            "the client's other responses go on in small chunks"
        );
        let mut others = body(&folder, 2 * CHUNK, Some(unsent.of(other))).await;
        let others =
            [next(&mut others).await, next(&mut others).await].map(|chunk| chunk.len() as u64);
        assert_eq!(others, [CHUNK, CHUNK], "another client has memory");
        let part = held[0].slice(7..9);
        held.clear();
        assert_eq!(
            u64::from(unsent.0.taken()),
            CHUNK,
            "a part of a chunk occupies all of it, and nothing else is left"
        );
        drop(part);
        assert_eq!(
            next(&mut unread).await.len() as u64,
            CHUNK,
            "with memory, its chunks are large again"
        );
    }

    #[tokio::test]
    async fn a_body_arrives_whole_with_any_memory() {
        let folder = tempfile::tempdir().unwrap();
        let length = 5 * CHUNK + 77;
        for total in [0, 1, 3 * u32::try_from(CHUNK).unwrap(), u32::MAX] {
            let unsent = UnsentBytes(Shares::new(SlotLimit {
                total,
                per_client: None,
            }));
            let body = body(
                &folder,
                length,
                Some(unsent.of(Client([192, 0, 2, 7].into()))),
            )
            .await;
            let whole = body.collect().await.unwrap().to_bytes();
            assert_eq!(
                (whole.len() as u64, whole.iter().all(|byte| *byte == 7)),
                (length, true),
                "{total}"
            );
            assert_eq!(unsent.0.taken(), 0);
        }
    }
}
