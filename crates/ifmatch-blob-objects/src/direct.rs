//! Bodies that the platform and the object store hand to each other as they are, without a look at their bytes.
//!
//! They go along in the extensions of the requests to an object store, and of its answers. A store that knows nothing of
//! them is served all the same.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifmatch_core::digest::ContentHash;
use object_store::GetResult;

use ifmatch_blob::body::BlobBody;
use ifmatch_blob::store::Upload;

/// The bytes of a [`GetResult`] as the platform has them, in its extensions: they are sent in place of its payload, and
/// [`BlobBody::downcast`] gets them out again.
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
    /// The bytes that were asked for, all or a range.
    pub fn new(body: BlobBody) -> Self {
        Self(Arc::new(Mutex::new(Some(body))))
    }

    /// Takes the bytes out of an answer, if it has some.
    pub(super) fn take(result: &GetResult) -> Option<BlobBody> {
        lock(&result.extensions.get::<Self>()?.0).take()
    }
}

impl fmt::Debug for DirectBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectBody")
    }
}

/// A body on its way in that a store may take as it is, in the extensions of `PutMultipartOptions`: offered to a store that
/// says so ([`Backing::takes_uploads`](super::Backing::takes_uploads)), if it is long.
///
/// A store that [takes](Self::take) it sends all its bytes before it answers, as the only part of the upload, and says
/// that they [have arrived](Self::arrived). A store that does not is given parts, as ever.
#[derive(Clone)]
pub struct DirectUpload {
    length: u64,
    state: Arc<Mutex<State>>,
}

enum State {
    Offered(Upload),
    Taken,
    Arrived(ContentHash),
}

/// What became of an offer.
pub(super) enum Offer {
    /// The store did not take it.
    Left(Upload),
    /// The store has all bytes, with this hash.
    Arrived(ContentHash),
    /// The store took it, and does not say what became of it.
    Lost,
}

impl DirectUpload {
    pub(super) fn new(body: Upload, length: u64) -> Self {
        Self { length, state: Arc::new(Mutex::new(State::Offered(body))) }
    }

    /// How many bytes the client promised. The store has to see to it that so many come.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Takes the body, if it is of this type and unread: that of a request, or of an object that is written once more.
    pub fn take<B: 'static>(&self) -> Option<B> {
        let mut state = lock(&self.state);
        match mem::replace(&mut *state, State::Taken) {
            State::Offered(upload) => match downcast(upload) {
                Ok(body) => Some(body),
                Err(upload) => {
                    *state = State::Offered(upload);
                    None
                }
            },
            other => {
                *state = other;
                None
            }
        }
    }

    /// Says that the store has all bytes, and that this is their hash.
    pub fn arrived(&self, hash: ContentHash) {
        let mut state = lock(&self.state);
        if matches!(*state, State::Taken) {
            *state = State::Arrived(hash);
        }
    }

    /// Ends the offer.
    pub(super) fn end(&self) -> Offer {
        match mem::replace(&mut *lock(&self.state), State::Taken) {
            State::Offered(upload) => Offer::Left(upload),
            State::Arrived(hash) => Offer::Arrived(hash),
            State::Taken => Offer::Lost,
        }
    }
}

impl fmt::Debug for DirectUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectUpload").field("length", &self.length).finish_non_exhaustive()
    }
}

/// What was uploaded, or what was read of another object to be uploaded.
fn downcast<B: 'static>(upload: Upload) -> Result<B, Upload> {
    let upload = match upload.downcast::<B>() {
        Ok(body) => return Ok(body),
        Err(upload) => upload,
    };
    upload.downcast::<BlobBody>()?.downcast::<B>().map_err(Upload::new)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
