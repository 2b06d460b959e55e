//! Futures that are dropped after any number of polls: locks become free, no update is applied twice, and no task is left.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use ifmatch_client::{ErrorKind, Job, Lock};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::store::{Fault, LOOK, Store};

const TTL: Duration = Duration::from_secs(30);
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

/// Runs a test for each number of polls, until the future in it ends. After each, no task may be left.
async fn for_each_poll<F: Future<Output = bool>>(test: impl Fn(usize) -> F) {
    for polls in 0..MANY {
        let ended = test(polls).await;
        // Releases in the background have ended by then.
        sleep(TTL).await;
        assert_eq!(
            Handle::current().metrics().num_alive_tasks(),
            0,
            "tasks are left after {polls} polls"
        );
        if ended {
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
    let held = next
        .unwrap_or_else(|_| panic!("not free after {polls} polls"))
        .unwrap();
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

/// Loses a response, then a request, and then neither.
fn fail(store: &Store) {
    store.fail(|number| match number % 3 {
        1 => Fault::Answer,
        2 => Fault::Request,
        _ => Fault::None,
    });
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
        assert_eq!(
            count.load(Ordering::SeqCst),
            0,
            "the work goes on after {polls} polls"
        );
        let next = timeout(
            LOOK,
            lock(&store).with(|_| async { drop(Inside::enter(&count)) }),
        )
        .await;
        next.unwrap_or_else(|_| panic!("not free after {polls} polls"))
            .unwrap();
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
        assert_eq!(
            count.load(Ordering::SeqCst),
            0,
            "the work goes on after {polls} polls"
        );
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
        fail(&store);
        let done = after_polls(polls, count.update(|count| *count += 1)).await;
        sleep(TTL).await;
        let found = count.get().await.unwrap().unwrap().value;
        match &done {
            Some(updated) => assert_eq!((*updated.as_ref().unwrap(), found), (11, 11)),
            None => assert!([10, 11].contains(&found), "{found} after {polls} polls"),
        }
        // Another client's update isn't mistaken for the abandoned one.
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
            None => other
                .take(TTL)
                .await
                .unwrap()
                .unwrap_or_else(|| panic!("hidden after {polls} polls")),
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
        assert!(
            other.take(TTL).await.unwrap().is_none(),
            "taken too early, after {polls} polls"
        );
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

#[tokio::test(start_paused = true)]
async fn a_dropped_update_neither_blocks_nor_misleads_other_clones() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let count = store.client().json::<u32>("count");
        count.update(|count| *count = 10).await.unwrap();
        fail(&store);
        let clone = count.clone();
        let done = after_polls(polls, clone.update(|count| *count += 1)).await;
        let next = timeout(TTL, count.update(|count| *count += 1)).await;
        let next = next
            .unwrap_or_else(|_| panic!("blocked after {polls} polls"))
            .unwrap();
        match &done {
            Some(updated) => assert_eq!((*updated.as_ref().unwrap(), next), (11, 12)),
            None => assert!([11, 12].contains(&next), "{next} after {polls} polls"),
        }
        assert_eq!(
            store
                .client()
                .json::<u32>("count")
                .get()
                .await
                .unwrap()
                .unwrap()
                .value,
            next
        );
        done.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_replacement_is_made_or_can_still_be_made() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let first = store
            .client()
            .json::<u32>("note")
            .create(1)
            .await
            .unwrap()
            .version;
        fail(&store);
        let note = store.client().json::<u32>("note");
        let done = after_polls(polls, note.replace(&first, 2)).await;
        let made = note.get().await.unwrap().unwrap().value == 2;
        assert!(made || done.is_none(), "not made after {polls} polls");
        let other = store.client().json::<u32>("note").replace(&first, 3).await;
        assert_eq!(other.is_ok(), !made, "after {polls} polls");
        done.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_addition_to_a_counter_counts_once_or_not_at_all() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let counter = store.client().counter("hits").shards(2);
        counter.add(10).await.unwrap();
        fail(&store);
        let done = after_polls(polls, counter.add(5)).await;
        sleep(TTL).await;
        let found = counter.get().await.unwrap();
        match &done {
            Some(added) => assert_eq!((added, found), (&Ok(()), 15)),
            None => assert!([10, 15].contains(&found), "{found} after {polls} polls"),
        }
        counter.add(1).await.unwrap();
        assert_eq!(counter.get().await.unwrap(), found + 1);
        done.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_the_future_that_has_it() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let limit = store.client().json::<u32>("limit");
        limit.create(1).await.unwrap();
        let writer = store.client().json::<u32>("limit");
        let done = after_polls(polls, async {
            let mut changes = limit.watch().await.unwrap();
            writer.update(|limit| *limit = 2).await.unwrap();
            changes
                .wait_for(|limit| limit.as_ref().is_some_and(|limit| limit.value == 2))
                .await
                .unwrap();
        });
        done.await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_change_is_seen_although_a_wait_for_it_was_dropped() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let mut changes = store.client().json::<u32>("limit").watch().await.unwrap();
        changes.borrow_and_update();
        let limit = store.client().json::<u32>("limit");
        let writer = tokio::spawn(async move {
            sleep(LOOK * 2).await;
            limit.create(7).await.unwrap();
        });
        let done = after_polls(polls, changes.changed()).await;
        let ended = done.is_some();
        writer.await.unwrap();
        if !ended {
            let seen = timeout(TTL, changes.changed()).await;
            seen.unwrap_or_else(|_| panic!("missed after {polls} polls"))
                .unwrap();
        }
        assert_eq!(changes.borrow().as_ref().unwrap().value, 7);
        ended
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_observer_of_leaders_ends_with_the_future_that_has_it() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let election = store.client().election("locks/bill").ttl(TTL);
        let done = after_polls(polls, async {
            let mut leader = election.observe().await.unwrap();
            let held = lock(&store).acquire().await.unwrap();
            leader.wait_for(Option::is_some).await.unwrap();
            held.release().await.unwrap();
            leader.wait_for(Option::is_none).await.unwrap();
        });
        let ended = done.await.is_some();
        assert_free(&store, polls).await;
        ended
    })
    .await;
}

/// What a worker does after an extension that was dropped.
#[derive(Clone, Copy, Debug)]
enum Next {
    Done,
    Abandon,
    ExtendAgain,
}

impl Next {
    async fn run(self, mut job: Job) -> Result<(), ifmatch_client::Error> {
        match self {
            Self::Done => job.done().await,
            Self::Abandon => job.abandon().await,
            Self::ExtendAgain => {
                job.extend(3 * TTL).await?;
                job.done().await
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_extension_was_dropped_is_still_its_workers() {
    for next in [Next::Done, Next::Abandon, Next::ExtendAgain] {
        for_each_poll(|polls| async move {
            let store = Store::default();
            let queue = store.client().queue("jobs");
            queue.push(&"resize").await.unwrap();
            let mut job = queue.take(TTL).await.unwrap().unwrap();
            fail(&store);
            let ended = after_polls(polls, job.extend(2 * TTL))
                .await
                .map(Result::unwrap)
                .is_some();
            next.run(job)
                .await
                .unwrap_or_else(|error| panic!("{next:?} after {polls} polls: {error}"));
            let again = queue.take(TTL).await.unwrap().map(|job| job.attempts());
            assert_eq!(
                again,
                matches!(next, Next::Abandon).then_some(2),
                "{next:?} after {polls} polls"
            );
            ended
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_extension_was_dropped_is_lost_once_it_is_taken_again() {
    for next in [Next::Done, Next::Abandon, Next::ExtendAgain] {
        for is_same_queue in [false, true] {
            for_each_poll(|polls| async move {
                let store = Store::default();
                let queue = store.client().queue("jobs");
                queue.push(&"resize").await.unwrap();
                let mut job = queue.take(TTL).await.unwrap().unwrap();
                let ended = after_polls(polls, job.extend(2 * TTL))
                    .await
                    .map(Result::unwrap)
                    .is_some();
                let other = if is_same_queue {
                    queue
                } else {
                    store.client().queue("jobs")
                };
                assert!(
                    other.take(TTL).await.unwrap().is_none(),
                    "taken too early, after {polls} polls"
                );
                sleep(2 * TTL).await;
                let again = other
                    .take(TTL)
                    .await
                    .unwrap()
                    .unwrap_or_else(|| panic!("hidden after {polls} polls"));
                let lost = next.run(job).await.expect_err("two workers have the job");
                assert_eq!(
                    *lost.kind(),
                    ErrorKind::Lost,
                    "{next:?} after {polls} polls"
                );
                again.done().await.unwrap();
                ended
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_is_pushed_once_or_not_at_all() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let queue = store.client().queue("jobs");
        queue.push(&"first").await.unwrap();
        fail(&store);
        let pushed = after_polls(polls, queue.push(&"second")).await;
        sleep(TTL).await;
        let mut found = Vec::new();
        while let Some(job) = queue.take(TTL).await.unwrap() {
            assert_eq!(job.attempts(), 1);
            found.push(job.payload::<String>().unwrap());
            job.done().await.unwrap();
        }
        assert!(
            found == ["first", "second"] || (pushed.is_none() && found == ["first"]),
            "{found:?} after {polls} polls"
        );
        pushed.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_return_was_dropped_is_available_at_once_or_after_its_time() {
    for_each_poll(|polls| async move {
        let store = Store::default();
        let queue = store.client().queue("jobs");
        queue.push(&"resize").await.unwrap();
        let job = queue.take(TTL).await.unwrap().unwrap();
        fail(&store);
        let ended = after_polls(polls, job.abandon())
            .await
            .map(Result::unwrap)
            .is_some();
        let other = store.client().queue("jobs");
        let first = other.take(TTL).await.unwrap();
        assert!(first.is_some() || !ended, "given back, and not available");
        sleep(TTL).await;
        let again = match first {
            Some(job) => job,
            None => other
                .take(TTL)
                .await
                .unwrap()
                .unwrap_or_else(|| panic!("hidden after {polls} polls")),
        };
        assert_eq!(again.attempts(), 2, "after {polls} polls");
        again.done().await.unwrap();
        assert!(other.take(TTL).await.unwrap().is_none());
        ended
    })
    .await;
}
