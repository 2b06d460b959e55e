//! One queue of tasks for each key, with wakeups.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Maximum time between polls of a state that other processes change without a wakeup.
pub const MAX_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// One queue of this process's tasks for each key, in order of arrival.
///
/// A queue saves its tasks polling and needless work. It isn't a lock: in JavaScript runtimes tasks are never woken, and
/// none waits for the others to leave.
///
/// ```
/// use ifmatch_runtime::KeyedQueue;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let queue = KeyedQueue::default();
/// let mut turn = queue.join(&"key");
/// turn.front().await;
/// drop(turn);
/// # });
/// ```
#[derive(Debug)]
pub struct KeyedQueue<K: Eq + Hash> {
    queues: Mutex<HashMap<K, Queue>>,
}

/// The queue of one key.
#[derive(Debug, Default)]
struct Queue {
    notify: Arc<Notify>,
    length: usize,
}

/// A task's place in the queue of a key. Dropping it leaves the queue.
#[derive(Debug)]
#[must_use = "dropping the turn leaves the queue"]
pub struct Turn<'a, K: Eq + Hash> {
    queue: &'a KeyedQueue<K>,
    key: &'a K,
    notify: Arc<Notify>,
    /// `true` for a task that must wake the next one when it leaves.
    wakes_next: bool,
}

impl<K: Clone + Eq + Hash> KeyedQueue<K> {
    /// Joins the queue of a key.
    pub fn join<'a>(&'a self, key: &'a K) -> Turn<'a, K> {
        let mut queues = self.lock();
        let queue = queues.entry(key.clone()).or_default();
        queue.length += 1;
        Turn {
            queue: self,
            key,
            notify: Arc::clone(&queue.notify),
            wakes_next: queue.length == 1,
        }
    }
}

impl<K: Eq + Hash> KeyedQueue<K> {
    /// Wakes the task that has waited longest in [`Turn::woken`] or [`Turn::front`] at a key.
    pub fn wake(&self, key: &K) {
        if let Some(queue) = self.lock().get(key) {
            queue.notify.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Default for KeyedQueue<K> {
    fn default() -> Self {
        Self {
            queues: Mutex::default(),
        }
    }
}

impl<K: Eq + Hash> Turn<'_, K> {
    /// Waits until [`KeyedQueue::wake`] or a leaving task wakes this one.
    pub async fn woken(&mut self) {
        self.notify.notified().await;
        self.wakes_next = true;
    }

    /// Waits until the tasks that joined earlier have left. Must not be combined with [`KeyedQueue::wake`] on one queue.
    pub async fn front(&mut self) {
        if !self.wakes_next {
            self.woken().await;
        }
    }

    /// Leaves the queue without waking the next task: the caller will call [`KeyedQueue::wake`].
    pub fn leave_silently(mut self) {
        self.wakes_next = false;
    }
}

impl<K: Eq + Hash> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        let mut queues = self.queue.lock();
        let Some(queue) = queues.get_mut(self.key) else {
            return;
        };
        queue.length -= 1;
        if queue.length == 0 {
            queues.remove(self.key);
        } else if self.wakes_next {
            queue.notify.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn tasks_reach_the_front_in_order_of_arrival() {
        let queue = KeyedQueue::default();
        let [mut first, mut second, mut third] = std::array::from_fn(|_| queue.join(&"key"));
        first.front().await;
        assert!(second.front().now_or_never().is_none());
        drop(first);
        second.front().await;
        assert!(third.front().now_or_never().is_none());
        drop(second);
        third.front().await;
        drop(third);
        assert!(queue.lock().is_empty());
    }

    #[tokio::test]
    async fn a_task_that_gives_up_lets_no_other_pass() {
        let queue = KeyedQueue::default();
        let [mut first, mut second, mut third] = std::array::from_fn(|_| queue.join(&"key"));
        first.front().await;
        assert!(second.front().now_or_never().is_none());
        drop(second);
        assert!(third.front().now_or_never().is_none());
        drop(first);
        third.front().await;
    }

    #[tokio::test]
    async fn a_wakeup_reaches_the_next_task_unless_its_receiver_leaves_silently() {
        let queue = KeyedQueue::default();
        let [mut first, mut second] = std::array::from_fn(|_| queue.join(&"key"));
        assert!(first.woken().now_or_never().is_none());
        queue.wake(&"key");
        first.woken().await;
        first.leave_silently();
        assert!(second.woken().now_or_never().is_none());
        queue.wake(&"key");
        second.woken().await;
    }
}
