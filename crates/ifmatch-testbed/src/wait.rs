//! Limits of waits.

use std::time::Duration;

/// Limit of each wait, far beyond what a busy machine needs.
const LIMIT: Duration = Duration::from_mins(5);

/// Waits for something that a test expects.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let answer = ifmatch_testbed::within("the answer", async { 42 }).await;
/// assert_eq!(answer, 42);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
/// After five minutes, with the name of what is missing.
pub async fn within<T>(name: &str, wait: impl Future<Output = T>) -> T {
    let Ok(done) = tokio::time::timeout(LIMIT, wait).await else { panic!("{name}: not within {LIMIT:?}") };
    done
}
