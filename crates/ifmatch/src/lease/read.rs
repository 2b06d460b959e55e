//! Reads under a lease.

use std::sync::Arc;

use http::{Method, Request, Response};
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::problem::Problem;
use ifmatch_register::Key;

use super::request::lease_id;
use crate::body::{RequestBody, ResponseBody};
use crate::inner::{InnerService, RequestContent};
use crate::read::cached::MemoryLookup;
use crate::shared::LayerState;
use crate::{read, responses};

/// Answers a read that presents a lease. The lease is checked before and after, so it has protected the resource all
/// the time.
pub(crate) async fn read<S, B>(
    shared: Arc<LayerState>,
    inner: S,
    lookup: MemoryLookup,
    request: Request<RequestBody<B>>,
) -> Result<Response<ResponseBody<S::Body>>, S::Error>
where
    S: InnerService<B>,
    B: RequestContent,
{
    let key = lookup.key.clone();
    let is_head = request.method() == Method::HEAD;
    let refused = |problem: &Problem| {
        let response = responses::problem(problem);
        Ok(if is_head {
            responses::without_body(response)
        } else {
            response
        })
    };
    let lease = match lease_id(request.headers()) {
        Ok(id) => LeaseUse::Read(id),
        Err(problem) => return refused(&problem),
    };
    if let Err(problem) = check(&shared, &key, lease).await {
        return refused(&problem);
    }
    let response = read::read(Arc::clone(&shared), inner, lookup, request).await?;
    match check(&shared, &key, lease).await {
        Ok(()) => Ok(response),
        Err(problem) => refused(&problem),
    }
}

async fn check(shared: &LayerState, key: &Key, lease: LeaseUse) -> Result<(), Problem> {
    let record = shared.for_read(shared.driver.load(key)).await;
    let record = record.ok_or_else(|| Problem::unavailable(responses::RETRY_AFTER))?;
    record
        .check_lease(lease, shared.now())
        .map_err(Problem::lease_failed)
}
