//! Garbage collection of the entities of deleted tables.

use std::collections::HashSet;

use crate::storage::tables::AccountContainers;
use ifmatch_blob::name::{BlobName, BlobPath};
use ifmatch_blob::store::BlobEntry;
use ifmatch_blob::store::{BlobStore, Delete, ListQuery, Page, StoreError, StoreErrorKind};

/// Maximum number of names per page.
const STEP: usize = 1000;

/// Deletes the entities of an account that belong to no table, and returns their number.
///
/// Safe with concurrent requests: the identities of entities are listed before the tables. A table with an entity in
/// the first listing existed before it, so the second listing contains the table unless it was deleted.
pub(crate) async fn collect(store: &dyn BlobStore, containers: &AccountContainers) -> Result<usize, StoreError> {
    let identities = identities(store, containers).await?;
    if identities.is_empty() {
        return Ok(0);
    }
    let living = living(store, containers).await?;
    let mut collected = 0;
    for identity in identities.iter().filter(|identity| !living.contains(identity.as_str())) {
        collected += remove(store, containers, identity).await?;
    }
    Ok(collected)
}

/// Returns the identities of all tables that have entities, including deleted tables.
async fn identities(store: &dyn BlobStore, containers: &AccountContainers) -> Result<Vec<String>, StoreError> {
    let mut identities = Vec::new();
    let mut query = ListQuery { prefix: String::new(), after: None, limit: 1 };
    while let Some(first) =
        store.list(&containers.entities, &query).await?.and_then(|page| page.items.into_iter().next())
    {
        let identity = first.name.as_str().split('/').next().unwrap_or_default().to_owned();
        // `0` is the character after `/`, so this skips all names with this identity.
        query.after = Some(format!("{identity}0"));
        identities.push(identity);
    }
    Ok(identities)
}

/// Returns the identities of all existing tables.
async fn living(store: &dyn BlobStore, containers: &AccountContainers) -> Result<HashSet<Box<str>>, StoreError> {
    let mut living = HashSet::new();
    let mut query = ListQuery { prefix: String::new(), after: None, limit: STEP };
    while let Some(Page { items, next }) = store.list(&containers.tables, &query).await? {
        for BlobEntry { name, .. } in items {
            let blob = BlobPath { container: containers.tables.clone(), name };
            living.extend(containers.read(store, &blob).await?.map(|table| table.identity));
        }
        match next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    Ok(living)
}

async fn remove(store: &dyn BlobStore, containers: &AccountContainers, identity: &str) -> Result<usize, StoreError> {
    let mut removed = 0;
    let mut query = ListQuery { prefix: format!("{identity}/"), after: None, limit: STEP };
    while let Some(Page { items, next }) = store.list(&containers.entities, &query).await? {
        for BlobEntry { name, .. } in items {
            removed += usize::from(remove_one(store, containers, name).await?);
        }
        match next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    Ok(removed)
}

async fn remove_one(store: &dyn BlobStore, containers: &AccountContainers, name: BlobName) -> Result<bool, StoreError> {
    let blob = BlobPath { container: containers.entities.clone(), name };
    match store.delete(&blob, Delete::default()).await {
        Ok(()) => Ok(true),
        Err(error) if *error.kind() == StoreErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
