//! Garbage collection of the entities of deleted tables.
//!
//! A long sweep saves its position in the store after each page. If the platform ends it early, the next sweep continues
//! there.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use crate::storage::blob;
use crate::storage::tables::AccountContainers;
use ifmatch_blob::name::{BlobName, BlobPath};
use ifmatch_blob::store::{BlobEntry, BlobStore, Delete, ListQuery, Page, Reading, StoreError, StoreErrorKind};
use ifmatch_core::precondition::Preconditions;

/// Maximum number of identities or tables per page. A page must fit into the requests that a platform allows per
/// invocation.
const STEP: usize = 50;

/// Position of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cursor {
    /// Identities that may belong to deleted tables: a page of those that have entities, without those of the tables read
    /// so far. Empty before the page is listed.
    suspects: BTreeSet<String>,
    /// Last identity of the page, if more may follow.
    after_identity: Option<String>,
    /// Last table read.
    after_table: Option<String>,
}

/// Deletes the entities of an account that belong to no table, and returns their number. Continues an interrupted sweep.
///
/// Safe with concurrent requests: the identities of entities are listed before the tables. A table with an entity in
/// the first listing existed before it, so the second listing contains the table unless it was deleted.
pub(crate) async fn collect(store: &dyn BlobStore, containers: &AccountContainers) -> Result<usize, StoreError> {
    let kept = Cursor::load(store, containers).await?;
    let mut is_kept = kept.is_some();
    let mut cursor = kept.unwrap_or_default();
    let mut collected = 0;
    loop {
        if cursor.suspects.is_empty() {
            cursor.list_identities(store, containers).await?;
        }
        while !cursor.suspects.is_empty() && !cursor.read_tables(store, containers).await? {
            cursor.save(store, containers).await?;
            is_kept = true;
        }
        for identity in std::mem::take(&mut cursor.suspects) {
            collected += remove(store, containers, &identity).await?;
        }
        cursor.after_table = None;
        if cursor.after_identity.is_none() {
            break;
        }
        cursor.save(store, containers).await?;
        is_kept = true;
    }
    if is_kept {
        delete(store, Cursor::path(containers)?).await?;
    }
    Ok(collected)
}

impl Cursor {
    /// Lists the next identities that have entities, including those of deleted tables.
    async fn list_identities(
        &mut self,
        store: &dyn BlobStore,
        containers: &AccountContainers,
    ) -> Result<(), StoreError> {
        let mut last = self.after_identity.take();
        while self.suspects.len() < STEP {
            // `0` is the character after `/`, so this skips all names with this identity.
            let after = last.map(|identity| format!("{identity}0"));
            let query = ListQuery { after, ..ListQuery::first(1) };
            let page = store.list(&containers.entities, &query).await?;
            let Some(first) = page.and_then(|page| page.items.into_iter().next()) else { return Ok(()) };
            let identity = first.name.as_str().split('/').next().unwrap_or_default().to_owned();
            self.suspects.insert(identity.clone());
            last = Some(identity);
        }
        self.after_identity = last;
        Ok(())
    }

    /// Removes the identities of a page of tables from the suspects. Returns `true` after the last page.
    async fn read_tables(&mut self, store: &dyn BlobStore, containers: &AccountContainers) -> Result<bool, StoreError> {
        let query = ListQuery { after: self.after_table.take(), ..ListQuery::first(STEP) };
        let Some(Page { items, next }) = store.list(&containers.tables, &query).await? else { return Ok(true) };
        for BlobEntry { name, .. } in items {
            let blob = BlobPath { container: containers.tables.clone(), name };
            if let Some(table) = containers.read(store, &blob).await? {
                self.suspects.remove(&*table.identity);
            }
        }
        self.after_table = next;
        Ok(self.after_table.is_none())
    }

    fn path(containers: &AccountContainers) -> Result<BlobPath, StoreError> {
        let name = BlobName::new("tables").map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
        Ok(BlobPath { container: containers.sweeps.clone(), name })
    }

    /// Loads the saved position. If it cannot be read, the sweep starts over.
    async fn load(store: &dyn BlobStore, containers: &AccountContainers) -> Result<Option<Self>, StoreError> {
        let Some(opened) = store.open(&Self::path(containers)?, Reading::WHOLE).await? else { return Ok(None) };
        Ok(Self::decode(&blob::bytes(opened).await?))
    }

    /// Saves the position. Concurrent sweeps overwrite each other's position, which costs extra work but is safe.
    async fn save(&self, store: &dyn BlobStore, containers: &AccountContainers) -> Result<(), StoreError> {
        store.put(&Self::path(containers)?, blob::put(self.encode(), Preconditions::default())).await.map(drop)
    }

    fn encode(&self) -> String {
        let Self { suspects, after_identity, after_table } = self;
        json!({ "suspects": suspects, "identity": after_identity, "table": after_table }).to_string()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let stored: Json = serde_json::from_slice(bytes).ok()?;
        let text = |name: &str| stored[name].as_str().map(str::to_owned);
        let suspects = stored["suspects"].as_array()?.iter();
        let suspects = suspects.map(|identity| identity.as_str().map(str::to_owned)).collect::<Option<_>>()?;
        Some(Self { suspects, after_identity: text("identity"), after_table: text("table") })
    }
}

async fn remove(store: &dyn BlobStore, containers: &AccountContainers, identity: &str) -> Result<usize, StoreError> {
    let mut removed = 0;
    let mut query =
        ListQuery { prefix: format!("{identity}/"), after: None, limit: STEP, leases: false, delimiter: None };
    while let Some(Page { items, next }) = store.list(&containers.entities, &query).await? {
        for BlobEntry { name, .. } in items {
            removed += usize::from(delete(store, BlobPath { container: containers.entities.clone(), name }).await?);
        }
        match next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    Ok(removed)
}

/// Deletes a blob. Returns `false` if there is none.
async fn delete(store: &dyn BlobStore, blob: BlobPath) -> Result<bool, StoreError> {
    match store.delete(&blob, Delete::default()).await {
        Ok(()) => Ok(true),
        Err(error) if *error.kind() == StoreErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip() {
        for (suspects, after) in [(vec![], None), (vec!["a", "b"], Some("c"))] {
            let suspects = suspects.into_iter().map(str::to_owned).collect();
            let cursor =
                Cursor { suspects, after_identity: after.map(str::to_owned), after_table: after.map(str::to_owned) };
            assert_eq!(Cursor::decode(cursor.encode().as_bytes()), Some(cursor));
        }
        assert_eq!(Cursor::decode(b"{}"), None);
    }
}
