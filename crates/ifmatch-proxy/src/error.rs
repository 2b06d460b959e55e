//! Forwarding errors.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;
use ifmatch_core::problem::Problem;

/// Error of a request that couldn't be forwarded, or got no response.
#[derive(Debug)]
pub struct ProxyError {
    kind: ProxyErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
    /// Seconds until another attempt makes sense.
    retry_after: u64,
}

/// Kind of a [`ProxyError`], with the status that the client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyErrorKind {
    /// No upstream is configured for this host and path: 404.
    NoRoute,
    /// A proxy doesn't forward such requests, for example CONNECT, or `Max-Forwards` is zero: 501.
    Unsupported,
    /// Servers read the path in several ways, one of which leads elsewhere: 400.
    AmbiguousPath,
    /// This proxy has forwarded the request before, because an upstream leads back to it: 508.
    Loop,
    /// The client stopped sending the body: 400.
    Interrupted,
    /// No connection to the upstream: 502. Nothing was sent.
    Unreachable,
    /// The upstream closed the connection or sent invalid HTTP: 502.
    Broken,
    /// The upstream didn't respond in time: 504.
    Timeout,
    /// No slot became free: the queue is full, this client has all the places it may have, or the request waited until its
    /// timeout: 503. Nothing was sent.
    Overloaded,
    /// All servers [hang](crate::Upstream::breaker): 503. Nothing was sent.
    Unavailable,
}

impl ProxyError {
    pub(crate) fn new(
        kind: ProxyErrorKind,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            source: Some(source.into()),
            ..kind.into()
        }
    }

    /// Returns the error of a request for which all servers hang. The first of them is probed after this time.
    pub(crate) fn unavailable(pause: Duration) -> Self {
        Self {
            retry_after: pause
                .as_millis()
                .div_ceil(1000)
                .try_into()
                .unwrap_or(u64::MAX)
                .max(1),
            ..ProxyErrorKind::Unavailable.into()
        }
    }

    /// Returns the kind.
    pub fn kind(&self) -> ProxyErrorKind {
        self.kind
    }

    /// Returns `true` if an upstream may have carried out the request anyway. Otherwise no upstream received the whole
    /// request.
    ///
    /// ```
    /// use ifmatch_proxy::{ProxyError, ProxyErrorKind};
    ///
    /// assert!(ProxyError::from(ProxyErrorKind::Timeout).is_in_doubt());
    /// assert!(!ProxyError::from(ProxyErrorKind::Interrupted).is_in_doubt());
    /// ```
    pub fn is_in_doubt(&self) -> bool {
        match self.kind {
            ProxyErrorKind::Broken | ProxyErrorKind::Timeout => true,
            ProxyErrorKind::NoRoute
            | ProxyErrorKind::Unsupported
            | ProxyErrorKind::AmbiguousPath
            | ProxyErrorKind::Loop
            | ProxyErrorKind::Interrupted
            | ProxyErrorKind::Unreachable
            | ProxyErrorKind::Overloaded
            | ProxyErrorKind::Unavailable => false,
        }
    }

    /// Returns `true` if no upstream was asked, for a reason that concerns this request or its client only: the error says
    /// nothing about the upstreams.
    ///
    /// ```
    /// use ifmatch_proxy::{ProxyError, ProxyErrorKind};
    ///
    /// assert!(ProxyError::from(ProxyErrorKind::Overloaded).is_of_request());
    /// assert!(!ProxyError::from(ProxyErrorKind::Unreachable).is_of_request());
    /// ```
    pub fn is_of_request(&self) -> bool {
        match self.kind {
            ProxyErrorKind::NoRoute
            | ProxyErrorKind::Unsupported
            | ProxyErrorKind::AmbiguousPath
            | ProxyErrorKind::Loop
            | ProxyErrorKind::Interrupted
            | ProxyErrorKind::Overloaded => true,
            ProxyErrorKind::Broken
            | ProxyErrorKind::Timeout
            | ProxyErrorKind::Unreachable
            | ProxyErrorKind::Unavailable => false,
        }
    }

    /// Returns the response for the client. It omits details, which are for the log.
    pub fn problem(&self) -> Problem {
        let (status, name) = match self.kind {
            ProxyErrorKind::NoRoute => (StatusCode::NOT_FOUND, "no-route"),
            ProxyErrorKind::Unsupported => (StatusCode::NOT_IMPLEMENTED, "not-forwarded"),
            ProxyErrorKind::AmbiguousPath => (StatusCode::BAD_REQUEST, "ambiguous-path"),
            ProxyErrorKind::Loop => (StatusCode::LOOP_DETECTED, "forwarding-loop"),
            ProxyErrorKind::Interrupted => (StatusCode::BAD_REQUEST, "content-incomplete"),
            ProxyErrorKind::Unreachable => (StatusCode::BAD_GATEWAY, "upstream-unreachable"),
            ProxyErrorKind::Broken => (StatusCode::BAD_GATEWAY, "upstream-broken"),
            ProxyErrorKind::Timeout => (StatusCode::GATEWAY_TIMEOUT, "upstream-timeout"),
            ProxyErrorKind::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "upstream-overloaded"),
            ProxyErrorKind::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "upstream-unavailable")
            }
        };
        let problem = Problem::new(status, name).detail(self.kind.to_string());
        match self.kind {
            ProxyErrorKind::Overloaded | ProxyErrorKind::Unavailable => {
                problem.header(RETRY_AFTER, self.retry_after.into())
            }
            _ => problem,
        }
    }
}

impl From<ProxyErrorKind> for ProxyError {
    fn from(kind: ProxyErrorKind) -> Self {
        Self {
            kind,
            source: None,
            retry_after: 1,
        }
    }
}

impl fmt::Display for ProxyErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRoute => "no upstream for this host and path",
            Self::Unsupported => "a proxy doesn't forward such requests",
            Self::AmbiguousPath => {
                "servers interpret this path differently. Send it without dot segments, empty segments, parameters, and escaped \
                 or wrong separators"
            }
            Self::Loop => "an upstream leads back to this proxy, which already forwarded the request",
            Self::Interrupted => "the client stopped sending the body",
            Self::Unreachable => "can't reach the upstream. Retry later",
            Self::Broken => "the upstream closed the connection or sent invalid HTTP",
            Self::Timeout => "the upstream didn't respond in time",
            Self::Overloaded => "too many requests are being forwarded or queued. Retry in a second",
            Self::Unavailable => "the upstream didn't respond to several requests in a row. Retry later",
        })
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for ProxyError {
    /// The message contains the cause, so the chain continues after it.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().and_then(Error::source)
    }
}
