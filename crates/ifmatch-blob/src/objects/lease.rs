//! Leases, which the register keeps: only one that survives a restart may.

use http::Method;
use ifmatch_core::command::{Authority, Command, Content, LeaseOperation, Observation, Observed, Outcome, Refusal};
use ifmatch_core::lease::{Lease, LeaseUse};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Variant, Version};
use ifmatch_store::nonce;
use object_store::path::Path;

use super::Shared;
use super::failure::refused;
use super::guard::{Ending, check, key, of_driver, of_register};
use super::write::contended;
use crate::name::{BlobPath, ContainerName};
use crate::store::{LeaseRequest, Leased, StoreError, StoreErrorKind};

/// How often a blob is looked at again that others write meanwhile.
const ATTEMPTS: usize = 32;

impl Shared {
    /// The lease of a blob, where leases are kept.
    pub(super) async fn lease_of(&self, blob: &BlobPath) -> Result<Option<Lease>, StoreError> {
        if !self.durable {
            return Ok(None);
        }
        let record = self.driver.load(&key(blob)?).await.map_err(of_driver)?;
        Ok(record.lease().copied())
    }

    /// Ends the lease of a blob that is not there: who deleted it bypassed us. Returns the record without it.
    pub(super) async fn end_lease_of_absent(
        &self,
        blob: &BlobPath,
        location: &Path,
        record: Record,
    ) -> Result<Record, StoreError> {
        if !record.lease_state(self.driver.now()).is_locked() {
            return Ok(record);
        }
        let look = async {
            match self.look(location).await {
                Ok(None) => Ending::Done((), Content::Absent),
                Ok(Some(_)) => Ending::Refused(contended()),
                Err(error) => Ending::Refused(error),
            }
        };
        self.guarded(blob, &Method::DELETE, LeaseUse::Read(None), Some(record), look).await?;
        self.driver.load(&key(blob)?).await.map_err(of_driver)
    }

    /// Carries out a lease operation. The blob is looked at first: nothing else knows whether it is there.
    pub(super) async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError> {
        self.must_keep_leases()?;
        let (key, location) = (key(blob)?, self.location(blob)?);
        let id = request.request.as_ref().map(|key| key.request(None));
        for _ in 0..ATTEMPTS {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let snapshot = record.snapshot(self.driver.now());
            let Some(current) = self.look(&location).await? else {
                self.end_lease_of_absent(blob, &location, record).await?;
                return Err(self.absent(&blob.container).await);
            };
            let observation = Observation::Present {
                variant: Variant::only(),
                tag: current.info.tag.clone(),
                last_modified: Some(current.info.last_modified),
            };
            let authority = Authority::Resource;
            let operation = LeaseOperation {
                action: request.action,
                preconditions: &Preconditions::default(),
                observed: snapshot.map(|snapshot| Observed { snapshot, observation, authority }),
                authority,
                request: id,
                nonce: nonce().map_err(of_register)?,
            };
            // The conditions are those of the object, whose date the register does not know; the state comes first.
            let now = self.driver.now();
            let expected = record.apply(&Command::Lease(operation.clone()), now).outcome;
            if let Outcome::Refused(Refusal::LeaseConflict(_)) = expected {
                return Err(refused(expected, now));
            }
            check(&Method::PUT, &request.preconditions, Some(&current))?;
            let applied = self.driver.apply_in_turn(&key, &Command::Lease(operation)).await.map_err(of_driver)?;
            match applied.outcome {
                Outcome::Leased(receipt) => {
                    let (tag, last_modified) = (current.info.tag, current.info.last_modified);
                    return Ok(Leased { receipt, tag, last_modified });
                }
                Outcome::Refused(Refusal::ProbeFirst | Refusal::Stale) => {}
                outcome => return Err(refused(outcome, self.driver.now())),
            }
        }
        Err(StoreErrorKind::Unavailable.into())
    }

    /// Carries out a lease operation on a container, of which the register knows everything.
    pub(super) async fn lease_container(
        &self,
        container: &ContainerName,
        request: LeaseRequest,
    ) -> Result<Leased, StoreError> {
        self.must_keep_leases()?;
        let key = self.adopt(container).await?;
        let operation = LeaseOperation {
            action: request.action,
            preconditions: &request.preconditions,
            observed: None,
            authority: Authority::Register,
            request: request.request.map(|key| key.request(None)),
            nonce: nonce().map_err(of_register)?,
        };
        let applied = self.driver.apply_in_turn(&key, &Command::Lease(operation)).await.map_err(of_driver)?;
        let now = self.driver.now();
        let Outcome::Leased(receipt) = applied.outcome else {
            return Err(refused(applied.outcome, now).of_container());
        };
        let version = applied.after.state(now).version();
        Ok(Leased {
            receipt,
            tag: version.and_then(|version| version.tags().first().cloned()),
            last_modified: version.map_or_else(|| receipt.at.last_modified(), Version::last_modified),
        })
    }

    fn must_keep_leases(&self) -> Result<(), StoreError> {
        if self.durable {
            return Ok(());
        }
        let why = "leases need a register that survives a restart: give the gateway a folder (--data) beside the store";
        Err(StoreError::new(StoreErrorKind::Unsupported, why))
    }
}
