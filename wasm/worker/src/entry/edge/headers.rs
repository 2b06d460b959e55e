//! Header fields. The runtime's are texts with a character for each byte.

use http::{HeaderMap, HeaderName, HeaderValue};
use worker::{Error, Result, web_sys};

/// The fields of a request. The runtime joins those that came several times with a comma.
pub(crate) fn from_js(headers: &web_sys::Headers) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in worker::Headers(headers.clone()).entries() {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(odd)?;
        map.append(name, HeaderValue::from_bytes(&bytes(&value)).map_err(odd)?);
    }
    Ok(map)
}

/// The same for a response.
pub(crate) fn to_js(map: &HeaderMap) -> Result<web_sys::Headers> {
    let headers = web_sys::Headers::new()?;
    for (name, value) in map {
        headers.append(name.as_str(), &text(value.as_bytes()))?;
    }
    Ok(headers)
}

/// A byte for each character. A character that is no byte was none on the wire either: it stays what it is in UTF-8.
fn bytes(text: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = text.chars().map(|char| u8::try_from(char).ok()).collect();
    bytes.unwrap_or_else(|| text.as_bytes().to_vec())
}

/// A character for each byte.
fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn odd(error: impl Into<http::Error>) -> Error {
    Error::from(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_a_character() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes(&text(&all)), all);
        assert_eq!(bytes("a\u{20ac}"), "a\u{20ac}".as_bytes());
    }
}
