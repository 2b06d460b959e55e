//! The customised layer.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use ifmatch_core::command::Authority;
use ifmatch_core::digest::TagFormat;
use ifmatch_core::policy::RequirePreconditions;
use ifmatch_register::{Driver, MemoryRegister, Register};
use ifmatch_runtime::{Clock, KeyedQueue, SystemClock};

use crate::config::{Config, MEMORY, RECORDS};
use crate::key::KeyExtractor;
use crate::layer::ConditionalLayer;
use crate::memory::Memory;
use crate::shared::Shared;

/// Makes a [`ConditionalLayer`] to measure. Begin with [`ConditionalLayer::builder`].
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
pub struct Builder<R = MemoryRegister, C = SystemClock> {
    register: R,
    clock: C,
    config: Config,
    memory: u64,
}

impl Default for Builder {
    fn default() -> Self {
        let register = MemoryRegister::with_capacity(RECORDS);
        Self { register, clock: SystemClock, config: Config::default(), memory: MEMORY }
    }
}

impl<R: Register, C: Clock> Builder<R, C> {
    /// Keeps the records in this register: one that several processes share, or that survives a restart. By default it is
    /// one in this process's memory.
    ///
    /// ```
    /// use ifmatch::ConditionalLayer;
    /// use ifmatch_register::MemoryRegister;
    ///
    /// let layer = ConditionalLayer::builder().register(MemoryRegister::with_capacity(1_000)).build();
    /// ```
    pub fn register<N: Register>(self, register: N) -> Builder<N, C> {
        Builder { register, clock: self.clock, config: self.config, memory: self.memory }
    }

    /// Takes the time from this clock instead of the system's.
    pub fn clock<N: Clock>(self, clock: N) -> Builder<R, N> {
        Builder { register: self.register, clock, config: self.config, memory: self.memory }
    }

    /// Declares that nothing changes a resource but writes to its own address through layers on this register.
    ///
    /// The register then knows the current version: `If-None-Match` is answered 304 from memory without running the
    /// inner service, and `If-Match` is evaluated without a probe. Do not declare it of a resource that changes with
    /// another one, such as a list of documents, unless writes name it in `Location`, `Content-Location` or
    /// [`AlsoChanged`](crate::AlsoChanged); nor of one that changes by itself.
    ///
    /// ```
    /// # use ifmatch::ConditionalLayer;
    /// let layer = ConditionalLayer::builder().authoritative().build();
    /// ```
    #[must_use]
    pub fn authoritative(mut self) -> Self {
        self.config.authority = Authority::Register;
        self
    }

    /// Sets which resource a request is about. By default it is that of the [path](crate::key::PathKey).
    ///
    /// ```
    /// use ifmatch::ConditionalLayer;
    /// use ifmatch::key::PathKey;
    ///
    /// let layer = ConditionalLayer::builder().key(PathKey::new().with_parameters(["id"])).build();
    /// ```
    #[must_use]
    pub fn key(mut self, extractor: impl KeyExtractor) -> Self {
        self.config.keys = Arc::new(extractor);
        self
    }

    /// Hashes bodies of up to so many bytes, 1 MiB by default. Longer ones are passed on without a tag, unless the inner
    /// service gives one. So much memory a request may take.
    ///
    /// ```
    /// # use ifmatch::ConditionalLayer;
    /// let layer = ConditionalLayer::builder().hash_limit(16 * 1024 * 1024).build();
    /// ```
    #[must_use]
    pub fn hash_limit(mut self, bytes: u64) -> Self {
        self.config.hash_limit = bytes;
        self
    }

    /// Sets the form of the tags made by hashing. SHA-256 by default.
    ///
    /// ```
    /// use ifmatch::{ConditionalLayer, TagFormat};
    /// let layer = ConditionalLayer::builder().tag_format(TagFormat::Sha256Truncated).build();
    /// ```
    #[must_use]
    pub fn tag_format(mut self, format: TagFormat) -> Self {
        self.config.tag_format = format;
        self
    }

    /// Refuses writes without a condition with 428 (RFC 6585 §3). By default none is refused.
    ///
    /// ```
    /// use http::Method;
    /// use ifmatch::{ConditionalLayer, RequirePreconditions};
    ///
    /// let policy = RequirePreconditions::for_methods([Method::PUT]);
    /// let layer = ConditionalLayer::builder().require_preconditions(policy).build();
    /// ```
    #[must_use]
    pub fn require_preconditions(mut self, policy: RequirePreconditions) -> Self {
        self.config.require = policy;
        self
    }

    /// Limits [`require_preconditions`](Self::require_preconditions) to the requests for which this is true.
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
    pub fn require_where(mut self, predicate: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.config.require_where = Some(Arc::new(predicate));
        self
    }

    /// Guards only the writes for which this is true. By default all are, one at a time for each path.
    ///
    /// The others run side by side and with their conditions untouched; what was known of the resource is forgotten
    /// afterwards. It is meant for what is no write to the resource that it names: a login, a query, a task.
    ///
    /// ```
    /// use http::Method;
    /// use ifmatch::ConditionalLayer;
    ///
    /// let layer = ConditionalLayer::builder().guard_where(|head| head.method != Method::POST).build();
    /// ```
    #[must_use]
    pub fn guard_where(mut self, predicate: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.config.guard_where = Some(Arc::new(predicate));
        self
    }

    /// Gives resources leases, in the form of Azure Blob Storage: the layer itself answers `PUT …?comp=lease`, and checks
    /// `x-ms-lease-id` on reads and guarded writes. See [leases](crate#leases).
    ///
    /// Any client that may send a PUT may also lease a resource, even indefinitely, and break the leases of others. Put
    /// the layer behind authentication, or use [`lease_where`](Self::lease_where) to select the requests entitled to a
    /// lease.
    ///
    /// A holder relies on its lease until it ends, even across a restart. Lease operations are therefore refused with
    /// 501 while the register [forgets](Register::forgets), as the default in-memory register does. Set a durable one
    /// with [`register`](Self::register), or accept the loss with [`ephemeral_leases`](Self::ephemeral_leases).
    ///
    /// ```
    /// # use ifmatch::ConditionalLayer;
    /// # fn with(register: impl ifmatch_register::Register) {
    /// let layer = ConditionalLayer::builder().register(register).leases().build();
    /// # }
    /// ```
    #[must_use]
    pub fn leases(mut self) -> Self {
        self.config.leases = true;
        self
    }

    /// Enables leases ([`leases`](Self::leases)) even if the register forgets them. All leases then end with the
    /// process although their holders were promised more, and after a restart another client may acquire one early. Use
    /// it in a single process where nothing outside relies on a lease, and in tests.
    ///
    /// ```
    /// # use ifmatch::ConditionalLayer;
    /// let layer = ConditionalLayer::builder().ephemeral_leases().build();
    /// ```
    #[must_use]
    pub fn ephemeral_leases(mut self) -> Self {
        self.config.leases = true;
        self.config.ephemeral_leases = true;
        self
    }

    /// Gives leases ([`leases`](Self::leases)) to the requests for which this is true. The others reach the inner service
    /// as they are.
    ///
    /// ```
    /// use ifmatch::ConditionalLayer;
    ///
    /// let layer = ConditionalLayer::builder()
    ///     .lease_where(|head| head.uri.path().starts_with("/jobs/") && head.headers.contains_key("authorization"))
    ///     .build();
    /// ```
    #[must_use]
    pub fn lease_where(mut self, predicate: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.config.leases = true;
        self.config.lease_where = Some(Arc::new(predicate));
        self
    }

    /// Sets the duration of a write permit. Defaults to 30 seconds. The handler is cancelled a tenth of it earlier, at
    /// most three seconds; clocks of processes that share a register may differ by that much. A process that crashes
    /// mid-write blocks the next write for up to this duration.
    ///
    /// # Panics
    /// If the timeout is zero, since every write would be refused.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ifmatch::ConditionalLayer;
    /// let layer = ConditionalLayer::builder().write_timeout(Duration::from_secs(5)).build();
    /// ```
    #[must_use]
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        assert!(!timeout.is_zero(), "the write timeout must not be zero: no handler could ever run");
        self.config.write_timeout = timeout;
        self
    }

    /// Sets how long a write waits for another one to end before it is refused with 409. 10 seconds by default.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.config.patience = patience;
        self
    }

    /// Sets how long after a handler failed, panicked or was cancelled its effect may still come. Other writes wait so
    /// long. 1 second by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.config.grace = grace;
        self
    }

    /// Sets how long an answer from the register counts when 304s are given from memory. By default, zero, the register
    /// is asked each time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ifmatch::ConditionalLayer;
    /// let layer = ConditionalLayer::builder().authoritative().staleness(Duration::from_secs(1)).build();
    /// ```
    #[must_use]
    pub fn staleness(mut self, bound: Duration) -> Self {
        self.config.staleness = bound;
        self
    }

    /// Sets the size of the memory of responses in bytes: header fields and tags, no bodies. 32 MiB by default.
    ///
    /// ```
    /// # use ifmatch::ConditionalLayer;
    /// let layer = ConditionalLayer::builder().memory(256 * 1024 * 1024).build();
    /// ```
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Declares that each request that reaches the layer is entitled to what it asks for. Requests with `Authorization`
    /// or `Cookie` may then be answered from memory too.
    ///
    /// Responses that differ between users must say so: by `Vary`, or by `Cache-Control: private`.
    ///
    /// ```
    /// # use ifmatch::ConditionalLayer;
    /// let layer = ConditionalLayer::builder().authoritative().behind_authentication().build();
    /// ```
    #[must_use]
    pub fn behind_authentication(mut self) -> Self {
        self.config.behind_authentication = true;
        self
    }

    /// Declares that a layer outside this one compresses responses and leaves their tags alone, as tower-http's
    /// `CompressionLayer` does. Each preference for codings then gets tags of its own.
    ///
    /// Better put the compression inside: the tag is then that of the compressed bytes.
    ///
    /// ```
    /// # use ifmatch::ConditionalLayer;
    /// let layer = ConditionalLayer::builder().behind_compression().build();
    /// ```
    #[must_use]
    pub fn behind_compression(mut self) -> Self {
        self.config.behind_compression = true;
        self
    }

    /// The layer.
    pub fn build(self) -> ConditionalLayer<R, C> {
        let driver = Driver::with_clock(self.register, self.clock).with_patience(self.config.patience);
        ConditionalLayer::from(Shared {
            driver,
            memory: Memory::with_capacity(self.memory),
            probing: KeyedQueue::default(),
            config: self.config,
        })
    }
}
