//! The lock: renewal, loss, takeover, release, and futures that are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ifmatch_client::{Client, ErrorKind, Grant, Lock};
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::Clock;
use tokio::time::{sleep, timeout};

use crate::store::{Fault, LOOK, Settable, Steady, Stoppable, Store};

const TTL: Duration = Duration::from_secs(30);

fn lock(client: &Client, holder: &str) -> Lock {
    client.lock("locks/bill").ttl(TTL).holder(holder)
}

/// Acquires the lock for a client whose requests no longer arrive after that.
async fn die_with_the_lock(store: &Store) {
    let dead = store.connect();
    let held = lock(&Client::new(dead.clone()).with_clock(Steady), "a")
        .acquire()
        .await
        .unwrap();
    dead.cut();
    std::mem::forget(held);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lock_is_held_far_beyond_its_time_to_live() {
    let store = Store::default();
    let held = lock(&store.client(), "a").acquire().await.unwrap();
    let other = lock(&store.client(), "b");
    for _ in 0..100 {
        sleep(TTL / 3).await;
        assert!(!held.is_lost());
        assert!(other.try_acquire().await.unwrap().is_none());
    }
    held.release().await.unwrap();
    assert!(other.try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_holder_without_a_network_loses_the_lock_before_another_acquires_it() {
    let store = Store::default();
    let connection = store.connect();
    let held = lock(&Client::new(connection.clone()).with_clock(Steady), "a")
        .acquire()
        .await
        .unwrap();
    let other = tokio::spawn({
        let lock = lock(&store.client(), "b");
        async move { (lock.acquire().await.unwrap(), Steady.now()) }
    });
    sleep(TTL / 2).await;
    connection.cut();
    let cut = Steady.now();
    held.lost().await;
    let lost = Steady.now();
    let (other, acquired) = other.await.unwrap();
    assert!(lost < acquired, "{lost:?} {acquired:?}");
    assert!(other.fence() > held.fence());
    assert!(
        cut.until(acquired) <= TTL + LOOK,
        "{:?}",
        cut.until(acquired)
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_followed_after_its_time_to_live() {
    let store = Store::default();
    die_with_the_lock(&store).await;
    let start = Steady.now();
    let held = lock(&store.client(), "b").acquire().await.unwrap();
    assert!(start.until(Steady.now()) >= TTL, "too early");
    assert!(start.until(Steady.now()) <= TTL + LOOK);
    drop(held);
}

/// After the break, the client may ask the server to wait only for the time that is left.
#[tokio::test(start_paused = true)]
async fn a_poll_that_breaks_does_not_extend_the_wait_for_a_lock() {
    let store = Store::default();
    let held = lock(&store.client(), "a").acquire().await.unwrap();
    let connection = store.connect();
    connection.break_poll_after(Duration::from_secs(20));
    let client = Client::new(connection).with_clock(Steady);
    let (start, limit) = (Steady.now(), Duration::from_secs(24));
    let other = lock(&client, "b").acquire_within(limit).await.unwrap();
    assert!(other.is_none() && !held.is_lost());
    let waited = start.until(Steady.now());
    assert!(waited >= limit && waited <= limit + LOOK, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn work_to_be_done_once_is_left_to_a_holder_that_is_alive() {
    let store = Store::default();
    let held = lock(&store.client(), "a").acquire().await.unwrap();
    let late = timeout(
        TTL / 3 + LOOK,
        lock(&store.client(), "b").acquire_unless_held(),
    )
    .await;
    assert!(
        late.expect("a renewal is a sign of life")
            .unwrap()
            .is_none()
    );
    assert!(!held.is_lost());
    // The holder has done the work before its first renewal: the lock is free, and yet nothing is left to do.
    let (late, ()) = tokio::join!(
        async {
            lock(&store.client(), "b")
                .acquire_unless_held()
                .await
                .unwrap()
        },
        async {
            sleep(Duration::from_secs(2)).await;
            held.release().await.unwrap();
        }
    );
    assert!(late.is_none());
    assert!(
        lock(&store.client(), "b")
            .acquire_unless_held()
            .await
            .unwrap()
            .is_some(),
        "the lock is free"
    );
}

/// Both have seen the same version for its time to live. One replaces it; the other one finds a sign of life.
#[tokio::test(start_paused = true)]
async fn one_client_does_the_work_of_a_dead_holder() {
    let store = Store::default();
    die_with_the_lock(&store).await;
    let start = Steady.now();
    let client = store.client();
    let (one, two) = (lock(&client, "b"), lock(&client, "c"));
    let both = async { tokio::join!(one.acquire_unless_held(), two.acquire_unless_held()) };
    let (one, two) = timeout(2 * TTL, both)
        .await
        .expect("a new holder is a sign of life");
    assert!(start.until(Steady.now()) >= TTL, "too early");
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.iter().chain(&two).count(), 1);
}

/// The renewal takes effect. Its response, and all requests until the deadline, are lost.
#[tokio::test(start_paused = true)]
async fn a_release_frees_a_lock_that_was_renewed_without_an_answer() {
    let store = Store::default();
    let connection = store.connect();
    let held = lock(&Client::new(connection.clone()).with_clock(Steady), "a")
        .acquire()
        .await
        .unwrap();
    let writes = store.writes();
    let renewed = async {
        while store.writes() == writes {
            sleep(Duration::from_micros(100)).await;
        }
    };
    timeout(TTL, renewed)
        .await
        .expect("it is renewed before its end");
    connection.cut();
    held.lost().await;
    connection.heal();
    held.release().await.unwrap();
    assert!(
        lock(&store.client(), "b")
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_and_a_drop_free_the_lock_at_once() {
    let store = Store::default();
    for dropped in [false, true] {
        let held = lock(&store.client(), "a").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = lock(&store.client(), "b");
            async move { lock.acquire().await.unwrap() }
        });
        sleep(TTL).await;
        if dropped {
            drop(held);
        } else {
            held.release().await.unwrap();
        }
        timeout(LOOK, waiting)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_that_is_dropped_at_any_moment_leaves_the_lock_free() {
    for moment in 0..10 {
        let store = Store::default();
        let abandoned = lock(&store.client(), "a");
        let _ = timeout(Duration::from_millis(moment), abandoned.acquire()).await;
        let next = lock(&store.client(), "b");
        timeout(LOOK, next.acquire())
            .await
            .unwrap_or_else(|_| panic!("dropped after {moment} ms"))
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_acquires_nothing_later() {
    let store = Store::default();
    let held = lock(&store.client(), "a").acquire().await.unwrap();
    let waiting = lock(&store.client(), "b");
    assert!(timeout(TTL, waiting.acquire()).await.is_err());
    held.release().await.unwrap();
    let writes = store.writes();
    sleep(TTL).await;
    assert_eq!(store.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_requests_do_not_lose_the_lock() {
    let store = Store::default();
    store.fail(|number| match number % 3 {
        0 => Fault::Answer,
        1 => Fault::Request,
        _ => Fault::None,
    });
    let held = lock(&store.client(), "a").acquire().await.unwrap();
    sleep(TTL * 100).await;
    assert!(!held.is_lost());
    held.release().await.unwrap();
    assert!(
        lock(&store.client(), "b")
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn renewals_are_seen_even_if_tags_are_hashes() {
    let store = Store::default();
    store.use_hashes();
    let held = lock(&store.client(), "a").acquire().await.unwrap();
    let waited = lock(&store.client(), "b")
        .acquire_within(TTL * 10)
        .await
        .unwrap();
    assert!(waited.is_none() && !held.is_lost());
}

#[tokio::test(start_paused = true)]
async fn steps_of_the_time_of_day_neither_lose_a_lock_nor_free_it() {
    let (store, clock) = (Store::default(), Settable::default());
    clock.set(Timestamp::from_micros(1 << 50));
    let client = Client::new(store.connect()).with_clock(clock.clone());
    let held = lock(&client, "a").acquire().await.unwrap();
    let other = lock(&client, "b");
    let waiting = tokio::spawn(async move { other.acquire().await.unwrap() });
    for wall in [1 << 51, 1 << 49, 0, 1 << 52, 1] {
        // Between two renewals, so the challenger has already seen the version.
        sleep(TTL / 2).await;
        clock.set(Timestamp::from_micros(wall));
        sleep(TTL * 3).await;
        assert!(!held.is_lost() && !waiting.is_finished(), "{wall}");
    }
    let fence = held.fence();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().fence() > fence);
}

#[tokio::test(start_paused = true)]
async fn lost_work_is_dropped_before_the_release_is_sent() {
    struct Tell(Arc<AtomicUsize>, Store);
    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.store(self.1.writes(), Ordering::Relaxed);
        }
    }
    let (store, at_drop) = (Store::default(), Arc::default());
    // After the acquisition, no request arrives.
    store.fail(|number| {
        if number == 0 {
            Fault::None
        } else {
            Fault::Request
        }
    });
    let lock = lock(&store.client(), "a");
    let work = |held: Grant| {
        let tell = Tell(Arc::clone(&at_drop), store.clone());
        async move {
            let _tell = tell;
            held.lost().await;
            std::future::pending::<()>().await;
        }
    };
    assert_eq!(*lock.with(work).await.unwrap_err().kind(), ErrorKind::Lost);
    let at_drop = at_drop.load(Ordering::Relaxed);
    assert!(at_drop > 1, "no renewal was sent");
    assert!(
        at_drop < store.writes(),
        "the release was sent before the work had ended, or not at all"
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_that_another_client_has_written_ends_the_lock() {
    let client = Store::default().client();
    let held = lock(&client, "a").acquire().await.unwrap();
    client
        .json::<serde_json::Value>("locks/bill")
        .update(|record| record["fence"] = 9.into())
        .await
        .unwrap();
    timeout(TTL / 3 + LOOK, held.lost()).await.unwrap();
    held.release().await.unwrap();
    let record = client
        .json::<serde_json::Value>("locks/bill")
        .get()
        .await
        .unwrap()
        .unwrap();
    assert_eq!(record.value["fence"], 9);
}

#[tokio::test(start_paused = true)]
async fn a_late_release_does_not_free_the_next_holder() {
    let store = Store::default();
    let first = store.connect();
    let clock = Stoppable::default();
    let held = lock(&Client::new(first).with_clock(clock.clone()), "a")
        .acquire()
        .await
        .unwrap();
    clock.stop();
    let next = lock(&store.client(), "b").acquire().await.unwrap();
    clock.resume();
    held.release().await.unwrap();
    assert!(!next.is_lost());
    assert!(
        lock(&store.client(), "c")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_locks_are_refused() {
    let store = Store::default();
    let short = store.client().lock("a").ttl(Duration::from_secs(2));
    assert_eq!(
        *short.acquire().await.unwrap_err().kind(),
        ErrorKind::Refused
    );
    store.client().json::<u8>("note").create(1).await.unwrap();
    assert_eq!(
        *store
            .client()
            .lock("note")
            .acquire()
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Refused
    );
}

/// The store answers 409 to a renewal, since the attempt before it is still under way: the first one's answer is late, and
/// the second one meets it. No other client has written.
#[tokio::test(start_paused = true)]
async fn a_busy_store_does_not_end_a_lock() {
    let store = Store::default();
    store.fail(|number| match number % 4 {
        1 | 3 => Fault::Busy,
        2 => Fault::Request,
        _ => Fault::None,
    });
    let held = lock(&store.client(), "a").acquire().await.unwrap();
    sleep(TTL * 100).await;
    assert!(
        !held.is_lost(),
        "a renewal that was not carried out counts as a rival's"
    );
    held.release().await.unwrap();
    assert!(
        lock(&store.client(), "b")
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

/// The store answers reads, and no write arrives. With a time to live of an hour, the attempt went on for most of it.
#[tokio::test(start_paused = true)]
async fn an_attempt_without_an_answer_ends_long_before_the_time_to_live() {
    let store = Store::default();
    store.fail(|_| Fault::Request);
    let lock = Client::new(store.connect())
        .with_clock(Steady)
        .lock("a")
        .ttl(Duration::from_hours(1));
    let attempt = timeout(Duration::from_mins(1), lock.try_acquire())
        .await
        .expect("it waits for most of an hour");
    assert_eq!(*attempt.expect_err("no answer").kind(), ErrorKind::Unknown);
}

/// The caller has given up, and the write takes effect after that: the lock is released.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_succeeds_after_its_time_leaves_the_lock_free() {
    let store = Store::default();
    let connection = store.connect();
    // An existing record, so the attempt replaces it.
    lock(&store.client(), "b")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let late = Client::new(connection.clone())
        .with_clock(Steady)
        .lock("locks/bill")
        .ttl(Duration::from_hours(1));
    let (attempt, ()) = tokio::join!(late.try_acquire(), async {
        sleep(Duration::from_micros(3_500)).await;
        connection.cut();
    });
    assert_eq!(*attempt.expect_err("no answer").kind(), ErrorKind::Unknown);
    connection.heal();
    sleep(LOOK * 60).await;
    assert!(
        lock(&store.client(), "c")
            .try_acquire()
            .await
            .unwrap()
            .is_some(),
        "held by a client that has given up"
    );
}

/// A renewal is under way without a response, and would be tried until the deadline, most of an hour away.
#[tokio::test(start_paused = true)]
async fn a_release_does_not_wait_for_a_renewal_without_an_answer() {
    let store = Store::default();
    let connection = store.connect();
    let client = Client::new(connection.clone()).with_clock(Steady);
    let held = client
        .lock("locks/bill")
        .ttl(Duration::from_hours(1))
        .acquire()
        .await
        .unwrap();
    connection.cut();
    sleep(Duration::from_mins(21)).await;
    assert!(!held.is_lost());
    let released = timeout(Duration::from_mins(1), held.release())
        .await
        .expect("it waits for the deadline");
    assert_eq!(*released.unwrap_err().kind(), ErrorKind::Unknown);
}
