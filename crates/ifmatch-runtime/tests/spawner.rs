//! A custom spawner. It is set for the whole process, so this file has a single test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Mutex;

use futures_util::FutureExt;
use ifmatch_runtime::task::{Work, detach, spawn_by};

static QUEUE: Mutex<Vec<Work>> = Mutex::new(Vec::new());

/// Runs the detached work on this thread, so panics reach the test.
fn run() -> usize {
    let queue = std::mem::take(&mut *QUEUE.lock().unwrap());
    let number = queue.len();
    assert!(queue.into_iter().all(|work| work.now_or_never().is_some()));
    number
}

#[tokio::test]
async fn all_detached_work_is_run_by_the_first_spawner_and_does_not_panic() {
    assert_eq!(detach(async { 1 }).result().await, Some(1));
    assert!(spawn_by(|work| QUEUE.lock().unwrap().push(work)));
    assert!(!spawn_by(|_| ()));
    let done = detach(async { 2 });
    let panicked = detach(async { assert!(std::env::args().next().is_none(), "on purpose") });
    assert_eq!(run(), 2);
    assert_eq!(
        (done.result().await, panicked.result().await),
        (Some(2), None)
    );
    drop(detach(async { 3 }));
    assert_eq!(run(), 1, "work without a handle runs");
}
