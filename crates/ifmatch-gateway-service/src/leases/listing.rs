//! A listing of all leases, of containers and of blobs, in pages that cost a bounded amount of work.

use ifmatch_blob::BlobStore;
use ifmatch_blob::documents::{DocumentMemory, Documents, PAGE};
use ifmatch_blob::leases::{LeaseTarget, describe};
use ifmatch_blob::name::{BlobName, ContainerName};
use ifmatch_blob::store::{ListQuery, Page, StoreError};
use ifmatch_core::lease::SeenLease;
use serde_json::Value;

/// Number of blobs or containers requested from the store at a time.
const STEP: usize = 1_000;
/// Maximum number of blobs and containers visited for one page.
const MAX_VISITED: usize = 10 * STEP;

/// A lease in a listing.
#[derive(Clone, Debug)]
pub struct LeaseEntry {
    /// A blob or container that can be leased.
    pub(crate) target: LeaseTarget,
    /// The lease, which may have ended: it is kept until the next write or acquisition.
    pub(crate) lease: SeenLease,
}

impl LeaseEntry {
    /// Returns about how many bytes of memory it takes. As JSON, it names its blob twice.
    fn size(&self) -> usize {
        let name = self.target.container.as_str().len()
            + self
                .target
                .blob
                .as_ref()
                .map_or(0, |blob| blob.as_str().len());
        size_of::<Self>() + 2 * name
    }
}

/// Returns a page of the leases with this path prefix, ordered by container and blob.
///
/// A page may have fewer entries than requested, or none, although more pages follow. Most blobs have no lease, and no
/// request should visit all of them. The entries take their memory from `memory`, and the page ends after [`PAGE`] bytes of it.
pub(crate) async fn page(
    store: &dyn BlobStore,
    prefix: &str,
    after: Option<LeaseTarget>,
    limit: usize,
    memory: &mut DocumentMemory,
) -> Result<Page<LeaseEntry>, StoreError> {
    let prefix = PathPrefix::of(prefix);
    let mut walk = LeaseWalk {
        store,
        prefix,
        limit,
        memory,
        entries: Vec::new(),
        bytes: 0,
        visited: 0,
        last: None,
    };
    let full = walk.run(after).await?;
    let next = walk.last.filter(|_| full).map(|target| target.to_string());
    Ok(Page {
        items: walk.entries,
        next,
    })
}

/// Calls `take` with each lease.
///
/// # Errors
/// Fails if the store can't list containers or blobs.
pub async fn for_each(
    store: &dyn BlobStore,
    mut take: impl FnMut(LeaseEntry),
) -> Result<(), StoreError> {
    let (documents, mut after) = (Documents::default(), None);
    loop {
        let page = page(store, "", after, usize::MAX, &mut documents.begin(None)).await?;
        page.items.into_iter().for_each(&mut take);
        after = match page.next.map(|next| LeaseTarget::new(&next)) {
            Some(Ok(target)) => Some(target),
            // A name from the store is valid.
            _ => return Ok(()),
        };
    }
}

/// A prefix of paths: of container names, or of blob names in one container.
#[derive(Clone, Copy)]
struct PathPrefix<'a> {
    container: &'a str,
    blob: Option<&'a str>,
}

impl<'a> PathPrefix<'a> {
    fn of(text: &'a str) -> Self {
        match text.split_once('/') {
            Some((container, blob)) => Self {
                container,
                blob: Some(blob),
            },
            None => Self {
                container: text,
                blob: None,
            },
        }
    }

    /// Returns `true` if the prefix can match this container or its blobs.
    fn matches(&self, container: &ContainerName) -> bool {
        match self.blob {
            Some(_) => container.as_str() == self.container,
            None => container.as_str().starts_with(self.container),
        }
    }
}

/// The walk through containers and blobs that fills a page.
struct LeaseWalk<'a> {
    store: &'a dyn BlobStore,
    prefix: PathPrefix<'a>,
    limit: usize,
    memory: &'a mut DocumentMemory,
    entries: Vec<LeaseEntry>,
    /// About how many bytes of memory the entries take.
    bytes: usize,
    visited: usize,
    /// The target that was visited last.
    last: Option<LeaseTarget>,
}

impl LeaseWalk<'_> {
    /// Visits all targets after one. Returns `true` if the page is full before the end.
    async fn run(&mut self, after: Option<LeaseTarget>) -> Result<bool, StoreError> {
        let wanted = self.prefix;
        let mut after_container = None;
        if let Some(LeaseTarget { container, blob }) = after {
            if self.blobs(&container, blob).await? {
                return Ok(true);
            }
            after_container = Some(container.to_string());
        }
        loop {
            let prefix = wanted.container.to_owned();
            let page = self
                .store
                .containers(&ListQuery {
                    prefix,
                    after: after_container,
                    leases: true,
                    ..ListQuery::first(STEP)
                })
                .await?;
            for container in page
                .items
                .into_iter()
                .filter(|container| wanted.matches(&container.name))
            {
                let lease = container.info.lease.filter(|_| wanted.blob.is_none());
                let target = LeaseTarget {
                    container: container.name.clone(),
                    blob: None,
                };
                if self.visit(target, lease)? || self.blobs(&container.name, None).await? {
                    return Ok(true);
                }
            }
            match page.next {
                Some(next) => after_container = Some(next),
                None => return Ok(false),
            }
        }
    }

    /// Visits the blobs of a container after one. Returns `true` if the page is full.
    async fn blobs(
        &mut self,
        container: &ContainerName,
        after: Option<BlobName>,
    ) -> Result<bool, StoreError> {
        let mut after = after.map(|name| name.to_string());
        loop {
            let prefix = self.prefix.blob.unwrap_or_default().to_owned();
            let Some(page) = self
                .store
                .list(
                    container,
                    &ListQuery {
                        prefix,
                        after,
                        leases: true,
                        ..ListQuery::first(STEP)
                    },
                )
                .await?
            else {
                return Ok(false);
            };
            for blob in page.items {
                let target = LeaseTarget {
                    container: container.clone(),
                    blob: Some(blob.name),
                };
                if self.visit(target, blob.info.lease)? {
                    return Ok(true);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(false),
            }
        }
    }

    /// Visits a target. Returns `true` if the page is full.
    fn visit(&mut self, target: LeaseTarget, lease: Option<SeenLease>) -> Result<bool, StoreError> {
        self.visited += 1;
        if let Some(lease) = lease {
            let entry = LeaseEntry {
                target: target.clone(),
                lease,
            };
            self.memory.grow(entry.size())?;
            self.bytes += entry.size();
            self.entries.push(entry);
        }
        self.last = Some(target);
        Ok(self.entries.len() >= self.limit || self.bytes >= PAGE || self.visited >= MAX_VISITED)
    }
}

/// Returns a lease or its absence as JSON.
pub(crate) fn lease_json(target: &LeaseTarget, lease: Option<&SeenLease>) -> Value {
    let mut described = describe(lease);
    described.insert("path".into(), target.to_string().into());
    described.insert("container".into(), target.container.as_str().into());
    described.insert(
        "blob".into(),
        target.blob.as_ref().map(BlobName::as_str).into(),
    );
    described.into()
}
