//! Decisions of the layer, for metrics and logs.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Method, Response, StatusCode, Uri};
use ifmatch_core::date::Timestamp;

use crate::shared::Shared;

/// A response that the layer has made in place of the inner service's.
///
/// A response with a problem carries it among its extensions, so that an outer middleware sees it, too. With the feature
/// `tracing`, each is an event of the target `ifmatch`.
///
/// ```
/// use http::StatusCode;
/// use ifmatch::Decision;
///
/// let decision = Decision::new(StatusCode::PRECONDITION_FAILED, "precondition-failed");
/// assert_eq!((decision.status().as_u16(), decision.reason()), (412, "precondition-failed"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    status: StatusCode,
    reason: &'static str,
}

impl Decision {
    pub(crate) const NOT_MODIFIED: Self = Self::new(StatusCode::NOT_MODIFIED, "not-modified");

    /// Creates a decision, for tests of an [`Observer`].
    pub const fn new(status: StatusCode, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// Returns the status of the response.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns `not-modified`, or the name of the problem, the last part of its `type`.
    pub const fn reason(&self) -> &'static str {
        self.reason
    }
}

/// A decision, and the request that it answers.
///
/// `uri` is the one that the client sent, also in a nested router of axum.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Answered<'a> {
    /// The decision.
    pub decision: Decision,
    /// Method of the request.
    pub method: &'a Method,
    /// URI of the request.
    pub uri: &'a Uri,
    /// Time from the request's arrival at the layer to the response, by the layer's clock.
    pub duration: Duration,
}

/// Counts or logs the decisions of a layer. It is called before the response is sent, so it must be quick.
///
/// A request whose client goes away before the response is not reported. Closures implement this trait.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use ifmatch::{Answered, ConditionalLayer};
///
/// static CONFLICTS: AtomicU64 = AtomicU64::new(0);
///
/// let count = |answered: &Answered<'_>| {
///     if answered.decision.status() == 412 {
///         CONFLICTS.fetch_add(1, Ordering::Relaxed);
///     }
/// };
/// let layer = ConditionalLayer::builder().observer(count).build();
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Takes note of a decision.
    fn decided(&self, answered: &Answered<'_>);
}

impl<F: Fn(&Answered<'_>) + Send + Sync + 'static> Observer for F {
    fn decided(&self, answered: &Answered<'_>) {
        self(answered);
    }
}

/// The observer of a layer, if it has one.
#[derive(Clone, Default)]
pub(crate) struct Events(pub(crate) Option<Arc<dyn Observer>>);

/// A request whose decision is reported.
pub(crate) struct Watched {
    is_read: bool,
    /// What the observer needs, if the layer has one.
    observed: Option<Box<Observed>>,
}

struct Observed {
    shared: Arc<Shared>,
    method: Method,
    uri: Uri,
    start: Timestamp,
}

impl Watched {
    pub(crate) fn new(shared: &Arc<Shared>, head: &Parts, is_read: bool) -> Self {
        let observed = shared.config.events.0.as_ref().map(|_| {
            let (method, uri, start) = (head.method.clone(), head.uri.clone(), shared.driver.clock().now());
            Box::new(Observed { shared: Arc::clone(shared), method, uri, start })
        });
        Self { is_read, observed }
    }

    /// Reports a response if it carries a decision, or is the 304 of a read.
    pub(crate) fn report<T>(self, response: &Response<T>) {
        let decision = match response.status() {
            StatusCode::NOT_MODIFIED if self.is_read => Decision::NOT_MODIFIED,
            status if status.is_client_error() || status.is_server_error() => match response.extensions().get() {
                Some(decision) => *decision,
                None => return,
            },
            _ => return,
        };
        log::decided(&decision);
        if let Some(Observed { shared, method, uri, start }) = self.observed.as_deref()
            && let Some(observer) = &shared.config.events.0
        {
            let duration = start.until(shared.driver.clock().now());
            observer.decided(&Answered { decision, method, uri, duration });
        }
    }
}

/// Events for `tracing`.
#[cfg(feature = "tracing")]
mod log {
    use super::Decision;

    pub(super) fn decided(decision: &Decision) {
        let (status, reason) = (decision.status.as_u16(), decision.reason);
        if decision.status.is_server_error() {
            tracing::warn!(target: "ifmatch", status, reason, "the layer has answered");
        } else {
            tracing::debug!(target: "ifmatch", status, reason, "the layer has answered");
        }
    }
}

/// No events, without the feature `tracing`.
#[cfg(not(feature = "tracing"))]
mod log {
    use super::Decision;

    pub(super) fn decided(_: &Decision) {}
}
