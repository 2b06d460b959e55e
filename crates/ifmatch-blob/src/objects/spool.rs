//! Takes in a body: small ones whole, large ones part by part.

use bytes::Bytes;
use http_body_util::BodyExt;
use ifmatch_core::digest::{ContentHash, Hasher};
use object_store::PutPayload;

use crate::store::{Put, StoreError, StoreErrorKind, Upload};

/// A body up to this size is collected and sent in one request; a larger one is sent in parts of this size.
///
/// All stores take parts from 5 MiB up and at least 10,000 of them, so that a blob can have 78 GiB.
pub(super) const PART: usize = 8 * 1024 * 1024;

/// A body on its way in, counted and hashed.
pub(super) struct Spool {
    body: Upload,
    /// What came beyond the part before.
    rest: Bytes,
    hasher: Hasher,
    taken: u64,
    promise: Promise,
}

/// The next bytes of a body, at most [`PART`] of them.
pub(super) struct Part {
    pub(super) payload: PutPayload,
    /// Whether they are the last.
    pub(super) last: bool,
}

impl Spool {
    /// Begins to take in the body of a request.
    pub(super) fn new(body: Upload, promise: &Promise) -> Self {
        Self { body, rest: Bytes::new(), hasher: Hasher::default(), taken: 0, promise: *promise }
    }

    /// The next part: a full one, unless it is the last.
    ///
    /// # Errors
    /// The client stopped sending, or sent too much.
    pub(super) async fn part(&mut self) -> Result<Part, StoreError> {
        let mut chunks = Vec::new();
        let mut room = PART;
        loop {
            let chunk = self.rest.split_to(room.min(self.rest.len()));
            room -= chunk.len();
            if !chunk.is_empty() {
                chunks.push(chunk);
            }
            if !self.rest.is_empty() {
                return Ok(Part { payload: chunks.into_iter().collect(), last: false });
            }
            match self.chunk().await? {
                Some(chunk) => self.rest = chunk,
                None => return Ok(Part { payload: chunks.into_iter().collect(), last: true }),
            }
        }
    }

    /// The hash of the whole body, once the last part was taken.
    ///
    /// # Errors
    /// The body is not what was promised.
    pub(super) fn finish(self) -> Result<ContentHash, StoreError> {
        self.promise.keep(self.taken, self.hasher.finish())
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, StoreError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| StoreError::new(StoreErrorKind::Interrupted, error))?;
            let Ok(chunk) = frame.into_data() else { continue };
            if chunk.is_empty() {
                continue;
            }
            self.taken = self.taken.saturating_add(chunk.len() as u64);
            if self.taken > self.promise.limit {
                return Err(StoreErrorKind::TooLarge { limit: self.promise.limit }.into());
            }
            if self.promise.length.is_some_and(|length| self.taken > length) {
                return Err(StoreErrorKind::LengthMismatch.into());
            }
            self.hasher.update(&chunk);
            return Ok(Some(chunk));
        }
        Ok(None)
    }
}

/// What is known of a body beforehand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    limit: u64,
    length: Option<u64>,
    digest: Option<ContentHash>,
}

impl Promise {
    /// What a request says of its body.
    pub(super) fn of(put: &Put) -> Self {
        Self { limit: put.limit, length: put.length, digest: put.digest }
    }

    /// # Errors
    /// [`StoreErrorKind::TooLarge`] where the promised length says so already.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.length {
            Some(length) if length > self.limit => Err(StoreErrorKind::TooLarge { limit: self.limit }.into()),
            _ => Ok(()),
        }
    }

    /// The promised length, if more than one part is promised.
    pub(super) fn long(&self) -> Option<u64> {
        self.length.filter(|length| *length > PART as u64)
    }

    /// The hash of what came, so many bytes, if that is what was promised.
    pub(super) fn keep(&self, taken: u64, hash: ContentHash) -> Result<ContentHash, StoreError> {
        if self.length.is_some_and(|length| length != taken) {
            return Err(StoreErrorKind::LengthMismatch.into());
        }
        if self.digest.is_some_and(|digest| digest != hash) {
            return Err(StoreErrorKind::DigestMismatch.into());
        }
        Ok(hash)
    }

    /// The hash that the client promised.
    pub(super) fn digest(&self) -> Option<ContentHash> {
        self.digest
    }
}
