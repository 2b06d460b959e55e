//! The builder of a layer.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderName, Uri};
use ifmatch_runtime::{Clock, SystemClock};

use crate::body::folder::Disk;
use crate::config::CacheConfig;
use crate::layer::CacheLayer;
use crate::policy::Audience;
use crate::policy::freshness::Heuristic;
use crate::policy::query::QueryRules;
use crate::policy::reuse::Unreachable;
use crate::state::CacheState;

/// Configures a [`CacheLayer`]. Created by [`CacheLayer::builder`].
///
/// ```
/// use ifmatch_cache::CacheLayer;
///
/// let layer = CacheLayer::builder().capacity(64 * 1024 * 1024).entry_limit(1024 * 1024).scheme("https").build();
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    clock: Arc<dyn Clock>,
    config: CacheConfig,
    entry_limit: Option<u64>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            config: CacheConfig::default(),
            entry_limit: None,
        }
    }
}

impl Builder {
    /// Sets the clock. Defaults to the system's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes this a private cache (RFC 9111 §1): one user's, on the client's side. It also stores responses that are
    /// `private` or belong to a session, and ignores directives for shared caches.
    ///
    /// It keeps responses to requests with different `Authorization` apart. Stored responses don't set cookies again.
    #[must_use]
    pub fn private(mut self) -> Self {
        self.config.audience = Audience::Private;
        self.never_store([SET_COOKIE])
    }

    /// Sets the maximum size of all stored responses, in bytes. Defaults to 256 MiB.
    ///
    /// On top of that, bodies that are still arriving may take 5/16 of it, bodies that clients are reading 5/32, and,
    /// with a disk, responses on their way to it 1/16.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.config.capacity = bytes;
        self
    }

    /// Sets the maximum length of a body in memory. Defaults to a sixteenth of the [capacity](Self::capacity), and
    /// can't exceed a quarter. Longer bodies go to [disk](Self::disk), or aren't stored.
    #[must_use]
    pub fn entry_limit(mut self, bytes: u64) -> Self {
        self.entry_limit = Some(bytes);
        self
    }

    /// Adds a folder for responses that memory evicts, and for bodies too long for memory, up to a quarter of the
    /// folder's capacity each. It outlives the process: see [`Disk`].
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.config.disk = Some(disk.0);
        self
    }

    /// Sets the heuristic lifetime of responses that state none (RFC 9111 §4.2.2). `None` disables it.
    #[must_use]
    pub fn heuristic(mut self, heuristic: impl Into<Option<Heuristic>>) -> Self {
        self.config.heuristic = heuristic.into();
        self
    }

    /// Sets the scheme of all requests, `http` or `https`. Defaults to the URI's, or else `http`.
    ///
    /// Set it if clients use several versions of HTTP: HTTP/2 requests include the scheme, HTTP/1.1 requests don't.
    #[must_use]
    pub fn scheme(mut self, scheme: &str) -> Self {
        self.config.scheme = Some(scheme.to_ascii_lowercase().into());
        self
    }

    /// Ignores `Cache-Control` in requests, so clients can't make the cache ask the origin. `no-store` still prevents
    /// storing.
    #[must_use]
    pub fn ignore_request_directives(mut self) -> Self {
        self.config.obey_requests = false;
        self
    }

    /// Stores every response that sets a cookie and states a lifetime, as RFC 9111 §7.3 allows. By default such a
    /// response must also be `public`, since a cookie usually identifies one client's session.
    #[must_use]
    pub fn share_cookies(mut self) -> Self {
        self.config.rules.share_cookies = true;
        self
    }

    /// Sets rules for the query of every request, whatever its method. The inner service gets the resulting query.
    /// Invalidations and purges follow the same rules.
    #[must_use]
    pub fn query(mut self, rules: QueryRules) -> Self {
        self.config.query = rules;
        self
    }

    /// Names the request fields that the inner service overwrites or drops before the origin sees them, as a proxy does
    /// with `X-Forwarded-For`. A response that varies by such a field isn't stored: the cache can't know the value to
    /// compare. The client's own values of these fields select nothing.
    ///
    /// ```
    /// # use ifmatch_cache::CacheLayer;
    /// let layer = CacheLayer::builder().overwritten(|name| name == "x-forwarded-for").build();
    /// ```
    #[must_use]
    pub fn overwritten(mut self, fields: fn(&HeaderName) -> bool) -> Self {
        self.config.rules.overwritten = fields;
        self
    }

    /// Names the inner service's errors after which a write has changed nothing, because the origin never received it
    /// in full. After any other error, the outcome is unknown, and the cache no longer uses the URI's stored responses.
    ///
    /// ```
    /// # use ifmatch_cache::CacheLayer;
    /// use std::io;
    ///
    /// fn is_refused(error: &io::Error) -> bool {
    ///     error.kind() == io::ErrorKind::ConnectionRefused
    /// }
    /// let layer = CacheLayer::builder().unchanged_by(|error| error.downcast_ref().is_some_and(is_refused)).build();
    /// ```
    #[must_use]
    pub fn unchanged_by(mut self, errors: fn(&dyn Any) -> bool) -> Self {
        self.config.unchanged = errors;
        self
    }

    /// Names the inner service's errors that say nothing about the origin, because it wasn't asked: for example, a
    /// client has too many requests in flight. They affect only their own request: others don't get stale responses or
    /// errors as if the origin had failed.
    ///
    /// ```
    /// # use ifmatch_cache::CacheLayer;
    /// # struct TooManyRequests;
    /// let layer = CacheLayer::builder().unasked_by(|error| error.is::<TooManyRequests>()).build();
    /// ```
    #[must_use]
    pub fn unasked_by(mut self, errors: fn(&dyn Any) -> bool) -> Self {
        self.config.unasked = errors;
        self
    }

    /// Excludes these response fields from storage, such as request ids. The client that causes a request to the inner service
    /// still gets them.
    #[must_use]
    pub fn never_store(mut self, fields: impl IntoIterator<Item = HeaderName>) -> Self {
        self.config.unstored.extend(fields);
        self
    }

    /// Revalidates stored responses before each use, whatever their lifetime, for inner services whose resources change
    /// without the cache, or have several names. The cache still saves transfers of unchanged content.
    #[must_use]
    pub fn always_validate(mut self) -> Self {
        self.config.always_validate = true;
        self
    }

    /// Forwards requests with such a URI or header fields without caching: no lookup, no storing, no invalidation.
    ///
    /// ```
    /// # use ifmatch_cache::CacheLayer;
    /// let layer = CacheLayer::builder().bypass(|_, headers| headers.contains_key("x-signature")).build();
    /// ```
    #[must_use]
    pub fn bypass(mut self, requests: fn(&Uri, &HeaderMap) -> bool) -> Self {
        self.config.bypass = Some(requests);
        self
    }

    /// Sets how long after its lifetime a response may be used while the inner service returns errors instead of responses,
    /// unless the response has `must-revalidate`, `proxy-revalidate` or `no-cache`. Zero disables it. Defaults to one hour, which
    /// doesn't apply to responses with `s-maxage` (RFC 9111 §4.2.4).
    #[must_use]
    pub fn stale_if_unreachable(mut self, window: Duration) -> Self {
        self.config.stale_if_unreachable = Unreachable::Set(window);
        self
    }

    /// Sets how long after its lifetime a response may be used while it is revalidated in the background (RFC 5861 §3).
    /// Defaults to zero. It applies to `s-maxage` as well, but not to responses that state `stale-while-revalidate`, forbid stale
    /// use (`must-revalidate`, `proxy-revalidate`, `no-cache`), or have no lifetime.
    #[must_use]
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.config.stale_while_revalidate = window;
        self
    }

    /// Sets how long after its lifetime a response may be used while the inner service returns 500, 502, 503 or 504
    /// (RFC 5861 §4). Defaults to zero. It applies to `s-maxage` as well, but not to responses that state
    /// `stale-if-error`, forbid stale use (`must-revalidate`, `proxy-revalidate`, `no-cache`), or have no lifetime.
    #[must_use]
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.config.stale_if_error = window;
        self
    }

    /// Normalizes `Accept-Encoding` for GET and HEAD: the inner service gets those codings of `gzip, br, zstd` that
    /// the client accepts. Clients with different spellings then share responses that vary by the field. Off by default, since the
    /// inner service no longer sees weights and other codings.
    #[must_use]
    pub fn normalize_accept_encoding(mut self) -> Self {
        self.config.normalizes_accept_encoding = true;
        self
    }

    /// Sets how long requests wait for another request's response before one of them goes to the origin as well. Defaults to 10
    /// seconds. Also bounds how long a slow reader can hold up other readers of a body that is too long to be stored, if it
    /// can't request the rest.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.config.patience = patience;
        self
    }

    /// Builds the layer.
    pub fn build(mut self) -> CacheLayer {
        let capacity = self.config.capacity;
        self.config.entry_limit = self.entry_limit.unwrap_or(capacity / 16).min(capacity / 4);
        CacheLayer::from(CacheState::start(self.clock, self.config))
    }
}
