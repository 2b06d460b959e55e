//! Writing, changing and deleting a blob: stage the body, swap the record, remove the previous body.
//!
//! A change looks up its assumptions before the swap, in this order: the container's incarnation, then the blob's
//! version. The swap is at the key with that incarnation, and on that version. A write overtaken by the deletion of its
//! container is therefore part of the deleted container. The content is computed as part of the swap, from the version that it
//! replaces.

use std::sync::Arc;

use http::Method;
use ifmatch_core::command::{Command, Content, Outcome};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, Version};

use super::Inner;
use super::background::in_the_background;
use super::key;
use super::payload::Payload;
use super::swap::{Edit, Settled, WriteRequest, encoded, payload_of};
use super::upload::{self, Expected, INLINE, Received, receive};
use ifmatch_blob::headers::{BlobHeaders, ContentMd5};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::records::{of_driver, refused};
use ifmatch_blob::store::{
    Delete, LastSnapshot, Md5Use, MissingContainer, Put, SetHeaders, StoreError, StoreErrorKind,
    Written,
};

/// Writes a blob: receives the body, then swaps the record.
pub(super) async fn put(
    inner: &Arc<Inner>,
    blob: &BlobPath,
    put: Put,
) -> Result<Written, StoreError> {
    // A short body arrives sooner than the answer of a shared register.
    let is_short = put.length.is_some_and(|length| length <= INLINE as u64);
    let is_soon =
        is_short && put.preconditions == Preconditions::NONE && inner.confirms(&blob.container);
    let container = match put.container {
        // It is looked up when the body is there.
        MissingContainer::Create if is_soon => None,
        _ => inner.find(&blob.container).await?,
    };
    let request = WriteRequest {
        until: inner
            .bodies
            .lifetime()
            .map(|lifetime| inner.driver.now().saturating_add(lifetime)),
        ..WriteRequest::new(Method::PUT, put.preconditions, put.lease)?
    };
    let kind = put.keeps_type.then_some(put.headers.append.is_some());
    if put.request.is_none() && !is_soon {
        // A retry gets its response from the record, regardless of its conditions, but only the whole body
        // identifies the request.
        inner
            .check(blob, container, put.container, &request, kind)
            .await?;
    }
    let expected = Expected {
        length: put.length,
        digest: put.digest,
        limit: put.limit,
    };
    let source = put.source.as_ref().filter(|_| put.md5 == Md5Use::AsGiven);
    let (body, md5) = put.md5.watch(put.body);
    let received = match inner.share(source, &expected).await? {
        Some(shared) => shared,
        None => receive(&inner.bodies, body, &expected).await?,
    };
    let mut headers = put.headers;
    md5.settle(&mut headers)?;
    put.late_checksum.settle(&mut headers);
    let request = WriteRequest {
        request: put.request.map(|key| key.request(Some(&received.hash))),
        ..request
    };
    let job = Job {
        blob: blob.clone(),
        container,
        missing: put.container,
        request,
        kind,
        keeps_tags: put.keeps_tags,
    };
    let inner = Arc::clone(inner);
    in_the_background(async move { job.commit(&inner, received, headers).await }).await
}

/// Deletes a blob, perhaps on a condition on its last snapshot.
pub(super) async fn delete(
    inner: &Arc<Inner>,
    blob: &BlobPath,
    delete: Delete,
) -> Result<(), StoreError> {
    let last = delete.last_snapshot.clone();
    let request = WriteRequest::deletion(delete)?;
    let absent = move |version: Option<&Version>| match (&last, version) {
        (Some(LastSnapshot(last)), Some(version))
            if payload_of(version)?.headers.last_snapshot != *last =>
        {
            Err(StoreErrorKind::SnapshotTaken.into())
        }
        _ => Ok(Content::Absent),
    };
    let (inner, blob) = (Arc::clone(inner), blob.clone());
    in_the_background(async move {
        let key = key::of_blob(
            &blob.container,
            inner.incarnation(&blob.container).await?,
            &blob.name,
        )?;
        let applied = inner
            .change(&key, Edit::Write(request, Box::new(absent)))
            .await?;
        inner.settle(applied, None).await.map(drop)
    })
    .await
}

/// Changes the header fields of a blob.
pub(super) async fn set_headers(
    inner: &Inner,
    blob: &BlobPath,
    set: SetHeaders,
) -> Result<Written, StoreError> {
    let request = set.request.map(|key| key.request(None));
    let request = WriteRequest {
        if_tags: set.if_tags,
        request,
        ..WriteRequest::new(Method::PUT, set.preconditions, set.lease)?
    };
    let incarnation = inner.incarnation(&blob.container).await?;
    let key = key::of_blob(&blob.container, incarnation, &blob.name)?;
    let (settled, record) = inner.set_fields(&key, request, set.change).await?;
    inner.confirm(&blob.container, incarnation).await?;
    let version = record.state(inner.driver.now()).version();
    let version = version.filter(|version| version.generation() == settled.receipt.generation);
    let payload = version.and_then(|version| payload_of(version).ok());
    let hash = payload.as_ref().map(|payload| payload.hash);
    Ok(written(
        settled,
        hash,
        payload.and_then(|payload| payload.headers.content_md5),
    ))
}

/// A write with a complete body.
struct Job {
    blob: BlobPath,
    /// The incarnation found when the write began.
    container: Option<Revision>,
    missing: MissingContainer,
    request: WriteRequest,
    kind: Kind,
    keeps_tags: bool,
}

/// The type of the version that a write may replace, if it keeps the type: `true` for an append blob.
type Kind = Option<bool>;

impl Job {
    /// Returns the incarnation to write to. A write that creates no container belongs to the incarnation that it found.
    async fn incarnation(&self, inner: &Inner) -> Result<Revision, StoreError> {
        // It was looked up when the write began, and is looked up again after the swap.
        let found = self
            .container
            .filter(|_| inner.confirms(&self.blob.container));
        if let Some(found) = found.filter(|_| self.missing == MissingContainer::Refuse) {
            return Ok(found);
        }
        match (self.missing, inner.find(&self.blob.container).await?) {
            (MissingContainer::Create, None) => {
                // A rejected write leaves no container behind.
                inner
                    .check(&self.blob, None, self.missing, &self.request, self.kind)
                    .await?;
                inner.ensure(&self.blob.container).await
            }
            (MissingContainer::Create, Some(now)) => Ok(now),
            (MissingContainer::Refuse, Some(now)) if self.container == Some(now) => Ok(now),
            (MissingContainer::Refuse, _) => Err(StoreErrorKind::ContainerNotFound.into()),
        }
    }

    async fn commit(
        &self,
        inner: &Inner,
        received: Received,
        headers: BlobHeaders,
    ) -> Result<Written, StoreError> {
        let _entered = inner.gates.enter(&self.blob.container).await;
        let incarnation = self.incarnation(inner).await?;
        let key = key::of_blob(&self.blob.container, incarnation, &self.blob.name)?;
        let (hash, length) = (received.hash, received.length);
        // If this task ends without an outcome, the file must stay, since a record may refer to it.
        let (place, staged) = received.keep();
        let (md5, kind, keeps_tags) = (headers.content_md5, self.kind, self.keeps_tags);
        let content = move |version: Option<&Version>| {
            check_kind(kind, version)?;
            let replaced = version.and_then(|version| Some((payload_of(version).ok()?, version)));
            let created = replaced
                .as_ref()
                .map(|(payload, version)| payload.created(version));
            let mut headers = headers.clone();
            let kept = replaced
                .map(|(payload, _)| payload.headers)
                .unwrap_or_default();
            headers.last_snapshot = kept.last_snapshot;
            if keeps_tags {
                headers.tags = kept.tags;
            }
            encoded(&Payload {
                hash,
                length,
                place: place.clone(),
                created,
                headers,
            })
        };
        match inner
            .change(&key, Edit::Write(self.request.clone(), Box::new(content)))
            .await
        {
            Ok(applied) => {
                let settled = inner.settle(applied, staged).await?;
                inner.confirm(&self.blob.container, incarnation).await?;
                Ok(written(settled, Some(hash), md5))
            }
            Err(error) if *error.kind() == StoreErrorKind::OutcomeUnknown => Err(error),
            Err(error) => {
                inner.remove(staged).await;
                Err(error)
            }
        }
    }
}

impl Inner {
    /// Returns another name of the source's body, if it has a file of the expected hash. The name of a file that was made by appends
    /// may have the hash of an earlier version.
    async fn share(
        &self,
        source: Option<&BlobPath>,
        expected: &Expected,
    ) -> Result<Option<Received>, StoreError> {
        let (Some(source), Some(hash)) = (source, expected.digest) else {
            return Ok(None);
        };
        let Some(incarnation) = self.find(&source.container).await? else {
            return Ok(None);
        };
        let key = key::of_blob(&source.container, incarnation, &source.name)?;
        let record = self.driver.load(&key).await.map_err(of_driver)?;
        let payload = self.payload(&record)?;
        let payload = payload.filter(|payload| payload.hash == hash);
        match payload.and_then(|payload| payload.file()) {
            Some(body) if body.hash == hash => upload::share(&self.bodies, body, expected).await,
            _ => Ok(None),
        }
    }

    /// Rejects a write early.
    async fn check(
        &self,
        blob: &BlobPath,
        container: Option<Revision>,
        missing: MissingContainer,
        request: &WriteRequest,
        kind: Kind,
    ) -> Result<(), StoreError> {
        let key = match container {
            Some(incarnation) => key::of_blob(&blob.container, incarnation, &blob.name)?,
            None if missing == MissingContainer::Refuse => {
                return Err(StoreErrorKind::ContainerNotFound.into());
            }
            None => return self.check_on(&Record::absent(), request, kind),
        };
        let recent = self.driver.recent(&key).await.map_err(of_driver)?;
        match self.check_on(&recent, request, kind) {
            // Another process may have replaced the record.
            Err(_) => self.check_on(
                &self.driver.load(&key).await.map_err(of_driver)?,
                request,
                kind,
            ),
            checked => checked,
        }
    }

    fn check_on(
        &self,
        record: &Record,
        request: &WriteRequest,
        kind: Kind,
    ) -> Result<(), StoreError> {
        let now = self.driver.now();
        match record
            .apply(&Command::Write(request.write(Content::Unknown)), now)
            .outcome
        {
            refusal @ Outcome::Refused(_) => Err(refused(refusal, now)),
            _ => check_kind(kind, record.state(now).version()),
        }
    }
}

/// Checks that a write that keeps the type of a blob has that type.
fn check_kind(kind: Kind, version: Option<&Version>) -> Result<(), StoreError> {
    let Some((kind, version)) = kind.zip(version) else {
        return Ok(());
    };
    let is_other =
        payload_of(version).is_ok_and(|payload| payload.headers.append.is_some() != kind);
    if is_other {
        Err(StoreErrorKind::OtherType.into())
    } else {
        Ok(())
    }
}

/// Returns the result of a change that has taken place.
pub(super) fn written(
    settled: Settled,
    hash: Option<ContentHash>,
    md5: Option<ContentMd5>,
) -> Written {
    let Settled { receipt, is_replay } = settled;
    Written {
        tag: receipt.tag,
        last_modified: receipt
            .modified
            .unwrap_or_else(|| receipt.generation.timestamp().last_modified()),
        hash,
        md5,
        generation: Some(receipt.generation),
        created: receipt.created,
        is_replay,
    }
}
