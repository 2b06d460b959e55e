//! Collecting blocks that nobody committed within a week, and the lists of blobs that are gone.

use std::time::Duration;

use ifmatch_core::date::HttpDate;
use ifmatch_store::Clock;

use super::committed::CommittedList;
use super::shelf::{committed_lists, remove, staged_blocks};
use crate::name::{BlobName, BlobPath, ContainerName, InvalidName};
use crate::service::Shared;
use crate::store::{BlobEntry, BlobStore, ListQuery, Reading, StoreError, StoreErrorKind};

/// How long a staged block waits for its list.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);
/// How many entries are looked at at a time.
const STEP: usize = 1000;

/// Removes what is left over, and says how much that was.
pub(crate) async fn collect<S: BlobStore, C: Clock>(shared: &Shared<S, C>) -> Result<u64, StoreError> {
    let blocks = sweep(shared, staged_blocks().map_err(broken)?, false).await?;
    let lists = sweep(shared, committed_lists().map_err(broken)?, true).await?;
    Ok(blocks + lists)
}

async fn sweep<S: BlobStore, C: Clock>(
    shared: &Shared<S, C>,
    container: ContainerName,
    are_lists: bool,
) -> Result<u64, StoreError> {
    let mut removed = 0;
    let mut query = ListQuery { prefix: String::new(), after: None, limit: STEP };
    while let Some(page) = shared.store.list(&container, &query).await? {
        for entry in page.items {
            if !is_old(shared, entry.info.last_modified) || (are_lists && is_used(shared, &container, &entry).await?) {
                continue;
            }
            let path = BlobPath { container: container.clone(), name: entry.name };
            // One that was written again meanwhile stays.
            if remove(&shared.store, &path, entry.info.tag).await.is_ok() {
                removed += 1;
            }
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    Ok(removed)
}

fn is_old<S, C: Clock>(shared: &Shared<S, C>, date: HttpDate) -> bool {
    let age = shared.wall().last_modified().unix().saturating_sub(date.unix());
    u64::try_from(age).is_ok_and(|age| age > MAX_AGE.as_secs())
}

/// Whether a list is that of a blob as it is.
async fn is_used<S: BlobStore, C: Clock>(
    shared: &Shared<S, C>,
    container: &ContainerName,
    entry: &BlobEntry,
) -> Result<bool, StoreError> {
    let place = BlobPath { container: container.clone(), name: entry.name.clone() };
    let Some(list) = CommittedList::load(&shared.store, &place).await? else { return Ok(false) };
    let owner = entry.name.as_str().split('/').next().unwrap_or_default();
    let (Ok(container), Ok(name)) = (ContainerName::new(owner), BlobName::new(&list.name)) else { return Ok(false) };
    let opened = shared.store.open(&BlobPath { container, name }, Reading::Head).await?;
    Ok(opened.is_some_and(|opened| list.belongs_to(&opened.info)))
}

fn broken(error: InvalidName) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, error)
}
