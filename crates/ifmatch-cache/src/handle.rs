//! The operator's handle of a cache: purging, counters, and looking a URL up.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use http::request::Parts;
use http::{HeaderName, StatusCode};
use ifmatch_core::date::Timestamp;
use serde::{Deserialize, Serialize};

use crate::metrics::{Invalidation, Metrics, Outcome};
use crate::policy::cache_control::RequestDirectives;
use crate::policy::reuse::Reuse;
use crate::request::key::CacheKey;
use crate::state::CacheState;
use crate::store::stored_response::SecondaryKey;

/// A set of stored responses to remove or to make stale.
///
/// ```
/// use ifmatch_cache::{CacheLayer, Purge};
///
/// let cache = CacheLayer::new().handle();
/// assert_eq!(cache.purge(&Purge::Url("http://example.org/news".to_owned())), 0);
/// cache.purge(&Purge::Group { origin: "http://example.org".to_owned(), name: "scripts".to_owned() });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purge {
    /// All variants stored for a URL and its equivalent spellings, such as those with redundant percent-encoding or dot
    /// segments.
    Url(String),
    /// All responses for URLs with this prefix, such as `http://example.org/docs/`, and equivalent spellings. The empty prefix
    /// matches everything.
    Prefix(String),
    /// All responses of an origin in a cache group (RFC 9875).
    Group {
        /// Scheme and host, such as `http://example.org`.
        origin: String,
        /// The group's name.
        name: String,
    },
}

impl Purge {
    /// Returns the text that should be a URL, or the beginning of one, if it is none: the purge can then match nothing.
    ///
    /// ```
    /// use ifmatch_cache::Purge;
    ///
    /// let prefix = |text: &str| Purge::Prefix(text.to_owned());
    /// assert_eq!(prefix("http://example.org/prod").not_a_url(), None);
    /// assert_eq!(prefix("").not_a_url(), None);
    /// assert_eq!(prefix("products").not_a_url(), Some("products"));
    /// ```
    pub fn not_a_url(&self) -> Option<&str> {
        let (text, is_sound) = match self {
            Self::Url(url) => (url, is_url(url)),
            Self::Prefix(prefix) => (prefix, prefix.is_empty() || begins_url(prefix)),
            Self::Group { origin, .. } => (origin, is_url(origin)),
        };
        (!is_sound).then_some(text)
    }
}

/// Returns `true` for a URL that a response may be stored for.
fn is_url(text: &str) -> bool {
    begins_url(text) && !CacheKey::parse(text).is_empty()
}

/// Returns `true` for the beginning of such a URL: the scheme, and perhaps a part of the host.
fn begins_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    ["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
        && !rest.starts_with(['/', '\\', '?', '#'])
}

/// Reads counters and purges stored responses. Cheap to clone. Returned by
/// [`CacheLayer::handle`](crate::CacheLayer::handle).
pub struct CacheHandle(pub(crate) Arc<CacheState>);

impl CacheHandle {
    /// Removes stored responses, and prevents pending ones from being stored. Returns the number of URLs that had
    /// stored responses.
    pub fn purge(&self, what: &Purge) -> usize {
        self.purge_all([what])
    }

    /// Purges several sets, as [`purge`](Self::purge) does one. This takes one search of the store for all prefixes, and one for the
    /// groups of an origin.
    pub fn purge_all<'a>(&self, what: impl IntoIterator<Item = &'a Purge>) -> usize {
        let table = &self.0.table;
        let (mut purged, mut prefixes, mut origins) = (0, Vec::new(), BTreeSet::new());
        for purge in what {
            match purge {
                Purge::Url(url) => {
                    purged += self
                        .keys(url)
                        .iter()
                        .filter(|key| table.invalidate(key).found)
                        .count();
                }
                Purge::Prefix(prefix) => prefixes.push(self.prefix(prefix)),
                Purge::Group { origin, name } => {
                    for key in CacheKey::parse(origin) {
                        purged += table.invalidate_group(key.origin(), name);
                        origins.insert(key.origin().to_owned());
                    }
                }
            }
        }
        if !prefixes.is_empty() {
            purged += table.invalidate_prefixes(prefixes);
        }
        purged += origins
            .iter()
            .map(|origin| table.sweep(origin))
            .sum::<usize>();
        self.0
            .counters
            .invalidated(Invalidation::Purge, purged as u64);
        purged
    }

    /// Makes stored responses stale, and prevents pending ones from being stored. Stale responses are revalidated before
    /// use. Where `stale-while-revalidate`, `stale-if-error` or
    /// [`stale_if_unreachable`](crate::Builder::stale_if_unreachable) permit their use, the permitted time begins with the
    /// purge. Returns the number of URLs with responses not purged before.
    pub fn soft_purge(&self, what: &Purge) -> usize {
        let (table, now) = (&self.0.table, self.0.wall());
        let purged = match what {
            Purge::Url(url) => self
                .keys(url)
                .iter()
                .filter(|key| table.soft_purge(key, now))
                .count(),
            Purge::Prefix(prefix) => table.soft_purge_prefix(&self.prefix(prefix), now),
            Purge::Group { origin, name } => CacheKey::parse(origin)
                .iter()
                .map(|key| table.soft_purge_group(key.origin(), name, now))
                .sum(),
        };
        self.0
            .counters
            .invalidated(Invalidation::SoftPurge, purged as u64);
        purged
    }

    /// Lets stored responses be used without validation until this [time](Self::now). There is no such limit unless this is called.
    ///
    /// For caches that learn of each other's purges: one that can't know the purges of the others validates each response with
    /// the origin, uses no stale one, and lets no request wait for another one's response.
    pub fn trust_until(&self, until: Timestamp) {
        self.0.trust_until(until);
    }

    /// Returns the time of the clock of the cache, its [interval clock](ifmatch_runtime::Clock::now), for
    /// [`trust_until`](Self::trust_until).
    pub fn now(&self) -> Timestamp {
        self.0.now()
    }

    /// Returns the keys of a URL, according to the rules for queries.
    pub(crate) fn keys(&self, url: &str) -> Vec<CacheKey> {
        let without_fragment = url.split_once('#').map_or(url, |(url, _)| url);
        CacheKey::parse(&self.0.config.query.apply(without_fragment))
    }

    /// Returns the common prefix of the keys of all URLs with this prefix. Rules for queries change what follows `?`, so
    /// it is cut there.
    fn prefix(&self, start: &str) -> String {
        let changes = self.0.config.query.is_active();
        CacheKey::prefix(
            start
                .split_once('?')
                .filter(|_| changes)
                .map_or(start, |(path, _)| path),
        )
    }

    /// Returns the URL of a request, as a purge of it expects. Returns `None` if the request names no host or several.
    pub fn url(&self, head: &Parts) -> Option<String> {
        Some(
            CacheKey::of(head, self.0.config.scheme.as_deref())?
                .as_str()
                .to_owned(),
        )
    }

    /// Returns the current counters.
    pub fn metrics(&self) -> Metrics {
        let (table, memory) = (&self.0.table, &self.0.table.memory);
        self.0.counters.metrics(
            memory.evictions(),
            memory.weight(),
            table.disk_bytes(),
            memory.spilling(),
        )
    }
}

impl Clone for CacheHandle {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl fmt::Debug for CacheHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheHandle")
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}

/// The responses that the cache has for a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookedUp {
    /// The stored responses in memory, newest first.
    pub variants: Vec<StoredVariant>,
    /// `true` if there are responses on disk, which a request would read.
    pub is_on_disk: bool,
    /// Why the latest response for the URL wasn't stored, if it wasn't, and the cache still knows.
    pub not_stored: Option<Outcome>,
}

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVariant {
    /// Its status.
    pub status: StatusCode,
    /// `true` if it serves requests without asking the origin.
    pub is_fresh: bool,
    /// Time since the origin made or confirmed it.
    pub age: Duration,
    /// Age from which on it is stale.
    pub lifetime: Duration,
    /// Its entity tag, as in `ETag`.
    pub tag: Option<String>,
    /// The request fields that select it (`Vary`), each with its value, unless the request had none. The values of fields with
    /// credentials are replaced by `(hidden)`.
    pub vary: Vec<(String, Option<String>)>,
    /// Its groups (RFC 9875).
    pub groups: Vec<String>,
    /// Approximate size in memory, in bytes.
    pub size: u64,
}

/// Header fields that carry credentials.
const CREDENTIALS: [HeaderName; 3] = [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION];

/// Returns the request fields that select a response, with their values unless these are secret.
fn vary_fields(key: &SecondaryKey) -> Vec<(String, Option<String>)> {
    let value = |(name, value): (&HeaderName, Option<&[u8]>)| {
        let shown = |value: &[u8]| {
            if CREDENTIALS.contains(name) {
                "(hidden)".to_owned()
            } else {
                String::from_utf8_lossy(value).into_owned()
            }
        };
        (name.to_string(), value.map(shown))
    };
    key.vary
        .names()
        .iter()
        .zip(key.selection.values())
        .map(value)
        .collect()
}

impl CacheHandle {
    /// Returns up to `limit` URLs in memory with this path and query, of any host.
    ///
    /// ```
    /// use ifmatch_cache::CacheLayer;
    ///
    /// let cache = CacheLayer::new().handle();
    /// assert!(cache.urls_at("/news", 10).is_empty());
    /// ```
    pub fn urls_at(&self, target: &str, limit: usize) -> Vec<String> {
        let keys = self
            .0
            .table
            .memory
            .keys("")
            .into_iter()
            .filter(|key| key.path() == target);
        let mut urls: Vec<_> = keys.map(|key| key.as_str().to_owned()).collect();
        urls.sort_unstable();
        urls.truncate(limit);
        urls
    }

    /// Looks a URL and its equivalent spellings up, as a [purge](Purge::Url) of it does. No counter changes.
    pub fn look_up(&self, url: &str) -> LookedUp {
        let (state, now) = (&self.0, self.0.wall());
        let mut found = LookedUp::default();
        for key in self.keys(url) {
            found.is_on_disk |= state.table.is_on_disk(&key);
            let Some(entry) = state.table.memory.peek(&key) else {
                continue;
            };
            found.not_stored = found.not_stored.or(entry.unstored);
            for stored in entry
                .variants
                .iter()
                .filter(|stored| state.table.is_selectable(&key, stored))
            {
                let (meta, age) = (&stored.meta, stored.meta.age(now));
                found.variants.push(StoredVariant {
                    status: meta.status,
                    is_fresh: meta.terms.reuse(&RequestDirectives::default(), age) == Reuse::Fresh,
                    age,
                    lifetime: meta.terms.end(),
                    tag: meta.tag.as_ref().map(ToString::to_string),
                    vary: vary_fields(&meta.secondary_key),
                    groups: meta.groups.iter().map(ToString::to_string).collect(),
                    size: stored.size(),
                });
            }
        }
        found
    }
}
