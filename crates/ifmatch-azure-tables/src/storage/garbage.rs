//! Garbage collection of the entities of deleted tables.

use std::collections::BTreeSet;

use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::storage::tables::AccountContainers;
use ifmatch_blob::name::{BlobName, BlobPath};
use ifmatch_blob::store::{
    BlobEntry, BlobStore, Delete, ListQuery, Page, StoreError, StoreErrorKind,
};
use ifmatch_blob::sweep::Position;

/// Maximum number of identities or tables per page. A page must fit into the requests that a platform allows per
/// invocation.
const STEP: usize = 50;

/// Position of a sweep.
#[derive(Default, Serialize, Deserialize)]
struct Cursor {
    /// Identities that may belong to deleted tables: a page of the ones that have entities, without the tables read
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
pub(crate) async fn collect(
    store: &dyn BlobStore,
    containers: &AccountContainers,
) -> Result<usize, StoreError> {
    let name = BlobName::new("tables")
        .map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
    let place = BlobPath {
        container: containers.sweeps.clone(),
        name,
    };
    let (mut position, saved) = Position::load::<Cursor>(store, place).await?;
    let mut cursor = saved.unwrap_or_default();
    let mut collected = 0;
    loop {
        if cursor.suspects.is_empty() {
            cursor.list_identities(store, containers).await?;
        }
        while !cursor.suspects.is_empty() && !cursor.read_tables(store, containers).await? {
            position.save(&cursor).await?;
        }
        for identity in std::mem::take(&mut cursor.suspects) {
            collected += remove(store, containers, &identity).await?;
        }
        cursor.after_table = None;
        if cursor.after_identity.is_none() {
            break;
        }
        position.save(&cursor).await?;
    }
    position.end().await?;
    Ok(collected)
}

impl Cursor {
    /// Lists the next identities that have entities, deleted tables' included.
    async fn list_identities(
        &mut self,
        store: &dyn BlobStore,
        containers: &AccountContainers,
    ) -> Result<(), StoreError> {
        let mut last = self.after_identity.take();
        while self.suspects.len() < STEP {
            // `0` is the character after `/`, so this skips all names with this identity.
            let after = last.map(|identity| format!("{identity}0"));
            let query = ListQuery {
                after,
                ..ListQuery::first(1)
            };
            let page = store.list(&containers.entities, &query).await?;
            let Some(first) = page.and_then(|page| page.items.into_iter().next()) else {
                return Ok(());
            };
            let identity = first
                .name
                .as_str()
                .split('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            self.suspects.insert(identity.clone());
            last = Some(identity);
        }
        self.after_identity = last;
        Ok(())
    }

    /// Removes the identities of a page of tables from the suspects. Returns `true` after the last page.
    async fn read_tables(
        &mut self,
        store: &dyn BlobStore,
        containers: &AccountContainers,
    ) -> Result<bool, StoreError> {
        let query = ListQuery {
            after: self.after_table.take(),
            ..ListQuery::first(STEP)
        };
        let Some(Page { items, next }) = store.list(&containers.tables, &query).await? else {
            return Ok(true);
        };
        for BlobEntry { name, .. } in items {
            let blob = BlobPath {
                container: containers.tables.clone(),
                name,
            };
            if let Some(table) = containers.read(store, &blob).await? {
                self.suspects.remove(&*table.identity);
            }
        }
        self.after_table = next;
        Ok(self.after_table.is_none())
    }
}

/// Deletes the entities with this identity, and returns their number.
async fn remove(
    store: &dyn BlobStore,
    containers: &AccountContainers,
    identity: &str,
) -> Result<usize, StoreError> {
    let query = ListQuery {
        prefix: format!("{identity}/"),
        ..ListQuery::first(STEP)
    };
    let mut entries = query.blobs(store, &containers.entities);
    let mut removed = 0;
    while let Some(BlobEntry { name, .. }) = entries.try_next().await? {
        match store
            .delete(
                &BlobPath {
                    container: containers.entities.clone(),
                    name,
                },
                Delete::default(),
            )
            .await
        {
            Ok(()) => removed += 1,
            Err(error) if *error.kind() == StoreErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}
