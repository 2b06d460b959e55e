//! The queue: each job is taken by one worker at a time, and by another one after a crash.

use std::time::Duration;

use futures_util::future::join_all;
use ifmatch_client::{Client, ErrorKind};

use crate::store::{Fault, Stoppable, Store};

const VISIBILITY: Duration = Duration::from_mins(1);

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
    let mut done = join_all([worker(), worker(), worker(), worker()]).await.concat();
    done.sort_unstable();
    assert_eq!(done, (0..40).collect::<Vec<u32>>());
    assert!(store.client().backend().list("jobs/").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_job_of_a_crashed_worker_is_taken_again_and_cannot_be_finished_late() {
    let store = Store::default();
    let clock = Stoppable::default();
    let stopped = Client::new(store.connect()).with_clock(clock.clone()).queue("jobs");
    stopped.push(&"resize").await.unwrap();
    let first = stopped.take(VISIBILITY).await.unwrap().unwrap();
    clock.stop();
    let queue = store.client().queue("jobs");
    assert!(queue.take(VISIBILITY).await.unwrap().is_none());
    tokio::time::sleep(VISIBILITY).await;
    let second = queue.take(VISIBILITY).await.unwrap().unwrap();
    assert_eq!((second.attempts(), second.payload::<String>().unwrap().as_str()), (2, "resize"));
    assert!(second.fence() > first.fence());
    clock.resume();
    assert_eq!(*first.done().await.unwrap_err().kind(), ErrorKind::Lost);
    second.done().await.unwrap();
    assert!(queue.take(VISIBILITY).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_no_job_does_not_hold_up_the_jobs() {
    let client = Store::default().client();
    client.json::<String>("jobs/0").create("not a job".to_owned()).await.unwrap();
    let queue = client.queue("jobs");
    queue.push(&"resize").await.unwrap();
    let job = queue.take(VISIBILITY).await.unwrap().unwrap();
    assert_eq!(job.payload::<String>().unwrap(), "resize");
    job.done().await.unwrap();
    // It is reported when nothing else is left.
    assert_eq!(*queue.take(VISIBILITY).await.unwrap_err().kind(), ErrorKind::Refused);
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
    assert_eq!((again.payload::<String>().unwrap().as_str(), again.attempts()), ("a", 2));
}
