//! Deleting objects, which are compared immediately before, under a permit.

use std::sync::Arc;

use http::Method;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Delete, StoreError, StoreErrorKind};
use ifmatch_core::command::Content;
use ifmatch_core::precondition::Preconditions;
use object_store::path::Path;

use crate::attributes::StoredVersion;
use crate::failure::{self, WriteFailure, contended};
use crate::permit::{GRACE, GuardedChange, GuardedOutcome, INTERVAL, PAUSE, TRIES, check, key};
use crate::store_state::{KeptData, StoreState, in_a_task};

impl StoreState {
    /// Deletes an object. A deletion carries no condition, so the object is compared immediately before, under the
    /// permit.
    pub(super) async fn delete(
        this: &Arc<Self>,
        blob: &BlobPath,
        delete: Delete,
    ) -> Result<(), StoreError> {
        if delete.last_snapshot.is_some() {
            let why = "no snapshots are taken in front of an object store";
            return Err(StoreError::new(StoreErrorKind::Unsupported, why));
        }
        let location = this.location(blob)?;
        let Some(current) = this.find_blob(blob, &location).await? else {
            return Err(this.absent(&blob.container).await);
        };
        let key = key(blob)?;
        let checked = check(&Method::DELETE, &delete.preconditions, Some(&current));
        let record = this.start(&key, delete.lease, checked.is_ok()).await?;
        checked?;
        let (this, blob) = (Arc::clone(this), blob.clone());
        in_a_task(async move {
            let change = GuardedChange {
                preconditions: &delete.preconditions,
                lease: delete.lease,
                ..GuardedChange::DELETION
            };
            let work = Box::pin(this.delete_current(&blob, &location, &delete.preconditions));
            this.guarded(&blob, change, Some(record), work).await
        })
        .await
    }

    /// Deletes the version of an object that was found under its permit.
    pub(super) async fn remove_compared(
        &self,
        location: &Path,
        current: &StoredVersion,
    ) -> GuardedOutcome<()> {
        if let Err(error) = self.check_owner().await {
            return GuardedOutcome::Refused(error);
        }
        let mut removed = self.remove(location, current).await;
        for _ in 0..TRIES {
            if !removed.as_ref().is_err_and(failure::is_too_soon) {
                break;
            }
            self.driver.clock().sleep(INTERVAL).await;
            removed = self.remove(location, current).await;
        }
        match removed {
            Ok(()) => GuardedOutcome::Done((), Content::Absent),
            Err(error) if failure::is_absence(&error) => {
                GuardedOutcome::Refused(StoreErrorKind::NotFound.into())
            }
            Err(error) => match failure::of_write(error) {
                WriteFailure::Changed => GuardedOutcome::Refused(contended()),
                WriteFailure::TooSoon(error) | WriteFailure::Definite(error) => {
                    GuardedOutcome::Refused(error)
                }
                WriteFailure::Unknown(error) => GuardedOutcome::Unknown(error, GRACE),
            },
        }
    }

    /// Deletes the current version under the permit, even if other programs replace it again and again.
    async fn delete_current(
        &self,
        blob: &BlobPath,
        location: &Path,
        preconditions: &Preconditions,
    ) -> GuardedOutcome<()> {
        for tries in 0..TRIES {
            self.driver.clock().sleep(PAUSE * tries).await;
            let outcome = match self.find_deletable(blob, location, preconditions).await {
                Ok(current) => self.remove_compared(location, &current).await,
                Err(error) => GuardedOutcome::Refused(error),
            };
            match &outcome {
                GuardedOutcome::Refused(error)
                    if matches!(error.kind(), StoreErrorKind::InFlight { .. }) => {}
                _ => return outcome,
            }
        }
        GuardedOutcome::Refused(contended())
    }

    /// Returns the current version if it may be deleted.
    async fn find_deletable(
        &self,
        blob: &BlobPath,
        location: &Path,
        preconditions: &Preconditions,
    ) -> Result<StoredVersion, StoreError> {
        let Some(current) = self.find_blob(blob, location).await? else {
            return Err(StoreErrorKind::NotFound.into());
        };
        check(&Method::DELETE, preconditions, Some(&current))?;
        self.outlast(Some(&current)).await;
        if self.keeps == KeptData::Nothing
            && self.backing.deletion.is_none()
            && preconditions.has_write_condition()
        {
            let why = "without leases, this store can't delete conditionally. Turn leases on, or delete without a condition";
            return Err(StoreError::new(StoreErrorKind::Unsupported, why));
        }
        Ok(current)
    }
}
