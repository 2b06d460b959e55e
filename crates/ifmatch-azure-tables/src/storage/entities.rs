//! The entities of a table, as blobs in the store.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::EntityTag;
use ifmatch_core::record::Revision;
use ifmatch_runtime::Clock;

use ifmatch_core::precondition::Preconditions;

use crate::entity::etag::IfMatch;
use crate::entity::key::EntityKey;
use crate::entity::properties::Entity;
use crate::error::{Code, TableError};
use crate::storage::partition::{Batches, Content, Intent, State};
use crate::storage::tables::{AccountContainers, Table};
use crate::storage::{bytes, is_refused, put};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobStore, Delete, Reading, StoreError, StoreErrorKind};

/// A table's entities.
pub(crate) struct Entities<'a> {
    pub(crate) store: &'a dyn BlobStore,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) containers: &'a AccountContainers,
    pub(crate) table: &'a Table,
}

/// A version of an entity.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) entity: Entity,
    pub(crate) generation: Revision,
}

/// The blob of an entity before a write.
#[derive(Clone, Debug)]
struct Before {
    /// The entity, unless there is none although there is a blob.
    stored: Option<Stored>,
    /// The strong tag that a write of the next version requires.
    tag: EntityTag,
    /// The batch that may change the entity, if it isn't decided.
    undecided: Option<String>,
}

/// A change to an entity.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    Replace(&'a Entity),
    Merge(&'a Entity),
    Delete,
}

/// Maximum number of attempts if other writers are faster.
const ATTEMPTS: u32 = 100;
/// Number of attempts after which an undecided batch is rejected.
const PATIENCE: u32 = 10;
/// The first and the longest pause between attempts; pauses double.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

impl Entities<'_> {
    /// Returns the entity with this key.
    pub(crate) async fn get(&self, key: &EntityKey) -> Result<Option<Stored>, TableError> {
        Ok(self.load(key).await?.and_then(|before| before.stored))
    }

    /// Inserts an entity and returns its generation. Of several concurrent inserts one succeeds.
    pub(crate) async fn insert(&self, key: &EntityKey, entity: &Entity) -> Result<Revision, TableError> {
        entity.check(key)?;
        let blob = self.blob(key)?;
        for attempt in 0..ATTEMPTS {
            self.pause(attempt).await?;
            // Usually there is no blob. One without an entity is left by a batch.
            let preconditions = match attempt {
                0 => Preconditions::absent(),
                _ => match self.load(key).await? {
                    None => Preconditions::absent(),
                    Some(before) if before.stored.is_some() => return Err(TableError::new(Code::EntityAlreadyExists)),
                    Some(Before { undecided: Some(batch), .. }) => {
                        self.wait_for(key, &batch, attempt).await?;
                        continue;
                    }
                    Some(before) => Preconditions::unchanged(Some(&before.tag)),
                },
            };
            match self.store.put(&blob, put(entity.encode(), preconditions)).await {
                Ok(written) => return numbered(written.generation),
                Err(error) if is_refused(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(busy())
    }

    /// Changes an entity and returns its new generation.
    ///
    /// Every change is bound to the version that it replaces, since that may be part of a batch: if another writer is faster, the
    /// store rejects the write, and the change is applied to the new version.
    pub(crate) async fn change(
        &self,
        key: &EntityKey,
        guard: &IfMatch,
        change: Change<'_>,
    ) -> Result<Option<Revision>, TableError> {
        let blob = self.blob(key)?;
        for attempt in 0..ATTEMPTS {
            self.pause(attempt).await?;
            let before = self.load(key).await?;
            let stored = before.as_ref().and_then(|before| before.stored.as_ref());
            guard.check(stored.map(|stored| stored.generation))?;
            if let Some(batch) = before.as_ref().and_then(|before| before.undecided.as_ref()) {
                self.wait_for(key, batch, attempt).await?;
                continue;
            }
            let preconditions = before
                .as_ref()
                .map_or_else(Preconditions::absent, |before| Preconditions::unchanged(Some(&before.tag)));
            let written = match change.of(key, stored)? {
                Some(entity) => {
                    let written = self.store.put(&blob, put(entity.encode(), preconditions)).await;
                    written.map(|written| written.generation)
                }
                None => self.store.delete(&blob, Delete { preconditions, ..Delete::default() }).await.map(|()| None),
            };
            match written {
                Ok(None) if matches!(change, Change::Delete) => return Ok(None),
                Ok(generation) => return Ok(Some(numbered(generation)?)),
                Err(error) if error.kind().is_overtaken() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(busy())
    }

    /// Makes all changes to entities of one partition, or none, and returns the generations. See [`partition`](super::partition).
    ///
    /// # Errors
    /// The index of the change that can't be made, and the reason.
    pub(crate) async fn change_all(
        &self,
        changes: &[BatchChange],
    ) -> Result<Vec<Option<Revision>>, (usize, TableError)> {
        let Some(first) = changes.first() else { return Ok(Vec::new()) };
        let record = self.record(&first.key).map_err(|error| (0, error))?;
        // Batches place their intents in one order, so they don't reject each other in turn.
        let mut order: Vec<usize> = (0..changes.len()).collect();
        order.sort_by(|one, other| changes[*one].key.cmp(&changes[*other].key));
        'attempts: for attempt in 0..ATTEMPTS {
            self.pause(attempt).await.map_err(|error| (0, error))?;
            let mut planned = Vec::with_capacity(changes.len());
            for (index, change) in changes.iter().enumerate() {
                let failed = |error| (index, error);
                let before = self.load(&change.key).await.map_err(failed)?;
                let stored = before.as_ref().and_then(|before| before.stored.as_ref());
                let after = change.after(stored).map_err(failed)?;
                if let Some(batch) = before.as_ref().and_then(|before| before.undecided.as_ref()) {
                    self.wait_for(&change.key, batch, attempt).await.map_err(failed)?;
                    continue 'attempts;
                }
                planned.push((before, after));
            }
            let failed = |error| (0, error);
            let batch =
                format!("{:032x}", u128::from(random().map_err(failed)?) << 64 | u128::from(random().map_err(failed)?));
            let mut placed: Vec<Placed> = Vec::new();
            for index in &order {
                let (before, after) = &planned[*index];
                let preconditions = before
                    .as_ref()
                    .map_or_else(Preconditions::absent, |before| Preconditions::unchanged(Some(&before.tag)));
                let stored = before.as_ref().and_then(|before| before.stored.clone());
                let intent = Intent {
                    batch: batch.clone(),
                    before: stored.map(|stored| (stored.entity, stored.generation)),
                    after: after.clone(),
                };
                let blob = self.blob(&changes[*index].key).map_err(|error| (*index, error))?;
                let content = Content::Intent(intent.clone()).encode();
                match self.store.put(&blob, put(content, preconditions)).await {
                    Ok(written) => {
                        let generation = numbered(written.generation).map_err(failed)?;
                        placed.push(Placed { index: *index, blob, tag: written.tag, generation, intent });
                    }
                    Err(error) => {
                        // Without the commit, nothing has changed: the intents can go in any order, now or later.
                        self.finish(&record, &batch, &placed, false).await;
                        if error.kind().is_overtaken() {
                            continue 'attempts;
                        }
                        return Err((*index, error.into()));
                    }
                }
            }
            let is_committed = Batches::decide(self.store, &record, &batch, true).await.map_err(failed)?;
            self.finish(&record, &batch, &placed, is_committed).await;
            if is_committed {
                let mut generations = vec![None; changes.len()];
                for Placed { index, generation, intent, .. } in placed {
                    generations[index] = intent.after.map(|_| generation);
                }
                return Ok(generations);
            }
        }
        Err((0, busy()))
    }

    /// Replaces the intents of a batch that is decided, and removes it from the record. Others read the intents that are left by the record.
    async fn finish(&self, record: &BlobPath, batch: &str, placed: &[Placed], is_committed: bool) {
        let mut is_done = true;
        for Placed { blob, tag, generation, intent, .. } in placed {
            let Some(tag) = tag else { return };
            let rest = match (is_committed, intent) {
                (true, Intent { after, .. }) => after.clone().map(|after| (after, *generation)),
                (false, Intent { before, .. }) => before.clone(),
            };
            let preconditions = Preconditions::unchanged(Some(tag));
            let result = match rest {
                Some((entity, generation)) => {
                    let content = Content::Plain(entity, Some(generation)).encode();
                    self.store.put(blob, put(content, preconditions)).await.map(drop)
                }
                None => self.store.delete(blob, Delete { preconditions, ..Delete::default() }).await,
            };
            if let Err(error) = result.or_else(|error| if error.kind().is_overtaken() { Ok(()) } else { Err(error) }) {
                tracing::warn!(%error, "an intent of a batch is left");
                is_done = false;
            }
        }
        if is_done && let Err(error) = Batches::forget(self.store, record, batch).await {
            tracing::warn!(error = error.name(), "a finished batch is left in the record of its partition");
        }
    }

    /// Returns the number of batches that have taken effect in a partition.
    pub(crate) async fn batches(&self, partition: &str) -> Result<u64, TableError> {
        let key = EntityKey::new(partition, "")?;
        Ok(Batches::load(self.store, &self.record(&key)?).await?.count)
    }

    /// Gives a batch time to be decided, and rejects it after some attempts: its process may have ended.
    async fn wait_for(&self, key: &EntityKey, batch: &str, attempt: u32) -> Result<(), TableError> {
        if attempt < PATIENCE {
            return Ok(());
        }
        Batches::decide(self.store, &self.record(key)?, batch, false).await.map(drop)
    }

    async fn load(&self, key: &EntityKey) -> Result<Option<Before>, TableError> {
        let blob = self.blob(key)?;
        let mut last: Option<EntityTag> = None;
        for _ in 0..ATTEMPTS {
            let Some(opened) = self.store.open(&blob, Reading::WHOLE.without_lease()).await? else { return Ok(None) };
            let generation = numbered(opened.info.generation)?;
            let tag = opened.info.tag.clone().filter(|tag| !tag.is_weak());
            let tag = tag.ok_or_else(|| {
                StoreError::new(StoreErrorKind::Unsupported, "the store does not provide strong tags")
            })?;
            let Intent { batch, before, after } = match Content::decode(&bytes(opened).await?)? {
                Content::Plain(entity, own) => {
                    let stored = Some(Stored { entity, generation: own.unwrap_or(generation) });
                    return Ok(Some(Before { stored, tag, undecided: None }));
                }
                Content::Intent(intent) => intent,
            };
            let before = before.map(|(entity, generation)| Stored { entity, generation });
            match Batches::load(self.store, &self.record(key)?).await?.state(&batch) {
                State::Committed => {
                    let stored = after.map(|entity| Stored { entity, generation });
                    return Ok(Some(Before { stored, tag, undecided: None }));
                }
                State::Rejected => return Ok(Some(Before { stored: before, tag, undecided: None })),
                // The batch may have been committed and finished after the intent was read: read it again.
                State::Unknown if last.as_ref() == Some(&tag) => {
                    return Ok(Some(Before { stored: before, tag, undecided: Some(batch) }));
                }
                State::Unknown => last = Some(tag),
            }
        }
        Err(busy())
    }

    fn blob(&self, key: &EntityKey) -> Result<BlobPath, TableError> {
        Ok(BlobPath { container: self.containers.entities.clone(), name: key.name_in(&self.table.identity)? })
    }

    /// Returns the record of the batches of the key's partition.
    fn record(&self, key: &EntityKey) -> Result<BlobPath, TableError> {
        Ok(BlobPath { container: self.containers.entities.clone(), name: key.record_in(&self.table.identity)? })
    }

    /// Waits before another attempt, for a random part of an increasing pause.
    async fn pause(&self, attempt: u32) -> Result<(), TableError> {
        if attempt > 0 {
            let longest = PAUSE.0.saturating_mul(1 << attempt.min(16)).min(PAUSE.1);
            let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
            let random = ifmatch_runtime::nonce();
            let random = random.map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error))?;
            self.clock.sleep(Duration::from_micros(random % longest)).await;
        }
        Ok(())
    }
}

/// A change of a batch.
#[derive(Clone, Debug)]
pub(crate) struct BatchChange {
    pub(crate) key: EntityKey,
    pub(crate) operation: BatchOperation,
}

/// The operation of a change.
#[derive(Clone, Debug)]
pub(crate) enum BatchOperation {
    Insert(Entity),
    Replace(IfMatch, Entity),
    Merge(IfMatch, Entity),
    Delete(IfMatch),
}

impl BatchChange {
    /// Returns the entity after the change, or `None` if it is deleted.
    ///
    /// # Errors
    /// The change isn't possible on the entity before.
    fn after(&self, before: Option<&Stored>) -> Result<Option<Entity>, TableError> {
        let (guard, change) = match &self.operation {
            BatchOperation::Insert(_) if before.is_some() => return Err(TableError::new(Code::EntityAlreadyExists)),
            BatchOperation::Insert(entity) => (&IfMatch::None, Change::Replace(entity)),
            BatchOperation::Replace(guard, entity) => (guard, Change::Replace(entity)),
            BatchOperation::Merge(guard, entity) => (guard, Change::Merge(entity)),
            BatchOperation::Delete(guard) => (guard, Change::Delete),
        };
        guard.check(before.map(|before| before.generation))?;
        change.of(&self.key, before)
    }
}

impl Change<'_> {
    /// Returns the entity after the change, or `None` if it is deleted.
    fn of(&self, key: &EntityKey, before: Option<&Stored>) -> Result<Option<Entity>, TableError> {
        let entity = match self {
            Self::Replace(entity) => (*entity).clone(),
            Self::Merge(entity) => before.map_or_else(Entity::default, |before| before.entity.clone()).merged(entity),
            Self::Delete => return Ok(None),
        };
        entity.check(key)?;
        Ok(Some(entity))
    }
}

/// An intent in the store.
struct Placed {
    index: usize,
    blob: BlobPath,
    tag: Option<EntityTag>,
    generation: Revision,
    intent: Intent,
}

fn busy() -> TableError {
    TableError::new(Code::ServerBusy).detail("other writers changed the entity before each attempt")
}

fn random() -> Result<u64, TableError> {
    let random = ifmatch_runtime::nonce();
    Ok(random.map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error))?)
}

fn numbered(generation: Option<Revision>) -> Result<Revision, TableError> {
    let unsupported = || StoreError::new(StoreErrorKind::Unsupported, "the store does not number its writes");
    Ok(generation.ok_or_else(unsupported)?)
}
