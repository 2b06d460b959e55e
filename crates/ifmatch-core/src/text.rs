//! Digits, and header values from text that this crate formats.

use http::HeaderValue;

/// Creates a header value from text that consists of visible ASCII characters and spaces by construction.
#[expect(
    clippy::expect_used,
    reason = "every caller formats digits, names and base64 only"
)]
pub(crate) fn header_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("the text is visible ASCII")
}

/// Returns bytes in lower-case hexadecimal.
#[cfg(feature = "protocol")]
#[expect(clippy::expect_used, reason = "digits are ASCII")]
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = vec![0; 2 * bytes.len()];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]);
    }
    String::from_utf8(text).expect("digits are ASCII")
}
