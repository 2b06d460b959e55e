//! The end of a request: the layer's decision is reported, and its error gets the service's own form.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri};
use http_body::Body;
use ifmatch_core::date::Timestamp;
use ifmatch_core::problem::Problem;

use crate::body::ResponseBody;
use crate::events::{Decision, Event};
use crate::responses::OF_CONTENT;
use crate::shared::LayerState;

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
                    Some(decision) => Decision::new(status, Decision::reason(decision)),
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
        let (status, reason, path) = (decision.status().as_u16(), decision.reason(), uri.path());
        if decision.status().is_server_error() {
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
