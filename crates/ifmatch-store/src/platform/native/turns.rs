//! The queue of this process's writers at each key: it saves the waiting ones from polling. Being first in it grants
//! nothing: the register alone decides.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::key::Key;

#[derive(Debug, Default)]
pub(crate) struct Turns {
    waiting: Mutex<HashMap<Key, Queue>>,
}

/// Who waits at one key.
#[derive(Debug, Default)]
struct Queue {
    notify: Arc<Notify>,
    length: usize,
}

impl Turns {
    /// Joins the queue at a key. The place is given up by dropping it.
    pub(crate) fn join(&self, key: &Key) -> Turn<'_> {
        let mut waiting = self.lock();
        let queue = waiting.entry(key.clone()).or_default();
        queue.length += 1;
        Turn { turns: self, key: key.clone(), notify: Arc::clone(&queue.notify), won: false }
    }

    /// Says that a write at this key has ended: the next in the queue may try.
    pub(crate) fn ended(&self, key: &Key) {
        if let Some(queue) = self.lock().get(key) {
            queue.notify.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Queue>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    key: Key,
    notify: Arc<Notify>,
    won: bool,
}

impl Turn<'_> {
    /// Waits until a write at this key has ended.
    pub(crate) async fn called(&self) {
        self.notify.notified().await;
    }

    /// Leaves the queue as the writer whose end will call the next one.
    pub(crate) fn win(mut self) {
        self.won = true;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut waiting = self.turns.lock();
        let Some(queue) = waiting.get_mut(&self.key) else { return };
        queue.length -= 1;
        if queue.length == 0 {
            waiting.remove(&self.key);
        } else if !self.won {
            queue.notify.notify_one();
        }
    }
}
