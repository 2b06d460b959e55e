//! A backend in memory, for tests and for one process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Backend, Found, Put, Read, When};
use crate::error::{Error, ErrorKind};
use crate::version::Version;

/// A backend in memory. It never waits for changes.
#[derive(Debug, Default)]
pub struct Memory(Mutex<MemoryState>);

#[derive(Debug, Default)]
struct MemoryState {
    keys: BTreeMap<String, (Bytes, Version)>,
    /// Number of writes so far, which names the version of each.
    writes: u64,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryState {
    fn check(&self, key: &str, when: &When) -> Result<(), Error> {
        let current = self.keys.get(key).map(|(_, version)| version);
        let holds = match when {
            When::Absent => current.is_none(),
            When::Is(version) => current == Some(version),
        };
        let kind = || ErrorKind::Conflict {
            current: current.cloned(),
        };
        if holds {
            Ok(())
        } else {
            Err(Error::new(kind(), format!("{key} has changed")))
        }
    }
}

impl Backend for Memory {
    fn get<'a>(
        &'a self,
        key: &'a str,
        known: Option<&'a Version>,
        _wait: Option<Duration>,
    ) -> BoxFuture<'a, Result<Read, Error>> {
        let read = match self.lock().keys.get(key) {
            None => Read::Absent,
            Some((_, version)) if Some(version) == known => Read::Unchanged { waited: false },
            Some((body, version)) => Read::Found(Found {
                body: body.clone(),
                version: Some(version.clone()),
                modified: None,
                waited: false,
            }),
        };
        async { Ok(read) }.boxed()
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        put: &'a Put,
    ) -> BoxFuture<'a, Result<Option<Version>, Error>> {
        async {
            let mut state = self.lock();
            state.check(key, &put.when)?;
            state.writes += 1;
            let version = Version::new(state.writes.to_string());
            state
                .keys
                .insert(key.to_owned(), (put.body.clone(), version.clone()));
            Ok(Some(version))
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<(), Error>> {
        async {
            let mut state = self.lock();
            state.check(key, &When::Is(version.clone()))?;
            state.keys.remove(key);
            Ok(())
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        let state = self.lock();
        let from = state.keys.range(prefix.to_owned()..).map(|(key, _)| key);
        let keys = from
            .take_while(|key| key.starts_with(prefix))
            .cloned()
            .collect();
        async { Ok(keys) }.boxed()
    }
}
