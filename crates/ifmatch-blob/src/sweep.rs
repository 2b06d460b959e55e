//! Sweeps over the blobs that a dialect keeps in internal containers.
//!
//! A long sweep saves its position in the store after each page. If the platform ends it early, the next sweep continues there.
//! Concurrent sweeps overwrite each other's position, which costs extra work but is safe.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::BlobStore;
use crate::dialect::Context;
use crate::name::{BlobName, BlobPath, ContainerName};
use crate::store::{
    BlobEntry, Delete, ListQuery, Put, Reading, StoreError, StoreErrorKind, Upload,
};

/// Maximum number of entries per page. A page must fit into the requests that a platform allows per invocation.
const STEP: usize = 50;

/// The position of a sweep, which a blob keeps.
pub struct Position<'a> {
    store: &'a dyn BlobStore,
    place: BlobPath,
    is_saved: bool,
}

impl<'a> Position<'a> {
    /// Returns the keeper of the position, and the saved position if there is one. If it is unreadable, the sweep starts over.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn load<P: DeserializeOwned>(
        store: &'a dyn BlobStore,
        place: BlobPath,
    ) -> Result<(Self, Option<P>), StoreError> {
        let saved = match store.open(&place, Reading::WHOLE).await? {
            Some(mut opened) => Some(opened.source.read(None).await?.collect().await?.to_bytes()),
            None => None,
        };
        let position = saved
            .as_ref()
            .and_then(|saved| serde_json::from_slice(saved).ok());
        Ok((
            Self {
                store,
                place,
                is_saved: saved.is_some(),
            },
            position,
        ))
    }

    /// Returns `true` if the store has a position.
    pub fn is_saved(&self) -> bool {
        self.is_saved
    }

    /// Saves the position.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn save(&mut self, position: &impl Serialize) -> Result<(), StoreError> {
        let text = serde_json::to_vec(position)
            .map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
        self.store
            .put(
                &self.place,
                Put::new(Upload::new(Full::new(Bytes::from(text)))),
            )
            .await?;
        self.is_saved = true;
        Ok(())
    }

    /// Removes the position at the end of the sweep.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn end(self) -> Result<(), StoreError> {
        if !self.is_saved {
            return Ok(());
        }
        match self.store.delete(&self.place, Delete::default()).await {
            Err(error) if *error.kind() != StoreErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Tells if a blob of one of the containers is in use.
pub type IsUsed = for<'a> fn(&'a Context, &'a BlobPath) -> BoxFuture<'a, Result<bool, StoreError>>;

/// Removes the old and unused blobs of internal containers, and returns their number. Continues an interrupted sweep of this name.
///
/// # Errors
/// The store failed. Blobs removed before stay removed, and the next sweep continues there.
pub async fn remove_old(
    context: &Context,
    name: &str,
    age: Duration,
    containers: &[(&ContainerName, IsUsed)],
) -> Result<u64, StoreError> {
    let store = &*context.store;
    let broken = |error| StoreError::new(StoreErrorKind::Unreadable, error);
    let container = ContainerName::internal("sweeps").map_err(broken)?;
    let place = BlobPath {
        container,
        name: BlobName::new(name).map_err(broken)?,
    };
    let (mut position, saved) = Position::load::<(usize, Option<String>)>(store, place).await?;
    let (begin, mut after) = saved.unwrap_or_default();
    let mut removed = 0;
    for (at, (container, is_used)) in containers.iter().enumerate().skip(begin) {
        // A sweep of short pages needs no saved position.
        if at > begin && position.is_saved() {
            position.save(&(at, None::<String>)).await?;
        }
        loop {
            let query = ListQuery {
                after: after.take(),
                ..ListQuery::first(STEP)
            };
            let Some(page) = store.list(container, &query).await? else {
                break;
            };
            for BlobEntry { name, info } in page.items {
                let blob = BlobPath {
                    container: (*container).clone(),
                    name,
                };
                if !context.is_older(info.last_modified, age) || is_used(context, &blob).await? {
                    continue;
                }
                let delete = Delete::of_version(info.tag.as_ref());
                match store.delete(&blob, delete).await {
                    Ok(()) => removed += 1,
                    // It was written or removed meanwhile, or is being written.
                    Err(error)
                        if error.kind().is_overtaken()
                            || matches!(error.kind(), StoreErrorKind::InFlight { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
            position.save(&(at, &after)).await?;
        }
    }
    position.end().await?;
    Ok(removed)
}
