//! The settings of a layer and their defaults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;
use http::{HeaderValue, Method};
use ifmatch_core::command::Authority;
use ifmatch_core::digest::TagFormat;
use ifmatch_core::policy::RequirePreconditions;
use ifmatch_core::precondition::{CONDITIONAL_HEADERS, Preconditions};
use ifmatch_core::problem::Problem;

use crate::events::Observer;
use crate::key::{KeyExtractor, PathKey};

/// Number of records that the default register holds.
pub(crate) const DEFAULT_RECORDS: usize = 100_000;
/// Default size of the memory for 304s, in bytes.
pub(crate) const DEFAULT_CACHE_CAPACITY: u64 = 32 * 1024 * 1024;

/// Makes the media type and the content of an error.
pub(crate) type ErrorBody = Arc<dyn Fn(&Problem) -> (HeaderValue, Bytes) + Send + Sync>;

/// Selects requests by their heads.
pub(crate) type RequestPredicate = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

/// The settings. [`Builder`](crate::Builder) documents each.
#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate setting, named as in the builder"
)]
pub(crate) struct LayerConfig {
    pub(crate) keys: Arc<dyn KeyExtractor>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) error_body: Option<ErrorBody>,
    pub(crate) authority: Authority,
    pub(crate) hash_limit: u64,
    pub(crate) request_buffer_limit: u64,
    pub(crate) refuses_broken_bodies: bool,
    pub(crate) gets_after_writes: bool,
    pub(crate) handlers_check_versions: bool,
    pub(crate) tag_format: TagFormat,
    pub(crate) require: RequirePreconditions,
    pub(crate) require_where: Option<RequestPredicate>,
    pub(crate) guard_where: Option<RequestPredicate>,
    pub(crate) leases: bool,
    pub(crate) ephemeral_leases: bool,
    pub(crate) allows_lost_updates: bool,
    pub(crate) lease_where: Option<RequestPredicate>,
    pub(crate) write_timeout: Duration,
    pub(crate) lock_timeout: Duration,
    pub(crate) grace_period: Duration,
    pub(crate) max_staleness: Duration,
    pub(crate) behind_authentication: bool,
    pub(crate) behind_compression: bool,
}

impl Default for LayerConfig {
    fn default() -> Self {
        Self {
            keys: Arc::new(PathKey::new()),
            observer: None,
            error_body: None,
            authority: Authority::Resource,
            hash_limit: 1024 * 1024,
            request_buffer_limit: 256 * 1024,
            refuses_broken_bodies: false,
            gets_after_writes: true,
            handlers_check_versions: false,
            tag_format: TagFormat::default(),
            require: RequirePreconditions::none(),
            require_where: None,
            guard_where: None,
            leases: false,
            ephemeral_leases: false,
            allows_lost_updates: false,
            lease_where: None,
            write_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(10),
            grace_period: Duration::from_secs(1),
            max_staleness: Duration::ZERO,
            behind_authentication: false,
            behind_compression: false,
        }
    }
}

impl LayerConfig {
    /// Returns `true` if this write needs a permit. By default POST does only with a condition, where one is required,
    /// and where a lease may forbid it.
    pub(crate) fn guards(&self, head: &Parts) -> bool {
        match &self.guard_where {
            Some(applies) => applies(head),
            None => {
                head.method != Method::POST
                    || CONDITIONAL_HEADERS
                        .iter()
                        .any(|name| head.headers.contains_key(name))
                    || self.refuses(head, &Preconditions::NONE)
                    || self.may_be_leased(head)
            }
        }
    }

    /// Returns `true` if this resource has leases. Unguarded resources have none: a lease would protect nothing.
    pub(crate) fn leases(&self, head: &Parts) -> bool {
        self.may_be_leased(head) && self.guards(head)
    }

    fn may_be_leased(&self, head: &Parts) -> bool {
        self.leases
            && self
                .lease_where
                .as_ref()
                .is_none_or(|applies| applies(head))
    }

    /// Returns `true` if this write must get 428.
    pub(crate) fn refuses(&self, head: &Parts, conditions: &Preconditions) -> bool {
        self.require.refuses(&head.method, conditions)
            && self
                .require_where
                .as_ref()
                .is_none_or(|applies| applies(head))
    }

    /// Returns `true` if this request and other clients may get each other's responses.
    pub(crate) fn is_shareable(&self, head: &Parts) -> bool {
        let has_credentials = || {
            head.headers
                .keys()
                .any(|name| *name == AUTHORIZATION || *name == COOKIE)
        };
        self.behind_authentication || !has_credentials()
    }
}

impl fmt::Debug for LayerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerConfig")
            .field("authority", &self.authority)
            .field("hash_limit", &self.hash_limit)
            .field("request_buffer_limit", &self.request_buffer_limit)
            .field("refuses_broken_bodies", &self.refuses_broken_bodies)
            .field("gets_after_writes", &self.gets_after_writes)
            .field("handlers_check_versions", &self.handlers_check_versions)
            .field("tag_format", &self.tag_format)
            .field("require", &self.require)
            .field("leases", &self.leases)
            .field("ephemeral_leases", &self.ephemeral_leases)
            .field("allows_lost_updates", &self.allows_lost_updates)
            .field("write_timeout", &self.write_timeout)
            .field("lock_timeout", &self.lock_timeout)
            .field("grace_period", &self.grace_period)
            .field("max_staleness", &self.max_staleness)
            .field("behind_authentication", &self.behind_authentication)
            .field("behind_compression", &self.behind_compression)
            .finish_non_exhaustive()
    }
}
