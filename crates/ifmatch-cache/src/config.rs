//! What can be set.

use std::time::Duration;

use crate::policy::freshness::Heuristic;

/// The default size of the cache, in bytes.
pub(crate) const CAPACITY: u64 = 256 * 1024 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) scheme: Option<Box<str>>,
    pub(crate) capacity: u64,
    pub(crate) entry_limit: u64,
    pub(crate) heuristic: Option<Heuristic>,
    pub(crate) obey_requests: bool,
    pub(crate) share_cookies: bool,
    pub(crate) stale_if_unreachable: Duration,
    pub(crate) patience: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            scheme: None,
            capacity: CAPACITY,
            entry_limit: CAPACITY / 16,
            heuristic: Some(Heuristic::default()),
            obey_requests: true,
            share_cookies: true,
            stale_if_unreachable: Duration::from_hours(1),
            patience: Duration::from_secs(10),
        }
    }
}
