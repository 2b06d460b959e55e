//! Appends, and updates by a function: the store computes the new content, and changes of one blob take turns.

use std::sync::Arc;

use http::Method;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::records::{of_driver, refused};
use ifmatch_blob::store::{
    AppendBlock, Appended, ContentChange, Current, StoreError, StoreErrorKind, Update, Updated,
};
use ifmatch_core::command::{Content, Outcome};
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Version};
use ifmatch_register::Key;

use super::background::in_the_background;
use super::draft::Draft;
use super::payload::Payload;
use super::swap::{Edit, WriteRequest, encoded, payload_of};
use super::write::written;
use super::{Inner, key};

/// Appends a block to a blob.
pub(super) async fn append(
    inner: &Arc<Inner>,
    blob: &BlobPath,
    append: AppendBlock,
) -> Result<Appended, StoreError> {
    inner.bodies.check_space()?;
    let request = WriteRequest {
        if_tags: append.if_tags.clone(),
        ..WriteRequest::new(Method::PUT, append.preconditions.clone(), append.lease)?
    };
    let incarnation = inner.incarnation(&blob.container).await?;
    let key = key::of_blob(&blob.container, incarnation, &blob.name)?;
    inner.check_append(&key, &request, &append).await?;
    let (inner, blob) = (Arc::clone(inner), blob.clone());
    in_the_background(async move {
        let _entered = inner.gates.enter(&blob.container).await;
        if inner.find(&blob.container).await? != Some(incarnation) {
            return Err(StoreErrorKind::ContainerNotFound.into());
        }
        let length = append.block.len() as u64;
        let applied = inner.change(&key, Edit::Append(request, append)).await?;
        let after = applied.after.clone();
        let settled = inner.settle(applied, None).await?;
        inner.confirm(&blob.container, incarnation).await?;
        let payload = inner.payload(&after)?.ok_or(StoreErrorKind::Unreadable)?;
        let blocks = payload.headers.append.map_or(0, |append| append.blocks);
        Ok(Appended {
            written: written(settled, Some(payload.hash), None),
            offset: payload.length - length,
            blocks,
        })
    })
    .await
}

/// Changes a blob by a function of its content.
pub(super) async fn update(
    inner: &Arc<Inner>,
    blob: &BlobPath,
    update: Update,
) -> Result<Updated, StoreError> {
    inner.bodies.check_space()?;
    let request = WriteRequest::new(Method::PUT, Preconditions::NONE, LeaseUse::default())?;
    let (inner, blob) = (Arc::clone(inner), blob.clone());
    in_the_background(async move {
        let _entered = inner.gates.enter(&blob.container).await;
        let incarnation = match inner.find(&blob.container).await? {
            Some(incarnation) => incarnation,
            None => inner.ensure(&blob.container).await?,
        };
        let key = key::of_blob(&blob.container, incarnation, &blob.name)?;
        let applied = inner.change(&key, Edit::Update(request, update)).await?;
        let after = applied.after.clone();
        let settled = match inner.settle(applied, None).await {
            // It has no conditions: see the command of an update that keeps the content.
            Err(error) if matches!(error.kind(), StoreErrorKind::PreconditionFailed { .. }) => {
                return Ok(Updated::Kept);
            }
            settled => settled?,
        };
        inner.confirm(&blob.container, incarnation).await?;
        Ok(match inner.payload(&after)? {
            Some(payload) => Updated::Replaced(written(settled, Some(payload.hash), None)),
            None => Updated::Deleted,
        })
    })
    .await
}

/// Returns the content after an append to a version.
pub(super) fn appended(
    append: &AppendBlock,
    version: Option<&Version>,
    draft: &mut Draft,
) -> Result<Content, StoreError> {
    // Refused, since there is nothing to append to.
    let Some(version) = version else {
        return Ok(Content::Absent);
    };
    let payload = payload_of(version)?;
    let (headers, length) = append.after(&payload.headers, payload.length)?;
    let (place, hash) = draft.append(&append.block)?;
    encoded(&Payload {
        hash,
        length,
        place,
        created: Some(payload.created(version)),
        headers,
    })
}

/// Returns the content after an update of a version, or `None` if it stays.
pub(super) fn updated(
    update: &Update,
    version: Option<&Version>,
    draft: &mut Draft,
) -> Result<Option<Content>, StoreError> {
    let (payload, limit) = (version.map(payload_of).transpose()?, update.limit);
    if payload
        .as_ref()
        .is_some_and(|payload| payload.length > limit)
    {
        return Err(StoreErrorKind::TooLarge { limit }.into());
    }
    let bytes = draft.bytes()?.cloned();
    let current = version.zip(bytes).map(|(version, bytes)| Current {
        bytes,
        generation: Some(version.generation()),
    });
    match (update.change)(current.as_ref()) {
        ContentChange::Keep => Ok(None),
        ContentChange::Delete => {
            draft.delete();
            Ok(Some(Content::Absent))
        }
        ContentChange::Replace(bytes) => {
            let created = version
                .zip(payload.as_ref())
                .map(|(version, payload)| payload.created(version));
            let last_snapshot = payload.and_then(|payload| payload.headers.last_snapshot);
            let length = bytes.len() as u64;
            let (place, hash) = draft.replace(bytes);
            let headers = BlobHeaders {
                last_snapshot,
                ..BlobHeaders::default()
            };
            encoded(&Payload {
                hash,
                length,
                place,
                created,
                headers,
            })
            .map(Some)
        }
    }
}

impl Inner {
    /// Rejects an append early.
    async fn check_append(
        &self,
        key: &Key,
        request: &WriteRequest,
        append: &AppendBlock,
    ) -> Result<(), StoreError> {
        let (record, now) = (
            self.driver.load(key).await.map_err(of_driver)?,
            self.driver.now(),
        );
        let possible = match record.state(now).version() {
            Some(version) => {
                let payload = payload_of(version)?;
                append
                    .after(&payload.headers, payload.length)
                    .map(|_| Content::Unknown)
            }
            None => Ok(Content::Absent),
        };
        let command = request.over(&record, now, possible)?;
        match record.apply(&command, now).outcome {
            refusal @ Outcome::Refused(_) => Err(refused(refusal, now)),
            _ => Ok(()),
        }
    }

    /// Returns the payload of the version in a record.
    pub(super) fn payload(&self, record: &Record) -> Result<Option<Payload>, StoreError> {
        record
            .state(self.driver.now())
            .version()
            .map(payload_of)
            .transpose()
    }
}
