//! Text that this crate writes itself, and header values of it.

use http::HeaderValue;

/// Makes a header value of text that consists of visible ASCII characters and spaces by construction.
#[expect(clippy::expect_used, reason = "every caller formats digits, names and base64 only")]
pub(crate) fn header_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("the text is visible ASCII")
}

/// Bytes in lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut digits = vec![b'0'; 2 * bytes.len()];
    // The room is that of two digits for each byte.
    let _ = hex::encode_to_slice(bytes, &mut digits);
    String::from_utf8(digits).unwrap_or_default()
}
