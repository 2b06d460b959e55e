//! Writes without a permit. They run concurrently; after each, the state of its resource is unknown.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use http::Request;
use http::request::Parts;
use ifmatch_register::{Key, Register};
use ifmatch_runtime::Clock;

use super::also_changed;
use super::request::WriteResult;
use crate::body::{RequestBody, ResponseBody};
use crate::inner::{self, InnerService, RequestContent};
use crate::responses;
use crate::shared::Shared;

/// Carries out a write without a permit.
pub(crate) async fn write<S, B, R, C>(
    shared: &Arc<Shared<R, C>>,
    mut inner: S,
    head: Parts,
    body: RequestBody<B>,
) -> WriteResult<S, B>
where
    S: InnerService<B>,
    B: RequestContent,
    R: Register,
    C: Clock,
{
    let original = head.clone();
    let key = shared.config.keys.key(&original).ok();
    let running = key.as_ref().map(|key| shared.unguarded.enter(key));
    let result = AssertUnwindSafe(inner::run(&mut inner, Request::from_parts(head, body))).catch_unwind().await;
    if let (Some(key), Some(running)) = (&key, &running) {
        running.invalidate(shared, key).await;
        if let Ok(Ok(response)) = &result {
            for key in also_changed::keys(&*shared.config.keys, key, &original, response) {
                shared.invalidate(&key).await;
            }
        }
    }
    result.map_or_else(|_| Ok(responses::handler_failed()), |result| Ok(result?.map(ResponseBody::inner)))
}

/// The unguarded writes in flight in this process, by resource.
#[derive(Debug, Default)]
pub(crate) struct Unguarded(Mutex<HashMap<Key, (usize, Arc<InFlight>)>>);

/// The unguarded writes of one resource.
#[derive(Debug, Default)]
struct InFlight {
    /// The invalidations requested, and those of them that have been made.
    requested: Mutex<u64>,
    made: futures_util::lock::Mutex<u64>,
}

/// One unguarded write in flight.
struct Running<'a> {
    all: &'a Unguarded,
    key: Key,
    in_flight: Arc<InFlight>,
}

impl Unguarded {
    /// Returns `true` if an unguarded write of the resource is in flight: what a read finds may be its effect.
    pub(crate) fn is_in_flight(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    fn enter(&self, key: &Key) -> Running<'_> {
        let mut all = self.lock();
        let (count, in_flight) = all.entry(key.clone()).or_default();
        *count += 1;
        Running { all: self, key: key.clone(), in_flight: Arc::clone(in_flight) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, (usize, Arc<InFlight>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running<'_> {
    /// Marks the state of the resource as unknown. Writes that end while another one does so share the next mark.
    async fn invalidate<R: Register, C: Clock>(&self, shared: &Arc<Shared<R, C>>, key: &Key) {
        let mine = {
            let mut requested = self.in_flight.requested.lock().unwrap_or_else(PoisonError::into_inner);
            *requested += 1;
            *requested
        };
        let mut made = self.in_flight.made.lock().await;
        if *made < mine {
            let covered = *self.in_flight.requested.lock().unwrap_or_else(PoisonError::into_inner);
            shared.invalidate(key).await;
            *made = covered;
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some((count, _)) = all.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.key);
            }
        }
    }
}
