//! Random numbers from the system, drawn in batches because a system call costs more than its use.

use std::cell::RefCell;
use std::time::Duration;

use crate::platform;

/// Numbers per system call.
const BATCH: usize = 32;

thread_local! {
    /// Numbers drawn but not yet returned.
    static UNUSED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The system failed to provide random numbers.
#[derive(Debug, thiserror::Error)]
#[error("the system failed to provide random numbers")]
pub struct RandomError(#[source] platform::FillError);

/// Returns a random number, for example to distinguish racing writers.
///
/// # Errors
/// Fails if the system fails to provide random numbers.
pub fn nonce() -> Result<u64, RandomError> {
    UNUSED.with_borrow_mut(|unused| {
        if let Some(number) = unused.pop() {
            return Ok(number);
        }
        let mut bytes = [[0; 8]; BATCH];
        platform::fill(bytes.as_flattened_mut()).map_err(RandomError)?;
        let [first, rest @ ..] = bytes.map(u64::from_ne_bytes);
        unused.extend(rest);
        Ok(first)
    })
}

/// Returns random bytes, for example for a UUID.
///
/// # Errors
/// Fails if the system fails to provide random numbers.
pub fn random_bytes() -> Result<[u8; 16], RandomError> {
    Ok((u128::from(nonce()?) << 64 | u128::from(nonce()?)).to_ne_bytes())
}

/// Returns a random duration from half of `full` to `full`, so writers that met don't meet again.
pub fn jittered(full: Duration) -> Duration {
    // Without random numbers there is no jitter, which is slower but correct.
    let part = nonce().unwrap_or(u64::MAX) >> 48;
    let half = full / 2;
    half + half.mul_f64(f64::from(u16::try_from(part).unwrap_or(u16::MAX)) / f64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_repeats_within_or_across_threads() {
        let draw = || {
            (0..5 * BATCH)
                .map(|_| nonce().expect("random numbers"))
                .collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
        let numbers: Vec<u64> = threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect();
        let distinct: HashSet<u64> = numbers.iter().copied().collect();
        assert_eq!(
            (distinct.len(), numbers.len()),
            (4 * 5 * BATCH, 4 * 5 * BATCH)
        );
    }
}
