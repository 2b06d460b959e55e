//! Request ids: the client's own if it can be passed on, else a new one.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::{HeaderName, HeaderValue};

/// The header that carries a request's id, both ways.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken from a client, in bytes.
const LONGEST: usize = 128;

/// The hexadecimal digits of a number.
const DIGITS: usize = 16;

/// Makes ids: a random part for each process, and a count.
#[derive(Debug)]
pub(crate) struct RequestIds {
    process: [u8; DIGITS],
    count: AtomicU64,
}

impl RequestIds {
    /// A new random part.
    pub(crate) fn new() -> Self {
        Self { process: hex(RandomState::new().hash_one(std::process::id())), count: AtomicU64::new(0) }
    }

    /// The id of a request whose client sent `given`.
    pub(crate) fn of(&self, given: Option<&HeaderValue>) -> HeaderValue {
        match given {
            Some(id) if passes(id.as_bytes()) => id.clone(),
            _ => self.next(),
        }
    }

    fn next(&self) -> HeaderValue {
        let mut text = [0; 2 * DIGITS];
        let (process, count) = text.split_at_mut(DIGITS);
        process.copy_from_slice(&self.process);
        count.copy_from_slice(&hex(self.count.fetch_add(1, Relaxed)));
        // Digits are always a header value.
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

/// An id goes into logs and headers as it is, so it must be plain.
fn passes(id: &[u8]) -> bool {
    (1..=LONGEST).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ids_differ_and_plain_ones_are_kept() {
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
        let long = "x".repeat(LONGEST + 1);
        for given in ["", "two words", "tab\there", "caf\u{e9}", &long] {
            let given = HeaderValue::from_bytes(given.as_bytes()).unwrap();
            assert_eq!(ids.of(Some(&given)).len(), 32, "{given:?}");
        }
    }
}
