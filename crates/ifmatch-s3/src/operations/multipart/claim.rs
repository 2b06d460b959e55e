//! The claim of a request that completes an upload.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::lock::Mutex;
use ifmatch_blob::store::StoreError;
use ifmatch_core::EntityTag;
use ifmatch_runtime::task;
use s3s::{S3Error, s3_error};

use super::upload::{Upload, UploadLocation, UploadState};
use crate::backend::Backend;
use crate::error;

/// Time after which a request that completes an upload renews its claim.
pub(super) const RENEWAL: Duration = Duration::from_secs(20);
/// Seconds after which a claim that wasn't renewed counts as a crashed request's.
pub(super) const STALE: i64 = 2 * 60;
/// Seconds after which to try again while another request completes the upload.
const RETRY: u64 = 1;

/// A claim. It is a mark in the upload, which the request renews.
#[derive(Clone)]
pub(super) struct UploadClaim {
    pub(super) backend: Backend,
    pub(super) place: UploadLocation,
    upload: Upload,
    mark: Arc<Mutex<ClaimMark>>,
}

/// The mark of a claim.
struct ClaimMark {
    /// The tag of the upload with the mark.
    tag: Option<EntityTag>,
    /// `true` once the request has recorded its end, which a renewal that was about to begin must not undo.
    has_ended: bool,
}

impl UploadClaim {
    /// A claim on an upload with this tag, before it is [renewed](Self::renew) for the first time.
    pub(super) fn new(
        backend: &Backend,
        place: &UploadLocation,
        upload: Upload,
        tag: Option<EntityTag>,
    ) -> Self {
        let mark = Arc::new(Mutex::new(ClaimMark {
            tag,
            has_ended: false,
        }));
        Self {
            backend: backend.clone(),
            place: place.clone(),
            upload,
            mark,
        }
    }

    /// Renews the claim, unless it has ended.
    pub(super) async fn renew(&self) -> Result<(), StoreError> {
        let mut mark = self.mark.lock().await;
        if mark.has_ended {
            Ok(())
        } else {
            self.save(UploadState::Completing(now(&self.backend)), &mut mark)
                .await
        }
    }

    /// Ends the claim with this state of the upload, if it is still claimed.
    pub(super) async fn end(&self, state: UploadState) -> Result<(), StoreError> {
        let mut mark = self.mark.lock().await;
        mark.has_ended = true;
        self.save(state, &mut mark).await
    }

    /// Saves the upload in this state, if it still has the mark.
    async fn save(&self, state: UploadState, mark: &mut ClaimMark) -> Result<(), StoreError> {
        let upload = Upload {
            state,
            ..self.upload.clone()
        };
        mark.tag = self
            .place
            .save(&*self.backend.context.store, &upload, mark.tag.as_ref())
            .await?;
        Ok(())
    }

    /// Renews the claim while this work lasts.
    pub(super) async fn kept_while<T>(&self, work: impl Future<Output = T>) -> T {
        let renewals = async {
            loop {
                self.backend.context.clock.sleep(RENEWAL).await;
                let this = self.clone();
                // A renewal that has begun goes on after the work has ended, since the tag would be unknown otherwise.
                match task::detach(async move { this.renew().await })
                    .result()
                    .await
                {
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        tracing::warn!(%error, "the claim on an upload could not be renewed");
                    }
                    None => tracing::warn!(
                        "the claim on an upload could not be renewed: the renewal was cancelled"
                    ),
                }
            }
        };
        let (work, renewals) = (pin!(work), pin!(renewals));
        match select(work, renewals).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }

    /// Returns `true` if no other request has changed the upload.
    pub(super) async fn is_held(&self) -> Result<bool, StoreError> {
        let mark = self.mark.lock().await;
        Ok(self
            .place
            .load(&*self.backend.context.store)
            .await?
            .is_some_and(|found| found.tag == mark.tag))
    }
}

/// Returns `true` if a request that began to complete an upload at this time, in seconds since 1970, can't be running.
pub(super) fn is_stale(backend: &Backend, since: i64) -> bool {
    now(backend).saturating_sub(since) > STALE
}

/// Returns the error for an upload that another request completes.
pub(super) fn in_progress() -> S3Error {
    error::retry(
        s3_error!(
            SlowDown,
            "another request completes this upload: try again later"
        ),
        RETRY,
    )
}

/// Returns the time in seconds since 1970.
fn now(backend: &Backend) -> i64 {
    backend.context.wall().last_modified().unix()
}
