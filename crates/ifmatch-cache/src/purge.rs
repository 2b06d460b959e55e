//! Purging and counters.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use crate::metrics::{Invalidation, Metrics};
use crate::request::key::Key;
use crate::state::CacheState;

/// A set of stored responses to remove or to make stale.
///
/// ```
/// use ifmatch_cache::{CacheLayer, Purge};
///
/// let cache = CacheLayer::new().handle();
/// assert_eq!(cache.purge(&Purge::Url("http://example.org/news".to_owned())), 0);
/// cache.purge(&Purge::Group { origin: "http://example.org".to_owned(), name: "scripts".to_owned() });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// All variants stored for a URL and its equivalent spellings, such as those with redundant percent-encoding or dot
    /// segments.
    Url(String),
    /// All responses for URLs with this prefix, such as `http://example.org/docs/`, and equivalent spellings. The host must
    /// be in lower case, without the scheme's default port. The empty prefix matches everything.
    Prefix(String),
    /// All responses of an origin in a cache group (RFC 9875).
    Group {
        /// Scheme and host, such as `http://example.org`.
        origin: String,
        /// The group's name.
        name: String,
    },
}

/// Reads counters and purges stored responses. Cheap to clone. Returned by
/// [`CacheLayer::handle`](crate::CacheLayer::handle).
pub struct CacheHandle(pub(crate) Arc<CacheState>);

impl CacheHandle {
    /// Removes stored responses, and prevents pending ones from being stored. Returns the number of URLs that had
    /// stored responses.
    pub fn purge(&self, what: &Purge) -> usize {
        let table = &self.0.table;
        let purged = match what {
            Purge::Url(url) => self.keys(url).iter().filter(|key| table.invalidate(key).found).count(),
            Purge::Prefix(prefix) => table.invalidate_prefix(&self.prefix(prefix)),
            Purge::Group { origin, name } => {
                let sweep = |key: &Key| table.invalidate_group(key.origin(), name) + table.sweep(key.origin());
                Key::parse(origin).iter().map(sweep).sum()
            }
        };
        self.0.counters.invalidated(Invalidation::Purge, purged as u64);
        purged
    }

    /// Makes stored responses stale, and prevents pending ones from being stored. Stale responses are revalidated before
    /// use. Where `stale-while-revalidate`, `stale-if-error` or
    /// [`stale_if_unreachable`](crate::Builder::stale_if_unreachable) permit their use, the permitted time begins with the
    /// purge. Returns the number of URLs with responses not purged before.
    pub fn soft_purge(&self, what: &Purge) -> usize {
        let (table, now) = (&self.0.table, self.0.now());
        let purged = match what {
            Purge::Url(url) => self.keys(url).iter().filter(|key| table.soft_purge(key, now)).count(),
            Purge::Prefix(prefix) => table.soft_purge_prefix(&self.prefix(prefix), now),
            Purge::Group { origin, name } => {
                Key::parse(origin).iter().map(|key| table.soft_purge_group(key.origin(), name, now)).sum()
            }
        };
        self.0.counters.invalidated(Invalidation::SoftPurge, purged as u64);
        purged
    }

    /// Returns the keys of a URL, according to the rules for queries.
    pub(crate) fn keys(&self, url: &str) -> Vec<Key> {
        let without_fragment = url.split_once('#').map_or(url, |(url, _)| url);
        Key::parse(&self.0.config.query.apply(without_fragment))
    }

    /// Returns the common prefix of the keys of all URLs with this prefix. Rules for queries change what follows `?`, so
    /// it is cut there.
    fn prefix(&self, start: &str) -> String {
        let changes = self.0.config.query.is_active();
        Key::prefix(start.split_once('?').filter(|_| changes).map_or(start, |(path, _)| path))
    }

    /// Returns the URL of a request, as a purge of it expects. Returns `None` if the request names no host or several.
    pub fn url(&self, head: &Parts) -> Option<String> {
        Some(Key::of(head, self.0.config.scheme.as_deref())?.as_str().to_owned())
    }

    /// Returns the current counters.
    pub fn metrics(&self) -> Metrics {
        let (table, memory) = (&self.0.table, &self.0.table.memory);
        self.0.counters.metrics(memory.evictions(), memory.weight(), table.disk_bytes(), memory.spilling())
    }
}

impl Clone for CacheHandle {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl fmt::Debug for CacheHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheHandle").field("config", &self.0.config).finish_non_exhaustive()
    }
}
