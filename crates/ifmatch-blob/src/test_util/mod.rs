//! Helpers for tests of stores and dialects: a manual clock, hooks before a store's steps, limited invocations, reopening.

use std::fmt::Debug;
use std::time::Duration;

pub use hooked::{Hook, Hooked, Step};
pub use ifmatch_runtime::ManualClock;
pub use invocation::Invocation;

mod hooked;
mod invocation;

/// Number of attempts, and the pause after each.
const ATTEMPTS: usize = 6_000;
const PAUSE: Duration = Duration::from_millis(10);

/// Opens a store once the tasks of the previous one, which was dropped, have released it.
///
/// # Panics
/// The store does not open within a minute.
pub async fn reopen<S, E: Debug>(open: impl AsyncFn() -> Result<S, E>) -> S {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match open().await {
            Ok(store) => return store,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("the store does not open: {last:?}")
}
