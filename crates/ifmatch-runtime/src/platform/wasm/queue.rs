//! Queues without wakeups: workerd lets no request wake another, because I/O of the woken request would then run on
//! behalf of the waking one. Tasks poll instead.

use std::future::{Future, pending, ready};
use std::hash::Hash;
use std::marker::PhantomData;
use std::time::Duration;

/// Maximum time between polls. Each poll of a register is a subrequest, and a Worker may make a limited number.
pub const MAX_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The queues.
#[derive(Debug)]
pub struct KeyedQueue<K: Eq + Hash>(PhantomData<fn(K)>);

/// A task's place in the queue of a key.
#[derive(Debug)]
#[must_use = "dropping the turn leaves the queue"]
pub struct Turn<'a, K: Eq + Hash>(PhantomData<&'a KeyedQueue<K>>);

impl<K: Eq + Hash> KeyedQueue<K> {
    /// Joins the queue of a key.
    pub fn join<'a>(&'a self, _: &'a K) -> Turn<'a, K> {
        Turn(PhantomData)
    }

    /// Does nothing.
    pub fn wake(&self, _: &K) {}
}

impl<K: Eq + Hash> Default for KeyedQueue<K> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<K: Eq + Hash> Turn<'_, K> {
    /// Never completes.
    pub fn woken(&mut self) -> impl Future<Output = ()> {
        pending()
    }

    /// Completes immediately.
    pub fn front(&mut self) -> impl Future<Output = ()> {
        ready(())
    }

    /// Leaves the queue.
    pub fn leave_silently(self) {}
}
