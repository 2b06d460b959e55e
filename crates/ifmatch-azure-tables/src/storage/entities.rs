//! The entities of a table, as blobs in the store.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::EntityTag;
use ifmatch_core::record::Revision;
use ifmatch_runtime::{Clock, KeyedQueue};

use ifmatch_core::precondition::Preconditions;

use crate::entity::etag::IfMatch;
use crate::entity::key::EntityKey;
use crate::entity::properties::Entity;
use crate::error::{ErrorCode, TableError};
use crate::storage::partition::{BatchIntent, BatchState, EntityContent, PartitionBatches};
use crate::storage::tables::{AccountContainers, Table};
use crate::storage::{bytes, put, update};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    BlobStore, ContentChange, Current, Delete, Reading, StoreError, StoreErrorKind, Updated,
};

/// A table's entities.
pub(crate) struct TableEntities<'a> {
    pub(crate) store: &'a dyn BlobStore,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) containers: &'a AccountContainers,
    /// The batches of each partition that wait in this process, by its record.
    pub(crate) turns: &'a KeyedQueue<BlobPath>,
    pub(crate) table: &'a Table,
}

/// A version of an entity.
#[derive(Clone, Debug)]
pub(crate) struct StoredEntity {
    pub(crate) entity: Entity,
    pub(crate) generation: Revision,
}

/// The blob of an entity before a write.
#[derive(Clone, Debug)]
struct Before {
    /// The entity, unless there is none although there is a blob.
    stored: Option<StoredEntity>,
    /// The strong tag that a write of the next version requires.
    tag: EntityTag,
    /// The batch that may change the entity, if it isn't decided.
    undecided: Option<String>,
}

/// Maximum number of attempts if batches are in the way, or other writers of a batch's entities.
const ATTEMPTS: u32 = 100;
/// Number of attempts after which an undecided batch is rejected.
const PATIENCE: u32 = 10;
/// The first and the longest pause between attempts; pauses double.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// The result of an attempt to decide a change.
enum DecisionAttempt {
    /// The change was decided.
    Decided(Result<(), TableError>),
    /// The intent of this batch.
    Intent(String),
    /// The content can't be read.
    Damaged(StoreError),
}

/// The state of a batch, by its id.
type KnownBatch = (String, BatchState);

impl TableEntities<'_> {
    /// Returns the entity with this key.
    pub(crate) async fn get(&self, key: &EntityKey) -> Result<Option<StoredEntity>, TableError> {
        Ok(self.load(key).await?.and_then(|before| before.stored))
    }

    /// Changes an entity and returns its new generation, or `None` if it is deleted.
    ///
    /// The change is a function of the version that it replaces, so changes of one entity take turns in the store. If that version is
    /// the intent of a batch, the record of the partition tells what counts.
    pub(crate) async fn change(
        &self,
        change: EntityChange,
    ) -> Result<Option<Revision>, TableError> {
        let (blob, change) = (self.blob(&change.key)?, Arc::new(change));
        let (mut known, mut undecided): (Option<KnownBatch>, Option<String>) = (None, None);
        for attempt in 0..ATTEMPTS {
            let (decider, batch) = (Arc::clone(&change), known.take());
            let decide = move |current: Option<&Current>| decider.decide(current, batch.as_ref());
            let (updated, found) = update(self.store, &blob, decide).await?;
            let met = match found {
                DecisionAttempt::Decided(Err(error)) => return Err(error),
                DecisionAttempt::Damaged(error) => return Err(error.into()),
                DecisionAttempt::Intent(batch) => batch,
                DecisionAttempt::Decided(Ok(())) => {
                    return match updated {
                        Updated::Replaced(written) => numbered(written.generation).map(Some),
                        Updated::Deleted | Updated::Kept => Ok(None),
                    };
                }
            };
            match PartitionBatches::load(self.store, &self.record(&change.key)?)
                .await?
                .state(&met)
            {
                // The batch may have been committed and finished after the intent was read: read it again.
                BatchState::Unknown if undecided.as_ref() == Some(&met) => {
                    self.wait_for(&change.key, &met, attempt).await?;
                    self.pause(attempt).await?;
                }
                BatchState::Unknown => undecided = Some(met),
                state => known = Some((met, state)),
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
        changes: &[EntityChange],
    ) -> Result<Vec<Option<Revision>>, (usize, TableError)> {
        let Some(first) = changes.first() else {
            return Ok(Vec::new());
        };
        let record = self.record(&first.key).map_err(|error| (0, error))?;
        let mut turn = self.turns.join(&record);
        turn.front().await;
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
                    self.wait_for(&change.key, batch, attempt)
                        .await
                        .map_err(failed)?;
                    continue 'attempts;
                }
                planned.push((before, after));
            }
            let failed = |error| (0, error);
            let batch = format!(
                "{:032x}",
                u128::from(random().map_err(failed)?) << 64 | u128::from(random().map_err(failed)?)
            );
            let mut placed: Vec<Placed> = Vec::new();
            for index in &order {
                let (before, after) = &planned[*index];
                let preconditions = before
                    .as_ref()
                    .map_or_else(Preconditions::absent, |before| {
                        Preconditions::unchanged(Some(&before.tag))
                    });
                let stored = before.as_ref().and_then(|before| before.stored.clone());
                let intent = BatchIntent {
                    batch: batch.clone(),
                    before: stored.map(|stored| (stored.entity, stored.generation)),
                    after: after.clone(),
                };
                let blob = self
                    .blob(&changes[*index].key)
                    .map_err(|error| (*index, error))?;
                let content = EntityContent::Intent(intent.clone()).encode();
                match self.store.put(&blob, put(content, preconditions)).await {
                    Ok(written) => {
                        let generation = numbered(written.generation).map_err(failed)?;
                        placed.push(Placed {
                            index: *index,
                            blob,
                            tag: written.tag,
                            generation,
                            intent,
                        });
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
            let is_committed = PartitionBatches::decide(self.store, &record, &batch, true)
                .await
                .map_err(failed)?;
            self.finish(&record, &batch, &placed, is_committed).await;
            if is_committed {
                let mut generations = vec![None; changes.len()];
                for Placed {
                    index,
                    generation,
                    intent,
                    ..
                } in placed
                {
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
        for Placed {
            blob,
            tag,
            generation,
            intent,
            ..
        } in placed
        {
            let Some(tag) = tag else { return };
            let rest = match (is_committed, intent) {
                (true, BatchIntent { after, .. }) => {
                    after.clone().map(|after| (after, *generation))
                }
                (false, BatchIntent { before, .. }) => before.clone(),
            };
            let preconditions = Preconditions::unchanged(Some(tag));
            let result = match rest {
                Some((entity, generation)) => {
                    let content = EntityContent::Plain(entity, Some(generation)).encode();
                    self.store
                        .put(blob, put(content, preconditions))
                        .await
                        .map(drop)
                }
                None => {
                    self.store
                        .delete(
                            blob,
                            Delete {
                                preconditions,
                                ..Delete::default()
                            },
                        )
                        .await
                }
            };
            if let Err(error) = result.or_else(|error| {
                if error.kind().is_overtaken() {
                    Ok(())
                } else {
                    Err(error)
                }
            }) {
                tracing::warn!(%error, "an intent of a batch is left");
                is_done = false;
            }
        }
        if is_done && let Err(error) = PartitionBatches::forget(self.store, record, batch).await {
            tracing::warn!(
                error = error.name(),
                "a finished batch is left in the record of its partition"
            );
        }
    }

    /// Returns the number of batches that have taken effect in a partition.
    pub(crate) async fn batches(&self, partition: &str) -> Result<u64, TableError> {
        let key = EntityKey::new(partition, "")?;
        Ok(PartitionBatches::load(self.store, &self.record(&key)?)
            .await?
            .count)
    }

    /// Gives a batch time to be decided, and rejects it after some attempts: its process may have ended.
    async fn wait_for(&self, key: &EntityKey, batch: &str, attempt: u32) -> Result<(), TableError> {
        if attempt < PATIENCE {
            return Ok(());
        }
        PartitionBatches::decide(self.store, &self.record(key)?, batch, false)
            .await
            .map(drop)
    }

    async fn load(&self, key: &EntityKey) -> Result<Option<Before>, TableError> {
        let blob = self.blob(key)?;
        let mut last: Option<EntityTag> = None;
        for _ in 0..ATTEMPTS {
            let Some(opened) = self
                .store
                .open(&blob, Reading::WHOLE.without_lease())
                .await?
            else {
                return Ok(None);
            };
            let generation = numbered(opened.info.generation)?;
            let tag = opened.info.tag.clone().filter(|tag| !tag.is_weak());
            let tag = tag.ok_or_else(|| {
                StoreError::new(
                    StoreErrorKind::Unsupported,
                    "the store does not provide strong tags",
                )
            })?;
            let BatchIntent {
                batch,
                before,
                after,
            } = match EntityContent::decode(&bytes(opened).await?)? {
                EntityContent::Plain(entity, own) => {
                    let stored = Some(StoredEntity {
                        entity,
                        generation: own.unwrap_or(generation),
                    });
                    return Ok(Some(Before {
                        stored,
                        tag,
                        undecided: None,
                    }));
                }
                EntityContent::Intent(intent) => intent,
            };
            let before = before.map(|(entity, generation)| StoredEntity { entity, generation });
            match PartitionBatches::load(self.store, &self.record(key)?)
                .await?
                .state(&batch)
            {
                BatchState::Committed => {
                    let stored = after.map(|entity| StoredEntity { entity, generation });
                    return Ok(Some(Before {
                        stored,
                        tag,
                        undecided: None,
                    }));
                }
                BatchState::Rejected => {
                    return Ok(Some(Before {
                        stored: before,
                        tag,
                        undecided: None,
                    }));
                }
                // The batch may have been committed and finished after the intent was read: read it again.
                BatchState::Unknown if last.as_ref() == Some(&tag) => {
                    return Ok(Some(Before {
                        stored: before,
                        tag,
                        undecided: Some(batch),
                    }));
                }
                BatchState::Unknown => last = Some(tag),
            }
        }
        Err(busy())
    }

    fn blob(&self, key: &EntityKey) -> Result<BlobPath, TableError> {
        Ok(BlobPath {
            container: self.containers.entities.clone(),
            name: key.name_in(&self.table.identity)?,
        })
    }

    /// Returns the record of the batches of the key's partition.
    fn record(&self, key: &EntityKey) -> Result<BlobPath, TableError> {
        Ok(BlobPath {
            container: self.containers.entities.clone(),
            name: key.record_in(&self.table.identity)?,
        })
    }

    /// Waits before another attempt, for a random part of an increasing pause.
    async fn pause(&self, attempt: u32) -> Result<(), TableError> {
        if attempt > 0 {
            let longest = PAUSE.0.saturating_mul(1 << attempt.min(16)).min(PAUSE.1);
            let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
            let random = ifmatch_runtime::nonce();
            let random =
                random.map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error))?;
            self.clock
                .sleep(Duration::from_micros(random % longest))
                .await;
        }
        Ok(())
    }
}

/// A change of an entity.
#[derive(Clone, Debug)]
pub(crate) struct EntityChange {
    pub(crate) key: EntityKey,
    pub(crate) operation: EntityOperation,
}

/// The operation of a change.
#[derive(Clone, Debug)]
pub(crate) enum EntityOperation {
    Insert(Entity),
    Replace(IfMatch, Entity),
    Merge(IfMatch, Entity),
    Delete(IfMatch),
}

impl EntityChange {
    /// Decides the change on a blob. An intent counts as this batch's state says.
    fn decide(
        &self,
        current: Option<&Current>,
        batch: Option<&KnownBatch>,
    ) -> (ContentChange, DecisionAttempt) {
        let before = match current
            .map(|current| StoredEntity::of(current, batch))
            .transpose()
        {
            Ok(before) => before.flatten(),
            Err(found) => return (ContentChange::Keep, found),
        };
        match self.after(before.as_ref()) {
            Ok(Some(entity)) => (
                ContentChange::Replace(entity.encode().into()),
                DecisionAttempt::Decided(Ok(())),
            ),
            Ok(None) => (ContentChange::Delete, DecisionAttempt::Decided(Ok(()))),
            Err(error) => (ContentChange::Keep, DecisionAttempt::Decided(Err(error))),
        }
    }

    /// Returns the entity after the change, or `None` if it is deleted.
    ///
    /// # Errors
    /// The change isn't possible on the entity before.
    fn after(&self, before: Option<&StoredEntity>) -> Result<Option<Entity>, TableError> {
        let guard = match &self.operation {
            EntityOperation::Insert(_) if before.is_some() => {
                return Err(TableError::new(ErrorCode::EntityAlreadyExists));
            }
            EntityOperation::Insert(_) => &IfMatch::None,
            EntityOperation::Replace(guard, _)
            | EntityOperation::Merge(guard, _)
            | EntityOperation::Delete(guard) => guard,
        };
        guard.check(before.map(|before| before.generation))?;
        let entity = match &self.operation {
            EntityOperation::Insert(entity) | EntityOperation::Replace(_, entity) => entity.clone(),
            EntityOperation::Merge(_, entity) => before
                .map_or_else(Entity::default, |before| before.entity.clone())
                .merged(entity),
            EntityOperation::Delete(_) => return Ok(None),
        };
        entity.check(&self.key)?;
        Ok(Some(entity))
    }
}

impl StoredEntity {
    /// Returns the entity in a blob, or `None` if there is a blob without one.
    ///
    /// # Errors
    /// It is the intent of another batch than this one, or can't be read.
    fn of(current: &Current, batch: Option<&KnownBatch>) -> Result<Option<Self>, DecisionAttempt> {
        let generation =
            numbered(current.generation).map_err(|error| DecisionAttempt::Decided(Err(error)))?;
        let intent =
            match EntityContent::decode(&current.bytes).map_err(DecisionAttempt::Damaged)? {
                EntityContent::Plain(entity, own) => {
                    return Ok(Some(Self {
                        entity,
                        generation: own.unwrap_or(generation),
                    }));
                }
                EntityContent::Intent(intent) => intent,
            };
        match batch.filter(|(id, _)| *id == intent.batch) {
            Some((_, BatchState::Committed)) => {
                Ok(intent.after.map(|entity| Self { entity, generation }))
            }
            Some((_, BatchState::Rejected)) => Ok(intent
                .before
                .map(|(entity, generation)| Self { entity, generation })),
            _ => Err(DecisionAttempt::Intent(intent.batch)),
        }
    }
}

/// An intent in the store.
struct Placed {
    index: usize,
    blob: BlobPath,
    tag: Option<EntityTag>,
    generation: Revision,
    intent: BatchIntent,
}

fn busy() -> TableError {
    TableError::new(ErrorCode::ServerBusy)
        .detail("other writers changed the entity before each attempt")
}

fn random() -> Result<u64, TableError> {
    let random = ifmatch_runtime::nonce();
    Ok(random.map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error))?)
}

pub(crate) fn numbered(generation: Option<Revision>) -> Result<Revision, TableError> {
    let unsupported = || {
        StoreError::new(
            StoreErrorKind::Unsupported,
            "the store does not number its writes",
        )
    };
    Ok(generation.ok_or_else(unsupported)?)
}
