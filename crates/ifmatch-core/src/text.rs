//! Text that this crate writes itself, and header values of it.

use http::HeaderValue;

/// Makes a header value of text that consists of visible ASCII characters and spaces by construction.
#[expect(clippy::expect_used, reason = "every caller formats digits, names and base64 only")]
pub(crate) fn header_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("the text is visible ASCII")
}

/// Bytes in lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        digits.push(digit(byte >> 4));
        digits.push(digit(byte & 0xf));
    }
    digits
}
