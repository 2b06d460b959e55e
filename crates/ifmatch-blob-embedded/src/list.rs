//! Listings from the index alone.

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Version};
use ifmatch_register::Scan;

use super::Inner;
use super::container::container_info;
use super::key;
use super::read::info;
use ifmatch_blob::name::{BlobName, ContainerName};
use ifmatch_blob::records::of_register;
use ifmatch_blob::store::{BlobEntry, ContainerEntry, ListQuery, Page, StoreError, StoreErrorKind};

/// Maximum number of records per scan.
const STEP: usize = 1000;

impl Inner {
    pub(super) async fn list(
        &self,
        container: &ContainerName,
        query: &ListQuery,
    ) -> Result<Option<Page<BlobEntry>>, StoreError> {
        let Some(incarnation) = self.find(container).await? else { return Ok(None) };
        let entry = |name: &str, record: &Record, version: &Version, now: Timestamp| {
            let name = BlobName::new(name).map_err(unreadable)?;
            Ok(BlobEntry { name, info: info(record, version, now)? })
        };
        self.page(&key::of_blobs_in(container, incarnation), query, entry).await.map(Some)
    }

    pub(super) async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        let entry = |name: &str, record: &Record, version: &Version, now: Timestamp| {
            let name = ContainerName::new(name).map_err(unreadable)?;
            Ok(ContainerEntry { name, info: container_info(record, version, now)? })
        };
        self.page(key::CONTAINERS, query, entry).await
    }

    /// Returns a page of the versions under `root`; `entry` converts each with its name below it, at a time.
    async fn page<T>(
        &self,
        root: &str,
        query: &ListQuery,
        entry: impl Fn(&str, &Record, &Version, Timestamp) -> Result<T, StoreError>,
    ) -> Result<Page<T>, StoreError> {
        let prefix = format!("{root}{}", query.prefix);
        let mut after = query.after.as_ref().map(|after| format!("{root}{after}"));
        let mut page = Page { items: Vec::new(), next: None };
        let mut last = String::new();
        loop {
            let limit = (query.limit - page.items.len()).saturating_add(1).min(STEP);
            let scan = Scan { prefix: &prefix, after: after.as_deref(), limit };
            let records = self.driver.register().scan(&scan).await.map_err(of_register)?;
            let Some((end, _)) = records.last() else { return Ok(page) };
            after = Some(end.as_str().to_owned());
            for (key, record) in &records {
                let now = self.driver.now();
                let Some(version) = record.state(now).version() else { continue };
                if page.items.len() >= query.limit {
                    page.next = Some(last);
                    return Ok(page);
                }
                let name = key.as_str().strip_prefix(root).unwrap_or_default();
                page.items.push(entry(name, record, version, now)?);
                name.clone_into(&mut last);
            }
        }
    }
}

fn unreadable(error: ifmatch_blob::name::InvalidName) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, error)
}
