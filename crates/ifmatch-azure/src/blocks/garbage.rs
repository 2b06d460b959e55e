//! Garbage collection of blocks left uncommitted for a week, and of block lists without a blob.
//!
//! A sweep saves its position in the store after each page. If the platform ends it early, the next sweep continues
//! there.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use ifmatch_core::date::HttpDate;

use super::committed::CommittedList;
use super::staging::{COMMITTED_LISTS, STAGED_BLOCKS, remove};
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName, InvalidName};
use ifmatch_blob::store::{BlobEntry, BlobStore, Delete, ListQuery, Put, Reading, StoreError, StoreErrorKind, Upload};

/// Retention of staged blocks.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);
/// Maximum number of entries per page. A page must fit into the requests that a platform allows per invocation.
const STEP: usize = 50;

/// Kinds of garbage, in the order of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Blocks,
    Lists,
}

/// Position of a sweep: all entries up to `after` have been processed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cursor {
    kind: Kind,
    after: Option<String>,
}

/// Removes garbage and returns the number of entries removed. Continues an interrupted sweep.
pub(crate) async fn collect(shared: &Context) -> Result<u64, StoreError> {
    let kept = Cursor::load(&*shared.store).await?;
    let mut is_kept = kept.is_some();
    let mut cursor = kept.unwrap_or(Cursor { kind: Kind::Blocks, after: None });
    let mut removed = 0;
    loop {
        let (count, next) = page(shared, &cursor).await?;
        removed += count;
        let Some(next) = next else { break };
        // A sweep of two short pages needs no saved position.
        if is_kept || next.after.is_some() {
            next.save(&*shared.store).await?;
            is_kept = true;
        }
        cursor = next;
    }
    if is_kept {
        Cursor::clear(&*shared.store).await?;
    }
    Ok(removed)
}

/// Processes one page. Returns the number of entries removed and the next position, or `None` once the sweep is
/// complete.
async fn page(shared: &Context, cursor: &Cursor) -> Result<(u64, Option<Cursor>), StoreError> {
    let container = cursor.kind.container();
    let query = ListQuery { after: cursor.after.clone(), ..ListQuery::first(STEP) };
    let mut removed = 0;
    let mut next = None;
    if let Some(page) = shared.store.list(container, &query).await? {
        for entry in page.items {
            let is_list = cursor.kind == Kind::Lists;
            if !is_old(shared, entry.info.last_modified) || (is_list && is_used(shared, container, &entry).await?) {
                continue;
            }
            let path = BlobPath { container: container.clone(), name: entry.name };
            // An entry rewritten meanwhile is kept.
            if remove(&*shared.store, &path, entry.info.tag).await.is_ok() {
                removed += 1;
            }
        }
        next = page.next.map(|after| Cursor { kind: cursor.kind, after: Some(after) });
    }
    let following = (cursor.kind == Kind::Blocks).then_some(Cursor { kind: Kind::Lists, after: None });
    Ok((removed, next.or(following)))
}

impl Kind {
    fn container(self) -> &'static ContainerName {
        match self {
            Self::Blocks => &STAGED_BLOCKS,
            Self::Lists => &COMMITTED_LISTS,
        }
    }
}

/// Stored as text: `blocks` or `lists`, a slash, and the name to continue after.
impl Cursor {
    fn path() -> Result<BlobPath, StoreError> {
        let container = ContainerName::internal("sweeps").map_err(broken)?;
        Ok(BlobPath { container, name: BlobName::new("blocks").map_err(broken)? })
    }

    /// Loads the saved position. If it cannot be read, the sweep starts over.
    async fn load(store: &dyn BlobStore) -> Result<Option<Self>, StoreError> {
        let Some(mut opened) = store.open(&Self::path()?, Reading::WHOLE).await? else { return Ok(None) };
        let bytes = opened.source.read(None).await?.collect().await?.to_bytes();
        Ok(std::str::from_utf8(&bytes).ok().and_then(Self::parse))
    }

    /// Saves the position. Concurrent sweeps overwrite each other's position, which costs extra work but is safe.
    async fn save(&self, store: &dyn BlobStore) -> Result<(), StoreError> {
        store.put(&Self::path()?, Put::new(Upload::new(Full::<Bytes>::from(self.text())))).await.map(drop)
    }

    async fn clear(store: &dyn BlobStore) -> Result<(), StoreError> {
        match store.delete(&Self::path()?, Delete::default()).await {
            Err(error) if *error.kind() != StoreErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn text(&self) -> String {
        let kind = match self.kind {
            Kind::Blocks => "blocks",
            Kind::Lists => "lists",
        };
        let after = self.after.iter().flat_map(|after| ["/", after]);
        std::iter::once(kind).chain(after).collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, after) = match text.split_once('/') {
            Some((kind, after)) => (kind, Some(after.to_owned())),
            None => (text, None),
        };
        let kind = match kind {
            "blocks" => Kind::Blocks,
            "lists" => Kind::Lists,
            _ => return None,
        };
        Some(Self { kind, after })
    }
}

fn is_old(shared: &Context, date: HttpDate) -> bool {
    let age = shared.wall().last_modified().unix().saturating_sub(date.unix());
    u64::try_from(age).is_ok_and(|age| age > MAX_AGE.as_secs())
}

/// Returns `true` if a list belongs to the current version of its blob.
async fn is_used(shared: &Context, container: &ContainerName, entry: &BlobEntry) -> Result<bool, StoreError> {
    let place = BlobPath { container: container.clone(), name: entry.name.clone() };
    let Some(list) = CommittedList::load(&*shared.store, &place).await? else { return Ok(false) };
    let owner = entry.name.as_str().split('/').next().unwrap_or_default();
    let (Ok(container), Ok(name)) = (ContainerName::new(owner), BlobName::new(&list.name)) else { return Ok(false) };
    let opened = shared.store.open(&BlobPath { container, name }, Reading::HEAD).await?;
    Ok(opened.is_some_and(|opened| list.belongs_to(&opened.info, &place)))
}

fn broken(error: InvalidName) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip() {
        for kind in [Kind::Blocks, Kind::Lists] {
            for after in [None, Some(""), Some("a/b"), Some("/")] {
                let cursor = Cursor { kind, after: after.map(str::to_owned) };
                assert_eq!(Cursor::parse(&cursor.text()), Some(cursor));
            }
        }
        assert_eq!(Cursor::parse("folders/a"), None);
    }
}
