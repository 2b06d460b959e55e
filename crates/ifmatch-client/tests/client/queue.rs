//! The queue: each job is taken by one worker at a time, and by another one after a crash.

use std::time::Duration;

use futures_util::future::{join, join_all};
use ifmatch_client::{Client, ErrorKind};
use tokio::time::timeout;

use crate::store::{Fault, Steady, Stoppable, Store};

const VISIBILITY: Duration = Duration::from_mins(1);
/// Time by which any operation of a client with the default settings has ended.
const LIMIT: Duration = Duration::from_mins(2);

#[tokio::test(start_paused = true)]
async fn workers_with_lost_answers_do_each_job_once() {
    let store = Store::default();
    let queue = store.client().queue("jobs");
    for number in 0..40 {
        queue.push(&number).await.unwrap();
    }
    store.fail(|number| match number % 3 {
        0 => Fault::Answer,
        1 => Fault::Request,
        _ => Fault::None,
    });
    let worker = || {
        let queue = store.client().queue("jobs");
        async move {
            let mut done = Vec::new();
            while let Some(job) = queue.take(VISIBILITY).await.unwrap() {
                assert_eq!(job.attempts(), 1);
                done.push(job.payload::<u32>().unwrap());
                job.done().await.unwrap();
            }
            done
        }
    };
    let mut done = join_all([worker(), worker(), worker(), worker()])
        .await
        .concat();
    done.sort_unstable();
    assert_eq!(done, (0..40).collect::<Vec<u32>>());
    assert!(
        store
            .client()
            .backend()
            .list("jobs/")
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_of_a_crashed_worker_is_taken_again_and_cannot_be_finished_late() {
    let store = Store::default();
    let clock = Stoppable::default();
    let stopped = Client::new(store.connect())
        .with_clock(clock.clone())
        .queue("jobs");
    stopped.push(&"resize").await.unwrap();
    let first = stopped.take(VISIBILITY).await.unwrap().unwrap();
    clock.stop();
    let queue = store.client().queue("jobs");
    assert!(queue.take(VISIBILITY).await.unwrap().is_none());
    tokio::time::sleep(VISIBILITY).await;
    let second = queue.take(VISIBILITY).await.unwrap().unwrap();
    assert_eq!(
        (
            second.attempts(),
            second.payload::<String>().unwrap().as_str()
        ),
        (2, "resize")
    );
    assert!(second.fence() > first.fence());
    clock.resume();
    assert_eq!(*first.done().await.unwrap_err().kind(), ErrorKind::Lost);
    second.done().await.unwrap();
    assert!(queue.take(VISIBILITY).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_no_job_does_not_hold_up_the_jobs() {
    let client = Store::default().client();
    client
        .json::<String>("jobs/0")
        .create("not a job".to_owned())
        .await
        .unwrap();
    let queue = client.queue("jobs");
    queue.push(&"resize").await.unwrap();
    let job = queue.take(VISIBILITY).await.unwrap().unwrap();
    assert_eq!(job.payload::<String>().unwrap(), "resize");
    job.done().await.unwrap();
    // It is reported when nothing else is left.
    assert_eq!(
        *queue.take(VISIBILITY).await.unwrap_err().kind(),
        ErrorKind::Refused
    );
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_job_is_available_at_once_and_jobs_keep_their_order() {
    let queue = Store::default().client().queue("jobs");
    for name in ["a", "b"] {
        queue.push(&name).await.unwrap();
    }
    let first = queue.take(VISIBILITY).await.unwrap().unwrap();
    assert_eq!(first.payload::<String>().unwrap(), "a");
    first.abandon().await.unwrap();
    let again = queue.take(VISIBILITY).await.unwrap().unwrap();
    assert_eq!(
        (
            again.payload::<String>().unwrap().as_str(),
            again.attempts()
        ),
        ("a", 2)
    );
}

/// The server accepts the connection and never answers the listing.
#[tokio::test(start_paused = true)]
async fn a_listing_without_an_answer_ends_the_take() {
    let store = Store::default();
    let connection = store.connect();
    let queue = Client::new(connection.clone())
        .with_clock(Steady)
        .queue("jobs");
    queue.push(&"resize").await.unwrap();
    connection.cut();
    let taken = timeout(LIMIT, queue.take(VISIBILITY))
        .await
        .expect("it waits for the listing without limit");
    assert_eq!(*taken.unwrap_err().kind(), ErrorKind::Unknown);
}

/// The job is marked as done. The network is cut before its deletion, right then or before the response.
#[tokio::test(start_paused = true)]
async fn a_deletion_without_an_answer_does_not_hold_up_the_worker() {
    for moment in 0..6 {
        let store = Store::default();
        let connection = store.connect();
        let queue = Client::new(connection.clone())
            .with_clock(Steady)
            .queue("jobs");
        queue.push(&"resize").await.unwrap();
        let job = queue.take(VISIBILITY).await.unwrap().unwrap();
        let cut = async {
            tokio::time::sleep(Duration::from_micros(500 + 1_000 * moment)).await;
            connection.cut();
        };
        let (done, ()) = tokio::join!(timeout(LIMIT, job.done()), cut);
        let done = done.unwrap_or_else(|_| panic!("it waits without limit, cut at {moment}"));
        assert!(done.is_ok() || *done.unwrap_err().kind() == ErrorKind::Unknown);
    }
}

/// An extension takes effect, and no response arrives.
#[tokio::test(start_paused = true)]
async fn a_job_whose_extension_was_not_answered_is_finished_or_its_end_is_unknown() {
    for is_cut_again in [false, true] {
        let store = Store::default();
        let connection = store.connect();
        let queue = Client::new(connection.clone())
            .with_clock(Steady)
            .queue("jobs");
        queue.push(&"resize").await.unwrap();
        let mut job = queue.take(VISIBILITY).await.unwrap().unwrap();
        let cut_after = async |millis| {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            connection.cut();
        };
        // The request takes a millisecond, and the response another one. `join` polls the cut first, so the response is lost.
        let ((), extended) = join(cut_after(2), timeout(LIMIT, job.extend(2 * VISIBILITY))).await;
        let unknown = extended
            .expect("the extension ends within two minutes")
            .unwrap_err();
        assert_eq!(*unknown.kind(), ErrorKind::Unknown);
        connection.heal();
        if is_cut_again {
            // The conflict arrives, and the read after it doesn't.
            let ((), done) = join(cut_after(3), timeout(LIMIT, job.done())).await;
            let unknown = done
                .expect("the end of the job is settled within two minutes")
                .unwrap_err();
            assert_eq!(*unknown.kind(), ErrorKind::Unknown);
        } else {
            let done = timeout(LIMIT, job.done())
                .await
                .expect("the job is finished within two minutes");
            done.expect("no other worker has taken it");
            assert!(
                store
                    .client()
                    .backend()
                    .list("jobs/")
                    .await
                    .unwrap()
                    .is_empty()
            );
        }
    }
}

/// The store answers reads, and no write arrives. The job would be hidden for a day.
#[tokio::test(start_paused = true)]
async fn a_take_without_an_answer_is_unknown_and_ends_long_before_the_visibility() {
    let store = Store::default();
    let queue = Client::new(store.connect())
        .with_clock(Steady)
        .queue("jobs");
    queue.push(&"resize").await.unwrap();
    store.fail(|_| Fault::Request);
    let taken = timeout(LIMIT, queue.take(Duration::from_hours(24)))
        .await
        .expect("it waits for most of a day");
    // `None` would mean that the queue is empty.
    assert_eq!(
        *taken.expect_err("nothing is known about the job").kind(),
        ErrorKind::Unknown
    );
}

/// Another request for the job is under way, for example the first attempt of this one. Nothing has changed.
#[tokio::test(start_paused = true)]
async fn a_job_is_finished_although_the_store_was_busy() {
    let store = Store::default();
    let queue = store.client().queue("jobs");
    queue.push(&"resize").await.unwrap();
    let job = queue.take(VISIBILITY).await.unwrap().unwrap();
    store.fail(|number| if number < 4 { Fault::Busy } else { Fault::None });
    job.done().await.expect("no other worker has taken it");
    assert!(queue.take(VISIBILITY).await.unwrap().is_none());
}

/// Its requests are lost until another worker has taken the job, done it, and deleted it.
#[tokio::test(start_paused = true)]
async fn a_late_worker_does_not_claim_the_job_that_another_one_has_done() {
    let store = Store::default();
    let connection = store.connect();
    let late = Client::new(connection.clone())
        .with_clock(Steady)
        .with_patience(Duration::from_hours(1));
    late.queue("jobs").push(&"resize").await.unwrap();
    let job = late.queue("jobs").take(VISIBILITY).await.unwrap().unwrap();
    connection.cut();
    let other = async {
        let job = store.client().queue("jobs").wait(VISIBILITY).await.unwrap();
        job.done().await.unwrap();
        connection.heal();
    };
    let (done, ()) = join(job.done(), other).await;
    assert_eq!(*done.unwrap_err().kind(), ErrorKind::Unknown);
}

/// Each worker takes one job and ends, as those that a timer starts. None sees the job for long.
#[tokio::test(start_paused = true)]
async fn workers_that_end_at_once_recover_a_job_by_the_dates_of_the_server() {
    for are_rounded_up in [false, true] {
        recover_a_job(are_rounded_up).await;
    }
}

async fn recover_a_job(dates_are_rounded_up: bool) {
    let store = Store::default();
    store.tell_dates(dates_are_rounded_up);
    let worker = || store.client().queue("jobs");
    worker().push(&"resize").await.unwrap();
    let mut crashed = worker().take(VISIBILITY).await.unwrap().unwrap();
    crashed.extend(2 * VISIBILITY).await.unwrap();
    tokio::time::sleep(VISIBILITY + VISIBILITY / 2).await;
    assert!(
        worker().take(VISIBILITY).await.unwrap().is_none(),
        "its time was extended"
    );
    tokio::time::sleep(VISIBILITY).await;
    let job = worker()
        .take(VISIBILITY)
        .await
        .unwrap()
        .expect("nobody works on it");
    assert_eq!(job.attempts(), 2);
    assert_eq!(
        *crashed.extend(VISIBILITY).await.unwrap_err().kind(),
        ErrorKind::Lost
    );
    job.abandon().await.unwrap();
    assert_no_clock_is_left(&store).await;
    assert!(
        worker()
            .max_attempts(2)
            .take(VISIBILITY)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        worker()
            .max_attempts(3)
            .take(VISIBILITY)
            .await
            .unwrap()
            .is_some()
    );
}

/// Checks that the queue has deleted each document that it wrote to read the clock of the dates.
async fn assert_no_clock_is_left(store: &Store) {
    let client = store.client();
    let left = client.backend().list("jobs.clock").await.unwrap();
    assert!(left.is_empty(), "a document wasn't deleted: {left:?}");
}

/// The job's date looks old to a queue that has read the clock before.
#[tokio::test(start_paused = true)]
async fn a_job_is_not_taken_again_because_the_clock_of_the_dates_was_set_back() {
    let store = Store::default();
    store.tell_dates(false);
    tokio::time::sleep(10 * VISIBILITY).await;
    let worker = || store.client().queue("jobs");
    let queue = worker();
    queue.push(&"resize 1.jpg").await.unwrap();
    drop(worker().take(VISIBILITY).await.unwrap().unwrap());
    tokio::time::sleep(2 * VISIBILITY).await;
    let recovered = queue.take(VISIBILITY).await.unwrap();
    recovered.expect("nobody works on it").done().await.unwrap();
    store.set_clock_back(5 * VISIBILITY);
    queue.push(&"resize 2.jpg").await.unwrap();
    drop(worker().take(VISIBILITY).await.unwrap().unwrap());
    assert!(
        queue.take(VISIBILITY).await.unwrap().is_none(),
        "another worker has just taken it"
    );
    tokio::time::sleep(2 * VISIBILITY).await;
    assert!(queue.take(VISIBILITY).await.unwrap().is_some());
}

/// The queue reads the clock of the dates from a document. Here, it can't write the document, or can't read it.
#[tokio::test(start_paused = true)]
async fn without_the_clock_of_the_dates_a_job_is_taken_after_it_was_seen_for_its_time() {
    for is_written in [false, true] {
        let store = Store::default();
        store.tell_dates(false);
        let worker = || store.client().queue("jobs");
        // It has proven by now that the store compares versions, so that it reads no document before it writes one.
        let late = worker();
        late.push(&"resize").await.unwrap();
        drop(worker().take(VISIBILITY).await.unwrap().unwrap());
        tokio::time::sleep(2 * VISIBILITY).await;
        if is_written {
            store.lose_reads_of("jobs.clock");
        } else {
            store.fail(|_| Fault::Request);
        }
        assert!(late.take(VISIBILITY).await.unwrap().is_none());
        store.fail(|_| Fault::None);
        store.lose_reads_of(None);
        tokio::time::sleep(2 * VISIBILITY).await;
        assert!(late.take(VISIBILITY).await.unwrap().is_some());
        assert_no_clock_is_left(&store).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_waits_for_the_next_job() {
    let store = Store::default();
    let queue = store.client().queue("jobs");
    let push = async {
        tokio::time::sleep(VISIBILITY).await;
        queue.push(&"resize").await.unwrap();
    };
    let wait = timeout(LIMIT, queue.wait(VISIBILITY));
    let (job, ()) = tokio::join!(wait, push);
    assert_eq!(
        job.expect("a job within two minutes")
            .unwrap()
            .payload::<String>()
            .unwrap(),
        "resize"
    );
}
