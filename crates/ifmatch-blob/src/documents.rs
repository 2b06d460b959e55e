//! The memory for documents: bodies that an operation holds in full, such as a list of blocks, the keys to delete, or a batch. The pages of
//! listings, and other responses that are built in memory, are documents, too, until they are sent.
//!
//! Each is short, but many that never end would fill the memory. So all documents share [`Documents`], and a client
//! leaves some of it to others. A document takes only the bytes that have arrived, not the announced length, which
//! costs its sender nothing to claim. When the memory is used up, a document is refused rather than made to wait: the
//! documents that it would wait for may never end, or may be waiting themselves.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use ifmatch_core::share::SlotLimit;
use thiserror::Error;

use crate::body::BlobBody;
use crate::dialect::Client;
use crate::error::{BoxError, StoreError, StoreErrorKind};
use crate::shares::{Share, Shares};

/// Maximum number of bytes in a page of a listing. The last item may exceed it.
pub const PAGE: usize = 1 << 20;

/// Number of bytes reserved for a response before it is built.
const RESERVE: usize = 64 << 10;

/// The memory for the documents of all requests. Cheap to clone: clones share the memory.
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use ifmatch_blob::dialect::Client;
/// use ifmatch_blob::documents::{DocumentError, Documents};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let documents = Documents::new(10);
/// let client = Some(Client([192, 0, 2, 7].into()));
/// let first = documents.read(client, Full::new(Bytes::from("<a/>")), 100).await?;
/// let second = documents.read(client, Full::new(Bytes::from("<b/>")), 100).await;
/// assert!(matches!(second, Err(DocumentError::Crowded(_))), "a client leaves half to others");
/// drop(first);
/// assert_eq!(documents.read(client, Full::new(Bytes::from("<b/>")), 100).await?, "<b/>");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Documents(Arc<Shares<Client>>);

impl Documents {
    /// Default number of bytes: 128 MiB, of which one client can take at most half.
    pub const DEFAULT_MAX: u32 = 128 << 20;

    /// Provides this many bytes. A client is granted more only while more is free than it already holds. Requests
    /// without a [`Client`] can use all of it.
    pub fn new(bytes: u32) -> Self {
        Self(Shares::new(SlotLimit {
            total: bytes,
            per_client: None,
        }))
    }

    /// Begins to account for a document that is still empty.
    pub fn begin(&self, client: Option<Client>) -> DocumentMemory {
        DocumentMemory {
            share: self.0.begin(client),
            reserved: 0,
        }
    }

    /// Begins to account for a response, and reserves some memory for it, so that a client with too much memory in use
    /// is refused before any work is done.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn begin_answer(&self, client: Option<Client>) -> Result<DocumentMemory, Crowded> {
        let mut memory = self.begin(client);
        memory.grow(RESERVE)?;
        Ok(DocumentMemory {
            reserved: RESERVE,
            ..memory
        })
    }

    /// Reads a body of at most `limit` bytes. It occupies its memory until the returned bytes, and all slices of them,
    /// are dropped. Keep the bytes for as long as you keep what you parsed from them.
    ///
    /// # Errors
    /// The body is too long, ends with an error, or there is no memory for it.
    pub async fn read<B>(
        &self,
        client: Option<Client>,
        body: B,
        limit: u64,
    ) -> Result<Bytes, DocumentError>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let (mut memory, mut pieces, mut body) =
            (self.begin(client), Pieces::default(), pin!(body));
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| DocumentError::Broken(error.into()))?;
            let data = frame.data_ref().map_or(&[][..], |data| data);
            if (pieces.length + data.len()) as u64 > limit {
                return Err(DocumentError::TooLong(limit));
            }
            memory.grow(data.len())?;
            pieces.push(data);
        }
        Ok(memory.hold(pieces.concat()))
    }

    /// Counts a body that was built in memory. It occupies its memory until its bytes are sent. Streams are returned as they are.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn count(&self, client: Option<Client>, body: BlobBody) -> Result<BlobBody, Crowded> {
        body.try_map_bytes(|bytes| {
            let mut memory = self.begin(client);
            memory.grow(bytes.len())?;
            Ok(memory.hold(bytes))
        })
    }

    /// Returns the number of bytes that documents occupy.
    pub fn taken(&self) -> u32 {
        self.0.taken()
    }
}

/// The default size.
impl Default for Documents {
    fn default() -> Self {
        Self::new(Self::DEFAULT_MAX)
    }
}

/// The memory of one document, until this is dropped.
#[derive(Debug)]
pub struct DocumentMemory {
    share: Share<Client>,
    /// Number of bytes that were taken in advance.
    reserved: usize,
}

impl DocumentMemory {
    /// Takes memory for this number of bytes that have arrived.
    ///
    /// # Errors
    /// The documents of all clients, or of this one, occupy too much.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Crowded> {
        let rest = bytes.saturating_sub(self.reserved);
        if !self.share.grow(u32::try_from(rest).unwrap_or(u32::MAX)) {
            return Err(Crowded);
        }
        self.reserved -= bytes - rest;
        Ok(())
    }

    /// Returns bytes that occupy this memory until they, and all that were split off them, are dropped.
    pub fn hold(self, bytes: impl Into<Vec<u8>>) -> Bytes {
        held(bytes.into(), self)
    }
}

/// Returns the bytes of a response to a document of about its length. They occupy the document's memory until they are sent. So the
/// response needs none of its own, and can't be refused any more.
pub fn in_place_of(document: Bytes, answer: impl Into<Vec<u8>>) -> Bytes {
    held(answer.into(), document)
}

/// Returns bytes that keep `memory` until they are dropped, without the room for up to twice as many that a vector has once it has grown.
fn held(mut bytes: Vec<u8>, memory: impl Send + 'static) -> Bytes {
    bytes.shrink_to_fit();
    Bytes::from_owner(Document {
        bytes,
        _memory: memory,
    })
}

/// The bytes of a document that have arrived, in as little memory: a vector that grows has room for twice as many, and leaves as much
/// behind. Frames are copied, since each of them may hold on to a large buffer.
#[derive(Default)]
struct Pieces {
    all: Vec<Vec<u8>>,
    length: usize,
}

impl Pieces {
    /// Size of the pieces that small frames share, in bytes.
    const SIZE: usize = 8 << 10;

    fn push(&mut self, data: &[u8]) {
        match self.all.last_mut() {
            Some(last) if last.capacity() - last.len() >= data.len() => {
                last.extend_from_slice(data);
            }
            _ => {
                // A large frame gets a piece of its own.
                let is_large = data.len() > Self::SIZE / 4;
                let mut piece = Vec::with_capacity(if is_large {
                    data.len()
                } else {
                    self.length.clamp(data.len(), Self::SIZE)
                });
                piece.extend_from_slice(data);
                self.all.push(piece);
            }
        }
        self.length += data.len();
    }

    /// Joins the pieces, and frees each of them once it is copied, so that a document isn't in memory twice.
    fn concat(self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.length);
        for piece in self.all {
            whole.extend_from_slice(&piece);
        }
        whole
    }
}

/// A document, and its memory.
struct Document<M> {
    bytes: Vec<u8>,
    _memory: M,
}

impl<M> AsRef<[u8]> for Document<M> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The reason why a document wasn't read.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// It is longer than this number of bytes (413).
    #[error("the body is longer than {0} bytes")]
    TooLong(u64),
    /// There is no memory for it (503).
    #[error(transparent)]
    Crowded(#[from] Crowded),
    /// The body ended with an error.
    #[error("the body ended early: {0}")]
    Broken(BoxError),
}

/// The documents of all clients, or of this one, occupy too much memory (503). A retry may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the documents of other requests fill the memory for documents, or this client's share of it. Retry in a few seconds"
)]
pub struct Crowded;

impl From<Crowded> for StoreError {
    fn from(crowded: Crowded) -> Self {
        Self::new(StoreErrorKind::Crowded, crowded)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;

    use futures_util::{FutureExt, StreamExt, stream};
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;

    fn client(last: u8) -> Client {
        Client([192, 0, 2, last].into())
    }

    fn whole(length: usize) -> Full<Bytes> {
        Full::new(vec![b'x'; length].into())
    }

    /// A body that doesn't end.
    fn unfinished(length: usize) -> impl Body<Data = Bytes, Error = Infallible> {
        let begun = stream::iter([Ok(Frame::data(vec![b'x'; length].into()))]);
        StreamBody::new(begun.chain(stream::pending()))
    }

    #[test]
    fn documents_that_do_not_end_leave_memory_to_other_clients() {
        let documents = Documents::new(100);
        let mut unfinished: Vec<_> = (0..10)
            .map(|_| Box::pin(documents.read(Some(client(1)), unfinished(20), 90)))
            .collect();
        let refused = unfinished
            .iter_mut()
            .filter_map(|read| read.as_mut().now_or_never())
            .map(Result::unwrap_err);
        assert_eq!(
            refused
                .filter(|error| matches!(error, DocumentError::Crowded(_)))
                .count(),
            8
        );
        assert_eq!(documents.taken(), 40);
        let other = documents
            .read(Some(client(2)), whole(30), 90)
            .now_or_never()
            .unwrap()
            .unwrap();
        assert_eq!(other.len(), 30);
        drop(unfinished);
        assert_eq!(
            documents.taken(),
            30,
            "a client that went away gives its memory back"
        );
        let part = other.slice(10..);
        drop(other);
        assert_eq!(documents.taken(), 30, "a part of the bytes keeps them");
        drop(part);
        assert_eq!(documents.taken(), 0);
    }

    #[test]
    fn a_document_takes_what_has_arrived_and_not_what_it_announces() {
        let documents = Documents::new(100);
        let announced = http_body_util::Limited::new(unfinished(10), 1000);
        assert!(
            Box::pin(documents.read(Some(client(1)), announced, 1000))
                .as_mut()
                .now_or_never()
                .is_none()
        );
        let mut slow = Box::pin(documents.read(Some(client(1)), unfinished(10), 1000));
        assert!(slow.as_mut().now_or_never().is_none());
        assert_eq!(documents.taken(), 10);
        let parts =
            stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::from("12345")))).take(9);
        let read = documents
            .read(Some(client(1)), StreamBody::new(parts), 1000)
            .now_or_never()
            .unwrap();
        assert!(
            matches!(read, Err(DocumentError::Crowded(_))),
            "each part needs memory"
        );
        assert_eq!(documents.taken(), 10, "a refused document keeps none");
    }

    #[test]
    fn the_pieces_of_a_document_take_little_more_memory_than_its_bytes() {
        for frame in [1, 7, 1000, 5000, 8192, 100_000] {
            let data: Vec<u8> = (0..frame)
                .map(|at| u8::try_from(at % 251).unwrap())
                .collect();
            let mut pieces = Pieces::default();
            let count = 1_100_000 / frame;
            (0..count).for_each(|_| pieces.push(&data));
            let taken: usize = pieces.all.iter().map(Vec::capacity).sum();
            let room = pieces.length * 4 / 3 + 2 * Pieces::SIZE;
            assert!(
                taken <= room,
                "frames of {frame} bytes: {taken} for {}",
                pieces.length
            );
            assert_eq!(pieces.concat(), data.repeat(count), "{frame}");
        }
    }

    #[test]
    fn a_body_that_was_built_whole_occupies_memory_until_it_is_sent() {
        let documents = Documents::new(100);
        let mut held = documents
            .count(Some(client(1)), "x".repeat(40).into())
            .unwrap();
        assert!(matches!(
            documents.count(Some(client(1)), "x".repeat(20).into()),
            Err(Crowded)
        ));
        assert!(
            documents
                .count(Some(client(2)), "x".repeat(20).into())
                .is_ok()
        );
        assert_eq!(documents.taken(), 40);
        let sent = held
            .frame()
            .now_or_never()
            .unwrap()
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap();
        drop(held);
        let answer = in_place_of(sent, "answer".to_owned());
        assert_eq!(
            (&*answer, documents.taken()),
            (&b"answer"[..], 40),
            "an answer takes the place of its request"
        );
        drop(answer);
        assert_eq!(documents.taken(), 0);
        let stream = BlobBody::stream(
            unfinished(90).map_err(|never: Infallible| -> StoreError { match never {} }),
        );
        let stream = documents.count(Some(client(1)), stream);
        assert!(
            stream.is_ok() && documents.taken() == 0,
            "a stream isn't built"
        );
    }

    #[test]
    fn an_answer_takes_some_memory_before_it_is_built() {
        let documents = Documents::new(u32::try_from(4 * RESERVE).unwrap());
        let mut answer = documents.begin_answer(Some(client(1))).unwrap();
        answer.grow(RESERVE - 1).unwrap();
        answer.grow(2).unwrap();
        assert_eq!(
            documents.taken() as usize,
            RESERVE + 1,
            "what was taken in advance is used first"
        );
        assert!(
            matches!(documents.begin_answer(Some(client(1))), Err(Crowded)),
            "before any work"
        );
        assert!(documents.begin_answer(Some(client(2))).is_ok());
        drop(answer);
        assert_eq!(documents.taken(), 0);
    }

    #[test]
    fn a_document_that_is_too_long_or_broken_is_refused() {
        let documents = Documents::default();
        let read = |body| documents.read(None, body, 10).now_or_never().unwrap();
        assert_eq!(read(whole(10)).unwrap().len(), 10);
        assert!(matches!(read(whole(11)), Err(DocumentError::TooLong(10))));
        let broken = stream::iter([
            Ok(Frame::data(Bytes::from("x"))),
            Err(io::Error::other("gone")),
        ]);
        let broken = documents
            .read(None, StreamBody::new(broken), 10)
            .now_or_never()
            .unwrap();
        assert!(matches!(broken, Err(DocumentError::Broken(error)) if error.to_string() == "gone"));
        assert_eq!(documents.taken(), 0);
    }
}
