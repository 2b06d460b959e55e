//! Container deletion: one swap marks the container as being deleted and hides its blobs; then its objects are deleted.
//!
//! The mark stays until all objects are gone, even if the deleter stops. Deleters take turns, and each renews its turn
//! while it works: deletions are unconditional, so a slow deleter's request must not reach the blobs of a later
//! container. Any request to the container, in any process, can take over an expired turn.
//!
//! The deletion of an empty container first takes a turn with another mark, see [`close_container`](super::close_container).

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{StreamExt, iter};
use http::Method;
use ifmatch_core::command::{Command, Content, Outcome, Refusal, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::Key;
use ifmatch_runtime::nonce;
use ifmatch_runtime::task::{Elapsed, detach};
use object_store::path::Path;

use super::failure::{self, Failure, lost, refused};
use super::incarnation::{Home, Mark, Payload, RETRY, Registered, key};
use super::members::FORGOTTEN_AFTER;
use super::permit::{GRACE, of_driver, of_register};
use super::shared::{PATIENCE, Shared};
use super::write::contended;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{Delete, StoreError, StoreErrorKind};

/// Maximum number of objects per deletion, the number that stores delete in one request.
const PAGE: usize = 1_000;
/// Number of requests reserved for the end of a turn, if the platform limits them.
const RESERVE: usize = 8;
/// Duration of a deleter's turn. It is renewed halfway through.
const TURN: Duration = Duration::from_mins(1);
/// Pause before rereading a record that is about to change; grows up to [`RETRY`].
pub(super) const PAUSE: Duration = Duration::from_millis(10);

impl Shared {
    /// Deletes a container with all its blobs, or with [`Mark::Closing`], if it has none.
    pub(super) async fn delete_container(
        this: &Arc<Self>,
        container: &ContainerName,
        delete: Delete,
        mark: Mark,
    ) -> Result<(), StoreError> {
        this.must_keep_containers()?;
        let (this, container) = (Arc::clone(this), container.clone());
        super::write::in_a_task(async move { this.erase(&container, &delete, mark).await }).await
    }

    /// Resumes an interrupted deletion without waiting for its end.
    pub(super) fn resume_deletion(&self, container: &ContainerName) {
        let Some(this) = self.me.upgrade() else { return };
        let container = container.clone();
        drop(detach(async move {
            match this.finish_deletion(&container).await {
                Ok(()) => tracing::info!(%container, "completed or undid an interrupted deletion"),
                Err(error) => tracing::warn!(%container, %error, "an interrupted deletion is still incomplete"),
            }
        }));
    }

    /// Continues the deletion of a container, if it is being deleted and no deleter has the turn. Reopens a
    /// container whose deleter stopped before it knew whether the container is empty.
    pub(super) async fn finish_deletion(&self, container: &ContainerName) -> Result<(), StoreError> {
        let key = key(container)?;
        let record = self.driver.load(&key).await.map_err(of_driver)?;
        let now = self.driver.now();
        match Registered::of(&record, now)? {
            Registered::Closing(_, until) if until <= now => self.reopen(container, &record).await,
            Registered::Deleting(until) if until <= now => {
                match self.take_turn(container, &record, Mark::Deleting, None).await? {
                    Some(turn) => turn.drain().await,
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    async fn erase(&self, container: &ContainerName, delete: &Delete, mark: Mark) -> Result<(), StoreError> {
        let key = key(container)?;
        let give_up = self.driver.clock().now().saturating_add(PATIENCE);
        let mut pause = PAUSE;
        loop {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let now = self.driver.now();
            let turn = match Registered::of(&record, now)? {
                // Only a container that seems to be empty refuses writes.
                Registered::Known(home)
                    if mark == Mark::Closing && self.has_blobs(container, home.members()).await? =>
                {
                    return Err(StoreErrorKind::ContainerNotEmpty.into());
                }
                Registered::Known(_) => self.take_turn(container, &record, mark, Some(delete)).await?,
                Registered::Closing(_, until) if until <= now => {
                    self.reopen(container, &record).await?;
                    None
                }
                Registered::Deleting(until) if until <= now => {
                    self.take_turn(container, &record, Mark::Deleting, None).await?
                }
                Registered::Closing(..) | Registered::Deleting(_) if self.driver.clock().now() >= give_up => {
                    return Err(contended());
                }
                Registered::Closing(..) | Registered::Deleting(_) => {
                    self.driver.clock().sleep(pause).await;
                    pause = RETRY.min(pause * 2);
                    None
                }
                Registered::Gone(_) => {
                    self.expect(container).await?;
                    None
                }
            };
            match turn {
                Some(turn) if turn.is_closing() => return turn.delete_if_empty(delete, give_up).await,
                Some(turn) => return turn.drain().await,
                None => {}
            }
        }
    }

    /// Takes the turn to delete a container, recording the client's request if it begins the deletion. Returns `None`
    /// if another deleter was faster.
    pub(super) async fn take_turn<'a>(
        &'a self,
        container: &'a ContainerName,
        record: &Record,
        mark: Mark,
        delete: Option<&Delete>,
    ) -> Result<Option<Turn<'a>>, StoreError> {
        let now = self.driver.now();
        let Some(version) = record.state(now).version() else { return Err(contended()) };
        let payload = Payload::of(version)?;
        let mut turn = Turn {
            shared: self,
            container,
            key: key(container)?,
            home: payload.home(version),
            payload: payload.later(version).open(),
            mark,
            generation: version.generation(),
            begun: now,
            until: now,
        };
        let none = Preconditions::default();
        let (preconditions, lease) = match delete {
            Some(delete) => (&delete.preconditions, delete.lease),
            None => (&none, LeaseUse::Read(None)),
        };
        match turn.mark(mark, preconditions, lease).await? {
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
pub(super) struct Turn<'a> {
    pub(super) shared: &'a Shared,
    pub(super) container: &'a ContainerName,
    key: Key,
    pub(super) home: Home,
    /// The record's payload without the mark.
    pub(super) payload: Payload,
    mark: Mark,
    /// Version of the container's record that contains the turn.
    generation: Revision,
    /// Time at which the container was marked at the latest, by this process's clock.
    begun: Timestamp,
    until: Timestamp,
}

impl Turn<'_> {
    fn is_closing(&self) -> bool {
        self.mark == Mark::Closing
    }

    /// Deletes all objects of the container, then its record.
    pub(super) async fn drain(mut self) -> Result<(), StoreError> {
        match self.empty().await {
            Ok(()) => self.replace(Content::Absent).await,
            // The next request to the container completes the deletion.
            Err(error) => {
                let now = self.now();
                let content = self.marked_until(now)?;
                if let Err(error) = self.replace(content).await {
                    tracing::warn!(container = %self.container, %error, "a deleter's turn is left to expire");
                }
                Err(if matches!(error.kind(), StoreErrorKind::InFlight { .. }) { error } else { lost(error) })
            }
        }
    }

    async fn empty(&mut self) -> Result<(), StoreError> {
        if !self.shared.capability.metadata {
            self.wait_for_writers(None).await?;
        }
        while self.sweep().await? > 0 {}
        if self.outlast_memories().await {
            while self.sweep().await? > 0 {}
        }
        self.forget_blobs().await
    }

    /// Deletes the listed objects and returns their number.
    async fn sweep(&mut self) -> Result<usize, StoreError> {
        self.shared.check_owner().await?;
        let folder = self.shared.folder(self.container);
        let mut listed = self.shared.backing.objects.list(Some(&folder)).chunks(PAGE);
        let mut deleted = 0;
        loop {
            self.keep().await?;
            if (self.shared.backing.allowance)() < RESERVE {
                return Err(StoreErrorKind::InFlight { retry_after: RETRY }.into());
            }
            let Some(objects) = self.in_turn(listed.next()).await.map_err(lost)? else { return Ok(deleted) };
            let objects = objects.into_iter().filter(|object| !object.as_ref().is_err_and(failure::is_absence));
            let locations = objects.map(|object| Ok(object?.location));
            let locations = locations.collect::<object_store::Result<Vec<_>>>().map_err(failure::of_read)?;
            deleted += self.remove(locations).await?;
        }
    }

    /// Deletes objects, and returns the number deleted.
    async fn remove(&mut self, locations: Vec<Path>) -> Result<usize, StoreError> {
        let removed = self.shared.backing.objects.delete_stream(iter(locations).map(Ok).boxed());
        // Waits for all of them, even after a failure: a late one must not delete a later blob.
        let removed = self.in_turn(removed.map(counted).collect::<Vec<_>>()).await;
        let removed = removed.unwrap_or_else(|elapsed| vec![Err(lost(elapsed))]);
        if removed.iter().any(|removed| removed.as_ref().is_err_and(is_lost)) {
            self.renew().await?;
            self.shared.driver.clock().sleep(GRACE).await;
        }
        removed.into_iter().sum()
    }

    /// Waits until no write relies on an answer from before the mark. Returns `true` if some could.
    async fn outlast_memories(&self) -> bool {
        let is_enabled = self.shared.member_cache.is_enabled();
        if is_enabled {
            let clock = self.shared.driver.clock();
            clock.sleep(clock.now().until(self.begun.saturating_add(FORGOTTEN_AFTER))).await;
        }
        is_enabled
    }

    /// Waits until all writes have ended that may have begun without knowing of the mark: those with a permit, once no
    /// process relies on an earlier answer. A later write looks for the mark under its permit, and is refused.
    ///
    /// # Errors
    /// [`StoreErrorKind::InFlight`] if a write still has its permit at `give_up`.
    pub(super) async fn wait_for_writers(&mut self, give_up: Option<Timestamp>) -> Result<(), StoreError> {
        self.outlast_memories().await;
        let (prefix, mut after) = (self.prefix(), None);
        while let Some(records) = self.shared.records(&prefix, &mut after).await? {
            for (key, record) in records {
                self.keep().await?;
                let Some(found) = record.permit(Timestamp::default()) else { continue };
                let driver = &self.shared.driver;
                // A permit ends by the time of its blob's key, the turn by that of the container's.
                while let Some(permit) = driver.load(&key).await.map_err(of_driver)?.permit(driver.now()) {
                    if permit.token != found.token {
                        break;
                    }
                    if give_up.is_some_and(|give_up| driver.clock().now() >= give_up) {
                        return Err(contended());
                    }
                    self.keep().await?;
                    driver.clock().sleep(PAUSE).await;
                }
            }
        }
        Ok(())
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
                self.keep().await?;
                if record.permit(self.shared.driver.now()).is_none() {
                    let register = self.shared.driver.register();
                    register.compare_and_swap(&key, record.revision(), None).await.map_err(of_register)?;
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
    pub(super) async fn in_turn<T>(&self, work: impl Future<Output = T>) -> Result<T, Elapsed> {
        let end = self.shared.end_of_work(self.until);
        self.shared.driver.until(end, work).await
    }

    fn marked_until(&self, until: Timestamp) -> Result<Content, StoreError> {
        self.payload.clone().marked(self.mark, until).content()
    }

    fn prefix(&self) -> String {
        format!("{}{}/", super::permit::KEYS, self.container)
    }

    /// Renews the turn once half of it has passed.
    pub(super) async fn keep(&mut self) -> Result<(), StoreError> {
        if self.now().until(self.until) < TURN / 2 { self.renew().await } else { Ok(()) }
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        let until = self.now().saturating_add(TURN);
        let content = self.marked_until(until)?;
        self.replace(content).await?;
        self.until = until;
        Ok(())
    }

    /// Marks the container from now on, if this deleter still has the turn.
    pub(super) async fn mark(
        &mut self,
        mark: Mark,
        preconditions: &Preconditions,
        lease: LeaseUse,
    ) -> Result<Outcome, StoreError> {
        let until = self.now().saturating_add(TURN);
        let content = self.payload.clone().marked(mark, until).content()?;
        let outcome = self.write(content, preconditions, lease).await;
        if !matches!(outcome, Ok(Outcome::Refused(_))) {
            // No read may rely on an earlier answer.
            let (cache, now) = (&self.shared.member_cache, self.shared.driver.clock().now());
            cache.keep(self.container, cache.ask(now), mark.registered(self.home, until));
        }
        if matches!(outcome, Ok(Outcome::Written(_))) {
            (self.mark, self.until) = (mark, until);
        }
        outcome
    }

    /// Replaces the content of the container's record, if this deleter still has the turn.
    pub(super) async fn replace(&mut self, content: Content) -> Result<(), StoreError> {
        match self.write(content, &Preconditions::default(), LeaseUse::Read(None)).await? {
            Outcome::Written(_) => Ok(()),
            outcome => Err(lost(refused(outcome, self.now()))),
        }
    }

    async fn write(
        &mut self,
        content: Content,
        preconditions: &Preconditions,
        lease: LeaseUse,
    ) -> Result<Outcome, StoreError> {
        let command = Write::new(&Method::DELETE, preconditions, content, nonce().map_err(of_register)?)
            .with_lease(lease)
            .with_based_on(Some(self.generation));
        let applied = self.shared.driver.apply(&self.key, &Command::Write(command)).await.map_err(of_driver)?;
        if let Outcome::Written(receipt) = &applied.outcome {
            self.generation = receipt.generation;
        }
        Ok(applied.outcome)
    }
}

/// Returns the number of objects deleted by one deletion.
fn counted(removed: object_store::Result<Path>) -> Result<usize, StoreError> {
    match removed {
        Ok(_) => Ok(1),
        Err(error) if failure::is_absence(&error) => Ok(0),
        Err(error) => match failure::of_write(error) {
            Failure::Changed => Err(contended()),
            Failure::TooSoon(error) | Failure::Definite(error) | Failure::Unknown(error) => Err(error),
        },
    }
}

/// Returns `true` if a deletion may have taken effect, or still may.
fn is_lost(error: &StoreError) -> bool {
    *error.kind() == StoreErrorKind::OutcomeUnknown
}
