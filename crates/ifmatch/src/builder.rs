//! [`Builder`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::request::Parts;
use ifmatch_core::command::Authority;
use ifmatch_core::digest::TagFormat;
use ifmatch_core::policy::RequirePreconditions;
use ifmatch_core::problem::Problem;
use ifmatch_register::{Driver, MemoryRegister, Register};
use ifmatch_runtime::{Clock, KeyedQueue, SystemClock};

use crate::config::{DEFAULT_CACHE_CAPACITY, DEFAULT_RECORDS, LayerConfig};
use crate::events::Observer;
use crate::key::KeyExtractor;
use crate::layer::ConditionalLayer;
use crate::memory::ResponseMemory;
use crate::read::dates::VersionDates;
use crate::shared::LayerState;
use crate::write::UnguardedWrites;

/// Configures a [`ConditionalLayer`]. Returned by [`ConditionalLayer::builder`].
///
/// ```
/// use std::time::Duration;
/// use ifmatch::{ConditionalLayer, RequirePreconditions};
///
/// let layer = ConditionalLayer::builder()
///     .authoritative()
///     .require_preconditions(RequirePreconditions::for_writes())
///     .write_timeout(Duration::from_secs(5))
///     .build();
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    register: Arc<dyn Register>,
    clock: Arc<dyn Clock>,
    config: LayerConfig,
    /// In bytes.
    cache_capacity: u64,
}

impl Default for Builder {
    fn default() -> Self {
        let register = MemoryRegister::with_capacity(DEFAULT_RECORDS);
        Self {
            register: Arc::new(register),
            clock: Arc::new(SystemClock),
            config: LayerConfig::default(),
            cache_capacity: DEFAULT_CACHE_CAPACITY,
        }
    }
}

impl Builder {
    /// Sets the register that keeps the records, for example one that processes share, or one that survives a restart.
    ///
    /// Defaults to a register in this process's memory, for 100,000 resources.
    #[must_use]
    pub fn register(mut self, register: impl Register) -> Self {
        self.register = Arc::new(register);
        self
    }

    /// Sets the clock. Defaults to the system's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Declares that each resource changes only through writes to its own URL, through layers on this register.
    ///
    /// The register then knows the current version: `If-None-Match` gets 304 from memory without running the inner
    /// service, and `If-Match` needs no probe. Don't use this for resources that change in other ways. If a write also
    /// changes another resource, such as a list of documents, its response must name it in `Location`,
    /// `Content-Location` or [`Invalidates`](crate::Invalidates).
    ///
    /// By default, resources may change in ways that the layer doesn't see.
    ///
    /// [`build`](Self::build) panics if the register may lose acknowledged swaps
    /// ([`Guarantee::UntilFailover`](ifmatch_register::Guarantee::UntilFailover)): the layer could evaluate conditions
    /// against a replaced version. [`allow_lost_updates`](Self::allow_lost_updates) accepts this.
    #[must_use]
    pub fn authoritative(mut self) -> Self {
        self.config.authority = Authority::Register;
        self
    }

    /// Sets an observer for every 304 and every error that the layer itself sends. None by default; see [`Observer`].
    ///
    /// ```
    /// use ifmatch::{ConditionalLayer, Event};
    ///
    /// let log = |it: &Event<'_>| eprintln!("{} {} {}", it.method, it.uri, it.decision.reason());
    /// let layer = ConditionalLayer::builder().observer(log).build();
    /// ```
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.config.observer = Some(Arc::new(observer));
        self
    }

    /// Sets the media type and body of the layer's own errors, and of
    /// [`PreconditionFailed`](crate::PreconditionFailed), so they look like the service's other errors. The status and
    /// the other header fields stay the same. Defaults to `application/problem+json` (RFC 9457).
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::HeaderValue;
    /// use ifmatch::ConditionalLayer;
    ///
    /// let layer = ConditionalLayer::builder()
    ///     .error_body(|problem| {
    ///         let json = serde_json::json!({ "code": problem.name(), "message": problem.message() });
    ///         (HeaderValue::from_static("application/json"), Bytes::from(json.to_string()))
    ///     })
    ///     .build();
    /// ```
    #[must_use]
    pub fn error_body(
        mut self,
        body: impl Fn(&Problem) -> (HeaderValue, Bytes) + Send + Sync + 'static,
    ) -> Self {
        self.config.error_body = Some(Arc::new(body));
        self
    }

    /// Sets how to identify the resource that a request addresses. Defaults to the [path](crate::key::PathKey).
    ///
    /// With the feature `axum`, the extractor and the predicates of this builder see the URI that the client sent, even if the
    /// router is nested.
    #[must_use]
    pub fn key(mut self, extractor: impl KeyExtractor) -> Self {
        self.config.keys = Arc::new(extractor);
        self
    }

    /// Sets the maximum size of a body to hash, in bytes. Defaults to 1 MiB.
    ///
    /// Longer bodies are passed on as they arrive. Unless the inner service sets a strong tag, their tag comes from
    /// their *revision*: it changes with every write through a layer on this register, and with the response's length,
    /// type, coding and date. A change that bypasses the layer and keeps all of these goes unnoticed; if that can
    /// happen, let the service set the tag, or raise this limit. Each response takes at most this much memory for its
    /// body.
    #[must_use]
    pub fn hash_limit(mut self, bytes: u64) -> Self {
        self.config.hash_limit = bytes;
        self
    }

    /// Sets the format of tags made from content. Defaults to SHA-256.
    #[must_use]
    pub fn tag_format(mut self, format: TagFormat) -> Self {
        self.config.tag_format = format;
        self
    }

    /// Rejects writes without a condition with 428 Precondition Required (RFC 6585 §3). Off by default.
    #[must_use]
    pub fn require_preconditions(mut self, policy: RequirePreconditions) -> Self {
        self.config.require = policy;
        self
    }

    /// Applies [`require_preconditions`](Self::require_preconditions) only to requests that match the predicate.
    ///
    /// ```
    /// use ifmatch::{ConditionalLayer, RequirePreconditions};
    ///
    /// let layer = ConditionalLayer::builder()
    ///     .require_preconditions(RequirePreconditions::for_writes())
    ///     .require_where(|head| head.uri.path().starts_with("/documents/"))
    ///     .build();
    /// ```
    #[must_use]
    pub fn require_where(
        mut self,
        predicate: impl Fn(&Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.config.require_where = Some(Arc::new(predicate));
        self
    }

    /// Sets how many bytes of a request body to receive before the write takes its turn. Defaults to 256 KiB.
    ///
    /// This way, a slow client doesn't keep other writes waiting. A longer body arrives while its write holds the
    /// permit, which is renewed as long as at least 16 KiB arrive within two thirds of the
    /// [write timeout](Self::write_timeout). Each write takes at most this much memory for its body.
    #[must_use]
    pub fn request_buffer_limit(mut self, bytes: u64) -> Self {
        self.config.request_buffer_limit = bytes;
        self
    }

    /// Rejects a write with 400, without running the handler, if its body breaks off before its turn. Use this if
    /// handlers might mistake a partial body for a whole one. By default, the handler gets the error, since it may have
    /// a better response.
    ///
    /// ```
    /// use ifmatch::ConditionalLayer;
    ///
    /// let layer = ConditionalLayer::builder().refuse_broken_bodies().build();
    /// ```
    #[must_use]
    pub fn refuse_broken_bodies(mut self) -> Self {
        self.config.refuses_broken_bodies = true;
        self
    }

    /// After a successful write, fetches the new `ETag` for its response with a GET to the inner service. On by
    /// default.
    ///
    /// The GET runs before another write to the resource may begin. It's skipped if the handler states the new version:
    /// with `ETag`, with the representation and a `Content-Location`, or with [`NewVersion`](crate::NewVersion). If you
    /// turn it off, other responses have no tag.
    #[must_use]
    pub fn get_after_writes(mut self, enabled: bool) -> Self {
        self.config.gets_after_writes = enabled;
        self
    }

    /// Declares that handlers compare the version themselves, in the statement that writes: `UPDATE … WHERE version = $1`. Off by
    /// default.
    ///
    /// A write with one strong tag in `If-Match`, or with `If-None-Match: *`, then needs no GET before it: its handler
    /// gets the [`ExpectedVersion`](crate::ExpectedVersion), and returns
    /// [`PreconditionFailed`](crate::PreconditionFailed) if the store has another one. The layer still evaluates all
    /// other conditions, and every condition of a POST. GET must return the store's version as `ETag`, and a version
    /// must never recur for a URL: don't reuse ids of deleted rows. Responses to writes have a tag only if the handler
    /// states it, since a GET after the write might find another writer's version.
    ///
    /// No update is lost, even if jobs or other services write to the store directly.
    ///
    /// Put compression outside the layer, with [`behind_compression`](Self::behind_compression). Inside, each coding
    /// gets the tag of its own bytes, which no row has.
    ///
    /// If a handler succeeds without asking for the version, it may have replaced one that its client hasn't seen, so
    /// the client gets 500 `version-unchecked`. The first conditional write in a test reveals it.
    #[must_use]
    pub fn handlers_check_versions(mut self) -> Self {
        self.config.handlers_check_versions = true;
        self
    }

    /// Guards only the writes that match the predicate. By default, all writes are guarded, and run one at a time per
    /// resource, except for POST without a condition: it's usually a login, a search or a creation, and doesn't write
    /// the resource that it addresses. Where a condition is [required](Self::require_preconditions) or
    /// [leases](Self::leases) are enabled, such a POST is guarded, too.
    ///
    /// Other writes run concurrently, with their conditions unchanged, and leave the resource's state unknown. If an
    /// unguarded request changes the resource that it addresses, it may overwrite a concurrent guarded write, or be
    /// overwritten: guard all methods of such a resource, for example with [`guard_posts`](Self::guard_posts).
    ///
    /// ```
    /// use ifmatch::ConditionalLayer;
    ///
    /// let layer = ConditionalLayer::builder().guard_where(|head| head.uri.path().starts_with("/notes/")).build();
    /// ```
    #[must_use]
    pub fn guard_where(
        mut self,
        predicate: impl Fn(&Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.config.guard_where = Some(Arc::new(predicate));
        self
    }

    /// Guards every unsafe method, POST without a condition included, for resources that POST changes in place.
    ///
    /// By default, such a POST is assumed to create another resource, and runs concurrently with other writes; see
    /// [`guard_where`](Self::guard_where).
    ///
    /// ```
    /// use ifmatch::ConditionalLayer;
    ///
    /// let layer = ConditionalLayer::builder().guard_posts().build();
    /// ```
    #[must_use]
    pub fn guard_posts(self) -> Self {
        self.guard_where(|_| true)
    }

    /// Enables leases as in Azure Blob Storage: the layer itself handles `PUT …?comp=lease`, and checks `x-ms-lease-id`
    /// on reads and guarded writes. Off by default. See [leases](crate#leases).
    ///
    /// Any client that can send a PUT can also lease a resource, even indefinitely, and break others' leases. Put the
    /// layer behind authentication, or select the requests that may use leases with [`lease_where`](Self::lease_where).
    ///
    /// A holder relies on its lease until it ends, even across a restart. So lease operations get 501 unless the
    /// register [keeps every swap](ifmatch_register::Guarantee), which the default in-memory register doesn't. Set
    /// another one with [`register`](Self::register), or accept the loss with
    /// [`ephemeral_leases`](Self::ephemeral_leases).
    #[must_use]
    pub fn leases(mut self) -> Self {
        self.config.leases = true;
        self
    }

    /// Enables [`leases`](Self::leases) even if the register may lose them.
    ///
    /// A restart of the process, or a failover of the register's engine, then ends leases early, and another client may
    /// acquire them. Use this in tests, or if nothing outside the service relies on a lease.
    #[must_use]
    pub fn ephemeral_leases(mut self) -> Self {
        self.config.leases = true;
        self.config.ephemeral_leases = true;
        self
    }

    /// Enables [`leases`](Self::leases) for requests that match the predicate. Other requests reach the inner service
    /// unchanged.
    ///
    /// ```
    /// use ifmatch::ConditionalLayer;
    ///
    /// let layer = ConditionalLayer::builder()
    ///     .lease_where(|head| head.uri.path().starts_with("/jobs/") && head.headers.contains_key("authorization"))
    ///     .build();
    /// ```
    #[must_use]
    pub fn lease_where(
        mut self,
        predicate: impl Fn(&Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.config.leases = true;
        self.config.lease_where = Some(Arc::new(predicate));
        self
    }

    /// Sets how long a write may take. Defaults to 30 seconds.
    ///
    /// The handler is cancelled earlier, by a tenth of the timeout but at most three seconds: the clocks of processes
    /// that share a register may differ by that much. If a process crashes mid-write, the next write waits for up to
    /// this long.
    #[must_use]
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.config.write_timeout = timeout;
        self
    }

    /// Sets how long a write waits for another write before it gets 409. Defaults to 10 seconds.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.config.lock_timeout = timeout;
        self
    }

    /// Sets how long other writes wait after a handler has failed, panicked or been cancelled, since its write may
    /// still take effect. Defaults to 1 second.
    #[must_use]
    pub fn grace_period(mut self, period: Duration) -> Self {
        self.config.grace_period = period;
        self
    }

    /// Sets how long a 304 from memory may rely on the register's last response. Defaults to zero: the layer asks the
    /// register before each 304.
    #[must_use]
    pub fn max_staleness(mut self, bound: Duration) -> Self {
        self.config.max_staleness = bound;
        self
    }

    /// Sets the size of the memory for 304s, in bytes. It holds header fields and tags, but no bodies. Defaults to 32
    /// MiB.
    #[must_use]
    pub fn cache_capacity(mut self, bytes: u64) -> Self {
        self.cache_capacity = bytes;
        self
    }

    /// Declares that only authorized requests reach the layer. Requests with `Authorization` or `Cookie` may then get
    /// 304 from memory, too. Off by default.
    ///
    /// Responses that differ between users must say so, with `Vary` or `Cache-Control: private`.
    #[must_use]
    pub fn behind_authentication(mut self) -> Self {
        self.config.behind_authentication = true;
        self
    }

    /// Declares that an outer layer compresses responses and keeps their tags, as tower-http's `CompressionLayer` does.
    /// Each set of accepted codings then gets its own tags. Off by default.
    ///
    /// Use this if handlers state versions. If they don't, put compression inside this layer: each coding then has the
    /// tag of its own bytes.
    #[must_use]
    pub fn behind_compression(mut self) -> Self {
        self.config.behind_compression = true;
        self
    }

    /// Accepts an [authoritative](Self::authoritative) register that may lose acknowledged swaps. After such a
    /// failover, clients may overwrite updates that they haven't seen.
    #[must_use]
    pub fn allow_lost_updates(mut self) -> Self {
        self.config.allows_lost_updates = true;
        self
    }

    /// Builds the layer.
    ///
    /// # Panics
    /// Panics if the settings can't work. If they come from a configuration, use [`try_build`](Self::try_build).
    pub fn build(self) -> ConditionalLayer {
        self.try_build().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds the layer.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ifmatch::ConditionalLayer;
    ///
    /// let error = ConditionalLayer::builder().write_timeout(Duration::ZERO).try_build().unwrap_err();
    /// assert!(error.to_string().contains("Builder::write_timeout"));
    /// ```
    ///
    /// # Errors
    /// Fails if the settings can't work:
    ///
    /// - The layer is [authoritative](Self::authoritative) and its register may lose acknowledged swaps, unless that is
    ///   [accepted](Self::allow_lost_updates).
    /// - The layer is [authoritative](Self::authoritative), and [handlers check
    ///   versions](Self::handlers_check_versions): either all writes go through the layer, or they don't.
    /// - The [write timeout](Self::write_timeout) is zero, which would reject every write.
    /// - [`require_where`](Self::require_where) selects requests, but no method
    ///   [requires](Self::require_preconditions) a condition.
    pub fn try_build(self) -> Result<ConditionalLayer, BuildError> {
        let config = &self.config;
        let may_lose = config.authority == Authority::Register
            && self.register.engine().guarantee.may_lose_swaps();
        if may_lose && !config.allows_lost_updates {
            return Err(BuildError(
                "the register may lose acknowledged swaps at a failover, so it cannot be authoritative: use another register, \
                 or accept the loss with Builder::allow_lost_updates",
            ));
        }
        if config.authority != Authority::Resource && config.handlers_check_versions {
            return Err(BuildError(
                "an authoritative layer knows all versions, and handlers that check them know better: set one of \
                 Builder::authoritative and Builder::handlers_check_versions",
            ));
        }
        if config.write_timeout.is_zero() {
            return Err(BuildError(
                "the write timeout is zero, so that every write would be rejected: set a longer one with Builder::write_timeout",
            ));
        }
        if config.require_where.is_some() && config.require == RequirePreconditions::none() {
            return Err(BuildError(
                "no method requires a condition, so Builder::require_where has no effect: add Builder::require_preconditions",
            ));
        }
        let driver = Driver::sharing(self.register, self.clock)
            .with_patience(self.config.lock_timeout)
            .remembering();
        Ok(ConditionalLayer::from(LayerState {
            driver,
            memory: ResponseMemory::with_capacity(self.cache_capacity),
            dates: VersionDates::default(),
            probing: KeyedQueue::default(),
            unguarded: UnguardedWrites::default(),
            config: self.config,
        }))
    }
}

/// The settings of a [`Builder`] can't work together. The message says which to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError(&'static str);

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BuildError {}
