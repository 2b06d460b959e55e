//! The register on the Worker's side.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Engine, Key, Register, RegisterError, RegisterErrorKind, Scan, Swap, async_trait,
};
use worker::send::{IntoSendFuture, SendWrapper};
use worker::{Env, Result as WorkerResult};

use super::namespace::RecordNamespace;
use super::namespace::{self, RequestFailure};
use super::wire::{Kept, ObjectRequest, ObjectResponse, RecordEntry};

/// Maximum number of concurrent requests to objects in a listing.
const LOOKS: usize = 6;

/// A [`Register`] of Durable Objects. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RecordObjects {
    namespace: SendWrapper<RecordNamespace>,
    kept: fn(&str) -> Kept,
}

impl RecordObjects {
    /// Opens the register on the binding `RECORDS`, in the jurisdiction `IFMATCH_JURISDICTION` and near `IFMATCH_LOCATION_HINT`, if
    /// these variables are set.
    ///
    /// # Errors
    /// Fails if the binding is missing or a variable is wrong. The error says what wrangler.toml needs.
    pub fn open(env: &Env) -> WorkerResult<Self> {
        Ok(Self {
            namespace: SendWrapper::new(RecordNamespace::open(env)?),
            kept: |_| Kept::Always,
        })
    }

    /// Sets the retention of records by their keys. By default, all records are kept.
    #[must_use]
    pub fn kept(self, kept: fn(&str) -> Kept) -> Self {
        Self { kept, ..self }
    }

    async fn names(&self, group: &str, ask: ObjectRequest) -> Result<Vec<String>, RegisterError> {
        match namespace::again(&self.namespace, &names(group), &ask)
            .into_send()
            .await
        {
            Ok(ObjectResponse::Names(names)) => Ok(names),
            other => Err(unavailable(other)),
        }
    }

    async fn entry(&self, name: String) -> Result<Option<(Key, Record)>, RegisterError> {
        let key = Key::new(name)
            .map_err(|error| RegisterError::new(RegisterErrorKind::Unreadable, error))?;
        Ok(self.load(&key).await?.map(|record| (key, record)))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Register for RecordObjects {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        match namespace::again(&self.namespace, &record(key.as_str()), &ObjectRequest::Load)
            .into_send()
            .await
        {
            Ok(ObjectResponse::Record(entry)) => entry.map(|entry| read(&entry)).transpose(),
            other => Err(unavailable(other)),
        }
    }

    /// Durable Objects lose no acknowledged change, and delete only idle records (see [`RecordObjects::kept`]).
    fn engine(&self) -> Engine {
        Engine::default()
    }

    fn revision_at_once(&self, _: &Key) -> Option<Revision> {
        None
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let next = next.map(|record| RecordEntry {
            revision: record.revision().get(),
            record: record.encode(),
        });
        let kept = (self.kept)(key.as_str());
        let swap = ObjectRequest::Swap {
            key: key.as_str().to_owned(),
            expected: expected.get(),
            next,
            kept,
        };
        match namespace::once(&self.namespace, &record(key.as_str()), &swap)
            .into_send()
            .await
        {
            Ok(ObjectResponse::Done) => Ok(Swap::Done),
            Ok(ObjectResponse::Conflict(found)) => {
                Ok(Swap::Conflict(found.map(|entry| read(&entry)).transpose()?))
            }
            Err(RequestFailure::Unanswered { why, .. }) => {
                Err(RegisterError::new(RegisterErrorKind::Ambiguous, why))
            }
            other => Err(unavailable(other)),
        }
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let limit = u32::try_from(scan.limit).unwrap_or(u32::MAX);
        let mut after = scan.after.map(ToOwned::to_owned);
        loop {
            let ask = ObjectRequest::Names {
                prefix: scan.prefix.to_owned(),
                after: after.take(),
                limit,
            };
            let names = self.names(group(scan.prefix), ask).await?;
            let Some(last) = names.last() else {
                return Ok(Vec::new());
            };
            after = Some(last.clone());
            let looked =
                stream::iter(names.into_iter().map(|name| self.entry(name))).buffered(LOOKS);
            let found: Vec<_> = looked
                .try_filter_map(|entry| async { Ok(entry) })
                .try_collect()
                .await?;
            // A page of names without records doesn't end the listing.
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }
}

fn read(entry: &RecordEntry) -> Result<Record, RegisterError> {
    Ok(Record::decode(&entry.record)?)
}

/// Error for a request without a response and without effect.
fn unavailable(answer: Result<ObjectResponse, RequestFailure>) -> RegisterError {
    let why = match answer {
        Ok(ObjectResponse::Unavailable(why)) => why,
        Ok(other) => format!("the Durable Object gave an unexpected answer: {other:?}"),
        Err(trouble) => trouble.to_string(),
    };
    RegisterError::new(RegisterErrorKind::Unavailable, why)
}

/// Minimum time to keep a record after its last change, so late retries of that change get its response.
const RETENTION: Duration = Duration::from_hours(24);
/// Time from a change until the object checks its record, a little longer than the retention.
pub(super) const LOOK: Duration = Duration::from_hours(25);

/// Outcome of a retention check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordFate {
    /// Delete the record now.
    Forgotten,
    /// Check again later, since the record may expire without a change.
    LookAgain,
    /// Keep the record until it changes.
    Stays,
}

/// Decides the fate of an unchanged record.
pub(super) fn fate(record: &Record, kept: Kept, now: Timestamp) -> RecordFate {
    let has_lease_without_end = record.lease().is_some_and(|lease| lease.end().is_none());
    if record.permit(now).is_none() && (kept == Kept::Always || has_lease_without_end) {
        return RecordFate::Stays;
    }
    let is_old = record.revision().timestamp().saturating_add(RETENTION) < now;
    if is_old && record.is_idle(now) {
        RecordFate::Forgotten
    } else {
        RecordFate::LookAgain
    }
}

/// Returns the name of a record's object.
pub(super) fn record(key: &str) -> String {
    format!("record:{key}")
}

/// Returns the name of the object with a group's names.
pub(super) fn names(group: &str) -> String {
    format!("names:{group}")
}

/// Returns the group of a key or of a listing's prefix: everything up to the second slash, or up to the first if there is
/// no second.
///
/// For example, `c/` has the containers, and `b/photos/` the blobs of one container. A listing covers one group: with the
/// prefix `b/` it wouldn't include `b/photos/cat.jpg`.
pub(super) fn group(key: &str) -> &str {
    let end = key.match_indices('/').map(|(at, _)| at + 1).take(2).last();
    &key[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_and_its_keys_are_in_one_group() {
        for (prefix, key) in [
            ("c/", "c/photos"),
            ("c/ph", "c/photos"),
            ("b/photos/", "b/photos/2026/cat.jpg"),
            ("b/photos/2026/c", "b/photos/2026/cat.jpg"),
            ("b/photos/", "b/photos/ "),
            ("no slash", "no slash at all"),
        ] {
            assert_eq!(group(prefix), group(key), "{prefix} {key}");
        }
    }

    #[test]
    fn containers_do_not_share_a_group() {
        assert_ne!(group("b/photos/x"), group("b/photos2/x"));
        assert_ne!(group("b/photos/x"), group("c/photos"));
    }
}
