//! Listings, also with folders: a delimiter divides the names.

use std::future::poll_fn;
use std::mem;
use std::task::Poll;

use futures_util::stream::{self, BoxStream, Stream};
use futures_util::{StreamExt, TryStreamExt};

use super::BlobStore;
use super::read::BlobInfo;
use super::write::ContainerInfo;
use crate::documents::{DocumentMemory, PAGE};
use crate::error::StoreError;
use crate::name::{BlobName, ContainerName};

/// The part of a listing to return.
///
/// ```
/// use ifmatch_blob::store::ListQuery;
/// let first = ListQuery { prefix: "2026/".into(), ..ListQuery::first(100) };
/// let second = ListQuery { after: Some("2026/cat.jpg".into()), ..first };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// Prefix of the names; empty for all names.
    pub prefix: String,
    /// Name to continue after: [`Page::next`] of the previous page.
    pub after: Option<String>,
    /// Maximum number of names in the page, at least 1.
    pub limit: usize,
    /// `true` if the entries need their leases, which may cost a request each.
    pub leases: bool,
    /// The end of a [folder](Self::folder), if the listing shows one in place of all names in it. Stores may then return
    /// the first name of a folder alone.
    pub delimiter: Option<String>,
}

impl ListQuery {
    /// The first page of all names, without leases and folders.
    pub fn first(limit: usize) -> Self {
        Self {
            prefix: String::new(),
            after: None,
            limit,
            leases: false,
            delimiter: None,
        }
    }

    /// Returns the folder of a name: the part up to the first delimiter after the prefix.
    ///
    /// ```
    /// use ifmatch_blob::store::ListQuery;
    ///
    /// let query = ListQuery { prefix: "2026/".into(), delimiter: Some("/".into()), ..ListQuery::first(100) };
    /// assert_eq!(query.folder("2026/may/cat.jpg"), Some("2026/may/"));
    /// assert_eq!(query.folder("2026/cat.jpg"), None);
    /// ```
    pub fn folder<'a>(&self, name: &'a str) -> Option<&'a str> {
        let delimiter = self.delimiter.as_deref()?;
        let at = name.get(self.prefix.len()..)?.find(delimiter)?;
        name.get(..self.prefix.len() + at + delimiter.len())
    }

    /// Lists the blobs of this page and of all pages after it. Each page is read only when it is needed. A container that does
    /// not exist has no blobs.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use futures_util::TryStreamExt;
    /// use http_body_util::Full;
    /// use ifmatch_blob::BlobStore;
    /// use ifmatch_blob::name::{BlobPath, ContainerName};
    /// use ifmatch_blob::store::{ListQuery, Put, Upload};
    /// use ifmatch_blob_indexed::IndexedStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let store = IndexedStore::open(folder.path()).await?;
    /// for path in ["/notes/a", "/notes/b", "/notes/c"] {
    ///     store.put(&BlobPath::parse(path)?, Put::new(Upload::new(Full::<Bytes>::from("text")))).await?;
    /// }
    ///
    /// let notes = ContainerName::new("notes")?;
    /// let entries: Vec<_> = ListQuery::first(1).blobs(&store, &notes).try_collect().await?;
    /// assert_eq!(entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn blobs<'a>(
        self,
        store: &'a dyn BlobStore,
        container: &'a ContainerName,
    ) -> BoxStream<'a, Result<BlobEntry, StoreError>> {
        let pages = stream::try_unfold(Some(self), move |query| async move {
            let Some(query) = query else { return Ok(None) };
            let page = store.list(container, &query).await?;
            Ok::<_, StoreError>(page.map(|page| query.entries(page)))
        });
        pages.try_flatten().boxed()
    }

    /// Lists the containers of this page and of all pages after it, like [`ListQuery::blobs`].
    pub fn containers(
        self,
        store: &dyn BlobStore,
    ) -> BoxStream<'_, Result<ContainerEntry, StoreError>> {
        let pages = stream::try_unfold(Some(self), move |query| async move {
            let Some(query) = query else { return Ok(None) };
            let page = store.containers(&query).await?;
            Ok::<_, StoreError>(Some(query.entries(page)))
        });
        pages.try_flatten().boxed()
    }

    /// Returns the entries of a page, and the query for the next page.
    fn entries<T>(
        self,
        page: Page<T>,
    ) -> (impl Stream<Item = Result<T, StoreError>>, Option<Self>) {
        let next = page.next.map(|after| Self {
            after: Some(after),
            ..self
        });
        (stream::iter(page.items.into_iter().map(Ok)), next)
    }
}

/// A page of a listing, in the order of the names' bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries: perhaps fewer than requested, or none, although more follow.
    pub items: Vec<T>,
    /// Name to continue after, or `None` at the end.
    pub next: Option<String>,
}

/// A blob in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobEntry {
    /// Its name.
    pub name: BlobName,
    /// Its properties. Header fields may be missing if the store's listings don't contain them.
    pub info: BlobInfo,
}

impl BlobEntry {
    /// Returns about how many bytes of memory it takes.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.name.as_str().len() + self.info.headers.size()
    }
}

/// A container in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEntry {
    /// Its name.
    pub name: ContainerName,
    /// Its properties.
    pub info: ContainerInfo,
}

impl ContainerEntry {
    /// Returns about how many bytes of memory it takes.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.name.as_str().len() + self.info.headers.size()
    }
}

/// Number of entries read from the store at a time.
const STEP: usize = 500;
/// Sorts after all names with the same prefix.
const LAST: char = char::MAX;

/// The page of a listing to return, in which a folder stands for all names in it.
///
/// ```
/// use ifmatch_blob::store::Hierarchy;
///
/// let photos =
///     Hierarchy { prefix: "photos/", delimiter: Some("/"), after: None, start: None, limit: 1000, leases: false };
/// ```
#[derive(Clone, Debug)]
pub struct Hierarchy<'a> {
    /// Only names that begin with this.
    pub prefix: &'a str,
    /// Ends a folder. Without one, the listing has no folders.
    pub delimiter: Option<&'a str>,
    /// Continues after this name, or [`Listing::next`] of the page before.
    pub after: Option<String>,
    /// First name that may be listed.
    pub start: Option<&'a str>,
    /// Maximum number of items.
    pub limit: usize,
    /// [`ListQuery::leases`].
    pub leases: bool,
}

/// An item of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// A blob.
    Blob(Box<BlobEntry>),
    /// The common beginning of several names, including the delimiter.
    Folder(String),
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The items, in the order of their names.
    pub items: Vec<Listed>,
    /// [`Hierarchy::after`] of the next page, if there is one.
    pub next: Option<String>,
}

impl Hierarchy<'_> {
    /// Lists a container. Returns `None` if there is no such container. The items take their memory from `memory`, and the page ends after
    /// [`PAGE`] bytes of it, if not before.
    ///
    /// # Errors
    /// The store failed, or there is no memory for the items.
    pub async fn list(
        &self,
        store: &dyn BlobStore,
        container: &ContainerName,
        memory: &mut DocumentMemory,
    ) -> Result<Option<Listing>, StoreError> {
        let mut after = self.after.clone().max(self.start.map(before));
        let (mut items, mut bytes) = (Vec::new(), 0);
        let all = ListQuery {
            prefix: self.prefix.to_owned(),
            leases: self.leases,
            delimiter: self.delimiter.map(ToOwned::to_owned),
            ..ListQuery::first(STEP)
        };
        loop {
            let limit = (self.limit - items.len()).saturating_add(1).min(STEP);
            let query = ListQuery {
                after: after.clone(),
                limit,
                ..all.clone()
            };
            let Some(page) = store.list(container, &query).await? else {
                return Ok(None);
            };
            for entry in page.items {
                let name = entry.name.as_str();
                let is_before = self.start.is_some_and(|start| name < start);
                if is_before || after.as_deref().is_some_and(|after| name <= after) {
                    continue;
                }
                let folder = query.folder(name);
                if folder
                    .zip(after.as_deref())
                    .is_some_and(|(folder, after)| is_behind(after, folder))
                {
                    after = Some(name.to_owned());
                    continue;
                }
                if items.len() == self.limit || bytes >= PAGE {
                    return Ok(Some(Listing { items, next: after }));
                }
                let size = folder
                    .map_or_else(|| entry.size(), |folder| size_of::<Listed>() + folder.len());
                memory.grow(size)?;
                bytes += size;
                // Skips the rest of a folder, except for names that begin with the last character.
                after = Some(folder.map_or_else(|| name.to_owned(), behind));
                items.push(match folder {
                    Some(folder) => Listed::Folder(folder.to_owned()),
                    None => Listed::Blob(Box::new(entry)),
                });
            }
            let Some(end) = page.next else {
                return Ok(Some(Listing { items, next: None }));
            };
            // A store may have all of it in memory. Others take their turn, and a client that has left ends this here.
            yield_now().await;
            // The last names of a page may be missing from it, and the rest of a folder is skipped beyond its end.
            after = after.max(Some(end));
        }
    }
}

/// Lets other tasks run.
async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Returns an [`after`](Hierarchy::after) that skips this folder, except for names that begin with the last character.
pub fn behind(folder: &str) -> String {
    format!("{folder}{LAST}")
}

/// Returns a name right before `start`: a listing after it begins with `start`, except for names with the last character.
fn before(start: &str) -> String {
    let mut name = start.to_owned();
    let last = name.pop().map_or(0, u32::from);
    // Below the surrogates, where the range of characters has a gap.
    if let Some(previous) = (0..last)
        .next_back()
        .and_then(|code| char::from_u32(code).or(char::from_u32(0xd7ff)))
    {
        name.extend([previous, LAST]);
    }
    name
}

/// Returns `true` if a listing that continues after this name has already shown the folder.
fn is_behind(after: &str, folder: &str) -> bool {
    after
        .strip_prefix(folder)
        .is_some_and(|inner| inner.starts_with(LAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_before_another_is_smaller_by_as_little_as_possible() {
        for (start, expected) in [
            ("b", "a\u{10ffff}"),
            ("a/b", "a/a\u{10ffff}"),
            ("a\0", "a"),
            ("\u{e000}", "\u{d7ff}\u{10ffff}"),
            ("", ""),
        ] {
            assert_eq!(before(start), expected, "{start:?}");
            assert!(
                before(start).as_str() < start || start.is_empty(),
                "{start:?}"
            );
        }
    }
}
