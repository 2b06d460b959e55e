//! Listing containers: top-level folders, and empty containers in the register.

use std::collections::BTreeMap;

use ifmatch_blob::name::ContainerName;
use ifmatch_blob::records::of_register;
use ifmatch_blob::store::{
    ContainerEntry, ContainerInfo, ListQuery, Page, StoreError, StoreErrorKind,
};
use ifmatch_register::Scan;

use super::{KEYS, info, unknown};
use crate::container_state::ContainerState;
use crate::failure;
use crate::list::is_asked_for;
use crate::store_state::StoreState;

impl StoreState {
    /// Lists the containers that have a record or blobs.
    pub(crate) async fn containers(
        &self,
        query: &ListQuery,
    ) -> Result<Page<ContainerEntry>, StoreError> {
        let query = &self.bounded(query);
        let mut found = self.remembered(query).await?;
        let prefix = Some(&self.backing.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let listed = match self.backing.objects.list_with_delimiter(prefix).await {
            Ok(listed) => listed.common_prefixes,
            Err(error) if failure::is_absence(&error) => Vec::new(),
            Err(error) => return Err(failure::of_read(error)),
        };
        let mut names: Vec<_> = listed
            .iter()
            .filter_map(|folder| ContainerName::new(folder.filename()?).ok())
            .filter(|name| is_asked_for(query, name.as_str()))
            .collect();
        names.sort();
        // One more than the page shows that others follow.
        let wanted = query.limit.saturating_add(1);
        for name in names {
            while found.len() > wanted {
                found.pop_last();
            }
            let last = found.last_key_value().map(|(last, _)| last);
            if found.len() == wanted && last < Some(&name) {
                break;
            }
            if found.contains_key(&name) {
                continue;
            }
            let exists = match self.container(&name).await {
                Err(error) if *error.kind() == StoreErrorKind::Unreadable => true,
                container => container?.is_some(),
            };
            if exists {
                found.insert(name, None);
            }
        }
        let more = found.len() > query.limit;
        let entry = |(name, info): (_, Option<_>)| ContainerEntry {
            name,
            info: info.unwrap_or_else(unknown),
        };
        let items: Vec<_> = found.into_iter().take(query.limit).map(entry).collect();
        let next = items
            .last()
            .filter(|_| more)
            .map(|last| last.name.as_str().to_owned());
        Ok(Page { items, next })
    }

    /// Returns the first containers in the register, one more than requested.
    async fn remembered(
        &self,
        query: &ListQuery,
    ) -> Result<BTreeMap<ContainerName, Option<ContainerInfo>>, StoreError> {
        let prefix = format!("{KEYS}{}", query.prefix);
        let mut after = query.after.as_ref().map(|after| format!("{KEYS}{after}"));
        let mut found = BTreeMap::new();
        while found.len() <= query.limit {
            let scan = Scan {
                prefix: &prefix,
                after: after.as_deref(),
                limit: query.limit.saturating_add(1),
            };
            let page = self
                .driver
                .register()
                .scan(&scan)
                .await
                .map_err(of_register)?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.as_str().to_owned());
            for (key, record) in &page {
                let name = key
                    .as_str()
                    .strip_prefix(KEYS)
                    .and_then(|name| ContainerName::new(name).ok());
                let now = self.driver.now();
                // A container with an unreadable record refuses writes, and its blobs are there: it is listed.
                if let (Some(name), Some(version)) = (name, record.state(now).version())
                    && ContainerState::of(record, now)
                        .map_or(true, |registered| registered.exists())
                {
                    found.insert(name, info(record, version, now).ok());
                }
            }
        }
        Ok(found)
    }
}
