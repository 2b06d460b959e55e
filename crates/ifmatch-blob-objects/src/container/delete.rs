//! Deletion of a container: takes the turn, and carries out the [steps](DeleterStep).
//!
//! One swap marks the container as being deleted and hides its blobs; then its objects are deleted. The mark stays until all objects
//! are gone, even if the deleter stops. Deleters take turns, and each renews its turn while it works: deletions are unconditional,
//! so a slow deleter's request must not reach the blobs of a later container. Any request to the container, in any process, can take
//! over an expired turn.
//!
//! On the condition that the container is empty, the deleter first closes it: a swap marks its record, and no write begins any more.
//! Reads still work. The deleter waits for the writes that may have begun before, and then lists the objects. If there are none, a second
//! swap begins the deletion, which nothing can undo. Otherwise it removes the mark. A turn that ends in between opens the container
//! again, whichever process notices it.
//!
//! # Interleavings
//!
//! ```text
//!   write                                     deleter
//!   gets its permit, finds no mark
//!                                             finds no object, closes the container
//!   sends the object                          waits for the permit
//!   is acknowledged                           finds the object, opens the container: it isn't empty
//!
//!   write                                     deleter
//!                                             closes the container
//!   gets its permit, and relies on an         waits as long as answers are remembered, then for the permits of that time
//!   earlier response: finds no mark
//!   sends the object, is acknowledged         finds the object, opens the container
//!
//!   write                                     deleter
//!                                             closes the container
//!   gets its permit, finds the mark:          doesn't wait for this permit
//!   is refused, and changes nothing           lists no object, and begins the deletion
//!
//!   read                                      deleter
//!                                             closes the container
//!   gets the object of a write that was       finds the object, opens the container
//!   acknowledged before
//!
//!   deleter                                   another request
//!   closes the container, lists no object
//!   stops, for longer than its turn           opens the container, writes an object
//!   begins the deletion: the swap fails,
//!   since the record has changed
//!
//!   deleter                                   another deleter
//!   closes the container, and stops
//!                                             closes it again, after the turn
//!   opens it: the swap fails, since the       goes on
//!   record has changed
//!
//!   deleter                                   another request, in any process
//!   closes the container, and crashes         is refused until the end of the turn, then opens the container
//!   begins the deletion, and crashes          finds no container, and completes the deletion after the turn
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{StreamExt, iter};
use http::Method;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::records::{nonce, of_driver, of_register, refused};
use ifmatch_blob::store::{Delete, MissingContainer, StoreError, StoreErrorKind};
use ifmatch_core::command::{Command, Outcome, Refusal, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::Key;
use ifmatch_runtime::task::{Elapsed, detach};
use object_store::path::Path;

use super::{PAUSE, RETRY, key};
use crate::container_state::{
    ContainerPayload, ContainerState, DeleterMove, DeleterStep, DeleterSwap, DeletionContext,
    DeletionMark, DeletionPurpose, LiveContainer, StepOutcome,
};
use crate::failure::{self, WriteFailure, contended, lost};
use crate::member_cache::FORGOTTEN_AFTER;
use crate::permit::{GRACE, KEYS};
use crate::store_state::{PATIENCE, StoreState, in_a_task};

/// Maximum number of objects per deletion, the number that stores delete in one request.
const PAGE: usize = 1_000;
/// Number of requests reserved for the end of a turn, if the platform limits them.
const RESERVE: usize = 8;
/// Duration of a deleter's turn. It is renewed halfway through.
const TURN: Duration = Duration::from_mins(1);

impl StoreState {
    /// Deletes a container.
    pub(crate) async fn delete_container(
        this: &Arc<Self>,
        container: &ContainerName,
        delete: Delete,
        purpose: DeletionPurpose,
    ) -> Result<(), StoreError> {
        this.must_keep_containers()?;
        let (this, container) = (Arc::clone(this), container.clone());
        in_a_task(async move { this.erase(&container, &delete, purpose).await }).await
    }

    /// Completes an interrupted deletion. If its deleter stopped before it had listed the objects, opens the container again.
    /// Doesn't wait for the end.
    pub(crate) fn resume_deletion(&self, container: &ContainerName) {
        let Some(this) = self.me.upgrade() else {
            return;
        };
        let container = container.clone();
        drop(detach(async move {
            match this
                .erase(&container, &Delete::default(), DeletionPurpose::Finish)
                .await
            {
                Ok(()) => tracing::info!(%container, "completed or undid an interrupted deletion"),
                Err(error) => {
                    tracing::warn!(%container, %error, "an interrupted deletion is still incomplete");
                }
            }
        }));
    }

    async fn erase(
        &self,
        container: &ContainerName,
        delete: &Delete,
        purpose: DeletionPurpose,
    ) -> Result<(), StoreError> {
        let key = key(container)?;
        let give_up = self.driver.clock().now().saturating_add(PATIENCE);
        let mut pause = PAUSE;
        loop {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let now = self.driver.now();
            let registered = ContainerState::of(&record, now)?;
            match registered.deletion(purpose, now) {
                // Only a container that seems to be empty refuses writes.
                DeleterMove::Take(DeletionMark::Closing)
                    if self.has_blobs(container, registered.members()).await? =>
                {
                    return Err(StoreErrorKind::ContainerNotEmpty.into());
                }
                DeleterMove::Take(mark) => {
                    // The conditions were checked when the deletion began.
                    let begins = registered.exists().then_some(delete);
                    if let Some(turn) = self.take_turn(container, &record, mark, begins).await? {
                        return turn.run(delete.lease, give_up).await;
                    }
                }
                DeleterMove::Open => {
                    let mut turn = DeleterTurn::of(self, container, &record)?;
                    return match turn
                        .change(
                            DeleterSwap::Open,
                            &Preconditions::NONE,
                            LeaseUse::Read(None),
                        )
                        .await?
                    {
                        // If it is stale, another request was faster.
                        Outcome::Written(_) | Outcome::Refused(Refusal::Stale) => Ok(()),
                        outcome => Err(refused(outcome, self.driver.now()).of_container()),
                    };
                }
                DeleterMove::Wait if self.driver.clock().now() >= give_up => {
                    return Err(contended());
                }
                DeleterMove::Wait => {
                    self.driver.clock().sleep(pause).await;
                    pause = RETRY.min(pause * 2);
                }
                DeleterMove::Adopt => {
                    self.home(container, MissingContainer::Refuse).await?;
                }
                DeleterMove::Rest => return Ok(()),
            }
        }
    }

    /// Takes the turn, recording the client's request if it begins the deletion. Returns `None` if another deleter was faster.
    async fn take_turn<'a>(
        &'a self,
        container: &'a ContainerName,
        record: &Record,
        mark: DeletionMark,
        delete: Option<&Delete>,
    ) -> Result<Option<DeleterTurn<'a>>, StoreError> {
        let mut turn = DeleterTurn::of(self, container, record)?;
        let none = Preconditions::default();
        let (preconditions, lease) = match delete {
            Some(delete) => (&delete.preconditions, delete.lease),
            None => (&none, LeaseUse::Read(None)),
        };
        match turn.change(turn.marked(mark), preconditions, lease).await? {
            Outcome::Written(_) => {
                turn.begun = self.driver.clock().now();
                Ok(Some(turn))
            }
            Outcome::Refused(Refusal::Stale) => Ok(None),
            outcome => Err(refused(outcome, self.driver.now()).of_container()),
        }
    }
}

/// A deleter's turn.
struct DeleterTurn<'a> {
    shared: &'a StoreState,
    container: &'a ContainerName,
    key: Key,
    home: LiveContainer,
    payload: ContainerPayload,
    mark: DeletionMark,
    /// Version of the container's record that contains the turn.
    generation: Revision,
    /// Time at which the container was marked at the latest, by this process's clock.
    begun: Timestamp,
    until: Timestamp,
}

impl<'a> DeleterTurn<'a> {
    /// Prepares to take the turn, or to end it.
    fn of(
        shared: &'a StoreState,
        container: &'a ContainerName,
        record: &Record,
    ) -> Result<Self, StoreError> {
        let now = shared.driver.now();
        let Some(version) = record.state(now).version() else {
            return Err(contended());
        };
        let payload = ContainerPayload::of(version)?;
        let (key, home, payload) = (
            key(container)?,
            payload.home(version),
            payload.later(version),
        );
        let (mark, generation) = (DeletionMark::Closing, version.generation());
        Ok(Self {
            shared,
            container,
            key,
            home,
            payload,
            mark,
            generation,
            begun: now,
            until: now,
        })
    }

    /// Deletes the container, or opens it again. Stops waiting at `give_up` for a write in flight that may end in a blob.
    async fn run(mut self, lease: LeaseUse, give_up: Timestamp) -> Result<(), StoreError> {
        let context = DeletionContext {
            incarnations: self.shared.capability.metadata,
            memories: self.shared.member_cache.is_enabled(),
        };
        let mut result = Ok(());
        let mut next = Some(DeleterStep::first(self.mark, context));
        while let Some(step) = next {
            let ended = match self.carry_out(step, lease, give_up).await {
                Ok(ended) => ended,
                Err(error) => {
                    if result.is_ok() {
                        result = Err(error);
                    } else {
                        tracing::warn!(container = %self.container, %error, "a deleter's turn is left to expire");
                    }
                    StepOutcome::Failed
                }
            };
            next = step.next(ended, context);
            if next == Some(DeleterStep::Yield)
                && !matches!(&result, Err(error) if is_in_flight(error))
            {
                result = result.map_err(lost);
            }
        }
        result
    }

    async fn carry_out(
        &mut self,
        step: DeleterStep,
        lease: LeaseUse,
        give_up: Timestamp,
    ) -> Result<StepOutcome, StoreError> {
        match step {
            DeleterStep::AwaitWriters(mark) => {
                self.await_writers((mark == DeletionMark::Closing).then_some(give_up))
                    .await?;
            }
            DeleterStep::Look => self.look().await?,
            DeleterStep::Begin => {
                match self
                    .change(
                        self.marked(DeletionMark::Deleting),
                        &Preconditions::NONE,
                        lease,
                    )
                    .await?
                {
                    Outcome::Written(_) => {}
                    outcome => return Err(refused(outcome, self.now()).of_container()),
                }
            }
            DeleterStep::Sweep | DeleterStep::SweepAgain => {
                return Ok(if self.sweep().await? > 0 {
                    StepOutcome::Removed
                } else {
                    StepOutcome::Done
                });
            }
            DeleterStep::Outlast => self.outlast_memories().await,
            DeleterStep::Forget => self.forget_blobs().await?,
            DeleterStep::End => self.replace(DeleterSwap::End).await?,
            DeleterStep::Open => self.replace(DeleterSwap::Open).await?,
            DeleterStep::Yield => {
                self.replace(DeleterSwap::Mark(self.mark, self.now()))
                    .await?;
            }
        }
        Ok(StepOutcome::Done)
    }

    /// Waits until all writes have ended that may have begun without knowing of the mark: those with a permit, once no
    /// process relies on an earlier response. A later write looks for the mark under its permit, and is refused.
    ///
    /// # Errors
    /// [`StoreErrorKind::InFlight`] if a write still has its permit at `give_up`.
    async fn await_writers(&mut self, give_up: Option<Timestamp>) -> Result<(), StoreError> {
        self.outlast_memories().await;
        let (prefix, mut after) = (self.prefix(), None);
        while let Some(records) = self.shared.records(&prefix, &mut after).await? {
            for (key, record) in records {
                self.keep_turn().await?;
                let Some(found) = record.permit(Timestamp::default()) else {
                    continue;
                };
                let driver = &self.shared.driver;
                // The permit expires by the clock of the blob's key, and the turn by the clock of the container's.
                while let Some(permit) = driver
                    .load(&key)
                    .await
                    .map_err(of_driver)?
                    .permit(driver.now())
                {
                    if permit.token != found.token {
                        break;
                    }
                    if give_up.is_some_and(|give_up| driver.clock().now() >= give_up) {
                        return Err(contended());
                    }
                    self.keep_turn().await?;
                    driver.clock().sleep(PAUSE).await;
                }
            }
        }
        Ok(())
    }

    /// Fails if the container has blobs.
    async fn look(&mut self) -> Result<(), StoreError> {
        self.shared.check_owner().await?;
        self.keep_turn().await?;
        let listing = self.shared.has_blobs(self.container, self.home.members());
        let has_blobs = self
            .in_turn(listing)
            .await
            .map_err(|_elapsed| contended())??;
        if has_blobs {
            Err(StoreErrorKind::ContainerNotEmpty.into())
        } else {
            Ok(())
        }
    }

    /// Deletes the listed objects and returns their number.
    async fn sweep(&mut self) -> Result<usize, StoreError> {
        self.shared.check_owner().await?;
        let folder = self.shared.folder(self.container);
        let mut listed = self.shared.backing.objects.list(Some(&folder)).chunks(PAGE);
        let mut deleted = 0;
        loop {
            self.keep_turn().await?;
            if (self.shared.backing.allowance)() < RESERVE {
                return Err(StoreErrorKind::InFlight { retry_after: RETRY }.into());
            }
            let Some(objects) = self.in_turn(listed.next()).await.map_err(lost)? else {
                return Ok(deleted);
            };
            let objects = objects
                .into_iter()
                .filter(|object| !object.as_ref().is_err_and(failure::is_absence));
            let locations = objects.map(|object| Ok(object?.location));
            let locations = locations
                .collect::<object_store::Result<Vec<_>>>()
                .map_err(failure::of_read)?;
            self.keep_turn().await?;
            deleted += self.remove(locations).await?;
        }
    }

    /// Deletes objects, and returns the number deleted. Ends so early in the turn that no deletion without a response outlasts it, even
    /// if the register fails: a late one must not reach a blob of the next container.
    async fn remove(&self, locations: Vec<Path>) -> Result<usize, StoreError> {
        let driver = &self.shared.driver;
        let objects = &self.shared.backing.objects;
        let removed = objects.delete_stream(iter(locations).map(Ok).boxed());
        let left = driver.now().until(self.until).saturating_sub(GRACE);
        let end = driver.now().saturating_add(left);
        // Waits for all of them, even after a failure.
        let removed = driver.until(end, removed.map(counted).collect::<Vec<_>>());
        let removed = removed
            .await
            .unwrap_or_else(|elapsed| vec![Err(lost(elapsed))]);
        if removed
            .iter()
            .any(|removed| removed.as_ref().is_err_and(is_lost))
        {
            driver.clock().sleep(GRACE).await;
        }
        removed.into_iter().sum()
    }

    /// Waits until no write relies on a response from before the mark.
    async fn outlast_memories(&self) {
        if self.shared.member_cache.is_enabled() {
            let clock = self.shared.driver.clock();
            clock
                .sleep(
                    clock
                        .now()
                        .until(self.begun.saturating_add(FORGOTTEN_AFTER)),
                )
                .await;
        }
    }

    /// Removes the records of the blobs, except those being written. On a platform that limits requests, upkeep does so
    /// later.
    async fn forget_blobs(&mut self) -> Result<(), StoreError> {
        if (self.shared.backing.allowance)() < usize::MAX {
            return Ok(());
        }
        let (prefix, mut after) = (self.prefix(), None);
        while let Some(records) = self.shared.records(&prefix, &mut after).await? {
            for (key, record) in records {
                self.keep_turn().await?;
                if record.permit(self.now()).is_none() {
                    let register = self.shared.driver.register();
                    register
                        .compare_and_swap(&key, record.revision(), None)
                        .await
                        .map_err(of_register)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the time that the end of the turn is compared with.
    fn now(&self) -> Timestamp {
        self.shared.driver.now()
    }

    /// Works until shortly before the end of the turn.
    async fn in_turn<T>(&self, work: impl Future<Output = T>) -> Result<T, Elapsed> {
        let end = self.shared.end_of_work(self.until);
        self.shared.driver.until(end, work).await
    }

    fn prefix(&self) -> String {
        format!("{KEYS}{}/", self.container)
    }

    fn marked(&self, mark: DeletionMark) -> DeleterSwap {
        DeleterSwap::Mark(mark, self.now().saturating_add(TURN))
    }

    /// Renews the turn once half of it has passed.
    async fn keep_turn(&mut self) -> Result<(), StoreError> {
        if self.now().until(self.until) < TURN / 2 {
            self.replace(self.marked(self.mark)).await
        } else {
            Ok(())
        }
    }

    /// Changes the container's record, if this deleter still has the turn.
    async fn replace(&mut self, change: DeleterSwap) -> Result<(), StoreError> {
        match self
            .change(change, &Preconditions::NONE, LeaseUse::Read(None))
            .await?
        {
            Outcome::Written(_) => Ok(()),
            outcome => Err(lost(refused(outcome, self.now()))),
        }
    }

    async fn change(
        &mut self,
        change: DeleterSwap,
        preconditions: &Preconditions,
        lease: LeaseUse,
    ) -> Result<Outcome, StoreError> {
        let content = self.payload.changed(change)?;
        let command = Write::new(&Method::DELETE, preconditions, content, nonce()?)
            .with_lease(lease)
            .with_based_on(Some(self.generation));
        let applied = self
            .shared
            .driver
            .apply(&self.key, &Command::Write(command))
            .await;
        if let DeleterSwap::Mark(mark, until) = change {
            if !matches!(&applied, Ok(applied) if matches!(applied.outcome, Outcome::Refused(_))) {
                // No read may rely on an earlier response.
                let (cache, now) = (&self.shared.member_cache, self.shared.driver.clock().now());
                cache.keep(
                    self.container,
                    cache.ask(now),
                    mark.registered(self.home, until),
                );
            }
            if matches!(&applied, Ok(applied) if matches!(applied.outcome, Outcome::Written(_))) {
                (self.mark, self.until) = (mark, until);
            }
        }
        let outcome = applied.map_err(of_driver)?.outcome;
        if let Outcome::Written(receipt) = &outcome {
            self.generation = receipt.generation;
        }
        Ok(outcome)
    }
}

/// Returns the number of objects deleted by one deletion.
fn counted(removed: object_store::Result<Path>) -> Result<usize, StoreError> {
    match removed {
        Ok(_) => Ok(1),
        Err(error) if failure::is_absence(&error) => Ok(0),
        Err(error) => match failure::of_write(error) {
            WriteFailure::Changed => Err(contended()),
            WriteFailure::TooSoon(error)
            | WriteFailure::Definite(error)
            | WriteFailure::Unknown(error) => Err(error),
        },
    }
}

/// Returns `true` if a deletion may have taken effect, or still may.
fn is_lost(error: &StoreError) -> bool {
    *error.kind() == StoreErrorKind::OutcomeUnknown
}

fn is_in_flight(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::InFlight { .. })
}
