//! Writes: every method that may change something.
//!
//! A write passes the modules in this order. It fails closed: without a permit the inner service does not run.

pub(crate) mod request;

pub(crate) mod begin;
pub(crate) mod probe;

mod run;

mod settle;

mod also_changed;
mod invalidate;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use http::Request;
use http::request::Parts;
use ifmatch_register::Register;
use ifmatch_runtime::Clock;

use crate::body::ResponseBody;
use crate::inner::InnerService;
use crate::responses;
use crate::shared::Shared;

pub use also_changed::AlsoChanged;
use request::{WriteContext, WriteResult};

/// Carries out a write.
pub(crate) async fn write<S, B, R, C>(shared: Arc<Shared<R, C>>, mut inner: S, request: Request<B>) -> WriteResult<S, B>
where
    S: InnerService<B>,
    B: Default + Send + 'static,
    R: Register,
    C: Clock,
{
    let (head, body) = request.into_parts();
    if !shared.config.guards(&head) {
        return write_unguarded(&shared, inner, head, body).await;
    }
    let context = match WriteContext::new(shared, head) {
        Ok(context) => context,
        Err(problem) => return Ok(responses::problem(&problem)),
    };
    let (grant, lock) = match context.begin(&mut inner).await {
        Ok(begun) => begun,
        Err(result) => return result,
    };
    let end = context.run(inner, &grant, body).await;
    context.settle(&grant, end, lock).await
}

/// Carries out a write without a permit. Afterwards the state of its resource is unknown, regardless of the response.
async fn write_unguarded<S, B, R, C>(
    shared: &Arc<Shared<R, C>>,
    mut inner: S,
    head: Parts,
    body: B,
) -> WriteResult<S, B>
where
    S: InnerService<B>,
    R: Register,
    C: Clock,
{
    let original = head.clone();
    let result = AssertUnwindSafe(inner.run(Request::from_parts(head, body))).catch_unwind().await;
    if let Ok(key) = shared.config.keys.key(&original) {
        shared.invalidate(&key, None).await;
        if let Ok(Ok(response)) = &result {
            for key in also_changed::keys(&*shared.config.keys, &key, &original, response) {
                shared.invalidate(&key, None).await;
            }
        }
    }
    result.map_or_else(|_| Ok(responses::handler_failed()), |result| Ok(result?.map(ResponseBody::inner)))
}
