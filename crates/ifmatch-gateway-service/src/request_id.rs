//! Request ids: the client's id if it is safe to pass on, or a new one. And the escaping of other texts of clients in logs.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// The header with the id of a request, in requests and responses.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

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
        Self {
            process: hex(RandomState::new().hash_one(std::process::id())),
            count: AtomicU64::new(0),
        }
    }

    /// Returns the id that the client has `given` if it is safe, or a new one.
    pub(crate) fn of(&self, given: Option<&HeaderValue>) -> HeaderValue {
        match given {
            Some(id) if is_safe(id.as_bytes()) => id.clone(),
            _ => self.next(),
        }
    }

    /// Returns a new id.
    fn next(&self) -> HeaderValue {
        let mut text = [0; 2 * DIGITS];
        let (process, count) = text.split_at_mut(DIGITS);
        process.copy_from_slice(&self.process);
        count.copy_from_slice(&hex(self.count.fetch_add(1, Relaxed)));
        // Digits are always a valid header value.
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("0"))
    }
}

/// Returns a number in hexadecimal digits, with leading zeros.
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

/// ASCII characters that are percent-encoded in a field that has words, in addition to all non-ASCII characters. By a backslash, some
/// programs escape the end of a field.
const TEXT: &AsciiSet = &CONTROLS.add(b'"').add(b'\\');

/// Those of a field without spaces.
const WORD: &AsciiSet = &TEXT.add(b' ');

/// Escapes a field that has words. Bytes that aren't UTF-8 become replacement characters first.
pub(crate) fn escape_text(value: &[u8]) -> String {
    utf8_percent_encode(&String::from_utf8_lossy(value), TEXT).to_string()
}

/// Escapes a field without spaces, such as a path or a host.
pub(crate) fn escape(word: &str) -> impl fmt::Display + '_ {
    utf8_percent_encode(word, WORD)
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

    #[test]
    fn words_keep_their_spaces_and_cannot_end_a_field() {
        for (value, shown) in [
            (&b"curl/8 (x)"[..], "curl/8 (x)"),
            (b"a\" 200 5 \"", "a%22 200 5 %22"),
            (b"a\\", "a%5C"),
            (b"a\x1b[2J\tb\xff", "a%1B[2J%09b%EF%BF%BD"),
        ] {
            assert_eq!(escape_text(value), shown);
        }
    }

    #[test]
    fn control_and_non_ascii_characters_are_escaped() {
        for (path, shown) in [
            ("/c/a%20b{}|^`~", "/c/a%20b{}|^`~"),
            ("/c/a\"b", "/c/a%22b"),
            ("/c/a\\", "/c/a%5C"),
            ("/c/\u{9b}31m", "/c/%C2%9B31m"),
            ("/c/\u{202e}x", "/c/%E2%80%AEx"),
            ("/c/a\u{2003}status=200", "/c/a%E2%80%83status=200"),
            ("/c/\u{1b}\u{7f} ", "/c/%1B%7F%20"),
        ] {
            assert_eq!(escape(path).to_string(), shown);
        }
    }
}
