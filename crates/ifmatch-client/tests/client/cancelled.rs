//! Futures that are dropped after any number of polls: locks become free, and no update is applied twice.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use ifmatch_client::Lock;
use tokio::time::{sleep, timeout};

use crate::store::{Fault, Store};

const TTL: Duration = Duration::from_secs(30);
/// The longest pause between looks at a lock, with the latency of the store.
const LOOK: Duration = Duration::from_millis(1_100);
/// More polls than any future here needs.
const MANY: usize = 1_000;

/// Drops a future after this many polls. Returns its output if it has ended by then.
async fn after_polls<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Runs a test for each number of polls, until the future in it ends.
async fn for_each_poll<F: Future<Output = bool>>(test: impl Fn(usize) -> F) {
    for polls in 0..MANY {
        if test(polls).await {
            assert!(polls > 1, "the future never waited");
            return;
        }
    }
    panic!("the future does not end");
}

fn lock(store: &Store) -> Lock {
    store.client().lock("locks/bill").ttl(TTL)
}

/// Asserts that the lock is free, and stays with its next holder.
async fn assert_free(store: &Store, polls: usize) {
    let next = timeout(LOOK, lock(store).acquire()).await;
    let held = next.unwrap_or_else(|_| panic!("not free after {polls} polls")).unwrap();
    sleep(TTL * 3).await;
    assert!(!held.is_lost(), "taken away after {polls} polls");
    held.release().await.unwrap();
}

/// Counts those that are inside at the same time.
struct Inside(Arc<AtomicUsize>);

impl Inside {
    fn enter(count: &Arc<AtomicUsize>) -> Self {
        assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0, "two holders");
        Self(Arc::clone(count))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Frees the lock after some time.
async fn release_later(held: ifmatch_client::Held) {
    sleep(LOOK * 2).await;
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_leaves_the_lock_free() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let first = lock(&store).acquire().await.unwrap();
        let other = tokio::spawn(release_later(first));
        let done = after_polls(polls, lock(&store).acquire()).await;
        let ended = done.is_some();
        drop(done);
        other.await.unwrap();
        assert_free(&store, polls).await;
        ended
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_ends_at_once_and_the_lock_is_released() {
    for_each_poll(|polls| async move {
        let (store, count) = (Store::default(), Arc::new(AtomicUsize::new(0)));
        let mine = lock(&store);
        let work = mine.with(|_| {
            let inside = Inside::enter(&count);
            async move {
                sleep(TTL).await;
                drop(inside);
            }
        });
        let done = after_polls(polls, work).await;
        assert_eq!(count.load(Ordering::SeqCst), 0, "the work goes on after {polls} polls");
        let next = timeout(LOOK, lock(&store).with(|_| async { drop(Inside::enter(&count)) })).await;
        next.unwrap_or_else(|_| panic!("not free after {polls} polls")).unwrap();
        assert_free(&store, polls).await;
        done.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_term_of_a_leader_ends_at_once() {
    for_each_poll(|polls| async move {
        let (store, count) = (Store::default(), Arc::new(AtomicUsize::new(0)));
        let election = store.client().election("locks/bill").ttl(TTL);
        let run = election.run(|_| {
            let inside = Inside::enter(&count);
            async move {
                sleep(TTL).await;
                drop(inside);
            }
        });
        let done = after_polls(polls, run).await;
        assert_eq!(count.load(Ordering::SeqCst), 0, "the work goes on after {polls} polls");
        assert_free(&store, polls).await;
        done.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_happens_in_the_background() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let held = lock(&store).acquire().await.unwrap();
        let done = after_polls(polls, held.release()).await;
        assert_free(&store, polls).await;
        done.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_update_is_applied_once_or_not_at_all() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let count = store.client().json::<u32>("count");
        count.update(|count| *count = 10).await.unwrap();
        store.fail(|number| match number % 3 {
            1 => Fault::Answer,
            2 => Fault::Request,
            _ => Fault::None,
        });
        let done = after_polls(polls, count.update(|count| *count += 1)).await;
        sleep(TTL).await;
        let found = count.get().await.unwrap().unwrap().value;
        match &done {
            Some(updated) => assert_eq!((*updated.as_ref().unwrap(), found), (11, 11)),
            None => assert!([10, 11].contains(&found), "{found} after {polls} polls"),
        }
        // Another client's update is not mistaken for the abandoned one.
        let other = store.client().json::<u32>("count");
        assert_eq!(other.update(|count| *count += 1).await.unwrap(), found + 1);
        done.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_taking_was_dropped_is_done_by_another_worker() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let queue = store.client().queue("jobs");
        queue.push(&"resize").await.unwrap();
        let taken = after_polls(polls, queue.take(TTL)).await;
        let ended = taken.is_some();
        drop(taken);
        // Sees the job, and then waits for its time to pass.
        let other = store.client().queue("jobs");
        let first = other.take(TTL).await.unwrap();
        sleep(TTL).await;
        let job = match first {
            Some(job) => job,
            None => other.take(TTL).await.unwrap().unwrap_or_else(|| panic!("hidden after {polls} polls")),
        };
        assert!(job.attempts() <= 2);
        ended
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_end_was_dropped_is_done_or_taken_again() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let queue = store.client().queue("jobs");
        queue.push(&"resize").await.unwrap();
        let job = queue.take(TTL).await.unwrap().unwrap();
        let ended = after_polls(polls, job.done()).await;
        let other = store.client().queue("jobs");
        assert!(other.take(TTL).await.unwrap().is_none(), "taken too early, after {polls} polls");
        sleep(TTL).await;
        let again = other.take(TTL).await.unwrap();
        // Without the mark, it is taken again. With it, the next worker has deleted it.
        let left = store.client().backend().list("jobs/").await.unwrap().len();
        assert_eq!(left, usize::from(again.is_some()), "after {polls} polls");
        if let Some(done) = &ended {
            done.as_ref().unwrap();
            assert!(again.is_none(), "done, and taken again");
        }
        ended.is_some()
    })
    .await;
}
