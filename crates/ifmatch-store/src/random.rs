//! Random numbers from the system, drawn several at a time: to ask the system takes longer than all that is done with one.

use std::cell::RefCell;

use crate::register::{RegisterError, RegisterErrorKind};

/// How many numbers are drawn at a time.
const DRAWN: usize = 32;

thread_local! {
    /// Those that nobody has been given yet.
    static REST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A random number that tells racing writers apart.
///
/// # Errors
/// If the system has no random numbers to give.
///
/// ```
/// assert_ne!(ifmatch_store::nonce()?, ifmatch_store::nonce()?);
/// # Ok::<(), ifmatch_store::register::RegisterError>(())
/// ```
pub fn nonce() -> Result<u64, RegisterError> {
    REST.with_borrow_mut(|rest| match rest.pop() {
        Some(number) => Ok(number),
        None => draw(rest),
    })
}

/// Fills up the rest, and gives one more.
fn draw(rest: &mut Vec<u64>) -> Result<u64, RegisterError> {
    let mut bytes = [0; 8 * DRAWN];
    getrandom::fill(&mut bytes)
        .map_err(|error| RegisterError::new(RegisterErrorKind::Unavailable, error.to_string()))?;
    let (numbers, _) = bytes.as_chunks();
    rest.extend(numbers.iter().map(|number| u64::from_ne_bytes(*number)));
    rest.pop().ok_or_else(|| RegisterErrorKind::Unavailable.into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_is_given_twice_on_any_thread() {
        let draw = || (0..5 * DRAWN).map(|_| nonce().expect("the system has some")).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
        let numbers: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect();
        let different: HashSet<u64> = numbers.iter().copied().collect();
        assert_eq!((different.len(), numbers.len()), (4 * 5 * DRAWN, 4 * 5 * DRAWN));
    }
}
