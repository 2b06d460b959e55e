//! Writes without a permit. They run concurrently; after each, the state of its resource is unknown.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use http::Request;
use http::header::ETAG;
use http::request::Parts;
use ifmatch_register::Key;
use ifmatch_runtime::KeyedQueue;

use super::also_changed;
use super::new_version::{shown, stated};
use super::request::WriteResult;
use crate::body::{RequestBody, ResponseBody};
use crate::inner::{self, InnerService, RequestContent};
use crate::responses;
use crate::shared::LayerState;

/// Carries out a write without a permit.
pub(crate) async fn write<S, B>(
    shared: &Arc<LayerState>,
    mut inner: S,
    head: Parts,
    body: RequestBody<B>,
) -> WriteResult<S, B>
where
    S: InnerService<B>,
    B: RequestContent,
{
    let original = head.clone();
    let key = shared.config.keys.key(&original).ok();
    let running = key.as_ref().map(|key| shared.unguarded.enter(key));
    let result = AssertUnwindSafe(inner::run(&mut inner, Request::from_parts(head, body)))
        .catch_unwind()
        .await;
    if let (Some(key), Some(running)) = (&key, &running) {
        running.invalidate(shared).await;
        if let Ok(Ok(response)) = &result {
            for key in also_changed::keys(&*shared.config.keys, key, &original, response) {
                shared.invalidate(&key).await;
            }
        }
    }
    let Ok(result) = result else {
        return Ok(responses::handler_failed());
    };
    let (tag, mut response) = match stated(shared, result?).await {
        Ok(stated) => stated,
        Err(response) => return Ok(response.map(ResponseBody::inner)),
    };
    if let Some(tag) = tag.filter(|_| response.status().is_success()) {
        response
            .headers_mut()
            .insert(ETAG, shown(shared, &tag, &original).to_header());
    }
    Ok(response)
}

/// The unguarded writes in flight in this process.
#[derive(Debug, Default)]
pub(crate) struct UnguardedWrites {
    in_flight: Mutex<HashMap<Key, InFlight>>,
    /// Lets one write at a time mark the state of a resource as unknown.
    marking: KeyedQueue<Key>,
}

/// The unguarded writes of one resource.
#[derive(Debug, Default)]
struct InFlight {
    writes: usize,
    /// The marks that they have requested, and the ones that were made.
    requested: u64,
    made: u64,
}

/// One unguarded write in flight.
struct UnguardedWrite<'a> {
    all: &'a UnguardedWrites,
    key: Key,
}

impl UnguardedWrites {
    /// Returns `true` if an unguarded write of the resource is in flight: what a read finds may be its effect.
    pub(crate) fn is_in_flight(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    fn enter(&self, key: &Key) -> UnguardedWrite<'_> {
        let running = UnguardedWrite {
            all: self,
            key: key.clone(),
        };
        running.with(|its| its.writes += 1);
        running
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, InFlight>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnguardedWrite<'_> {
    /// Marks the state of the resource as unknown. Writes that end while another one does so share the next mark.
    async fn invalidate(&self, shared: &Arc<LayerState>) {
        let mine = self.with(|its| {
            its.requested += 1;
            its.requested
        });
        let mut turn = self.all.marking.join(&self.key);
        turn.front().await;
        if let Some(covered) = self.with(|its| (its.made < mine).then_some(its.requested)) {
            shared.invalidate(&self.key).await;
            self.with(|its| its.made = its.made.max(covered));
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut InFlight) -> T) -> T {
        change(self.all.lock().entry(self.key.clone()).or_default())
    }
}

impl Drop for UnguardedWrite<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.all.lock();
        if let Some(its) = in_flight.get_mut(&self.key) {
            its.writes -= 1;
            if its.writes == 0 {
                in_flight.remove(&self.key);
            }
        }
    }
}
