//! Looking a URL up: what is stored for it, or why nothing is.

use std::time::Duration;

use http::StatusCode;

use crate::metrics::Outcome;
use crate::policy::cache_control::RequestDirectives;
use crate::policy::reuse::Reuse;
use crate::purge::CacheHandle;

/// The responses that the cache has for a URL.
///
/// ```
/// let cache = ifmatch_cache::CacheLayer::new().handle();
/// let found = cache.look_up("http://example.org/news");
/// assert!(found.variants.is_empty() && found.not_stored.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookedUp {
    /// The stored responses in memory, newest first.
    pub variants: Vec<StoredVariant>,
    /// `true` if there are responses on disk, which a request would read.
    pub is_on_disk: bool,
    /// Why the latest response for the URL was not stored, if it was not, and the cache still knows.
    pub not_stored: Option<Outcome>,
}

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVariant {
    /// Its status.
    pub status: StatusCode,
    /// `true` if it answers requests without asking the origin.
    pub is_fresh: bool,
    /// Time since the origin made or confirmed it.
    pub age: Duration,
    /// Age from which on it is stale.
    pub lifetime: Duration,
    /// Its tag.
    pub tag: Option<String>,
    /// The request fields that select it (`Vary`).
    pub vary: Vec<String>,
    /// Its groups (RFC 9875).
    pub groups: Vec<String>,
    /// Approximate size in memory, in bytes.
    pub size: u64,
}

impl CacheHandle {
    /// Looks a URL and its equivalent spellings up, as a [purge](crate::Purge::Url) of it does. It counts as no request.
    pub fn look_up(&self, url: &str) -> LookedUp {
        let (state, now) = (&self.0, self.0.now());
        let mut found = LookedUp::default();
        for key in self.keys(url) {
            found.is_on_disk |= state.table.is_on_disk(&key);
            let Some(entry) = state.table.memory.peek(&key) else { continue };
            found.not_stored = found.not_stored.or(entry.unstored);
            for stored in entry.variants.iter().filter(|stored| state.table.is_selectable(&key, stored)) {
                let (meta, age) = (&stored.meta, stored.meta.age(now));
                found.variants.push(StoredVariant {
                    status: meta.status,
                    is_fresh: meta.terms.reuse(&RequestDirectives::default(), age) == Reuse::Fresh,
                    age,
                    lifetime: meta.terms.end(),
                    tag: meta.tag.as_ref().map(ToString::to_string),
                    vary: meta.secondary_key.vary.names().iter().map(ToString::to_string).collect(),
                    groups: meta.groups.iter().map(ToString::to_string).collect(),
                    size: stored.size(),
                });
            }
        }
        found
    }
}
