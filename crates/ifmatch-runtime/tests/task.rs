//! Detached tasks that complete, panic or have no runtime, and time limits.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use ifmatch_runtime::SystemClock;
use ifmatch_runtime::task::{detach, timeout};
use tokio::sync::{Notify, oneshot};

#[tokio::test]
async fn a_panic_gives_no_result_and_affects_no_other_task() {
    let go = Arc::new(Notify::new());
    let other = {
        let go = Arc::clone(&go);
        detach(async move { go.notified().await })
    };
    let panicked = detach(async { assert!(std::env::args().next().is_none(), "on purpose") });
    assert_eq!(panicked.result().await, None);
    go.notify_one();
    assert_eq!(other.result().await, Some(()));
}

#[tokio::test]
async fn a_task_outlives_its_handle() {
    let (go, gone) = oneshot::channel::<()>();
    let (done, finished) = oneshot::channel();
    let work = detach(async move {
        gone.await.unwrap();
        done.send(3).unwrap();
    });
    assert!(work.result().now_or_never().is_none());
    go.send(()).unwrap();
    assert_eq!(finished.await, Ok(3));
}

#[test]
fn without_a_runtime_there_is_no_result() {
    assert_eq!(detach(async { 3 }).result().now_or_never(), Some(None));
}

#[test]
fn a_task_ends_with_the_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let work = runtime.block_on(async { detach(pending::<()>()) });
    drop(runtime);
    assert_eq!(work.result().now_or_never(), Some(None));
}

#[tokio::test(start_paused = true)]
async fn a_future_is_dropped_when_its_limit_is_exceeded() {
    let (held, dropped) = oneshot::channel::<()>();
    let limit = Duration::from_secs(5);
    let work = async move {
        let _held = held;
        pending::<()>().await;
    };
    let elapsed = timeout(&SystemClock, limit, work).await.unwrap_err();
    assert_eq!(elapsed.to_string(), "not done within 5s");
    assert!(
        dropped
            .now_or_never()
            .expect("the work was dropped")
            .is_err()
    );
    let slow = async {
        tokio::time::sleep(limit / 2).await;
        3
    };
    assert_eq!(timeout(&SystemClock, limit, slow).await, Ok(3));
    assert_eq!(
        timeout(&SystemClock, Duration::ZERO, async { 3 }).await,
        Ok(3)
    );
}
