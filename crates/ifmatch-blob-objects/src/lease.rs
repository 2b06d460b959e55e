//! Leases. Only a register that survives a restart keeps them.

use std::sync::Arc;

use http::Method;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::records::{leased, nonce, of_driver, refused};
use ifmatch_blob::store::{
    HeaderChange, LeaseRequest, Leased, SetHeaders, StoreError, StoreErrorKind,
};
use ifmatch_core::command::{
    Authority, Command, Content, LeaseOperation, Observation, Observed, Outcome, Refusal,
};
use ifmatch_core::lease::{LeaseAction, SeenLease};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, State, Variant};
use object_store::path::Path;

use crate::attributes::StoredVersion;
use crate::container_state::ContainerMembers;
use crate::failure::contended;
use crate::permit::{GuardedChange, GuardedOutcome, check, key};
use crate::store_state::{KeptData, StoreState, in_a_task};

/// Maximum number of attempts for a blob that others are writing.
const ATTEMPTS: usize = 32;

impl StoreState {
    /// Returns the lease of a blob, if leases are kept.
    pub(super) async fn lease_of(&self, blob: &BlobPath) -> Result<Option<SeenLease>, StoreError> {
        if self.keeps != KeptData::Leases {
            return Ok(None);
        }
        let key = key(blob)?;
        let record = self.driver.load(&key).await.map_err(of_driver)?;
        Ok(record.seen_lease(self.driver.now()))
    }

    /// Ends the lease of a blob that another program has deleted. Returns the record without it.
    ///
    /// Continues if the client disconnects, since it takes the blob's permit.
    pub(super) async fn end_lease_of_absent(
        self: &Arc<Self>,
        blob: &BlobPath,
        location: &Path,
        members: ContainerMembers,
        record: Record,
    ) -> Result<Record, StoreError> {
        let key = key(blob)?;
        if !record.lease_state(self.driver.now()).is_locked() {
            return Ok(record);
        }
        let (this, blob, location) = (Arc::clone(self), blob.clone(), location.clone());
        in_a_task(async move {
            let look = async {
                match this.look(&location, members).await {
                    Ok(None) => GuardedOutcome::Done((), Content::Absent),
                    Ok(Some(_)) => GuardedOutcome::Refused(contended()),
                    Err(error) => GuardedOutcome::Refused(error),
                }
            };
            this.guarded(&blob, GuardedChange::DELETION, Some(record), look)
                .await?;
            this.driver.load(&key).await.map_err(of_driver)
        })
        .await
    }

    /// Carries out a lease operation. Only the store knows if the blob exists, so it is asked first.
    pub(super) async fn lease(
        self: &Arc<Self>,
        blob: &BlobPath,
        request: LeaseRequest,
    ) -> Result<Leased, StoreError> {
        self.must_keep_leases()?;
        let (key, location) = (key(blob)?, self.location(blob)?);
        self.recent_records.forget(&key);
        let id = request.request.as_ref().map(|key| key.request(None));
        let mut preconditions = request.preconditions;
        for _ in 0..ATTEMPTS {
            let members = self.registered(&blob.container).await?.members();
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let snapshot = record.snapshot(self.driver.now());
            let Some(current) = self.look(&location, members).await? else {
                self.end_lease_of_absent(blob, &location, members, record)
                    .await?;
                return Err(self.absent(&blob.container).await);
            };
            if matches!(request.action, LeaseAction::Acquire { .. }) && self.is_in_doubt(&record) {
                check(&Method::PUT, &preconditions, Some(&current))?;
                self.renew_version(blob, &current).await?;
                preconditions = Preconditions::default();
                continue;
            }
            let observation = Observation::Present {
                variant: Variant::only(),
                tag: current.info.tag.clone(),
                last_modified: Some(current.info.last_modified),
            };
            let authority = Authority::Resource;
            let operation = LeaseOperation::new(request.action, &Preconditions::NONE, nonce()?)
                .with_observed(
                    snapshot.map(|snapshot| Observed::new(snapshot, observation, authority)),
                )
                .with_authority(authority)
                .with_request(id);
            // The conditions apply to the object, with a date that the register doesn't know. The state comes first.
            let now = self.driver.now();
            let expected = record
                .apply(&Command::Lease(operation.clone()), now)
                .outcome;
            if let Outcome::Refused(Refusal::LeaseConflict(_)) = expected {
                return Err(refused(expected, now));
            }
            check(&Method::PUT, &preconditions, Some(&current))?;
            let applied = self
                .driver
                .apply_in_turn(&key, &Command::Lease(operation))
                .await
                .map_err(of_driver)?;
            match applied.outcome {
                Outcome::Leased(receipt) => {
                    let (tag, last_modified) = (current.info.tag, current.info.last_modified);
                    return Ok(Leased {
                        receipt,
                        tag,
                        last_modified,
                    });
                }
                Outcome::Refused(Refusal::ProbeFirst | Refusal::Stale) => {}
                outcome => return Err(refused(outcome, self.driver.now())),
            }
        }
        Err(StoreErrorKind::Unavailable.into())
    }

    /// Returns `true` if an unanswered write may still take effect, conditional on the blob's current version. A store
    /// with equal tags for versions of the same bytes relies on such a write's timeout instead.
    fn is_in_doubt(&self, record: &Record) -> bool {
        let now = self.driver.now();
        let may_fence =
            self.capability.is_native() && self.capability.unique_tags && self.capability.metadata;
        let is_free = record.permit(now).is_none() && !record.lease_state(now).is_locked();
        let was_written =
            record.revision() != Revision::NONE && *record.state(now) == State::Unknown;
        may_fence && is_free && was_written
    }

    /// Rewrites a blob with its own content, so pending writes conditional on its previous version fail from then
    /// on.
    async fn renew_version(
        self: &Arc<Self>,
        blob: &BlobPath,
        current: &StoredVersion,
    ) -> Result<(), StoreError> {
        let set = SetHeaders::new(HeaderChange::Metadata(
            current.info.headers.metadata.clone(),
        ));
        match self.set_headers(blob, set).await {
            Ok(_) => Ok(()),
            // Another client has written or leased it meanwhile.
            Err(error)
                if matches!(
                    error.kind(),
                    StoreErrorKind::InFlight { .. } | StoreErrorKind::LeaseFailed(_)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(StoreError::new(StoreErrorKind::Unavailable, error)),
        }
    }

    /// Carries out a lease operation on a container, which the register knows completely.
    pub(super) async fn lease_container(
        &self,
        container: &ContainerName,
        request: LeaseRequest,
    ) -> Result<Leased, StoreError> {
        self.must_keep_leases()?;
        let key = self.adopt(container).await?;
        let operation = LeaseOperation::new(request.action, &request.preconditions, nonce()?)
            .with_authority(Authority::Register)
            .with_request(request.request.map(|key| key.request(None)));
        let applied = self
            .driver
            .apply_in_turn(&key, &Command::Lease(operation))
            .await
            .map_err(of_driver)?;
        leased(applied, self.driver.now()).map_err(StoreError::of_container)
    }

    fn must_keep_leases(&self) -> Result<(), StoreError> {
        let why = match self.keeps {
            KeptData::Leases => return Ok(()),
            KeptData::Containers => {
                "leases need a register that survives a restart: give the gateway a folder (--data) beside the store"
            }
            KeptData::Nothing => "leases are turned off",
        };
        Err(StoreError::new(StoreErrorKind::Unsupported, why))
    }
}
