//! Deleting a container: its record is a write in flight until all its objects are gone.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use http::Method;
use ifmatch_core::command::{Authority, Command, Content, Doubt};
use ifmatch_core::record::State;
use ifmatch_store::register::Swap;
use ifmatch_store::task::timeout;
use ifmatch_store::{Clock, Key, Register};
use object_store::ObjectMeta;

use super::failure::Failure;
use super::guard::{Asked, GRACE, commit, of_driver, of_register};
use super::write::contended;
use super::{Shared, failure};
use crate::name::ContainerName;
use crate::records::step;
use crate::store::{Delete, StoreError, StoreErrorKind};

/// How many objects are deleted at the same time.
const DELETIONS: usize = 16;
/// How long a deletion may take. What is left then is deleted by the next one.
const TTL: Duration = Duration::from_mins(10);
/// The pause before a blob that is being written is looked at again.
const PAUSE: Duration = Duration::from_millis(10);

impl Shared {
    /// Deletes a container with all its blobs.
    pub(super) async fn delete_container(
        this: &Arc<Self>,
        container: &ContainerName,
        delete: Delete,
    ) -> Result<(), StoreError> {
        let (this, container) = (Arc::clone(this), container.clone());
        super::write::in_a_task(async move { this.drain(&container, delete).await }).await
    }

    async fn drain(&self, container: &ContainerName, delete: Delete) -> Result<(), StoreError> {
        let key = super::container::key(container)?;
        match self.adopt(container).await {
            // Another deletion, or a creation: the permit has to wait for it.
            Err(error) if matches!(error.kind(), StoreErrorKind::InFlight { .. }) => {}
            adopted => drop(adopted?),
        }
        let asked =
            Asked { method: &Method::DELETE, lease: delete.lease, preconditions: &delete.preconditions, ttl: TTL };
        let begun = self.begin(&key, &asked, Authority::Register, None).await;
        let (grant, begun) = begun.map_err(StoreError::of_container)?;
        if grant.current == State::Absent {
            self.end(&key, begun, Command::Abort(grant.token)).await?;
            return Err(StoreErrorKind::ContainerNotFound.into());
        }
        match timeout(self.driver.clock(), self.time_to_work(grant.deadline), self.empty(container)).await {
            Ok(Ok(())) => {
                self.end(&key, begun, commit(grant.token, Content::Absent)).await?;
                Ok(())
            }
            Ok(Err(error)) => {
                self.end(&key, begun, Command::Abort(grant.token)).await?;
                Err(error)
            }
            Err(elapsed) => {
                self.end(&key, begun, Command::Doubt(Doubt { token: grant.token, grace: GRACE })).await?;
                Err(StoreError::new(StoreErrorKind::OutcomeUnknown, elapsed))
            }
        }
    }

    /// Waits for the writes in flight, deletes all objects, and forgets what the register knew of them.
    async fn empty(&self, container: &ContainerName) -> Result<(), StoreError> {
        self.each_record(container, false).await?;
        loop {
            let (failed, lost) = (AtomicBool::new(false), AtomicBool::new(false));
            let listed = self.backing.objects.list(Some(&self.folder(container)));
            let deleted = listed
                .take_while(|_| ready(!failed.load(Ordering::Relaxed)))
                .map(|object| async {
                    let removed = self.remove_listed(object).await;
                    failed.fetch_or(removed.is_err(), Ordering::Relaxed);
                    lost.fetch_or(removed.as_ref().is_err_and(is_lost), Ordering::Relaxed);
                    removed
                })
                .buffer_unordered(DELETIONS)
                // After a failure, too, those under way come to an end: none of them may meet a later blob. Nor may one
                // whose answer was lost, which gets the time that it may take.
                .fold(Ok(0_usize), |sum, removed| {
                    ready(sum.and_then(|sum: usize| removed.map(|removed| sum + removed)))
                })
                .await;
            if lost.load(Ordering::Relaxed) {
                self.driver.clock().sleep(GRACE).await;
            }
            if deleted? == 0 {
                return self.each_record(container, true).await;
            }
        }
    }

    /// Deletes an object, and says how many went.
    async fn remove_listed(&self, object: object_store::Result<ObjectMeta>) -> Result<usize, StoreError> {
        let object = match object {
            Ok(object) => object,
            Err(error) if failure::is_absence(&error) => return Ok(0),
            Err(error) => return Err(failure::of_read(error)),
        };
        match self.remove(&object.location).await {
            Ok(()) => Ok(1),
            Err(error) if failure::is_absence(&error) => Ok(0),
            Err(error) => match failure::of_write(error) {
                Failure::Changed => Err(contended()),
                Failure::TooSoon(error) | Failure::Definite(error) | Failure::Unknown(error) => Err(error),
            },
        }
    }

    /// Waits until no blob of the container is being written, and forgets the blobs if it is told to.
    async fn each_record(&self, container: &ContainerName, forget: bool) -> Result<(), StoreError> {
        let prefix = format!("{}{container}/", super::guard::KEYS);
        let mut after: Option<Key> = None;
        while let Some(records) = step(self.driver.register(), &prefix, &mut after).await.map_err(of_register)? {
            for (key, _) in records {
                self.settle(&key, forget).await?;
            }
        }
        Ok(())
    }

    async fn settle(&self, key: &Key, forget: bool) -> Result<(), StoreError> {
        loop {
            let record = self.driver.load(key).await.map_err(of_driver)?;
            let in_flight = record.permit(self.driver.now()).is_some();
            if !in_flight && !forget {
                return Ok(());
            }
            if !in_flight {
                let swapped = self.driver.register().compare_and_swap(key, record.revision(), None).await;
                if swapped.map_err(of_register)? == Swap::Done {
                    return Ok(());
                }
            }
            self.driver.clock().sleep(PAUSE).await;
        }
    }
}

/// Whether nobody knows if a deletion took effect, or will.
fn is_lost(error: &StoreError) -> bool {
    *error.kind() == StoreErrorKind::OutcomeUnknown
}
