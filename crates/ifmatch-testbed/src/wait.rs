//! Limits of waits.

use std::time::Duration;

/// Limit of each wait, far beyond what a busy machine needs.
pub const LIMIT: Duration = Duration::from_mins(5);

/// Waits for something that a test expects.
///
/// # Panics
/// After five minutes, with the name of what is missing.
pub async fn within<T>(name: &str, wait: impl Future<Output = T>) -> T {
    let Ok(done) = tokio::time::timeout(LIMIT, wait).await else { panic!("{name}: not within {LIMIT:?}") };
    done
}
