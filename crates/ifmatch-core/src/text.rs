//! Header values from text that this crate formats.

use http::HeaderValue;

/// Creates a header value from text that consists of visible ASCII characters and spaces by construction.
#[expect(clippy::expect_used, reason = "every caller formats digits, names and base64 only")]
pub(crate) fn header_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("the text is visible ASCII")
}
