//! One gate per resource: of this process's writers one at a time probes the resource and asks for the permit. This
//! saves probes that a competing writer would make worthless; nothing relies on it, since the register decides.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifmatch_store::Key;
use tokio::sync::{Mutex as Gate, OwnedMutexGuard};

#[derive(Debug, Default)]
pub(crate) struct Gates(Mutex<HashMap<Key, Queue>>);

/// How many are at a gate.
#[derive(Debug, Default)]
struct Queue {
    gate: Arc<Gate<()>>,
    length: usize,
}

/// A place at a gate, given up by dropping it.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    gates: &'a Gates,
    key: &'a Key,
    gate: Arc<Gate<()>>,
    inside: Option<OwnedMutexGuard<()>>,
}

impl Gates {
    /// Queues up. The order is that of arrival.
    pub(crate) fn queue<'a>(&'a self, key: &'a Key) -> Place<'a> {
        let mut gates = self.lock();
        let queue = gates.entry(key.clone()).or_default();
        queue.length += 1;
        Place { gates: self, key, gate: Arc::clone(&queue.gate), inside: None }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Waits until all who came before are gone.
    pub(crate) async fn enter(&mut self) {
        self.inside = Some(Arc::clone(&self.gate).lock_owned().await);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.inside = None;
        let mut gates = self.gates.lock();
        if let Some(queue) = gates.get_mut(self.key) {
            queue.length -= 1;
            if queue.length == 0 {
                gates.remove(self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_is_inside_and_nothing_is_left_behind() {
        let gates = Gates::default();
        let key = Key::new("/a").unwrap();
        let mut first = gates.queue(&key);
        first.enter().await;
        let mut second = gates.queue(&key);
        assert!(futures_util::FutureExt::now_or_never(second.enter()).is_none());
        drop(first);
        second.enter().await;
        drop(second);
        assert!(gates.lock().is_empty());
    }
}
