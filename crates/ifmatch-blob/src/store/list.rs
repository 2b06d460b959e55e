//! Listings.

use futures_util::stream::{self, BoxStream, Stream};
use futures_util::{StreamExt, TryStreamExt};

use super::BlobStore;
use super::change::ContainerInfo;
use super::read::BlobInfo;
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
        Self { prefix: String::new(), after: None, limit, leases: false, delimiter: None }
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
    /// use ifmatch_blob_embedded::EmbeddedStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let store = EmbeddedStore::open(folder.path()).await?;
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
    pub fn containers(self, store: &dyn BlobStore) -> BoxStream<'_, Result<ContainerEntry, StoreError>> {
        let pages = stream::try_unfold(Some(self), move |query| async move {
            let Some(query) = query else { return Ok(None) };
            let page = store.containers(&query).await?;
            Ok::<_, StoreError>(Some(query.entries(page)))
        });
        pages.try_flatten().boxed()
    }

    /// Returns the entries of a page, and the query for the next page.
    fn entries<T>(self, page: Page<T>) -> (impl Stream<Item = Result<T, StoreError>>, Option<Self>) {
        let next = page.next.map(|after| Self { after: Some(after), ..self });
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
    /// Its properties. Header fields may be missing if the store's listings do not contain them.
    pub info: BlobInfo,
}

/// A container in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEntry {
    /// Its name.
    pub name: ContainerName,
    /// Its properties.
    pub info: ContainerInfo,
}
