//! Bodies that the platform and the object store exchange without reading them.
//!
//! They travel in the extensions of requests and responses. A store that doesn't know them works all the same.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifmatch_core::digest::ContentHash;
use object_store::GetResult;

use ifmatch_blob::body::BlobBody;
use ifmatch_blob::store::Upload;

/// The bytes of a [`GetResult`] as a platform's body, in its extensions. They replace its payload, and
/// [`BlobBody::downcast`] recovers them.
///
/// A store that [accepts uploads](super::BackingStore::takes_uploads) gets them back in the extensions of `PutOptions`, for a
/// change of header fields. They [replace](Self::take) the payload there, too.
///
/// ```
/// use ifmatch_blob::body::BlobBody;
/// use ifmatch_blob_objects::DirectBody;
///
/// let mut extensions = http::Extensions::new();
/// extensions.insert(DirectBody::new(BlobBody::from("hello")));
/// ```
#[derive(Clone)]
pub struct DirectBody(Arc<Mutex<Option<BlobBody>>>);

impl DirectBody {
    /// Wraps the requested bytes.
    pub fn new(body: BlobBody) -> Self {
        Self(Arc::new(Mutex::new(Some(body))))
    }

    /// Takes the bytes for a write of them, if the body has this type and wasn't taken before.
    pub fn take<B: 'static>(&self) -> Option<B> {
        lock(&self.0).take()?.downcast::<B>().ok()
    }

    /// Removes the bytes from a response, if it has some.
    pub(super) fn of(result: &GetResult) -> Option<BlobBody> {
        lock(&result.extensions.get::<Self>()?.0).take()
    }
}

impl fmt::Debug for DirectBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectBody")
    }
}

/// An incoming body that a store may take unread, in the extensions of `PutMultipartOptions`. Offered for long bodies
/// to a store that [accepts them](super::BackingStore::takes_uploads).
///
/// A store that [takes](Self::take) it sends all its bytes as the only part of the upload, and reports that they [have
/// arrived](Self::arrived). Any other store gets parts.
#[derive(Clone)]
pub struct DirectUpload {
    length: u64,
    state: Arc<Mutex<OfferState>>,
}

enum OfferState {
    Offered(Upload),
    Taken,
    Arrived(ContentHash),
}

/// The result of an offer.
pub(super) enum BodyOffer {
    /// The store didn't take the body.
    Left(Upload),
    /// The store has all bytes, with this hash.
    Arrived(ContentHash),
    /// The store took the body and didn't report the result.
    Lost,
}

impl DirectUpload {
    pub(super) fn new(body: Upload, length: u64) -> Self {
        Self {
            length,
            state: Arc::new(Mutex::new(OfferState::Offered(body))),
        }
    }

    /// Returns the length declared by the client. The store must verify it.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Takes the body if it has this type and is unread: a request's body, or the body of an object being rewritten.
    pub fn take<B: 'static>(&self) -> Option<B> {
        let mut state = lock(&self.state);
        match mem::replace(&mut *state, OfferState::Taken) {
            OfferState::Offered(upload) => match downcast(upload) {
                Ok(body) => Some(body),
                Err(upload) => {
                    *state = OfferState::Offered(upload);
                    None
                }
            },
            other => {
                *state = other;
                None
            }
        }
    }

    /// Reports that the store has all bytes, and their hash.
    pub fn arrived(&self, hash: ContentHash) {
        let mut state = lock(&self.state);
        if matches!(*state, OfferState::Taken) {
            *state = OfferState::Arrived(hash);
        }
    }

    /// Ends the offer.
    pub(super) fn end(&self) -> BodyOffer {
        match mem::replace(&mut *lock(&self.state), OfferState::Taken) {
            OfferState::Offered(upload) => BodyOffer::Left(upload),
            OfferState::Arrived(hash) => BodyOffer::Arrived(hash),
            OfferState::Taken => BodyOffer::Lost,
        }
    }
}

impl fmt::Debug for DirectUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectUpload")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// The upload, or the bytes of another object.
fn downcast<B: 'static>(upload: Upload) -> Result<B, Upload> {
    let upload = match upload.downcast::<B>() {
        Ok(body) => return Ok(body),
        Err(upload) => upload,
    };
    upload
        .downcast::<BlobBody>()?
        .downcast::<B>()
        .map_err(Upload::new)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
