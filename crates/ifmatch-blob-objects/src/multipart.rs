//! Large bodies: parts are uploaded while more data arrives, and become an object in one step.

use std::fmt;

use ifmatch_runtime::task::{Detached, detach};
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, PutMultipartOptions, PutPayload, PutResult};

use super::failure::{self, Failure};
use ifmatch_blob::store::{StoreError, StoreErrorKind};

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
        let upload = objects.put_multipart_opts(location, options).await.map_err(unwritten)?;
        Ok(Self { upload: Some(upload), part: None })
    }

    /// Sends a part once the previous one has arrived. Ignores an empty part.
    pub(super) async fn send(&mut self, payload: PutPayload) -> Result<(), StoreError> {
        self.flush().await?;
        if let Some(upload) = self.upload.as_mut().filter(|_| payload.content_length() > 0) {
            self.part = Some(detach(upload.put_part(payload)));
        }
        Ok(())
    }

    /// Waits until all parts have arrived.
    pub(super) async fn flush(&mut self) -> Result<(), StoreError> {
        let Some(part) = self.part.take() else { return Ok(()) };
        let stopped = || Err(StoreError::new(StoreErrorKind::Unavailable, "the upload of a part was interrupted"));
        part.result().await.map_or_else(stopped, |arrived| arrived.map_err(unwritten))
    }

    /// Combines the parts into an object. After an ambiguous error the parts stay at the store. Can be called again
    /// after a write that followed another one too soon.
    pub(super) async fn complete(&mut self) -> Result<PutResult, Error> {
        let Some(mut upload) = self.upload.take() else {
            let source = "the upload has ended".into();
            return Err(Error::Generic { store: "multipart", source });
        };
        upload.complete().await.map_err(|error| match error {
            // The store retries if a response is lost. The upload may have been completed by then, and no longer exist.
            Error::NotFound { source, .. } => Error::Generic { store: "multipart", source },
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
        let Some(mut upload) = self.upload.take() else { return };
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
        f.debug_struct("Multipart").field("upload", &self.upload).finish_non_exhaustive()
    }
}

/// Converts a failure before the parts became an object: nothing was changed.
fn unwritten(error: Error) -> StoreError {
    match failure::of_write(error) {
        Failure::TooSoon(error) | Failure::Definite(error) => error,
        Failure::Unknown(error) => StoreError::new(StoreErrorKind::Unavailable, error),
        Failure::Changed => StoreErrorKind::Unavailable.into(),
    }
}
