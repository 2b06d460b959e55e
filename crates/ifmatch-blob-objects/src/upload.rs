//! Incoming bodies: small ones as a whole, large ones in parts that become an object in one step.

use std::{fmt, mem};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::store::{BoxError, Md5Use, Put, StoreError, StoreErrorKind, Upload};
use ifmatch_core::digest::{ContentHash, Hasher};
use ifmatch_runtime::task::{Detached, detach};
use object_store::path::Path;
use object_store::{
    Error, MultipartUpload, ObjectStore, PutMultipartOptions, PutPayload, PutResult,
};

use crate::failure::{self, WriteFailure};

/// A body up to this size is collected and sent in one request; a larger one is sent in parts of this size.
///
/// All stores take parts from 5 MiB up and at least 10,000 of them, so a blob can have 78 GiB.
pub(super) const PART: usize = 8 * 1024 * 1024;

/// Body length above which the platform hashes, if it can.
const SHORT: u64 = 256 * 1024;

/// A running hash provided by the platform for incoming bodies: see [`BackingStore::hashed_by`](super::BackingStore::hashed_by).
pub trait RunningHash: Send {
    /// Adds the next bytes.
    fn update(&mut self, bytes: &Bytes);

    /// Returns the SHA-256 of all bytes.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ContentHash, BoxError>>;
}

/// Starts a platform hash.
pub(super) type Hashing = fn() -> Box<dyn RunningHash>;

/// A hash in progress.
enum Hash {
    Own(Hasher),
    Platform(Box<dyn RunningHash>),
}

/// An incoming body, counted and hashed.
pub(super) struct BodySpool {
    body: Upload,
    /// Bytes beyond the previous part.
    rest: Bytes,
    hash: Hash,
    taken: u64,
    declared: DeclaredBody,
}

/// The next bytes of a body, at most [`PART`] of them.
pub(super) struct Part {
    pub(super) payload: PutPayload,
    /// `true` for the last part.
    pub(super) last: bool,
}

impl BodySpool {
    /// Starts to receive a request's body. The platform hashes it if it can and the body may be long.
    pub(super) fn new(body: Upload, declared: &DeclaredBody, hashing: Option<Hashing>) -> Self {
        let is_short = declared.length.is_some_and(|length| length <= SHORT);
        let hash = match hashing.filter(|_| !is_short) {
            Some(begin) => Hash::Platform(begin()),
            None => Hash::Own(Hasher::default()),
        };
        Self {
            body,
            rest: Bytes::new(),
            hash,
            taken: 0,
            declared: *declared,
        }
    }

    /// Returns the next part, which is full unless it is the last.
    ///
    /// # Errors
    /// Fails if the client stopped sending, or sent too much, or if the store that provides the bytes failed.
    pub(super) async fn part(&mut self) -> Result<Part, StoreError> {
        let mut pieces = Pieces::default();
        let mut room = PART;
        loop {
            let chunk = self.rest.split_to(room.min(self.rest.len()));
            room -= chunk.len();
            pieces.add(chunk);
            if !self.rest.is_empty() {
                return Ok(Part {
                    payload: pieces.whole(),
                    last: false,
                });
            }
            match self.chunk().await? {
                Some(chunk) => self.rest = chunk,
                None => {
                    return Ok(Part {
                        payload: pieces.whole(),
                        last: true,
                    });
                }
            }
        }
    }

    /// Returns the hash of the whole body, after the last part.
    ///
    /// # Errors
    /// Fails if the body doesn't match the declarations.
    pub(super) async fn finish(self) -> Result<ContentHash, StoreError> {
        let hash = match self.hash {
            Hash::Own(hasher) => hasher.finish(),
            Hash::Platform(hash) => {
                let failed = |error| StoreError::new(StoreErrorKind::Unavailable, error);
                hash.finish().await.map_err(failed)?
            }
        };
        self.declared.verify(self.taken, hash)
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, StoreError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(StoreError::of_body)?;
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            if chunk.is_empty() {
                continue;
            }
            self.taken = self.taken.saturating_add(chunk.len() as u64);
            if self.taken > self.declared.limit {
                return Err(StoreErrorKind::TooLarge {
                    limit: self.declared.limit,
                }
                .into());
            }
            if self
                .declared
                .length
                .is_some_and(|length| self.taken > length)
            {
                return Err(StoreErrorKind::LengthMismatch.into());
            }
            match &mut self.hash {
                Hash::Own(hasher) => hasher.update(&chunk),
                Hash::Platform(hash) => hash.update(&chunk),
            }
            return Ok(Some(chunk));
        }
        Ok(None)
    }
}

/// Length below which pieces are joined. Otherwise a client that sends byte by byte would occupy many times as much
/// memory as it sends, since each piece has its own allocation.
const JOINED: usize = 4 * 1024;

/// A part's pieces.
#[derive(Default)]
struct Pieces {
    whole: Vec<Bytes>,
    /// Joined short pieces.
    short: BytesMut,
}

impl Pieces {
    fn add(&mut self, piece: Bytes) {
        if piece.len() >= JOINED {
            self.end_short();
            self.whole.push(piece);
            return;
        }
        self.short.extend_from_slice(&piece);
        if self.short.len() >= JOINED {
            self.end_short();
        }
    }

    fn end_short(&mut self) {
        if !self.short.is_empty() {
            self.whole.push(mem::take(&mut self.short).freeze());
        }
    }

    fn whole(mut self) -> PutPayload {
        self.end_short();
        self.whole.into_iter().collect()
    }
}

/// Declarations about a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeclaredBody {
    limit: u64,
    length: Option<u64>,
    digest: Option<ContentHash>,
}

impl DeclaredBody {
    /// Returns a request's declarations.
    pub(super) fn of(put: &Put) -> Self {
        Self {
            limit: put.limit,
            length: put.length,
            digest: put.digest,
        }
    }

    /// Checks the declared length, before any of the body is read.
    ///
    /// # Errors
    /// [`StoreErrorKind::TooLarge`] if it exceeds the limit.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.length {
            Some(length) if length > self.limit => {
                Err(StoreErrorKind::TooLarge { limit: self.limit }.into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the MD5 handling for a write with these headers. They are sent before the parts of a long body, and so
    /// before an MD5 could be computed.
    pub(super) fn md5(&self, asked: Md5Use, headers: &BlobHeaders) -> Md5Use {
        let is_short = self.length.is_some_and(|length| length <= PART as u64);
        if is_short || headers.content_md5.is_some() {
            asked
        } else {
            Md5Use::AsGiven
        }
    }

    /// Returns the declared length, if it exceeds one part.
    pub(super) fn long(&self) -> Option<u64> {
        self.length.filter(|length| *length > PART as u64)
    }

    /// Returns the hash of a body of this length, if both match the declarations.
    pub(super) fn verify(&self, taken: u64, hash: ContentHash) -> Result<ContentHash, StoreError> {
        if self.length.is_some_and(|length| length != taken) {
            return Err(StoreErrorKind::LengthMismatch.into());
        }
        if self.digest.is_some_and(|digest| digest != hash) {
            return Err(StoreErrorKind::DigestMismatch.into());
        }
        Ok(hash)
    }

    /// Returns the hash declared by the client.
    pub(super) fn digest(&self) -> Option<ContentHash> {
        self.digest
    }
}

/// A multipart upload. It is aborted at the store unless it is completed.
pub(super) struct Multipart {
    upload: Option<Box<dyn MultipartUpload>>,
    /// The part being sent: one at a time, while the next one is received.
    part: Option<Detached<Result<(), Error>>>,
}

impl Multipart {
    pub(super) async fn begin(
        objects: &dyn ObjectStore,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Self, StoreError> {
        let upload = objects
            .put_multipart_opts(location, options)
            .await
            .map_err(unwritten)?;
        Ok(Self {
            upload: Some(upload),
            part: None,
        })
    }

    /// Sends a part once the previous one has arrived. Ignores an empty part.
    pub(super) async fn send(&mut self, payload: PutPayload) -> Result<(), StoreError> {
        self.flush().await?;
        if let Some(upload) = self
            .upload
            .as_mut()
            .filter(|_| payload.content_length() > 0)
        {
            self.part = Some(detach(upload.put_part(payload)));
        }
        Ok(())
    }

    /// Waits until all parts have arrived.
    pub(super) async fn flush(&mut self) -> Result<(), StoreError> {
        let Some(part) = self.part.take() else {
            return Ok(());
        };
        let stopped = || {
            Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "the upload of a part was interrupted",
            ))
        };
        part.result()
            .await
            .map_or_else(stopped, |arrived| arrived.map_err(unwritten))
    }

    /// Combines the parts into an object. After an ambiguous error the parts stay at the store. Can be called again
    /// after a write that followed another one too soon.
    pub(super) async fn complete(&mut self) -> Result<PutResult, Error> {
        let Some(mut upload) = self.upload.take() else {
            let source = "the upload has ended".into();
            return Err(Error::Generic {
                store: "multipart",
                source,
            });
        };
        upload.complete().await.map_err(|error| match error {
            // The store retries if a response is lost. The upload may have been completed by then, and no longer exist.
            Error::NotFound { source, .. } => Error::Generic {
                store: "multipart",
                source,
            },
            refusal if failure::is_too_soon(&refusal) => {
                self.upload = Some(upload);
                refusal
            }
            other => other,
        })
    }
}

impl Drop for Multipart {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else {
            return;
        };
        let part = self.part.take();
        drop(detach(async move {
            if let Some(part) = part {
                let _arrived = part.result().await;
            }
            if let Err(error) = upload.abort().await {
                tracing::warn!(%error, "the parts of an abandoned upload remain in the store");
            }
        }));
    }
}

impl fmt::Debug for Multipart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multipart")
            .field("upload", &self.upload)
            .finish_non_exhaustive()
    }
}

/// Converts a failure before the parts became an object: nothing was changed.
fn unwritten(error: Error) -> StoreError {
    match failure::of_write(error) {
        WriteFailure::TooSoon(error) | WriteFailure::Definite(error) => error,
        WriteFailure::Unknown(error) => StoreError::new(StoreErrorKind::Unavailable, error),
        WriteFailure::Changed => StoreErrorKind::Unavailable.into(),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use ifmatch_blob::store::BoxError;

    /// Returns the parts of a body that arrives in pieces of these lengths, and the number of pieces kept for each
    /// part.
    async fn parts(lengths: Vec<usize>) -> (Vec<u8>, Vec<usize>) {
        let pieces = lengths.into_iter().enumerate();
        let pieces = pieces.map(|(at, length)| Bytes::from(vec![at.to_le_bytes()[0]; length]));
        let body = Upload::new(StreamBody::new(stream::iter(
            pieces.map(|piece| Ok::<_, BoxError>(Frame::data(piece))),
        )));
        let mut spool = BodySpool::new(
            body,
            &DeclaredBody {
                limit: u64::MAX,
                length: None,
                digest: None,
            },
            None,
        );
        let (mut bytes, mut counts) = (Vec::new(), Vec::new());
        loop {
            let part = spool.part().await.expect("a part");
            counts.push(part.payload.iter().count());
            part.payload
                .iter()
                .for_each(|piece| bytes.extend_from_slice(piece));
            if part.last {
                assert_eq!(
                    spool.finish().await.expect("nothing was promised"),
                    ContentHash::of(&bytes)
                );
                return (bytes, counts);
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_arrives_byte_by_byte_takes_no_more_memory() {
        let (bytes, counts) = parts(vec![1; 100_000]).await;
        let expected: Vec<u8> = (0..100_000_usize).map(|at| at.to_le_bytes()[0]).collect();
        assert!(bytes == expected, "other bytes");
        assert_eq!(counts, [100_000_usize.div_ceil(JOINED)]);
    }

    #[tokio::test]
    async fn pieces_keep_their_order_and_long_ones_are_not_copied() {
        let (bytes, counts) = parts(vec![10, PART - 100, 20, 5000, 1, 0, 7]).await;
        let mut expected = Vec::new();
        for (at, length) in [(0, 10), (1, PART - 100), (2, 20), (3, 5000), (4, 1), (6, 7)] {
            expected.extend(vec![at; length]);
        }
        assert!(bytes == expected, "other bytes");
        // The first part ends 70 bytes into the fourth piece.
        assert_eq!(counts, [3, 2]);
    }
}
