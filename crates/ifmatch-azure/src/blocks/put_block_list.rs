//! Put Block List.

use std::collections::HashMap;
use std::ops::Range;

use http::{Method, Response};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobInfo, Opened, Put, Reading, StoreErrorKind, Upload};
use ifmatch_core::lease::SeenLease;
use ifmatch_core::precondition::{Precondition, Preconditions, Verdict};
use ifmatch_core::tag::TagList;

use super::body::{self, BlockSegment, BlocksMoved};
use super::document::{self, BlockSource};
use crate::block_storage::CommittedList;
use crate::block_storage::staging::{self, BlobPaths, StagedBlocks};
use crate::error::AzureError;
use crate::request::BlockId;
use crate::request::{PutBlockList, WriteHeaders};
use crate::write::{self, require_block_blob};

/// Maximum number of attempts if the blocks, or the blob, change in between.
const TRIES: usize = 5;

/// Put Block List.
///
/// Interleavings that matter:
///
/// - A block is replaced or removed before it is read: start over.
/// - The container is deleted and created again: it has none of these blocks, and starting over reports that.
/// - The blob is replaced while its blocks are read: they belong to the previous version, so the write carries
///   `If-Match` of that version; start over.
/// - A block is staged again after the write: it is kept, since it is another version.
/// - The process ends before the write, or the write is refused: no version names the list stored for it.
pub(crate) async fn put_block_list(
    context: &Context,
    blob: &BlobPath,
    put: PutBlockList,
    upload: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let PutBlockList {
        write,
        headers,
        list,
    } = put;
    let text = crate::body::read(context, list, upload).await?;
    let wanted = document::parse(&text)?;
    write::check(context, blob, &write.conditions, write.lease).await?;
    for _ in 0..TRIES {
        let previous = block_blob(context, blob)
            .await?
            .and_then(|info| info.headers.block_list);
        if let Some(response) =
            attempt(context, blob, &write, &headers, &wanted, previous.as_ref()).await?
        {
            return Ok(response);
        }
    }
    Err(AzureError::busy())
}

/// Returns the properties of the current version, which must not be an append blob.
async fn block_blob(context: &Context, blob: &BlobPath) -> Result<Option<BlobInfo>, AzureError> {
    let opened = context
        .store
        .open(blob, Reading::HEAD.without_lease())
        .await
        .map_err(AzureError::of_blob)?;
    let info = opened.map(|opened| opened.info);
    require_block_blob(info.as_ref())?;
    Ok(info)
}

/// Makes one attempt. Returns `None` if something changed since.
async fn attempt(
    context: &Context,
    blob: &BlobPath,
    write: &WriteHeaders,
    headers: &BlobHeaders,
    wanted: &[(BlockSource, BlockId)],
    previous: Option<&FieldText>,
) -> Result<Option<Response<BlobBody>>, AzureError> {
    let store = &*context.store;
    let paths = BlobPaths::of(context, blob).await?;
    let staged = paths.staged(store, None).await?;
    let is_staged = |(from, id): &(BlockSource, BlockId)| {
        *from != BlockSource::Committed && staged.contains_key(id)
    };
    let current = if wanted.iter().all(is_staged) {
        None
    } else {
        CurrentBlob::find(context, blob, &paths, write).await?
    };
    let (segments, blocks) = match resolve(wanted, &staged, current.as_ref()) {
        Ok(resolved) => resolved,
        Err(error) => {
            let info = block_blob(context, blob).await?;
            if info
                .as_ref()
                .and_then(|info| info.headers.block_list.as_ref())
                != previous
            {
                return Ok(None);
            }
            // The writer that made a condition false has also discarded the staged blocks.
            let conditions = &write.conditions.preconditions;
            return Err(
                match conditions.evaluate(
                    &Method::PUT,
                    info.as_ref().map(BlobInfo::validators).as_ref(),
                ) {
                    Verdict::Failed(precondition) => not_met(write, precondition, info.as_ref()),
                    _ => error,
                },
            );
        }
    };
    let length = blocks
        .iter()
        .try_fold(0_u64, |sum, (_, length)| sum.checked_add(*length));
    let limit = context.max_body;
    let length = length
        .filter(|length| *length <= limit)
        .ok_or_else(|| AzureError::too_large(limit))?;
    let tied = current
        .as_ref()
        .map(|current| current.preconditions.clone());
    let moved = BlocksMoved::default();
    let upload = body::of(
        &context.store,
        paths.owner(),
        segments,
        current.map(|current| current.opened.source),
        &moved,
    );
    let saved = CommittedList::prepare(store, blob, &paths, blocks).await?;
    let put = Put {
        headers: saved.name_in(headers),
        length: Some(length),
        ..write::put(write, upload, limit)
    };
    // Retry only if the tag was added here; one in the request is the client's own condition.
    let is_tied = tied
        .as_ref()
        .is_some_and(|tied| tied.if_match != write.conditions.preconditions.if_match);
    let put = Put {
        preconditions: tied.unwrap_or(put.preconditions),
        ..put
    };
    match store.put(blob, put).await {
        Ok(written) => {
            if let Err(error) = saved.settle(store, blob, &paths, &written, previous).await {
                tracing::warn!(error = %error.message, "could not store a block list: later lists cannot reuse its committed blocks");
            }
            write::confirm(context, blob, write, &written).await?;
            staging::discard_after(store, staged, &written).await;
            Ok(Some(write::stored(&written)))
        }
        Err(error) => {
            // The version of a write with an unknown outcome may name the list.
            if *error.kind() != StoreErrorKind::OutcomeUnknown {
                saved.abandon(store).await;
            }
            match error.kind() {
                StoreErrorKind::PreconditionFailed {
                    precondition:
                        Precondition::IfMatch
                        | Precondition::UnreadableIfMatch
                        | Precondition::WeakIfMatch,
                    ..
                } if is_tied => Ok(None),
                _ if moved.happened() => Ok(None),
                _ => Err(write::rejected(write, error)),
            }
        }
    }
}

/// The current version of the blob, from which committed blocks are taken.
struct CurrentBlob {
    opened: Opened,
    list: CommittedList,
    /// Requires this version to be still current when the write takes place.
    preconditions: Preconditions,
}

impl CurrentBlob {
    /// Finds the blob and its list of committed blocks, if it has one.
    async fn find(
        context: &Context,
        blob: &BlobPath,
        paths: &BlobPaths,
        write: &WriteHeaders,
    ) -> Result<Option<Self>, AzureError> {
        let store = &*context.store;
        let Some(opened) = store
            .open(blob, Reading::RANGES)
            .await
            .map_err(AzureError::of_blob)?
        else {
            return Ok(None);
        };
        let info = &opened.info;
        SeenLease::check(info.lease.as_ref(), write.lease).map_err(AzureError::of_blob)?;
        let preconditions = bind(write, info)?;
        let Some(list) = CommittedList::find(store, paths, info, None).await? else {
            return Ok(None);
        };
        Ok(Some(Self {
            opened,
            list,
            preconditions,
        }))
    }
}

/// Returns preconditions that bind the write to this version, after evaluating the request's own.
///
/// If the request may be a retry, a false condition may have been true when it was first sent. The store is then asked
/// nevertheless, for its earlier response. It writes nothing, since the condition is still among the preconditions.
fn bind(write: &WriteHeaders, info: &BlobInfo) -> Result<Preconditions, AzureError> {
    let conditions = &write.conditions.preconditions;
    let if_match = Some(TagList::Tags(info.tag.iter().cloned().collect()));
    match conditions.evaluate(&Method::PUT, Some(&info.validators())) {
        Verdict::Failed(precondition) if write.request.is_none() => {
            Err(not_met(write, precondition, Some(info)))
        }
        Verdict::Failed(
            Precondition::IfMatch | Precondition::UnreadableIfMatch | Precondition::WeakIfMatch,
        ) => Ok(conditions.clone()),
        Verdict::Failed(_) => Ok(Preconditions {
            if_match,
            ..conditions.clone()
        }),
        Verdict::Proceed | Verdict::NotModified => Ok(Preconditions {
            if_match,
            ..Preconditions::default()
        }),
    }
}

/// The error for a condition that is false for this version.
fn not_met(
    write: &WriteHeaders,
    precondition: Precondition,
    info: Option<&BlobInfo>,
) -> AzureError {
    let current = info.and_then(|info| info.tag.clone());
    let kind = StoreErrorKind::PreconditionFailed {
        precondition,
        current,
    };
    write::rejected(write, kind.into())
}

/// The location of each block, and the list to store.
type ResolvedList = (Vec<BlockSegment>, Vec<(BlockId, u64)>);

/// Finds the location and length of each block.
fn resolve(
    wanted: &[(BlockSource, BlockId)],
    staged: &StagedBlocks,
    current: Option<&CurrentBlob>,
) -> Result<ResolvedList, AzureError> {
    let ranges = current
        .map(|current| current.list.ranges())
        .unwrap_or_default();
    let (mut segments, mut blocks) = (Vec::new(), Vec::new());
    let mut sources = HashMap::new();
    for (from, id) in wanted {
        let staged = staged.get(id).filter(|_| *from != BlockSource::Committed);
        let committed = ranges.get(id).filter(|_| *from != BlockSource::Uncommitted);
        // Later lists couldn't tell the two blocks apart.
        if *sources.entry(id).or_insert(staged.is_some()) != staged.is_some() {
            return Err(document::not_a_list(
                "an id names both a staged and a committed block",
            ));
        }
        let (segment, length) = match (staged, committed) {
            (Some(block), _) => (BlockSegment::Staged(block.clone()), block.length),
            (None, Some(range)) => (
                BlockSegment::Current(Range::clone(range)),
                range.end - range.start,
            ),
            (None, None) => {
                return Err(document::not_a_list(
                    "a block in the list is neither staged nor committed",
                ));
            }
        };
        segments.push(segment);
        blocks.push((id.clone(), length));
    }
    Ok((segments, blocks))
}
