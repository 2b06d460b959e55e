//! Listings in the order of the names' bytes, even if the store lists in another order.

use std::collections::BTreeMap;

use futures_util::stream::{BoxStream, StreamExt, TryStreamExt, empty, iter};
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use ifmatch_blob::store::{BlobEntry, BlobInfo, ListQuery, Page, StoreError, behind};
use object_store::path::Path;
use object_store::{Attributes, ObjectMeta};

use crate::attributes::StoredVersion;
use crate::container_state::ContainerMembers;
use crate::failure;
use crate::store_state::StoreState;

/// Number of further names of a folder, about a page of the store's, after which a new listing begins behind it.
const HIDDEN: usize = 100;
/// Maximum number of concurrent requests for objects.
const LOOKS: usize = 16;

impl StoreState {
    /// Lists the blobs of a container. Returns `None` if there is no such container.
    ///
    /// The metadata is part of a blob's tag, and tags in a listing can be used in conditions. If the store's listing
    /// lacks the metadata, each object in the page is therefore requested separately.
    pub(super) async fn list(
        &self,
        container: &ContainerName,
        query: &ListQuery,
    ) -> Result<Option<Page<BlobEntry>>, StoreError> {
        // One request lists the properties of all names.
        let is_cheap = self.backing.described.is_some() && !query.leases;
        let query = if is_cheap {
            query
        } else {
            &self.bounded(query)
        };
        let registered = self.registered(container).await?;
        if !self.exists(container, registered).await? {
            return Ok(None);
        }
        let members = registered.members();
        let mut names = self.names(container, query, members).await?;
        let more = names.len() > query.limit;
        names.truncate(query.limit);
        let next = names.last().filter(|_| more).map(|(last, _)| {
            match self.folder_once(query, last.as_str()) {
                Some(folder) => behind(folder),
                None => last.as_str().to_owned(),
            }
        });
        let entries = names
            .into_iter()
            .map(|(name, found)| self.entry(container, members, name, found, query.leases));
        let entries: Vec<Option<BlobEntry>> = iter(entries).buffered(LOOKS).try_collect().await?;
        Ok(Some(Page {
            items: entries.into_iter().flatten().collect(),
            next,
        }))
    }

    /// Returns the query for a page that fits the platform's request limit: one request per name, and some for the
    /// rest.
    pub(super) fn bounded(&self, query: &ListQuery) -> ListQuery {
        let most = (self.backing.allowance)() / 4 * 3;
        ListQuery {
            limit: query.limit.min(most.max(1)),
            ..query.clone()
        }
    }

    /// Returns a blob's properties for a listing, or `None` if it is gone by now or the object isn't a blob.
    async fn entry(
        &self,
        container: &ContainerName,
        members: ContainerMembers,
        name: BlobName,
        found: Option<StoredVersion>,
        with_lease: bool,
    ) -> Result<Option<BlobEntry>, StoreError> {
        let blob = BlobPath {
            container: container.clone(),
            name,
        };
        let current = match found {
            Some(current) => Some(current),
            // Another program can give an object a name that no request may have.
            None => match self.location(&blob) {
                Ok(location) => self.look(&location, members).await?,
                Err(_) => return Ok(None),
            },
        };
        let Some(current) = current else {
            return Ok(None);
        };
        let lease = if with_lease {
            self.lease_of(&blob).await?
        } else {
            None
        };
        Ok(Some(BlobEntry {
            name: blob.name,
            info: BlobInfo {
                lease,
                ..current.info
            },
        }))
    }

    /// Returns the folder of a name, if its first name stands for all: the store's listing tells which objects are blobs.
    fn folder_once<'a>(&self, query: &ListQuery, name: &'a str) -> Option<&'a str> {
        self.backing
            .described
            .as_ref()
            .and_then(|_| query.folder(name))
    }

    /// Returns the first names requested, one more than the page holds, with the listed properties of the objects.
    /// Memory use depends only on the page.
    async fn names(
        &self,
        container: &ContainerName,
        query: &ListQuery,
        members: ContainerMembers,
    ) -> Result<Vec<(BlobName, Option<StoredVersion>)>, StoreError> {
        if query.prefix.len() > BlobName::MAX_BYTES {
            return Ok(Vec::new());
        }
        let within = self.folder(container);
        let offset = query
            .after
            .as_ref()
            .and_then(|after| behind_name(&within, after));
        let mut listed = self.listed(&within, &query.prefix, offset.as_ref());
        let wanted = query.limit.saturating_add(1);
        let mut first: BTreeMap<BlobName, Option<StoredVersion>> = BTreeMap::new();
        let (mut shown, mut hidden) = (None, 0);
        loop {
            let (meta, attributes) = match listed.try_next().await {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) if failure::is_absence(&error) => break,
                Err(error) => return Err(failure::of_read(error)),
            };
            let Some(name) =
                name_of(&meta.location, &within).filter(|name| is_asked_for(query, name.as_str()))
            else {
                continue;
            };
            let current = attributes.map(|attributes| StoredVersion::new(&meta, &attributes));
            if current
                .as_ref()
                .is_some_and(|current| !members.contain(current))
            {
                continue;
            }
            if let Some(folder) = self.folder_once(query, name.as_str()) {
                if shown.as_deref() == Some(folder) {
                    hidden += 1;
                    if hidden == HIDDEN
                        && let Some(end) = behind_name(&within, &behind(folder))
                    {
                        listed = self.listed(&within, &query.prefix, Some(&end));
                    }
                    continue;
                }
                (shown, hidden) = (Some(folder.to_owned()), 0);
            }
            first.insert(name, current);
            if first.len() > wanted {
                first.pop_last();
            }
            if self.backing.ordered && first.len() == wanted {
                break;
            }
        }
        Ok(first.into_iter().collect())
    }

    /// Lists the objects in a folder after one of them, with their attributes if the store lists those. Names without the
    /// prefix may be among them.
    fn listed(
        &self,
        folder: &Path,
        prefix: &str,
        offset: Option<&Path>,
    ) -> BoxStream<'static, object_store::Result<(ObjectMeta, Option<Attributes>)>> {
        if let Some(described) = &self.backing.described {
            let listed = described.list_described(&format!("{folder}/{prefix}"), offset);
            return listed
                .map_ok(|(meta, attributes)| (meta, Some(attributes)))
                .boxed();
        }
        // Other stores list whole segments.
        let segments = prefix.rsplit_once('/').map_or("", |(segments, _)| segments);
        let Ok(within) = Path::parse(format!("{folder}/{segments}")) else {
            return empty().boxed();
        };
        let objects = &self.backing.objects;
        match offset {
            Some(offset) => objects
                .list_with_offset(Some(&within), offset)
                .map_ok(|meta| (meta, None))
                .boxed(),
            None => objects
                .list(Some(&within))
                .map_ok(|meta| (meta, None))
                .boxed(),
        }
    }

    /// Returns `true` if there is any blob in a container's folder.
    pub(super) async fn has_blobs(
        &self,
        container: &ContainerName,
        members: ContainerMembers,
    ) -> Result<bool, StoreError> {
        let mut listed = self.backing.objects.list(Some(&self.folder(container)));
        loop {
            match listed.try_next().await {
                Ok(None) => return Ok(false),
                Ok(Some(_)) if members.are_all() || !self.capability.metadata => return Ok(true),
                Ok(Some(object)) => {
                    if self.look(&object.location, members).await?.is_some() {
                        return Ok(true);
                    }
                }
                Err(error) if failure::is_absence(&error) => return Ok(false),
                Err(error) => return Err(failure::of_read(error)),
            }
        }
    }
}

/// Returns the name behind which to list: up to the length of the longest name, since a client chooses `after`. A listing behind the
/// beginning of a name contains all that is behind the name.
fn behind_name(within: &Path, after: &str) -> Option<Path> {
    let after = &after[..after.floor_char_boundary(BlobName::MAX_BYTES)];
    Path::parse(format!("{within}/{after}")).ok()
}

/// Returns the blob of an object, or `None` if no blob can have its name.
pub(super) fn name_of(location: &Path, folder: &Path) -> Option<BlobName> {
    let name = location
        .as_ref()
        .strip_prefix(folder.as_ref())?
        .strip_prefix('/')?;
    BlobName::new(name).ok()
}

/// Returns `true` if a name is in the requested part of the listing.
pub(super) fn is_asked_for(query: &ListQuery, name: &str) -> bool {
    name.starts_with(&query.prefix)
        && query
            .after
            .as_ref()
            .is_none_or(|after| name > after.as_str())
}
