//! Containers that were looked up a while ago, in memory: every request for a blob asks for its container first.
//!
//! As with [`known`](super::known) blobs, an entry says: as long as the record has this revision, this is the container. It is
//! right or of no use, but never wrong.

use std::sync::Arc;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::Register;
use ifmatch_runtime::Clock;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::container::container_info;
use super::error::index;
use super::known::{Found, size_of_metadata};
use super::swap::payload_of;
use super::{Inner, key};
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{ContainerInfo, StoreError};

/// The most that is kept, in bytes.
const CAPACITY: u64 = 2 * 1024 * 1024;
/// What an entry has, more or less, apart from the user's own fields.
const USUAL_SIZE: usize = 1024;

/// Containers in memory.
#[derive(Debug)]
pub(super) struct KnownContainers(Cache<ContainerName, Arc<KnownContainer>, BySize>);

/// A container, and what must be the case for it to be as it says.
#[derive(Debug)]
pub(super) struct KnownContainer {
    found: Found,
    /// Which of all containers that had this name.
    pub(super) incarnation: Revision,
    pub(super) info: ContainerInfo,
}

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<ContainerName, Arc<KnownContainer>> for BySize {
    fn weight(&self, _: &ContainerName, known: &Arc<KnownContainer>) -> u64 {
        (USUAL_SIZE + size_of_metadata(&known.info.headers)) as u64
    }
}

impl KnownContainers {
    pub(super) fn new() -> Self {
        let usual = USUAL_SIZE as u64;
        Self(Cache::with_weighter(usize::try_from(CAPACITY / usual).unwrap_or(usize::MAX), CAPACITY, BySize))
    }
}

impl<R: Register, C: Clock> Inner<R, C> {
    /// A container that is not of this crate's own. None: there is no such container.
    pub(super) async fn look_up(&self, container: &ContainerName) -> Result<Option<Arc<KnownContainer>>, StoreError> {
        if let Some(known) = self.containers.0.get(container)
            && self.driver.revision_at_once(&known.found.key) == Some(known.found.revision)
        {
            return Ok(Some(known));
        }
        let key = key::of_container(container)?;
        let record = self.driver.load(&key).await.map_err(index)?;
        let known = self.known_container(Found { key, revision: record.revision() }, &record)?.map(Arc::new);
        if let Some(known) = &known {
            self.containers.0.insert(container.clone(), Arc::clone(known));
        }
        Ok(known)
    }

    /// What a container's record tells. Such records have no writes in flight, so that they say the same at any time.
    fn known_container(&self, found: Found, record: &Record) -> Result<Option<KnownContainer>, StoreError> {
        let Some(version) = record.state(self.driver.now()).version() else { return Ok(None) };
        let incarnation = payload_of(version)?.created(version);
        Ok(Some(KnownContainer { found, incarnation, info: container_info(record, version)? }))
    }
}

#[cfg(test)]
mod tests {
    use ifmatch_core::lease::LeaseUse;
    use ifmatch_core::precondition::Preconditions;

    use super::*;
    use crate::EmbeddedStore;
    use ifmatch_blob::headers::{BlobHeaders, FieldText};
    use ifmatch_blob::store::{BlobStore, Delete, HeaderChange, SetHeaders};

    fn fields(owner: &str) -> BlobHeaders {
        let mut fields = BlobHeaders::default();
        fields.metadata.insert("owner".into(), FieldText::new(owner).expect("valid"));
        fields
    }

    /// Looked up until it is from memory: by then its record is there as well.
    async fn look_up(store: &EmbeddedStore, name: &ContainerName) -> Option<Arc<KnownContainer>> {
        for _ in 0..3 {
            store.inner.look_up(name).await.expect("it can be read");
        }
        store.inner.look_up(name).await.expect("it can be read")
    }

    #[tokio::test]
    async fn what_is_known_of_a_container_is_what_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = EmbeddedStore::open(folder.path()).await.expect("it opens");
        let name = ContainerName::new("notes").expect("valid");
        assert!(look_up(&store, &name).await.is_none());
        store.create_container(&name, fields("me")).await.expect("created");
        let first = look_up(&store, &name).await.expect("it is there");
        assert_eq!(first.info.headers, fields("me"));
        let again = store.inner.look_up(&name).await.expect("it can be read").expect("it is there");
        assert!(Arc::ptr_eq(&first, &again), "it was not from memory");

        let change = HeaderChange::Metadata(fields("you").metadata);
        let set =
            SetHeaders { change, preconditions: Preconditions::default(), lease: LeaseUse::default(), request: None };
        store.set_container(&name, set).await.expect("changed");
        let changed = look_up(&store, &name).await.expect("it is there");
        assert_eq!((&changed.info.headers, changed.incarnation), (&fields("you"), first.incarnation));

        store.delete_container(&name, Delete::default()).await.expect("deleted");
        assert!(look_up(&store, &name).await.is_none());
        store.create_container(&name, fields("me")).await.expect("created");
        let second = look_up(&store, &name).await.expect("it is there");
        assert_ne!(second.incarnation, first.incarnation);
    }
}
