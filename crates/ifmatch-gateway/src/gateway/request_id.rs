//! Request ids: the client's id if it is safe to pass on, or a new one.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::{HeaderName, HeaderValue};

/// The header with the id of a request, in requests and responses.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length of an id from a client, in bytes.
const MAX_LENGTH: usize = 128;

/// Number of hexadecimal digits of a `u64`.
const DIGITS: usize = 16;

/// Generates ids from a random part per process and a counter.
#[derive(Debug)]
pub(crate) struct RequestIds {
    process: [u8; DIGITS],
    count: AtomicU64,
}

impl RequestIds {
    /// Chooses a new random part.
    pub(crate) fn new() -> Self {
        Self { process: hex(RandomState::new().hash_one(std::process::id())), count: AtomicU64::new(0) }
    }

    /// Returns the id that the client has `given` if it is safe, or a new one.
    pub(crate) fn of(&self, given: Option<&HeaderValue>) -> HeaderValue {
        match given {
            Some(id) if is_safe(id.as_bytes()) => id.clone(),
            _ => self.next(),
        }
    }

    fn next(&self) -> HeaderValue {
        let mut text = [0; 2 * DIGITS];
        let (process, count) = text.split_at_mut(DIGITS);
        process.copy_from_slice(&self.process);
        count.copy_from_slice(&hex(self.count.fetch_add(1, Relaxed)));
        // Digits are always a valid header value.
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("0"))
    }
}

fn hex(number: u64) -> [u8; DIGITS] {
    let mut rest = number;
    let mut text = [0; DIGITS];
    for digit in text.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(rest % 16) as usize];
        rest /= 16;
    }
    text
}

/// Returns `true` if an id can be copied into logs and headers.
fn is_safe(id: &[u8]) -> bool {
    (1..=MAX_LENGTH).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ids_are_unique_and_safe_ones_are_kept() {
        let ids = RequestIds::new();
        let (first, second) = (ids.of(None), ids.of(None));
        assert_ne!(first, second);
        assert_eq!(first.len(), 32);
        assert_eq!(hex(0x0123_4567_89ab_cdef), *b"0123456789abcdef");
        assert_ne!(RequestIds::new().of(None), RequestIds::new().of(None));
        let mine = HeaderValue::from_static("my-id");
        assert_eq!(ids.of(Some(&mine)), mine);
    }

    #[test]
    fn an_id_that_would_forge_a_log_line_is_replaced() {
        let ids = RequestIds::new();
        let long = "x".repeat(MAX_LENGTH + 1);
        for given in ["", "two words", "tab\there", "caf\u{e9}", &long] {
            let given = HeaderValue::from_bytes(given.as_bytes()).unwrap();
            assert_eq!(ids.of(Some(&given)).len(), 32, "{given:?}");
        }
    }
}
