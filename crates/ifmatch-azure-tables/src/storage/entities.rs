//! The entities of a table, as blobs in the store.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobStore, Current, Reading, StoreError, StoreErrorKind, Updated};
use ifmatch_core::EntityTag;
use ifmatch_core::record::Revision;
use ifmatch_runtime::{Clock, KeyedQueue};

use crate::entity::key::EntityKey;
use crate::error::{ErrorCode, TableError};
use crate::storage::change::{DecisionAttempt, EntityChange, KnownBatch};
use crate::storage::partition::{BatchState, EntityContent, PartitionBatches, StoredEntity};
use crate::storage::tables::{AccountContainers, Table};
use crate::storage::{bytes, numbered, random, update};

/// Maximum number of attempts if batches are in the way, or other writers of a batch's entities.
pub(super) const ATTEMPTS: u32 = 100;
/// Number of attempts after which an undecided batch is rejected.
const PATIENCE: u32 = 10;
/// The first pause between attempts; pauses double.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A table's entities.
pub(crate) struct TableEntities<'a> {
    pub(crate) store: &'a dyn BlobStore,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) containers: &'a AccountContainers,
    /// The batches of each partition that wait in this process, by its record.
    pub(crate) turns: &'a KeyedQueue<BlobPath>,
    pub(crate) table: &'a Table,
}

/// The blob of an entity before a write.
#[derive(Clone, Debug)]
pub(super) struct FoundEntity {
    /// The entity, unless there is none although there is a blob.
    pub(super) stored: Option<StoredEntity>,
    /// The strong tag that a write of the next version requires.
    pub(super) tag: EntityTag,
    /// The batch that may change the entity, if it isn't decided.
    pub(super) undecided: Option<String>,
}

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
            match self.batches_of(&change.key).await?.state(&met) {
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

    /// Returns the number of batches that have taken effect in a partition.
    pub(crate) async fn batches(&self, partition: &str) -> Result<u64, TableError> {
        let key = EntityKey::new(partition, "")?;
        Ok(self.batches_of(&key).await?.count)
    }

    /// Gives a batch time to be decided, and rejects it after some attempts: its process may have ended.
    pub(super) async fn wait_for(
        &self,
        key: &EntityKey,
        batch: &str,
        attempt: u32,
    ) -> Result<(), TableError> {
        if attempt < PATIENCE {
            return Ok(());
        }
        let record = self.record(key)?;
        let decided = PartitionBatches::decide(self.store, &record, batch, false).await;
        decided.map(drop)
    }

    /// Loads an entity, and names the batch that may change it.
    pub(super) async fn load(&self, key: &EntityKey) -> Result<Option<FoundEntity>, TableError> {
        let blob = self.blob(key)?;
        let mut last: Option<EntityTag> = None;
        for _ in 0..ATTEMPTS {
            let reading = Reading::WHOLE.without_lease();
            let Some(opened) = self.store.open(&blob, reading).await? else {
                return Ok(None);
            };
            let generation = numbered(opened.info.generation)?;
            let tag = opened.info.tag.clone().filter(|tag| !tag.is_weak());
            let tag = tag.ok_or_else(|| {
                let why = "the store does not provide strong tags";
                StoreError::new(StoreErrorKind::Unsupported, why)
            })?;
            let (stored, undecided) = match EntityContent::decode(&bytes(opened).await?)? {
                EntityContent::Plain(entity, own) => {
                    let generation = own.unwrap_or(generation);
                    (Some(StoredEntity { entity, generation }), None)
                }
                EntityContent::Intent(intent) => {
                    match self.batches_of(key).await?.state(&intent.batch) {
                        BatchState::Committed => (intent.outcome(true, generation), None),
                        BatchState::Rejected => (intent.outcome(false, generation), None),
                        // The batch may have been committed and finished after the intent was read: read it again.
                        BatchState::Unknown if last.as_ref() != Some(&tag) => {
                            last = Some(tag);
                            continue;
                        }
                        BatchState::Unknown => {
                            let batch = intent.batch.clone();
                            (intent.outcome(false, generation), Some(batch))
                        }
                    }
                }
            };
            return Ok(Some(FoundEntity {
                stored,
                tag,
                undecided,
            }));
        }
        Err(busy())
    }

    /// Loads the record of the batches of the key's partition.
    async fn batches_of(&self, key: &EntityKey) -> Result<PartitionBatches, TableError> {
        Ok(PartitionBatches::load(self.store, &self.record(key)?).await?)
    }

    /// Returns the blob of an entity.
    pub(super) fn blob(&self, key: &EntityKey) -> Result<BlobPath, TableError> {
        Ok(BlobPath {
            container: self.containers.entities.clone(),
            name: key.name_in(&self.table.identity)?,
        })
    }

    /// Returns the record of the batches of the key's partition.
    pub(super) fn record(&self, key: &EntityKey) -> Result<BlobPath, TableError> {
        Ok(BlobPath {
            container: self.containers.entities.clone(),
            name: key.record_in(&self.table.identity)?,
        })
    }

    /// Waits before another attempt, for a random part of an increasing pause.
    pub(super) async fn pause(&self, attempt: u32) -> Result<(), TableError> {
        if attempt > 0 {
            // The shift must not overflow: 16 doublings exceed the longest pause.
            let longest = FIRST_PAUSE.saturating_mul(1 << attempt.min(16));
            let longest = longest.min(LONGEST_PAUSE).as_micros();
            let longest = u64::try_from(longest).unwrap_or(u64::MAX);
            let pause = Duration::from_micros(random()? % longest);
            self.clock.sleep(pause).await;
        }
        Ok(())
    }
}

/// The error after too many attempts.
pub(super) fn busy() -> TableError {
    TableError::new(ErrorCode::ServerBusy)
        .detail("other writers changed the entity before each attempt")
}
