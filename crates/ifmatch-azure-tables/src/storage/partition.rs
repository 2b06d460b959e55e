//! Batches: changes to several entities of a partition that take effect together.
//!
//! A swap covers one blob, and each entity is a blob of its own. So a batch takes effect in the swap of one record of its
//! partition:
//!
//! 1. Each entity's blob is replaced by an *intent*: the entity before, the entity after, and the batch. Nothing has changed yet:
//!    until the batch is in the record, the entity before counts.
//! 2. The batch is added to the record of the partition. From then on, the entities after count, all at once.
//! 3. The intents are replaced by the entities after, and the batch is removed from the record.
//!
//! A batch goes on if its client disconnects. A process that ends in between, or a store that fails, leaves intents behind, and the
//! batch in the record. Everyone reads the intents by the record. A writer that meets an intent of a batch that isn't decided
//! waits for a moment, and then rejects the batch, by the same record: either the batch is added as committed, or as rejected. A
//! batch that was rejected starts over.

use serde_json::{Value as Json, json};

use crate::entity::properties::Entity;
use crate::error::TableError;
use crate::storage::{bytes, update};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobStore, ContentChange, Reading, StoreError, StoreErrorKind};
use ifmatch_core::record::Revision;

/// Version of the stored format.
const VERSION: u64 = 1;

/// A version of an entity.
#[derive(Clone, Debug)]
pub(crate) struct StoredEntity {
    pub(crate) entity: Entity,
    pub(crate) generation: Revision,
}

/// A blob of an entity, or the intent of a batch.
#[derive(Clone, Debug)]
pub(crate) enum EntityContent {
    /// The entity, and its generation if that isn't the blob's.
    Plain(Entity, Option<Revision>),
    Intent(BatchIntent),
}

/// A change that takes effect with its batch.
#[derive(Clone, Debug)]
pub(crate) struct BatchIntent {
    pub(crate) batch: String,
    pub(crate) before: Option<StoredEntity>,
    /// The entity after, whose generation is the blob's.
    pub(crate) after: Option<Entity>,
}

impl BatchIntent {
    /// Returns the entity that counts after the decision, in a blob of this generation.
    pub(crate) fn outcome(self, is_committed: bool, generation: Revision) -> Option<StoredEntity> {
        if is_committed {
            self.after.map(|entity| StoredEntity { entity, generation })
        } else {
            self.before
        }
    }
}

impl EntityContent {
    /// Encodes the content for the store.
    pub(crate) fn encode(&self) -> String {
        let entity = |entity: &Entity| Json::String(entity.encode());
        match self {
            Self::Plain(plain, None) => plain.encode(),
            Self::Plain(plain, Some(generation)) => {
                json!({ "generation": generation.get(), "entity": entity(plain) }).to_string()
            }
            Self::Intent(BatchIntent {
                batch,
                before,
                after,
            }) => {
                let generation = before.as_ref().map(|before| before.generation.get());
                let before = before.as_ref().map(|before| entity(&before.entity));
                json!({ "batch": batch, "before": before, "generation": generation, "after": after.as_ref().map(entity) })
                    .to_string()
            }
        }
    }

    /// Decodes stored content.
    ///
    /// # Errors
    /// The bytes are damaged, or were written by a newer release.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let json: Json = serde_json::from_slice(bytes).map_err(|_| damaged())?;
        let entity = |name: &str| {
            json[name]
                .as_str()
                .map(|text| Entity::decode(text.as_bytes()))
                .transpose()
        };
        let generation = json["generation"].as_u64().map(Revision::new);
        if let Some(batch) = json["batch"].as_str() {
            let before = match entity("before")? {
                Some(entity) => Some(StoredEntity {
                    entity,
                    generation: generation.ok_or_else(damaged)?,
                }),
                None => None,
            };
            return Ok(Self::Intent(BatchIntent {
                batch: batch.to_owned(),
                before,
                after: entity("after")?,
            }));
        }
        match entity("entity")? {
            Some(plain) => Ok(Self::Plain(plain, generation)),
            None => Ok(Self::Plain(Entity::decode(bytes)?, None)),
        }
    }
}

/// The record of a partition: its batches that still have intents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionBatches {
    /// Number of batches committed so far. Two reads that find the same number saw no batch take effect in between.
    pub(crate) count: u64,
    committed: Vec<String>,
    rejected: Vec<String>,
}

/// The state of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchState {
    Committed,
    Rejected,
    /// Not decided yet, or finished.
    Unknown,
}

impl PartitionBatches {
    /// Loads the record of a partition.
    pub(crate) async fn load(store: &dyn BlobStore, record: &BlobPath) -> Result<Self, StoreError> {
        let Some(opened) = store.open(record, Reading::WHOLE.without_lease()).await? else {
            return Ok(Self::default());
        };
        Self::decode(&bytes(opened).await?).ok_or_else(damaged)
    }

    /// Returns the state of a batch.
    pub(crate) fn state(&self, batch: &str) -> BatchState {
        let is_in = |list: &[String]| list.iter().any(|one| one == batch);
        match () {
            () if is_in(&self.committed) => BatchState::Committed,
            () if is_in(&self.rejected) => BatchState::Rejected,
            () => BatchState::Unknown,
        }
    }

    /// Commits or rejects a batch, unless it is decided. Returns `true` if it is committed.
    ///
    /// # Errors
    /// The store failed. If the outcome is unknown, the batch may be committed.
    pub(crate) async fn decide(
        store: &dyn BlobStore,
        record: &BlobPath,
        batch: &str,
        commits: bool,
    ) -> Result<bool, TableError> {
        let batch = batch.to_owned();
        Self::change(store, record, move |batches| match batches.state(&batch) {
            BatchState::Committed => true,
            BatchState::Rejected => false,
            BatchState::Unknown => {
                let list = if commits {
                    &mut batches.committed
                } else {
                    &mut batches.rejected
                };
                list.push(batch.clone());
                batches.count += u64::from(commits);
                commits
            }
        })
        .await
    }

    /// Removes a batch without intents.
    pub(crate) async fn forget(
        store: &dyn BlobStore,
        record: &BlobPath,
        batch: &str,
    ) -> Result<(), TableError> {
        let batch = batch.to_owned();
        Self::change(store, record, move |batches| {
            batches.committed.retain(|one| *one != batch);
            batches.rejected.retain(|one| *one != batch);
        })
        .await
    }

    /// Changes the record, in turn with other changes of it.
    async fn change<T: Send + 'static>(
        store: &dyn BlobStore,
        record: &BlobPath,
        change: impl Fn(&mut Self) -> T + Send + Sync + 'static,
    ) -> Result<T, TableError> {
        let (_, outcome) = update(store, record, move |current| {
            let before = current.map_or_else(
                || Some(Self::default()),
                |current| Self::decode(&current.bytes),
            );
            let Some(before) = before else {
                return (ContentChange::Keep, Err(damaged()));
            };
            let mut after = before.clone();
            let outcome = change(&mut after);
            let content = if after == before {
                ContentChange::Keep
            } else {
                ContentChange::Replace(after.encode().into())
            };
            (content, Ok(outcome))
        })
        .await?;
        Ok(outcome?)
    }

    fn encode(&self) -> String {
        let Self {
            count,
            committed,
            rejected,
        } = self;
        json!({ "version": VERSION, "count": count, "committed": committed, "rejected": rejected })
            .to_string()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let json: Json = serde_json::from_slice(bytes)
            .ok()
            .filter(|json: &Json| json["version"] == VERSION)?;
        let list = |name: &str| -> Option<Vec<String>> {
            json[name]
                .as_array()?
                .iter()
                .map(|one| one.as_str().map(ToOwned::to_owned))
                .collect()
        };
        Some(Self {
            count: json["count"].as_u64()?,
            committed: list("committed")?,
            rejected: list("rejected")?,
        })
    }
}

/// The error for content that can't be read.
fn damaged() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unreadable,
        "a batch is damaged, or was written by a newer release",
    )
}
