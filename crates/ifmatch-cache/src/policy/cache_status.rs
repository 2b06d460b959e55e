//! `Cache-Status` (RFC 9211).

use std::fmt::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// The field's name.
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// The handling of a request, as a member of `Cache-Status`.
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
    /// Reason for forwarding the request, if it was.
    pub forward: Option<Forward>,
    /// The origin's status, if it differs from the response's.
    pub origin: Option<StatusCode>,
    /// `true` if room for the whole response is reserved: it is stored once it has arrived completely.
    pub stored: bool,
    /// `true` if the request got the response to a concurrent one.
    pub collapsed: bool,
    /// Remaining lifetime in seconds; negative once the response is stale.
    pub ttl: Option<i64>,
    /// Further information.
    pub detail: Option<&'static str>,
}

/// Usual maximum length of a member, in bytes.
const USUAL_LEN: usize = 48;

/// The reason for forwarding a request (RFC 9211 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The cache doesn't handle such requests.
    Bypass,
    /// The method requires it.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// No stored variant matches the request's header fields.
    VaryMiss,
    /// The request's directives require it.
    Request,
    /// The stored response is stale.
    Stale,
    /// The stored response is incomplete.
    Partial,
}

impl CacheStatus {
    /// A response from the cache.
    pub const HIT: Self = Self {
        forward: None,
        origin: None,
        stored: false,
        collapsed: false,
        ttl: None,
        detail: None,
    };

    /// A forwarded request.
    pub const fn forwarded(why: Forward) -> Self {
        Self {
            forward: Some(why),
            ..Self::HIT
        }
    }

    /// Sets [`ttl`](Self::ttl) from the lifetime and the age.
    #[must_use]
    pub fn with_ttl(mut self, lifetime: Duration, age: Duration) -> Self {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        self.ttl = Some(seconds(lifetime).saturating_sub(seconds(age)));
        self
    }

    /// Appends the member to the field, after the members of caches closer to the origin.
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
        let mut text = String::with_capacity(USUAL_LEN);
        if self.write_to(&mut text).is_err() {
            return;
        }
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(text)) {
            drop(headers.try_append(CACHE_STATUS, value));
        }
    }

    /// Writes the member without `format!`, since every response has one.
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
