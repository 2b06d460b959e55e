//! Every method that may change something: it is passed on, and what it changes is no longer used.

use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use ifmatch_store::Clock;

use crate::body::ResponseBody;
use crate::key::Key;
use crate::policy::cache_status::{CacheStatus, Forward};
use crate::policy::groups::{CACHE_GROUP_INVALIDATION, names};
use crate::policy::invalidate::{also_changed, invalidates};
use crate::shared::{Inner, Shared};

/// Passes a write on.
pub(crate) async fn write<C, B, S>(
    shared: Arc<Shared<C>>,
    mut inner: S,
    key: Key,
    request: Request<B>,
) -> Result<Response<ResponseBody<S::Body>>, S::Error>
where
    C: Clock,
    S: Inner<B>,
{
    let mut doubt = Doubt { shared: &shared, key: &key, resolved: false };
    let response = inner.run(request).await?;
    doubt.resolved = true;
    if invalidates(response.status()) {
        invalidate(&shared, &key, response.headers());
    }
    let (mut head, body) = response.into_parts();
    CacheStatus::forwarded(Forward::Method).append_to(&mut head.headers);
    Ok(Response::from_parts(head, ResponseBody::inner(body)))
}

/// Invalidates what the response to a write says has changed.
fn invalidate<C: Clock>(shared: &Shared<C>, key: &Key, response: &HeaderMap) {
    let others = also_changed(key.as_str(), response).into_iter().map(Key::from);
    for changed in others.chain([key.clone()]) {
        let found = shared.table.invalidate(&changed);
        shared.counters.invalidated.add(found.into());
    }
    for name in names(response, &CACHE_GROUP_INVALIDATION) {
        shared.table.invalidate_group(key.origin(), &name);
    }
}

/// A write whose outcome nobody knows yet. If it fails, or its client leaves, it may have taken effect.
struct Doubt<'a, C: Clock> {
    shared: &'a Shared<C>,
    key: &'a Key,
    resolved: bool,
}

impl<C: Clock> Drop for Doubt<'_, C> {
    fn drop(&mut self) {
        if !self.resolved {
            let found = self.shared.table.invalidate(self.key);
            self.shared.counters.invalidated.add(found.into());
        }
    }
}
