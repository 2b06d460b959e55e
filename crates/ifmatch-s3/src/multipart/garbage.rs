//! Garbage collection of uploads that were neither completed nor aborted, and of parts without an upload.

use std::time::Duration;

use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use ifmatch_blob::store::{BlobEntry, ListQuery, Reading, StoreError};

use super::upload::{broken, parts, remove, uploads};

/// Retention of uploads since their last change, and of parts.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);
/// Number of entries read from the store at a time.
const STEP: usize = 500;

/// Removes old uploads, and old parts without an upload. Returns the number of entries removed.
pub(crate) async fn collect(context: &Context) -> Result<u64, StoreError> {
    Ok(sweep(context, &uploads().map_err(broken)?).await? + sweep(context, &parts().map_err(broken)?).await?)
}

async fn sweep(context: &Context, container: &ContainerName) -> Result<u64, StoreError> {
    let store = &*context.store;
    let (mut removed, mut after) = (0, None);
    loop {
        let query = ListQuery { prefix: String::new(), after, limit: STEP, leases: false, delimiter: None };
        let Some(page) = store.list(container, &query).await? else { return Ok(removed) };
        for entry in page.items {
            if !is_old(context, &entry) || has_upload(context, &entry).await? {
                continue;
            }
            let path = BlobPath { container: container.clone(), name: entry.name };
            // An entry that was written meanwhile is kept.
            removed += u64::from(remove(store, &path, entry.info.tag.as_ref()).await.is_ok());
        }
        after = page.next;
        if after.is_none() {
            return Ok(removed);
        }
    }
}

fn is_old(context: &Context, entry: &BlobEntry) -> bool {
    let age = context.wall().last_modified().unix().saturating_sub(entry.info.last_modified.unix());
    u64::try_from(age).is_ok_and(|age| age > MAX_AGE.as_secs())
}

/// Returns `true` for a part whose upload exists. The name of an upload, `bucket/created/id`, is that of no upload's part.
async fn has_upload(context: &Context, entry: &BlobEntry) -> Result<bool, StoreError> {
    let Some((upload, _)) = entry.name.as_str().rsplit_once('/') else { return Ok(false) };
    let Ok(name) = BlobName::new(upload) else { return Ok(false) };
    let path = BlobPath { container: uploads().map_err(broken)?, name };
    Ok(context.store.open(&path, Reading::HEAD.without_lease()).await?.is_some())
}
