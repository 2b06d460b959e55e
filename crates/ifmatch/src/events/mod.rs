//! Decisions of the layer, for metrics and logs.

#[cfg_attr(feature = "tracing", path = "tracing.rs")]
#[cfg_attr(not(feature = "tracing"), path = "silent.rs")]
mod log;

use std::sync::Arc;

use http::{Response, StatusCode};

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
    ///
    /// ```
    /// use http::StatusCode;
    ///
    /// let decision = ifmatch::Decision::new(StatusCode::CONFLICT, "write-in-flight");
    /// ```
    pub const fn new(status: StatusCode, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// Returns the status of the response.
    ///
    /// ```
    /// use http::StatusCode;
    /// use ifmatch::Decision;
    ///
    /// assert_eq!(Decision::new(StatusCode::CONFLICT, "write-in-flight").status(), 409);
    /// ```
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns `not-modified`, or the name of the problem, the last part of its `type`.
    ///
    /// ```
    /// use http::StatusCode;
    /// use ifmatch::Decision;
    ///
    /// assert_eq!(Decision::new(StatusCode::CONFLICT, "write-in-flight").reason(), "write-in-flight");
    /// ```
    pub const fn reason(&self) -> &'static str {
        self.reason
    }
}

/// Counts or logs the decisions of a layer. It is called before the response is sent, so it must be quick.
///
/// Closures implement this trait.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use ifmatch::{ConditionalLayer, Decision};
///
/// static CONFLICTS: AtomicU64 = AtomicU64::new(0);
///
/// let count = |decision: &Decision| {
///     if decision.status() == 412 {
///         CONFLICTS.fetch_add(1, Ordering::Relaxed);
///     }
/// };
/// let layer = ConditionalLayer::builder().observer(count).build();
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Takes note of a decision.
    fn decided(&self, decision: &Decision);
}

impl<F: Fn(&Decision) + Send + Sync + 'static> Observer for F {
    fn decided(&self, decision: &Decision) {
        self(decision);
    }
}

/// The observer of a layer, if it has one.
#[derive(Clone, Default)]
pub(crate) struct Events(pub(crate) Option<Arc<dyn Observer>>);

impl Events {
    pub(crate) fn decided(&self, decision: &Decision) {
        log::decided(decision);
        if let Some(observer) = &self.0 {
            observer.decided(decision);
        }
    }

    /// Reports a response if it carries a decision.
    pub(crate) fn report<T>(&self, response: &Response<T>) {
        if let Some(decision) = response.extensions().get::<Decision>() {
            self.decided(decision);
        }
    }
}
