//! The entities of a table, as blobs in the store.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::EntityTag;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Revision;
use ifmatch_runtime::Clock;

use crate::entity::etag::IfMatch;
use crate::entity::key::EntityKey;
use crate::entity::properties::Entity;
use crate::error::{Code, TableError};
use crate::storage::blob::{absent, bytes, exactly, is_refused, present, put};
use crate::storage::tables::{AccountContainers, Table};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobStore, Delete, Reading, StoreError, StoreErrorKind};

/// The entities of a table.
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

/// The current version before a write.
#[derive(Clone, Debug)]
struct Before {
    stored: Stored,
    /// The strong tag that a write of the next version requires.
    tag: EntityTag,
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
/// The first and the longest pause between attempts; pauses double.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

impl Entities<'_> {
    /// Returns the entity with this key.
    pub(crate) async fn get(&self, key: &EntityKey) -> Result<Option<Stored>, TableError> {
        let before = self.load(&self.blob(key)?, Reading::WHOLE).await?;
        Ok(before.map(|before| before.stored))
    }

    /// Inserts an entity and returns its generation. Of several concurrent inserts one succeeds.
    pub(crate) async fn insert(&self, key: &EntityKey, entity: &Entity) -> Result<Revision, TableError> {
        entity.check(key)?;
        let put = put(entity.encode(), absent());
        match self.store.put(&self.blob(key)?, put).await {
            Ok(written) => numbered(written.generation),
            Err(error) if is_refused(&error) => Err(TableError::new(Code::EntityAlreadyExists)),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes an entity and returns its new generation.
    ///
    /// A change that depends on the current version is bound to it: if another writer is faster, the store rejects the
    /// write, and the change is applied to the new version.
    pub(crate) async fn change(
        &self,
        key: &EntityKey,
        guard: &IfMatch,
        change: Change<'_>,
    ) -> Result<Option<Revision>, TableError> {
        let blob = self.blob(key)?;
        let depends = matches!(change, Change::Merge(_)) || matches!(guard, IfMatch::Tag(_));
        for attempt in 0..ATTEMPTS {
            self.pause(attempt).await?;
            let reading = if matches!(change, Change::Merge(_)) { Reading::WHOLE } else { Reading::HEAD };
            let before = if depends { self.load(&blob, reading).await? } else { None };
            let preconditions = match (&before, guard) {
                (Some(before), _) => exactly(&before.tag),
                (None, _) if depends => absent(),
                (None, IfMatch::Exists) => present(),
                (None, _) => Preconditions::default(),
            };
            if depends {
                guard.check(before.as_ref().map(|before| before.stored.generation))?;
            }
            match self.write(key, &blob, change, before, preconditions).await? {
                Written::Done(generation) => return Ok(generation),
                Written::Refused if depends => {}
                Written::Refused => return Err(TableError::new(Code::ResourceNotFound)),
            }
        }
        Err(TableError::new(Code::ServerBusy).detail("other writers changed the entity before each attempt"))
    }

    async fn write(
        &self,
        key: &EntityKey,
        blob: &BlobPath,
        change: Change<'_>,
        before: Option<Before>,
        preconditions: Preconditions,
    ) -> Result<Written, TableError> {
        let entity = match change {
            Change::Replace(entity) => entity.clone(),
            Change::Merge(entity) => before.map_or_else(Entity::default, |before| before.stored.entity).merged(entity),
            Change::Delete => {
                let deleted = self.store.delete(blob, Delete { preconditions, ..Delete::default() }).await;
                return Written::of(deleted.map(|()| None));
            }
        };
        entity.check(key)?;
        match self.store.put(blob, put(entity.encode(), preconditions)).await {
            Ok(written) => Ok(Written::Done(Some(numbered(written.generation)?))),
            Err(error) => Written::of(Err(error)),
        }
    }

    async fn load(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Before>, TableError> {
        let Some(opened) = self.store.open(blob, reading.without_lease()).await? else { return Ok(None) };
        let generation = numbered(opened.info.generation)?;
        let tag = opened.info.tag.clone().filter(|tag| !tag.is_weak());
        let tag =
            tag.ok_or_else(|| StoreError::new(StoreErrorKind::Unsupported, "the store does not provide strong tags"))?;
        let entity = match reading {
            Reading::HEAD => Entity::default(),
            _ => Entity::decode(&bytes(opened).await?)?,
        };
        Ok(Some(Before { stored: Stored { entity, generation }, tag }))
    }

    fn blob(&self, key: &EntityKey) -> Result<BlobPath, TableError> {
        Ok(BlobPath { container: self.containers.entities.clone(), name: key.name_in(&self.table.identity)? })
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

/// The outcome of a conditional write.
enum Written {
    /// The write took place. Deletions have no generation.
    Done(Option<Revision>),
    /// The preconditions are false.
    Refused,
}

impl Written {
    fn of(result: Result<Option<Revision>, StoreError>) -> Result<Self, TableError> {
        match result {
            Ok(generation) => Ok(Self::Done(generation)),
            Err(error) if is_refused(&error) || *error.kind() == StoreErrorKind::NotFound => Ok(Self::Refused),
            Err(error) => Err(error.into()),
        }
    }
}

fn numbered(generation: Option<Revision>) -> Result<Revision, TableError> {
    let unsupported = || StoreError::new(StoreErrorKind::Unsupported, "the store does not number its writes");
    Ok(generation.ok_or_else(unsupported)?)
}
