//! Pages of filtered listings.

use std::future::Future;

use crate::error::TableError;
use ifmatch_blob::documents::{DocumentMemory, PAGE};
use ifmatch_blob::name::{BlobName, ContainerName};
use ifmatch_blob::store::{BlobStore, ListQuery};

/// Builds rows from blobs.
pub(crate) trait RowSource: Sync {
    /// A row.
    type Row: Send;

    /// Builds the row of a blob. Returns `None` if the blob is filtered out or no longer exists.
    fn row(
        &self,
        name: &BlobName,
    ) -> impl Future<Output = Result<Option<Self::Row>, TableError>> + Send;

    /// Returns the size of a row, in bytes.
    fn bytes(row: &Self::Row) -> usize;

    /// Returns `false` for the name of a blob that belongs to no row, which isn't counted: a page can't continue after it.
    fn is_position(_name: &BlobName) -> bool {
        true
    }
}

/// The part of a listing that makes up a page.
#[derive(Clone, Debug)]
pub(crate) struct PageQuery<'a> {
    pub(crate) container: &'a ContainerName,
    /// The prefix of the names.
    pub(crate) prefix: String,
    /// The name to continue after.
    pub(crate) after: Option<String>,
    /// Maximum number of rows.
    pub(crate) limit: usize,
    pub(crate) budget: PageBudget,
}

/// Limits of one page, so a filter without matches ends in time, and large rows don't fill the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageBudget {
    /// Maximum number of blobs examined.
    examined: usize,
    /// Maximum size of the rows, in bytes. The first row may exceed it.
    bytes: usize,
}

impl Default for PageBudget {
    fn default() -> Self {
        Self {
            examined: 10_000,
            bytes: PAGE,
        }
    }
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowPage<T> {
    pub(crate) rows: Vec<T>,
    /// The name to continue after, or `None` at the end.
    pub(crate) next: Option<BlobName>,
}

/// Minimum number of names per request to the store.
const MIN_STEP: usize = 100;
/// Maximum number of names per request to the store.
const MAX_STEP: usize = 1000;

/// Reads a page of the rows in a container. They take their memory from `memory`.
pub(crate) async fn page<R: RowSource>(
    store: &dyn BlobStore,
    part: PageQuery<'_>,
    rows: &R,
    memory: &mut DocumentMemory,
) -> Result<RowPage<R::Row>, TableError> {
    let PageQuery {
        container,
        prefix,
        after,
        limit,
        budget,
    } = part;
    let mut query = ListQuery {
        prefix,
        after,
        ..ListQuery::first((limit + 1).clamp(MIN_STEP, MAX_STEP))
    };
    let mut page = RowPage {
        rows: Vec::new(),
        next: None,
    };
    let (mut examined, mut bytes) = (0, 0);
    let mut last = None;
    while let Some(names) = store.list(container, &query).await? {
        for entry in names
            .items
            .into_iter()
            .filter(|entry| R::is_position(&entry.name))
        {
            if examined == budget.examined {
                return Ok(RowPage { next: last, ..page });
            }
            examined += 1;
            if let Some(row) = rows.row(&entry.name).await? {
                bytes += R::bytes(&row);
                memory.grow(R::bytes(&row))?;
                let full = page.rows.len() == limit || bytes > budget.bytes;
                if full && !page.rows.is_empty() {
                    return Ok(RowPage { next: last, ..page });
                }
                page.rows.push(row);
            }
            last = Some(entry.name);
        }
        match names.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::put;
    use ifmatch_blob::documents::Documents;
    use ifmatch_blob::name::BlobPath;
    use ifmatch_blob_indexed::IndexedStore;
    use ifmatch_core::precondition::Preconditions;

    /// Blobs with even numbers as names; the number is the row's size. Other names aren't rows.
    struct Even;

    impl RowSource for Even {
        type Row = usize;

        async fn row(&self, name: &BlobName) -> Result<Option<usize>, TableError> {
            let number: usize = name.as_str().parse().expect("a number");
            Ok(number.is_multiple_of(2).then_some(number))
        }

        fn bytes(row: &usize) -> usize {
            *row
        }

        fn is_position(name: &BlobName) -> bool {
            name.as_str().parse::<usize>().is_ok()
        }
    }

    #[tokio::test]
    async fn pages_end_at_a_limit_and_continue_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = IndexedStore::open(folder.path()).await.expect("a store");
        let container = ContainerName::new("numbers").expect("valid");
        let others = ["!before", "1-between", "4-between", "4-more", "a-behind"].map(str::to_owned);
        for name in (0..9).map(|number| number.to_string()).chain(others) {
            let blob = BlobPath {
                container: container.clone(),
                name: BlobName::new(&name).expect("valid"),
            };
            store
                .put(&blob, put(String::new(), Preconditions::absent()))
                .await
                .expect("stored");
        }
        let budget = |examined, bytes| PageBudget { examined, bytes };
        let rows: [(usize, PageBudget, &[&[usize]]); 6] = [
            (9, budget(100, 100), &[&[0, 2, 4, 6, 8]]),
            (2, budget(100, 100), &[&[0, 2], &[4, 6], &[8]]),
            (9, budget(3, 100), &[&[0, 2], &[4], &[6, 8]]),
            (
                9,
                budget(1, 100),
                &[&[0], &[], &[2], &[], &[4], &[], &[6], &[], &[8]],
            ),
            (9, budget(100, 6), &[&[0, 2, 4], &[6], &[8]]),
            (9, budget(100, 1), &[&[0], &[2], &[4], &[6], &[8]]),
        ];
        for (limit, budget, expected) in rows {
            let (mut pages, mut after) = (Vec::new(), None);
            loop {
                let part = PageQuery {
                    container: &container,
                    prefix: String::new(),
                    after,
                    limit,
                    budget,
                };
                let RowPage { rows, next } =
                    page(&store, part, &Even, &mut Documents::default().begin(None))
                        .await
                        .expect("a page");
                pages.push(rows);
                match next {
                    Some(next) => after = Some(next.as_str().to_owned()),
                    None => break,
                }
            }
            assert_eq!(pages, expected, "{limit} {budget:?}");
        }
    }
}
