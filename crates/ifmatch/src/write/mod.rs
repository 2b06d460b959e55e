//! Every method that may change something: permit, handler, outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use http::request::Parts;
use http::{Request, Response};
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::problem::Problem;
use ifmatch_register::{Key, Register};
use ifmatch_runtime::Clock;

use crate::body::ResponseBody;
use crate::read::compressed_tag;
use crate::shared::{Inner, Shared};
use crate::{lease, responses};

mod also_changed;
mod begin;
mod outcome;
pub(crate) mod probe;
mod run;
mod settle;

pub use also_changed::AlsoChanged;
use also_changed::changed;
pub(crate) use begin::MAX_PROBES;

/// What a write is answered with.
pub(crate) type Answer<S, B> = Result<Response<ResponseBody<<S as Inner<B>>::Body>>, <S as Inner<B>>::Error>;

/// Carries out a guarded write. It fails closed: without a permit the inner service does not run.
pub(crate) async fn write<S, B, R, C>(shared: Arc<Shared<R, C>>, mut inner: S, request: Request<B>) -> Answer<S, B>
where
    S: Inner<B>,
    B: Default + Send + 'static,
    R: Register,
    C: Clock,
{
    let (head, body) = request.into_parts();
    if !shared.config.guards(&head) {
        return unguarded(&shared, inner, head, body).await;
    }
    let lease = match lease::of_write(&shared.config, &head) {
        Ok(lease) => lease,
        Err(problem) => return Ok(responses::problem(&problem)),
    };
    let mut conditions = Preconditions::from_headers(&head.headers);
    if shared.config.refuses(&head, &conditions) {
        return Ok(responses::problem(&Problem::precondition_required(&head.method)));
    }
    let Ok(key) = shared.config.keys.key(&head) else { return Ok(responses::no_such_key()) };
    if shared.config.behind_compression {
        conditions = compressed_tag::strip(conditions);
    }
    let writing = Writing { shared, key, head, conditions, lease };
    let (grant, lock) = match writing.begin(&mut inner).await {
        Ok(begun) => begun,
        Err(answer) => return answer,
    };
    let end = writing.run(inner, &grant, body).await;
    writing.settle(grant.token, grant.deadline, end, lock).await
}

/// Carries out a write that needs no permit. What it changed, nobody knows, however it ends.
async fn unguarded<S, B, R, C>(shared: &Arc<Shared<R, C>>, mut inner: S, head: Parts, body: B) -> Answer<S, B>
where
    S: Inner<B>,
    R: Register,
    C: Clock,
{
    let asked = head.clone();
    let ended = AssertUnwindSafe(inner.run(Request::from_parts(head, body))).catch_unwind().await;
    if let Ok(key) = shared.config.keys.key(&asked) {
        shared.invalidate(&key, None).await;
        if let Ok(Ok(response)) = &ended {
            for key in changed(&*shared.config.keys, &key, &asked, response) {
                shared.invalidate(&key, None).await;
            }
        }
    }
    ended.map_or_else(|_| Ok(responses::panicked()), |answer| Ok(answer?.map(ResponseBody::inner)))
}

/// A write on its way.
pub(crate) struct Writing<R, C> {
    pub(crate) shared: Arc<Shared<R, C>>,
    pub(crate) key: Key,
    /// The head of the request as it came.
    pub(crate) head: Parts,
    /// Its conditions, as they are to be evaluated.
    pub(crate) conditions: Preconditions,
    /// The lease that it came with.
    pub(crate) lease: LeaseUse,
}
