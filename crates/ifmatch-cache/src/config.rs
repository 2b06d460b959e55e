//! The configuration of a cache.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Uri};

use crate::body::folder::CacheFolder;
use crate::policy::Audience;
use crate::policy::cdn_cache_control::Governing;
use crate::policy::freshness::Heuristic;
use crate::policy::query::QueryRules;
use crate::policy::reuse::Unreachable;
use crate::policy::storable::StorableRules;

/// The default size of the cache, in bytes.
const CAPACITY: u64 = 256 * 1024 * 1024;

/// The settings of a cache. The [builder](crate::Builder) describes them.
#[derive(Clone, Debug)]
pub(crate) struct CacheConfig {
    pub(crate) audience: Audience,
    pub(crate) scheme: Option<Box<str>>,
    /// In bytes.
    pub(crate) capacity: u64,
    /// In bytes.
    pub(crate) entry_limit: u64,
    pub(crate) disk: Option<Arc<CacheFolder>>,
    pub(crate) heuristic: Option<Heuristic>,
    pub(crate) obey_requests: bool,
    pub(crate) rules: StorableRules,
    pub(crate) query: QueryRules,
    /// Returns `true` if an error of the inner service means that a write has changed nothing.
    pub(crate) unchanged: fn(&dyn Any) -> bool,
    /// Returns `true` if an error of the inner service says nothing about the origin, which wasn't asked.
    pub(crate) unasked: fn(&dyn Any) -> bool,
    pub(crate) unstored: Vec<HeaderName>,
    pub(crate) always_validate: bool,
    pub(crate) bypass: Option<fn(&Uri, &HeaderMap) -> bool>,
    pub(crate) stale_if_unreachable: Unreachable,
    pub(crate) stale_while_revalidate: Duration,
    pub(crate) stale_if_error: Duration,
    pub(crate) patience: Duration,
    pub(crate) normalizes_accept_encoding: bool,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            audience: Audience::Shared,
            scheme: None,
            capacity: CAPACITY,
            entry_limit: CAPACITY / 16,
            disk: None,
            heuristic: Some(Heuristic::default()),
            obey_requests: true,
            rules: StorableRules::default(),
            query: QueryRules::default(),
            unchanged: |_| false,
            unasked: |_| false,
            unstored: Vec::new(),
            always_validate: false,
            bypass: None,
            stale_if_unreachable: Unreachable::Default(Duration::from_hours(1)),
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            patience: Duration::from_secs(10),
            normalizes_accept_encoding: false,
        }
    }
}

impl CacheConfig {
    /// Returns the directives of a response that apply to this cache.
    pub(crate) fn governing(&self, response: &HeaderMap) -> Governing {
        Governing::of(response, self.audience)
    }

    /// Returns the maximum length of a stored body.
    pub(crate) fn longest(&self) -> u64 {
        self.entry_limit
            .max(self.disk.as_ref().map_or(0, |disk| disk.longest()))
    }
}
