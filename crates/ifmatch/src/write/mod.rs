//! Writes: every method that may change something.
//!
//! A write passes the modules in this order. It fails closed: without a permit the inner service doesn't run.

pub(crate) mod request;

mod receive;

pub(crate) mod begin;
pub(crate) mod probe;

mod run;

mod new_version;
mod settle;

mod also_changed;
mod unguarded;

use std::sync::Arc;

use http::Request;

use crate::body::RequestBody;
use crate::inner::{InnerService, RequestContent};
use crate::responses;
use crate::shared::LayerState;

pub use also_changed::Invalidates;
pub use new_version::NewVersion;
use request::{WriteContext, WriteResult};
pub(crate) use unguarded::UnguardedWrites;

/// Carries out a write.
pub(crate) async fn write<S, B>(
    shared: Arc<LayerState>,
    mut inner: S,
    request: Request<B>,
) -> WriteResult<S, B>
where
    S: InnerService<B>,
    B: RequestContent,
{
    let (head, body) = request.into_parts();
    if !shared.config.guards(&head) {
        return unguarded::write(&shared, inner, head, RequestBody::new(body)).await;
    }
    let context = match WriteContext::new(shared, head) {
        Ok(context) => context,
        Err(problem) => return Ok(responses::problem(&problem)),
    };
    let body = match context.receive(body).await {
        Ok(body) => body,
        Err(problem) => return Ok(responses::problem(&problem)),
    };
    let (mut grant, lock) = match context.begin(&mut inner).await {
        Ok(begun) => begun,
        Err(result) => return result,
    };
    let end = context.run(&mut inner, &mut grant, body).await;
    context.settle(&mut inner, &grant, end, lock).await
}
