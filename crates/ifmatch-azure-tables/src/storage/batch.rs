//! The steps of a batch: see [`partition`](super::partition).

use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Delete, StoreError};
use ifmatch_core::EntityTag;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Revision;

use crate::entity::key::EntityKey;
use crate::entity::properties::Entity;
use crate::error::TableError;
use crate::storage::change::EntityChange;
use crate::storage::entities::{ATTEMPTS, TableEntities, busy};
use crate::storage::partition::{BatchIntent, EntityContent, PartitionBatches, StoredEntity};
use crate::storage::{new_id, numbered, put};

/// A failed operation, by its index, and the reason.
pub(crate) type FailedOperation = (usize, TableError);

/// A change that is computed and not stored yet.
struct PlannedChange<'a> {
    /// Its number in the batch.
    index: usize,
    key: &'a EntityKey,
    blob: BlobPath,
    /// Holds as long as the blob is unchanged.
    preconditions: Preconditions,
    before: Option<StoredEntity>,
    after: Option<Entity>,
}

/// An intent in the store.
struct PlacedIntent {
    /// The number of its change in the batch.
    index: usize,
    blob: BlobPath,
    tag: Option<EntityTag>,
    generation: Revision,
    intent: BatchIntent,
}

impl TableEntities<'_> {
    /// Makes all changes to entities of one partition, or none, and returns the generations.
    ///
    /// # Errors
    /// The index of the change that can't be made, and the reason.
    pub(crate) async fn change_all(
        &self,
        changes: &[EntityChange],
    ) -> Result<Vec<Option<Revision>>, FailedOperation> {
        let Some(first) = changes.first() else {
            return Ok(Vec::new());
        };
        let record = self.record(&first.key).map_err(of_batch)?;
        let mut turn = self.turns.join(&record);
        turn.front().await;
        for attempt in 0..ATTEMPTS {
            self.pause(attempt).await.map_err(of_batch)?;
            let Some(planned) = self.plan(changes, attempt).await? else {
                continue;
            };
            let batch = new_id().map_err(|error| of_batch(error.into()))?;
            let Some(placed) = self.place(&record, &batch, planned).await? else {
                continue;
            };
            let decided = PartitionBatches::decide(self.store, &record, &batch, true).await;
            let is_committed = decided.map_err(of_batch)?;
            self.finish(&record, &batch, &placed, is_committed).await;
            if is_committed {
                let mut generations = vec![None; changes.len()];
                for placed in placed {
                    generations[placed.index] = placed.intent.after.map(|_| placed.generation);
                }
                return Ok(generations);
            }
        }
        Err(of_batch(busy()))
    }

    /// Decides what becomes of each entity. Returns `None` if an undecided batch is in the way.
    async fn plan<'a>(
        &self,
        changes: &'a [EntityChange],
        attempt: u32,
    ) -> Result<Option<Vec<PlannedChange<'a>>>, FailedOperation> {
        let mut planned = Vec::with_capacity(changes.len());
        for (index, EntityChange { key, .. }) in changes.iter().enumerate() {
            let failed = |error| (index, error);
            let found = self.load(key).await.map_err(failed)?;
            let (before, preconditions, undecided) = match found {
                Some(found) => {
                    let unchanged = Preconditions::unchanged(Some(&found.tag));
                    (found.stored, unchanged, found.undecided)
                }
                None => (None, Preconditions::absent(), None),
            };
            let after = changes[index].after(before.as_ref()).map_err(failed)?;
            if let Some(batch) = undecided {
                let waited = self.wait_for(key, &batch, attempt).await;
                waited.map_err(failed)?;
                return Ok(None);
            }
            planned.push(PlannedChange {
                index,
                key,
                blob: self.blob(key).map_err(failed)?,
                preconditions,
                before,
                after,
            });
        }
        Ok(Some(planned))
    }

    /// Places the intents of a batch. Returns `None` if another writer has changed an entity.
    async fn place(
        &self,
        record: &BlobPath,
        batch: &str,
        mut planned: Vec<PlannedChange<'_>>,
    ) -> Result<Option<Vec<PlacedIntent>>, FailedOperation> {
        // Batches place their intents in one order, so they don't reject each other in turn.
        planned.sort_by(|one, other| one.key.cmp(other.key));
        let mut placed = Vec::with_capacity(planned.len());
        for PlannedChange {
            index,
            blob,
            preconditions,
            before,
            after,
            ..
        } in planned
        {
            let intent = BatchIntent {
                batch: batch.to_owned(),
                before,
                after,
            };
            let content = EntityContent::Intent(intent.clone()).encode();
            match self.store.put(&blob, put(content, preconditions)).await {
                Ok(written) => placed.push(PlacedIntent {
                    index,
                    blob,
                    tag: written.tag,
                    generation: numbered(written.generation).map_err(of_batch)?,
                    intent,
                }),
                Err(error) => {
                    // Without the commit, nothing has changed: the intents can go in any order, now or later.
                    self.finish(record, batch, &placed, false).await;
                    if error.kind().is_overtaken() {
                        return Ok(None);
                    }
                    return Err((index, error.into()));
                }
            }
        }
        Ok(Some(placed))
    }

    /// Replaces the intents of a decided batch, and removes the batch from the record. If any intents are left, the record tells others
    /// what they mean.
    async fn finish(
        &self,
        record: &BlobPath,
        batch: &str,
        placed: &[PlacedIntent],
        is_committed: bool,
    ) {
        let mut is_done = true;
        for intent in placed {
            let Some(tag) = &intent.tag else { return };
            match self.replace(intent, tag, is_committed).await {
                Err(error) if !error.kind().is_overtaken() => {
                    tracing::warn!(%error, "an intent of a batch is left");
                    is_done = false;
                }
                _ => {}
            }
        }
        if is_done && let Err(error) = PartitionBatches::forget(self.store, record, batch).await {
            tracing::warn!(
                error = error.name(),
                "a finished batch is left in the record of its partition"
            );
        }
    }

    /// Replaces an intent by the entity that counts.
    async fn replace(
        &self,
        placed: &PlacedIntent,
        tag: &EntityTag,
        is_committed: bool,
    ) -> Result<(), StoreError> {
        let preconditions = Preconditions::unchanged(Some(tag));
        let outcome = placed
            .intent
            .clone()
            .outcome(is_committed, placed.generation);
        let Some(StoredEntity { entity, generation }) = outcome else {
            let delete = Delete {
                preconditions,
                ..Delete::default()
            };
            return self.store.delete(&placed.blob, delete).await;
        };
        let content = EntityContent::Plain(entity, Some(generation)).encode();
        let put = put(content, preconditions);
        self.store.put(&placed.blob, put).await.map(drop)
    }
}

/// Returns a failure of the batch as a whole.
fn of_batch(error: TableError) -> FailedOperation {
    (0, error)
}
