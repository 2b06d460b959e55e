//! Decisions of the layer, for metrics and logs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{HeaderName, Method, Response, StatusCode, Uri};
use http_body::Body;
use ifmatch_core::date::Timestamp;
use ifmatch_core::problem::Problem;

use crate::body::ResponseBody;
use crate::shared::LayerState;

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

/// Header fields about a content that is replaced.
pub(crate) const OF_CONTENT: [HeaderName; 6] = [
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    TRANSFER_ENCODING,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("repr-digest"),
];

/// A request whose response is finished by [`finish`](Self::finish).
pub(crate) struct WatchedRequest {
    shared: Arc<LayerState>,
    method: Method,
    uri: Uri,
    /// The time of its arrival, if the layer has an observer.
    start: Option<Timestamp>,
}

impl WatchedRequest {
    /// Returns the time of a request's arrival, if the layer has an observer.
    pub(crate) fn start(shared: &LayerState) -> Option<Timestamp> {
        shared
            .config
            .observer
            .as_ref()
            .map(|_| shared.driver.clock().now())
    }

    pub(crate) fn new(shared: &Arc<LayerState>, head: &Parts, start: Option<Timestamp>) -> Self {
        Self::answered(shared, head.method.clone(), head.uri.clone(), start)
    }

    /// Takes the method and URI of a request that needs them no more. Copies would take a hundredth of a 304 from memory.
    pub(crate) fn answered(
        shared: &Arc<LayerState>,
        method: Method,
        uri: Uri,
        start: Option<Timestamp>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            method,
            uri,
            start,
        }
    }

    /// Reports a response if it carries a decision, or is the 304 of a read. Gives an error of the layer the service's own form.
    pub(crate) fn finish<T: Body>(self, response: &mut Response<ResponseBody<T>>) {
        let decision = match response.status() {
            StatusCode::NOT_MODIFIED if [Method::GET, Method::HEAD].contains(&self.method) => {
                Decision::NOT_MODIFIED
            }
            status if status.is_client_error() || status.is_server_error() => {
                match response.extensions().get() {
                    Some(Decision { reason, .. }) => Decision::new(status, reason),
                    None => return,
                }
            }
            _ => return,
        };
        log::decision(&decision, &self.method, &self.uri);
        let Self {
            shared,
            method,
            uri,
            start,
        } = &self;
        if let (Some(observer), Some(start)) = (&shared.config.observer, start) {
            let duration = start.until(shared.driver.clock().now());
            observer.on_event(&Event {
                decision,
                method,
                uri,
                duration,
            });
        }
        if let (Some(make), Some(problem)) = (
            &shared.config.error_body,
            response.extensions().get::<Problem>(),
        ) {
            let (media_type, content) = make(problem);
            let headers = response.headers_mut();
            // The problem of a handler may have passed a compression, for example.
            for name in OF_CONTENT {
                headers.remove(name);
            }
            headers.insert(CONTENT_TYPE, media_type);
            headers.insert(CONTENT_LENGTH, content.len().into());
            let content = if method == Method::HEAD {
                Bytes::new()
            } else {
                content
            };
            *response.body_mut() = ResponseBody::buffered(content);
        }
    }
}

/// Events for `tracing`.
#[cfg(feature = "tracing")]
mod log {
    use http::{Method, Uri};

    use super::Decision;

    pub(super) fn decision(decision: &Decision, method: &Method, uri: &Uri) {
        let (status, reason, path) = (decision.status.as_u16(), decision.reason, uri.path());
        if decision.status.is_server_error() {
            tracing::warn!(target: "ifmatch", %method, path, status, reason, "the layer has answered");
        } else {
            tracing::debug!(target: "ifmatch", %method, path, status, reason, "the layer has answered");
        }
    }
}

/// No events, without the feature `tracing`.
#[cfg(not(feature = "tracing"))]
mod log {
    use http::{Method, Uri};

    use super::Decision;

    pub(super) fn decision(_: &Decision, _: &Method, _: &Uri) {}
}
