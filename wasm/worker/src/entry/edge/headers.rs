//! Header fields. The runtime's values are strings with one character per byte.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use worker::{Error, Headers, Result};

/// Reads the runtime's header fields, which joins repeated ones with a comma.
///
/// # Errors
/// A name or value is not valid in HTTP, or there are too many.
pub(crate) fn from_js(fields: &Headers) -> Result<HeaderMap> {
    let mut map = HeaderMap::with_capacity(16);
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(invalid)?;
        map.try_append(name, HeaderValue::from_bytes(&bytes(&value)).map_err(invalid)?).map_err(invalid)?;
    }
    Ok(map)
}

/// Writes header fields for the runtime.
///
/// # Errors
/// The runtime rejects a field.
pub(crate) fn to_js(map: &HeaderMap) -> Result<Headers> {
    let fields = Headers::new();
    for (name, value) in map {
        fields.append(name.as_str(), &text(value))?;
    }
    Ok(fields)
}

/// Returns one byte per character. Text with a character above 255 is kept as UTF-8.
fn bytes(text: &str) -> Cow<'_, [u8]> {
    if text.is_ascii() {
        return text.as_bytes().into();
    }
    let bytes: Option<Vec<u8>> = text.chars().map(|char| u8::try_from(char).ok()).collect();
    bytes.map_or(text.as_bytes().into(), Into::into)
}

/// Returns one character per byte.
fn text(value: &HeaderValue) -> Cow<'_, str> {
    value.to_str().map_or_else(|_| value.as_bytes().iter().copied().map(char::from).collect(), Cow::Borrowed)
}

fn invalid(error: impl Into<http::Error>) -> Error {
    Error::from(error.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn each_byte_is_one_character() {
        let all: Vec<u8> = (0..=255).collect();
        let latin: String = all.iter().copied().map(char::from).collect();
        assert_eq!(bytes(&latin), all.as_slice());
        for text in ["a\u{20ac}", "a"] {
            assert_eq!(bytes(text), text.as_bytes());
        }
        assert_eq!(text(&HeaderValue::from_bytes(b"\"a\", \"\xe4\"").unwrap()), "\"a\", \"\u{e4}\"");
        assert_eq!(text(&HeaderValue::from_static("")), "");
    }
}
