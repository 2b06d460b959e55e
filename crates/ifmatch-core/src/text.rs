//! Digits, and header values from text that this crate formats.

use http::HeaderValue;

/// Creates a header value from text that consists of visible ASCII characters and spaces by construction.
#[expect(clippy::expect_used, reason = "every caller formats digits, names and base64 only")]
pub(crate) fn header_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("the text is visible ASCII")
}

/// Returns bytes in lower-case hexadecimal. Takes a third of the instructions of `hex::encode`, which pushes the digits
/// onto a string one at a time.
#[cfg(feature = "protocol")]
#[expect(clippy::expect_used, reason = "the buffer has two bytes for each byte, and digits are ASCII")]
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut digits = vec![0; 2 * bytes.len()];
    hex::encode_to_slice(bytes, &mut digits).expect("the buffer is long enough");
    String::from_utf8(digits).expect("digits are ASCII")
}
