//! The containers: the folders at the top, and those that the register remembers although they are empty.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::date::HttpDate;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_store::register::Scan;
use ifmatch_store::{Key, Register, nonce};

use super::guard::{of_driver, of_register};
use super::{Shared, failure};
use crate::headers::BlobHeaders;
use crate::name::ContainerName;
use crate::store::{ContainerEntry, ContainerInfo, ListQuery, Page, StoreError, StoreErrorKind};

/// What the keys of containers begin with.
const KEYS: &str = "c/";

impl Shared {
    /// Keeps in mind that there is such a container.
    pub(super) async fn remember(&self, container: &ContainerName) -> Result<(), StoreError> {
        if self.is_remembered(container).await? {
            return Ok(());
        }
        let write = Write {
            method: &Method::PUT,
            preconditions: &Preconditions::default(),
            content: Content::Hashed { hash: ContentHash::of(b""), payload: Bytes::new() },
            lease: LeaseUse::default(),
            based_on: None,
            request: None,
            nonce: nonce().map_err(of_register)?,
        };
        self.driver.apply(&key(container)?, &Command::Write(write)).await.map_err(of_driver)?;
        Ok(())
    }

    /// Whether the register knows the container.
    pub(super) async fn is_remembered(&self, container: &ContainerName) -> Result<bool, StoreError> {
        let record = self.driver.load(&key(container)?).await.map_err(of_driver)?;
        Ok(record.state(self.driver.now()).version().is_some())
    }

    /// Lists the containers.
    pub(super) async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        let mut found = self.remembered(query).await?;
        let prefix = Some(&self.backing.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let listed = match self.backing.objects.list_with_delimiter(prefix).await {
            Ok(listed) => listed.common_prefixes,
            Err(error) if failure::is_absence(&error) => Vec::new(),
            Err(error) => return Err(failure::of_read(error)),
        };
        for name in listed.iter().filter_map(|folder| ContainerName::new(folder.filename()?).ok()) {
            if is_asked_for(query, name.as_str()) {
                found.entry(name).or_insert(None);
            }
        }
        let more = found.len() > query.limit;
        let items: Vec<_> = found
            .into_iter()
            .take(query.limit)
            .map(|(name, last_modified)| {
                let headers = BlobHeaders::default();
                let info = ContainerInfo { tag: None, last_modified, headers, created: None, lease: None };
                ContainerEntry { name, info }
            })
            .collect();
        let next = items.last().filter(|_| more).map(|last| last.name.as_str().to_owned());
        Ok(Page { items, next })
    }

    /// The first containers that the register knows, one more than asked for.
    async fn remembered(&self, query: &ListQuery) -> Result<BTreeMap<ContainerName, Option<HttpDate>>, StoreError> {
        let prefix = format!("{KEYS}{}", query.prefix);
        let mut after = query.after.as_ref().map(|after| format!("{KEYS}{after}"));
        let mut found = BTreeMap::new();
        while found.len() <= query.limit {
            let scan = Scan { prefix: &prefix, after: after.as_deref(), limit: query.limit.saturating_add(1) };
            let page = self.driver.register().scan(&scan).await.map_err(of_register)?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.as_str().to_owned());
            for (key, record) in &page {
                let name = key.as_str().strip_prefix(KEYS).and_then(|name| ContainerName::new(name).ok());
                if let (Some(name), Some(version)) = (name, record.state(self.driver.now()).version()) {
                    found.insert(name, Some(version.last_modified()));
                }
            }
        }
        Ok(found)
    }
}

/// Whether a name is in the part of the listing that was asked for.
pub(super) fn is_asked_for(query: &ListQuery, name: &str) -> bool {
    name.starts_with(&query.prefix) && query.after.as_ref().is_none_or(|after| name > after.as_str())
}

fn key(container: &ContainerName) -> Result<Key, StoreError> {
    let key = Key::new(format!("{KEYS}{container}"));
    key.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))
}
