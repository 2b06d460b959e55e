//! A function of one's own that runs detached work: one for the whole process, so that this file has one test.

#![allow(clippy::unwrap_used, reason = "a test speaks by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};

use ifmatch_store::task::{Work, detach, spawn_by};

static ASKED: AtomicUsize = AtomicUsize::new(0);

fn spawner(work: Work) {
    ASKED.fetch_add(1, Ordering::Relaxed);
    tokio::spawn(work);
}

#[tokio::test]
async fn all_detached_work_is_run_by_the_first_spawner() {
    assert_eq!(detach(async { 1 }).result().await, Some(1));
    assert!(spawn_by(spawner));
    assert!(!spawn_by(|_| ()));
    assert_eq!(detach(async { 2 }).result().await, Some(2));
    let panicked = detach(async { assert!(std::env::args().next().is_none(), "on purpose") });
    assert_eq!(panicked.result().await, None);
    assert_eq!(ASKED.load(Ordering::Relaxed), 2);
}
