//! Garbage collection of blocks left uncommitted for a week, and of block lists without a blob.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::ready;

use super::committed::CommittedList;
use super::staging::{COMMITTED_LISTS, STAGED_BLOCKS};
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use ifmatch_blob::store::{Reading, StoreError};
use ifmatch_blob::sweep::{IsUsed, remove_old};

/// Retention of staged blocks.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// Removes garbage and returns the number of entries removed. Continues an interrupted sweep.
pub(crate) async fn collect(context: &Context) -> Result<u64, StoreError> {
    let blocks = (&*STAGED_BLOCKS, (|_, _| ready(Ok(false)).boxed()) as IsUsed);
    let lists = (&*COMMITTED_LISTS, (|context, list| is_used(context, list).boxed()) as IsUsed);
    remove_old(context, "blocks", MAX_AGE, &[blocks, lists]).await
}

/// Returns `true` if a list belongs to the current version of its blob.
async fn is_used(context: &Context, place: &BlobPath) -> Result<bool, StoreError> {
    let Some(list) = CommittedList::load(&*context.store, place).await? else { return Ok(false) };
    let owner = place.name.as_str().split('/').next().unwrap_or_default();
    let (Ok(container), Ok(name)) = (ContainerName::new(owner), BlobName::new(&list.name)) else { return Ok(false) };
    let opened = context.store.open(&BlobPath { container, name }, Reading::HEAD).await?;
    Ok(opened.is_some_and(|opened| list.belongs_to(&opened.info, place)))
}
