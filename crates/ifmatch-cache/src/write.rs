//! Every method that may change something: it is passed on, and what it changes is no longer used.

use std::sync::Arc;

use http::header::CONTENT_LOCATION;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::Clock;
use ifmatch_runtime::task::detach;

use crate::asked::Asked;
use crate::body::{BodyError, ResponseBody};
use crate::fetch::{Fetch, Kept};
use crate::key::Key;
use crate::policy::cache_status::{CacheStatus, Forward};
use crate::policy::cdn_cache_control::Governing;
use crate::policy::freshness::explicit;
use crate::policy::groups::{CACHE_GROUP_INVALIDATION, names};
use crate::policy::invalidate::{also_changed, invalidates, same_origin};
use crate::read::{Plan, broken};
use crate::shared::{Inner, Shared};
use crate::signs::Signs;
use crate::spelling;
use crate::table::Invalidated;

/// Forwards a write in a task of its own: the origin may carry it out even if the client has left, and its response
/// decides if the stored responses remain valid.
pub(crate) async fn write<C, B, S>(
    shared: Arc<Shared<C>>,
    inner: S,
    key: Key,
    request: Request<B>,
) -> Result<Response<ResponseBody<S::Body>>, S::Error>
where
    C: Clock,
    B: Send + 'static,
    S: Inner<B>,
{
    let written = detach(carry_out(shared, inner, key, request)).result().await;
    written.unwrap_or_else(|| Ok(broken(Forward::Method)))
}

async fn carry_out<C, B, S>(
    shared: Arc<Shared<C>>,
    mut inner: S,
    key: Key,
    request: Request<B>,
) -> Result<Response<ResponseBody<S::Body>>, S::Error>
where
    C: Clock,
    S: Inner<B>,
{
    let may_answer = matches!(*request.method(), Method::POST | Method::PATCH);
    let target = format!("{}{}", key.origin(), spelling::of(request.uri()));
    let posted = may_answer.then(|| Posted::new(&shared, &key, &request));
    let mut doubt = Doubt { shared: &shared, key: &key, resolved: false };
    let response = match inner.run(request).await {
        Ok(response) => response,
        Err(error) => {
            doubt.resolved = (shared.config.unchanged)(&error);
            return Err(error);
        }
    };
    doubt.resolved = true;
    let changed = invalidates(response.status()).then(|| invalidate(&shared, &key, &target, response.headers()));
    let status = CacheStatus::forwarded(Forward::Method);
    let fetched = match (posted, changed) {
        (Some(posted), Some(changed)) => posted.keep(&shared, &target, response, &changed),
        _ => Kept::Passed(response),
    };
    let (mut head, body, status) = match fetched {
        Kept::Fresh(head, _, reader) => {
            let status = CacheStatus { stored: reader.has_room(), ..status };
            (head, ResponseBody::broadcast(reader), status)
        }
        Kept::Passed(response) => {
            let (head, body) = response.into_parts();
            (head, ResponseBody::inner(body), status)
        }
    };
    status.append_to(&mut head.headers);
    Ok(Response::from_parts(head, body))
}

/// Invalidates what the response to a write of this target says has changed.
fn invalidate<C: Clock>(shared: &Shared<C>, key: &Key, target: &str, response: &HeaderMap) -> Invalidated {
    let changed = shared.table.invalidate(key);
    shared.counters.invalidated.add(changed.found.into());
    let others = also_changed(target, response).into_iter().map(|path| key.sibling(&path));
    for other in others.filter(|other| other != key) {
        shared.counters.invalidated.add(shared.table.invalidate(&other).found.into());
    }
    for name in names(response, &CACHE_GROUP_INVALIDATION) {
        shared.table.invalidate_group(key.origin(), &name);
    }
    changed
}

/// A POST or PATCH, whose response may be what the resource is now (RFC 9110 §9.3.3, RFC 5789 §2).
struct Posted {
    asked: Asked,
    began: u64,
    requested: Timestamp,
}

impl Posted {
    fn new<C: Clock, B>(shared: &Shared<C>, key: &Key, request: &Request<B>) -> Self {
        let (mut head, ()) = Request::new(()).into_parts();
        head.uri.clone_from(request.uri());
        head.headers.clone_from(request.headers());
        let signs = Signs::of(&head.headers);
        let asked = Asked::new(head, key.clone(), signs, &shared.config);
        Self { asked, began: shared.table.begin(), requested: shared.now() }
    }

    /// Stores the response for later GETs, if it says that it is one to them, and for how long; and if nothing else has
    /// invalidated it since it began.
    fn keep<C, T>(self, shared: &Arc<Shared<C>>, target: &str, response: Response<T>, changed: &Invalidated) -> Kept<T>
    where
        C: Clock,
        T: Body<Data: Send, Error: Into<BodyError>> + Send + 'static,
    {
        let headers = response.headers();
        let named = headers.get(CONTENT_LOCATION).and_then(|location| same_origin(target, location));
        let lifetime = explicit(headers, &Governing::of(headers), shared.now()).unwrap_or_default();
        let is_resource = named.is_some_and(|named| named.as_str() == target);
        let alone = changed.before < self.began;
        if response.status() != StatusCode::OK || !is_resource || lifetime.is_zero() || !alone {
            return Kept::Passed(response);
        }
        let fetch = Fetch::new(shared, &self.asked, Plan::of_nothing(&self.asked), None);
        fetch.keep(response, self.began, changed.ordinal, self.requested)
    }
}

/// A write with an unknown outcome. If the inner service fails or panics, the write may have taken effect.
struct Doubt<'a, C: Clock> {
    shared: &'a Shared<C>,
    key: &'a Key,
    resolved: bool,
}

impl<C: Clock> Drop for Doubt<'_, C> {
    fn drop(&mut self) {
        if !self.resolved {
            let found = self.shared.table.invalidate(self.key).found;
            self.shared.counters.invalidated.add(found.into());
        }
    }
}
