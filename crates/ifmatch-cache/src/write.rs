//! Unsafe methods: forwarded, with invalidation of the stored responses that they may change.

use std::sync::Arc;

use http::header::CONTENT_LOCATION;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use ifmatch_core::date::Timestamp;
use ifmatch_core::problem::Problem;
use ifmatch_runtime::task::detach;

use crate::fetch::forward::bad_gateway;
use crate::fetch::origin::{NewResponse, OriginRequest};
use crate::inner_service::InnerService;
use crate::lookup::ForwardPlan;
use crate::metrics::{Invalidation, Outcome, RequestTally};
use crate::policy::cache_status::{CacheStatus, Forward};
use crate::policy::freshness::explicit;
use crate::policy::groups::{CACHE_GROUP_INVALIDATION, names};
use crate::policy::invalidate::{also_changed, invalidates, same_origin};
use crate::request::CacheRequest;
use crate::request::flags::RequestFlags;
use crate::request::key::CacheKey;
use crate::request::normalize;
use crate::respond::response_body::{BodyError, ResponseBody};
use crate::state::CacheState;
use crate::store::table::InvalidationResult;

/// Forwards a write in a separate task: the origin may carry it out even if the client has left, and its response
/// decides if the stored responses remain valid.
pub(crate) async fn write<B, S>(
    state: Arc<CacheState>,
    inner: S,
    key: CacheKey,
    request: Request<B>,
) -> Result<Response<ResponseBody<S::Body>>, S::Error>
where
    B: Send + 'static,
    S: InnerService<B>,
{
    let written = detach(forward_write(state, inner, key, request))
        .result()
        .await;
    written.unwrap_or_else(|| Ok(bad_gateway(Forward::Method)))
}

async fn forward_write<B, S>(
    state: Arc<CacheState>,
    mut inner: S,
    key: CacheKey,
    request: Request<B>,
) -> Result<Response<ResponseBody<S::Body>>, S::Error>
where
    S: InnerService<B>,
{
    let _tally = RequestTally::of(&state, Outcome::Write);
    let may_be_stored = matches!(*request.method(), Method::POST | Method::PATCH);
    let target = format!("{}{}", key.origin(), normalize::target(request.uri()));
    let post = may_be_stored.then(|| PostRequest::new(&state, &key, &request));
    let mut guard = InvalidateOnDrop {
        state: &state,
        key: &key,
        resolved: false,
    };
    let response = match inner.run(request).await {
        Ok(response) => response,
        Err(error) => {
            guard.resolved = (state.config.unchanged)(&error);
            return Err(error);
        }
    };
    guard.resolved = !leaves_doubt(&response);
    let changed = invalidates(response.status())
        .then(|| invalidate(&state, &key, &target, response.headers()));
    let status = CacheStatus::forwarded(Forward::Method);
    let fetched = match (post, changed) {
        (Some(post), Some(changed)) => post.store(&state, &target, response, &changed),
        _ => NewResponse::NotStored(response, Outcome::Write),
    };
    let (mut head, body, status) = match fetched {
        NewResponse::Storing(head, _, reader) => {
            let status = CacheStatus {
                stored: reader.is_reserved(),
                ..status
            };
            (head, ResponseBody::broadcast(reader), status)
        }
        NewResponse::NotStored(response, _) => {
            let (head, body) = response.into_parts();
            (head, ResponseBody::inner(body), status)
        }
    };
    status.append_to(&mut head.headers);
    Ok(Response::from_parts(head, body))
}

/// Returns `true` if a layer behind the cache has answered in place of the origin, and doesn't know the outcome.
fn leaves_doubt<T>(response: &Response<T>) -> bool {
    let problem: Option<&Problem> = response.extensions().get();
    problem.is_some_and(Problem::leaves_doubt)
}

/// Invalidates the target of a write, and the URIs and groups named in the response.
fn invalidate(
    state: &CacheState,
    key: &CacheKey,
    target: &str,
    response: &HeaderMap,
) -> InvalidationResult {
    let changed = state.table.invalidate(key);
    state
        .counters
        .invalidated(Invalidation::Write, changed.found.into());
    let sibling = |path: String| key.sibling(&state.config.query.apply(&path));
    let others = also_changed(target, response).into_iter().map(sibling);
    for other in others.filter(|other| other != key) {
        state.counters.invalidated(
            Invalidation::Write,
            state.table.invalidate(&other).found.into(),
        );
    }
    for name in names(response, &CACHE_GROUP_INVALIDATION) {
        state.table.invalidate_group(key.origin(), &name);
    }
    changed
}

/// A POST or PATCH. Its response may represent the resource's new state (RFC 9110 §9.3.3, RFC 5789 §2).
struct PostRequest {
    request: CacheRequest,
    /// Ordinal of the request.
    began: u64,
    /// Time when it was sent.
    requested: Timestamp,
}

impl PostRequest {
    fn new<B>(state: &CacheState, key: &CacheKey, request: &Request<B>) -> Self {
        let (mut head, ()) = Request::new(()).into_parts();
        head.uri.clone_from(request.uri());
        head.headers.clone_from(request.headers());
        head.extensions.clone_from(request.extensions());
        let flags = RequestFlags::of(&head.headers);
        let request = CacheRequest::new(head, key.clone(), flags, &state.config);
        Self {
            request,
            began: state.table.next_ordinal(),
            requested: state.wall(),
        }
    }

    /// Stores the response for later GETs, if its `Content-Location` names the target, it states a lifetime, and no other
    /// request has invalidated the target since this one began.
    fn store<T>(
        self,
        state: &Arc<CacheState>,
        target: &str,
        response: Response<T>,
        changed: &InvalidationResult,
    ) -> NewResponse<T>
    where
        T: Body<Data: Send, Error: Into<BodyError>> + Send + 'static,
    {
        let headers = response.headers();
        let named = headers
            .get(CONTENT_LOCATION)
            .and_then(|location| same_origin(target, location));
        let lifetime =
            explicit(headers, &state.config.governing(headers), state.wall()).unwrap_or_default();
        let is_resource = named.is_some_and(|named| named.as_str() == target);
        let alone = changed.before < self.began;
        if response.status() != StatusCode::OK || !is_resource || lifetime.is_zero() || !alone {
            return NewResponse::NotStored(response, Outcome::Write);
        }
        let fetch = OriginRequest::new(
            state,
            &self.request,
            ForwardPlan::without_lookup(&self.request),
            None,
        );
        fetch.store_post(response, self.began, changed.ordinal, self.requested)
    }
}

/// Invalidates the target unless the outcome of the write is known. If the inner service fails or panics, or says so, the write
/// may have taken effect.
struct InvalidateOnDrop<'a> {
    state: &'a CacheState,
    key: &'a CacheKey,
    resolved: bool,
}

impl Drop for InvalidateOnDrop<'_> {
    fn drop(&mut self) {
        if !self.resolved {
            let found = self.state.table.invalidate(self.key).found;
            self.state
                .counters
                .invalidated(Invalidation::Write, found.into());
        }
    }
}
