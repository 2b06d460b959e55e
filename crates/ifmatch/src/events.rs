//! Decisions of the layer, for metrics and logs.

use std::time::Duration;

use http::{Method, StatusCode, Uri};

/// A response that the layer sends instead of the inner service.
///
/// An error response carries its decision and its [`Problem`](crate::Problem) as extensions, for outer middleware. With
/// the feature `tracing`, each decision is logged under the target `ifmatch`, with the request's method and path.
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
    /// A 304.
    pub(crate) const NOT_MODIFIED: Self = Self::new(StatusCode::NOT_MODIFIED, "not-modified");

    /// Creates a decision, for tests of an [`Observer`].
    pub const fn new(status: StatusCode, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// Returns the response's status.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns `not-modified`, or the name of the problem, the last part of its `type`.
    pub const fn reason(&self) -> &'static str {
        self.reason
    }
}

/// A decision, and the request that it concerns.
///
/// `uri` is the one that the client sent, even in a nested axum router.
///
/// ```
/// use std::time::Duration;
///
/// use http::{Method, StatusCode, Uri};
/// use ifmatch::{Decision, Event, Observer};
///
/// # fn tested() -> impl Observer { |_: &Event<'_>| {} }
/// let decision = Decision::new(StatusCode::PRECONDITION_FAILED, "precondition-failed");
/// let uri = Uri::from_static("/notes/7");
/// tested().on_event(&Event::new(decision, &Method::PUT, &uri, Duration::from_millis(3)));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The decision.
    pub decision: Decision,
    /// Method of the request.
    pub method: &'a Method,
    /// URI of the request.
    pub uri: &'a Uri,
    /// Time from the request's arrival at the layer to the response, by the layer's clock.
    pub duration: Duration,
}

impl<'a> Event<'a> {
    /// Creates an event, for tests of an [`Observer`].
    pub const fn new(
        decision: Decision,
        method: &'a Method,
        uri: &'a Uri,
        duration: Duration,
    ) -> Self {
        Self {
            decision,
            method,
            uri,
            duration,
        }
    }
}

/// Counts or logs a layer's decisions. It's called before the response is sent, so be quick.
///
/// If a client disconnects before the response, its request isn't reported. Closures implement this trait.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use ifmatch::{ConditionalLayer, Event};
///
/// static CONFLICTS: AtomicU64 = AtomicU64::new(0);
///
/// let count = |event: &Event<'_>| {
///     if event.decision.status() == 412 {
///         CONFLICTS.fetch_add(1, Ordering::Relaxed);
///     }
/// };
/// let layer = ConditionalLayer::builder().observer(count).build();
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Records a decision.
    fn on_event(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for F {
    fn on_event(&self, event: &Event<'_>) {
        self(event);
    }
}
