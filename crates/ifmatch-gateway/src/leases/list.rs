//! A listing of all leases, of containers and of blobs, in pages that cost a bounded amount of work.

use std::fmt;

use ifmatch_blob::BlobStore;
use ifmatch_blob::name::{BlobName, ContainerName, InvalidName};
use ifmatch_blob::store::{ListQuery, Page, StoreError};
use ifmatch_core::lease::Lease;

/// How many blobs and containers the store is asked for at a time.
const STEP: usize = 1_000;
/// The most that are looked at for one page.
const MOST_LOOKED_AT: usize = 10 * STEP;

/// What is leased.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The container, or that of the blob.
    pub(crate) container: ContainerName,
    /// The blob; none if it is the container.
    pub(crate) blob: Option<BlobName>,
}

/// A lease in a listing.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// What is leased.
    pub(crate) place: Place,
    /// The lease, which may be over: it is kept until somebody writes or leases anew.
    pub(crate) lease: Lease,
}

/// Reads `container` and `container/blob…` as they are, without escapes.
impl Place {
    pub(crate) fn new(text: &str) -> Result<Self, InvalidName> {
        let (container, blob) = match text.split_once('/') {
            Some((container, blob)) => (container, Some(BlobName::new(blob)?)),
            None => (text, None),
        };
        Ok(Self { container: ContainerName::new(container)?, blob })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.container.fmt(f)?;
        self.blob.as_ref().map_or(Ok(()), |blob| write!(f, "/{blob}"))
    }
}

/// The leases whose places begin with the prefix, by container and then by blob.
///
/// A page may have fewer entries than asked for, or none, and still be followed by another one: most blobs
/// have no lease, and no request shall look at all of them.
pub(crate) async fn page<S: BlobStore>(
    store: &S,
    prefix: &str,
    after: Option<Place>,
    limit: usize,
) -> Result<Page<Entry>, StoreError> {
    let mut walk = Walk { store, prefix: Prefix::of(prefix), limit, entries: Vec::new(), looked_at: 0, last: None };
    let full = walk.everything(after).await?;
    let next = walk.last.filter(|_| full).map(|place| place.to_string());
    Ok(Page { items: walk.entries, next })
}

/// Hands over all leases, one after the other.
pub(crate) async fn each<S: BlobStore>(store: &S, mut take: impl FnMut(Entry)) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = page(store, "", after, usize::MAX).await?;
        page.items.into_iter().for_each(&mut take);
        after = match page.next.map(|next| Place::new(&next)) {
            Some(Ok(place)) => Some(place),
            _ => return Ok(()),
        };
    }
}

/// What places begin with: so many names of containers, or one of them and then names of blobs.
#[derive(Clone, Copy)]
struct Prefix<'a> {
    container: &'a str,
    blob: Option<&'a str>,
}

impl<'a> Prefix<'a> {
    fn of(text: &'a str) -> Self {
        match text.split_once('/') {
            Some((container, blob)) => Self { container, blob: Some(blob) },
            None => Self { container: text, blob: None },
        }
    }

    /// Whether blobs of this container can begin with it.
    fn enters(&self, container: &ContainerName) -> bool {
        match self.blob {
            Some(_) => container.as_str() == self.container,
            None => container.as_str().starts_with(self.container),
        }
    }
}

struct Walk<'a, S> {
    store: &'a S,
    prefix: Prefix<'a>,
    limit: usize,
    entries: Vec<Entry>,
    looked_at: usize,
    last: Option<Place>,
}

impl<S: BlobStore> Walk<'_, S> {
    /// Looks at one place after the other; true if the page was full before the end.
    async fn everything(&mut self, after: Option<Place>) -> Result<bool, StoreError> {
        let wanted = self.prefix;
        let mut after_container = None;
        if let Some(Place { container, blob }) = after {
            if self.blobs(&container, blob).await? {
                return Ok(true);
            }
            after_container = Some(container.to_string());
        }
        loop {
            let prefix = wanted.container.to_owned();
            let page = self.store.containers(&ListQuery { prefix, after: after_container, limit: STEP }).await?;
            for container in page.items.into_iter().filter(|container| wanted.enters(&container.name)) {
                let lease = container.info.lease.filter(|_| wanted.blob.is_none());
                let place = Place { container: container.name.clone(), blob: None };
                if self.look(place, lease) || self.blobs(&container.name, None).await? {
                    return Ok(true);
                }
            }
            match page.next {
                Some(next) => after_container = Some(next),
                None => return Ok(false),
            }
        }
    }

    async fn blobs(&mut self, container: &ContainerName, after: Option<BlobName>) -> Result<bool, StoreError> {
        let mut after = after.map(|name| name.to_string());
        loop {
            let prefix = self.prefix.blob.unwrap_or_default().to_owned();
            let Some(page) = self.store.list(container, &ListQuery { prefix, after, limit: STEP }).await? else {
                return Ok(false);
            };
            for blob in page.items {
                let place = Place { container: container.clone(), blob: Some(blob.name) };
                if self.look(place, blob.info.lease) {
                    return Ok(true);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(false),
            }
        }
    }

    /// Takes a place in; true if that fills the page.
    fn look(&mut self, place: Place, lease: Option<Lease>) -> bool {
        self.looked_at += 1;
        self.entries.extend(lease.map(|lease| Entry { place: place.clone(), lease }));
        self.last = Some(place);
        self.entries.len() >= self.limit || self.looked_at >= MOST_LOOKED_AT
    }
}
