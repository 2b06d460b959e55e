//! Pages of a listing that shows only some of what it looks at.

use std::future::Future;

use super::error::TableError;
use crate::name::{BlobName, ContainerName};
use crate::store::{BlobStore, ListQuery};

/// What makes rows of blobs.
pub(super) trait Rows: Sync {
    /// A row.
    type Row: Send;

    /// The row that a blob is; none if it is not to be shown, or not there any more.
    fn row(&self, name: &BlobName) -> impl Future<Output = Result<Option<Self::Row>, TableError>> + Send;
}

/// Which part of a listing to give.
#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    pub(super) container: &'a ContainerName,
    /// What the names begin with.
    pub(super) prefix: String,
    /// The name to continue after.
    pub(super) after: Option<String>,
    /// The most rows.
    pub(super) limit: usize,
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page<T> {
    pub(super) rows: Vec<T>,
    /// The name to continue after; none at the end.
    pub(super) next: Option<BlobName>,
}

/// The most blobs looked at for one page: a filter that nothing passes must not keep a request busy for ever.
const MAX_EXAMINED: usize = 10_000;
/// The fewest and the most names to ask the store for at once.
const STEP: (usize, usize) = (100, 1000);

/// A page of the rows in a container.
pub(super) async fn page<R: Rows>(
    store: &impl BlobStore,
    part: Part<'_>,
    rows: &R,
) -> Result<Page<R::Row>, TableError> {
    let Part { container, prefix, after, limit } = part;
    let mut query = ListQuery { prefix, after, limit: (limit + 1).clamp(STEP.0, STEP.1) };
    let mut page = Page { rows: Vec::new(), next: None };
    let mut examined = 0;
    let mut last = None;
    while let Some(names) = store.list(container, &query).await? {
        for entry in names.items {
            if examined == MAX_EXAMINED {
                return Ok(Page { next: last, ..page });
            }
            examined += 1;
            let row = rows.row(&entry.name).await?;
            if row.is_some() && page.rows.len() == limit {
                return Ok(Page { next: last, ..page });
            }
            page.rows.extend(row);
            last = Some(entry.name);
        }
        match names.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    Ok(page)
}
