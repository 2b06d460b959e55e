//! `Cache-Status` (RFC 9211): what the cache did with a request.

use std::fmt::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// The field's name.
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// What the cache did. Written as a member of the list in `Cache-Status`.
///
/// ```
/// use http::StatusCode;
/// use ifmatch_cache::policy::cache_status::{CacheStatus, Forward};
///
/// let mut status = CacheStatus::forwarded(Forward::Stale);
/// status.origin = Some(StatusCode::NOT_MODIFIED);
/// assert_eq!(status.to_string(), "ifmatch; fwd=stale; fwd-status=304");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// Why the request went to the origin. None: it did not.
    pub forward: Option<Forward>,
    /// The origin's status, where it is not that of the answer.
    pub origin: Option<StatusCode>,
    /// The response of the origin is being stored: there is room for it, as far as its length is known.
    pub stored: bool,
    /// The request waited for another one, and got its response.
    pub collapsed: bool,
    /// How long the response stays fresh, in seconds; negative once it is stale.
    pub ttl: Option<i64>,
    /// What else there is to say.
    pub detail: Option<&'static str>,
}

/// Most members are not longer, in bytes.
const USUAL: usize = 48;

/// Why a request went to the origin (RFC 9211 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The cache does not handle such requests.
    Bypass,
    /// The method wants it.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// None of the stored responses is selected by the request's header fields.
    VaryMiss,
    /// The request's directives want it.
    Request,
    /// The stored response is stale.
    Stale,
    /// The stored response is but a part.
    Partial,
}

impl CacheStatus {
    /// Answered from the cache.
    pub const HIT: Self =
        Self { forward: None, origin: None, stored: false, collapsed: false, ttl: None, detail: None };

    /// Passed on.
    pub const fn forwarded(why: Forward) -> Self {
        Self { forward: Some(why), ..Self::HIT }
    }

    /// Sets [`ttl`](Self::ttl) from the lifetime and the age.
    #[must_use]
    pub fn with_ttl(mut self, lifetime: Duration, age: Duration) -> Self {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        self.ttl = Some(seconds(lifetime).saturating_sub(seconds(age)));
        self
    }

    /// Appends the member to the field, after those of caches closer to the origin.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use ifmatch_cache::policy::cache_status::{CACHE_STATUS, CacheStatus};
    ///
    /// let mut headers = HeaderMap::new();
    /// CacheStatus::HIT.append_to(&mut headers);
    /// assert_eq!(headers[CACHE_STATUS], "ifmatch; hit");
    /// ```
    pub fn append_to(&self, headers: &mut HeaderMap) {
        let mut text = String::with_capacity(USUAL);
        if self.write_to(&mut text).is_err() {
            return;
        }
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(text)) {
            drop(headers.try_append(CACHE_STATUS, value));
        }
    }

    /// Every answer has this: it is written without the machinery of formats.
    fn write_to(&self, text: &mut impl Write) -> fmt::Result {
        text.write_str("ifmatch")?;
        match self.forward {
            Some(why) => {
                text.write_str("; fwd=")?;
                text.write_str(why.token())?;
            }
            None if self.detail.is_none() => text.write_str("; hit")?,
            None => {}
        }
        if let Some(status) = self.origin {
            text.write_str("; fwd-status=")?;
            text.write_str(status.as_str())?;
        }
        if self.stored {
            text.write_str("; stored")?;
        }
        if self.collapsed {
            text.write_str("; collapsed")?;
        }
        if let Some(ttl) = self.ttl {
            text.write_str("; ttl=")?;
            text.write_str(itoa::Buffer::new().format(ttl))?;
        }
        if let Some(detail) = self.detail {
            text.write_str("; detail=")?;
            text.write_str(detail)?;
        }
        Ok(())
    }
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

impl Forward {
    fn token(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}
