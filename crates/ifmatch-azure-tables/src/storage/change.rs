//! A change of an entity, as a function of what is stored.

use ifmatch_blob::store::{ContentChange, Current, StoreError};

use crate::entity::etag::IfMatch;
use crate::entity::key::EntityKey;
use crate::entity::properties::Entity;
use crate::error::{ErrorCode, TableError};
use crate::storage::numbered;
use crate::storage::partition::{BatchState, EntityContent, StoredEntity};

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

/// The result of an attempt to decide a change.
pub(super) enum DecisionAttempt {
    /// The change was decided.
    Decided(Result<(), TableError>),
    /// The intent of this batch.
    Intent(String),
    /// The content can't be read.
    Damaged(StoreError),
}

/// The state of a batch, by its id.
pub(super) type KnownBatch = (String, BatchState);

impl EntityChange {
    /// Decides the change on a blob. An intent counts as this batch's state says.
    pub(super) fn decide(
        &self,
        current: Option<&Current>,
        batch: Option<&KnownBatch>,
    ) -> (ContentChange, DecisionAttempt) {
        let before = match current.map(|current| stored(current, batch)).transpose() {
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
    pub(super) fn after(
        &self,
        before: Option<&StoredEntity>,
    ) -> Result<Option<Entity>, TableError> {
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

/// Returns the entity in a blob, or `None` if there is a blob without one.
///
/// # Errors
/// It is the intent of another batch than this one, or can't be read.
fn stored(
    current: &Current,
    batch: Option<&KnownBatch>,
) -> Result<Option<StoredEntity>, DecisionAttempt> {
    let generation =
        numbered(current.generation).map_err(|error| DecisionAttempt::Decided(Err(error)))?;
    let content = EntityContent::decode(&current.bytes).map_err(DecisionAttempt::Damaged)?;
    let intent = match content {
        EntityContent::Plain(entity, own) => {
            let generation = own.unwrap_or(generation);
            return Ok(Some(StoredEntity { entity, generation }));
        }
        EntityContent::Intent(intent) => intent,
    };
    match batch {
        Some((id, BatchState::Committed)) if *id == intent.batch => {
            Ok(intent.outcome(true, generation))
        }
        Some((id, BatchState::Rejected)) if *id == intent.batch => {
            Ok(intent.outcome(false, generation))
        }
        _ => Err(DecisionAttempt::Intent(intent.batch)),
    }
}
