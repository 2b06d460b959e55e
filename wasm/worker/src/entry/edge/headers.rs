//! Header fields. The runtime's are texts with a character for each byte; all of a message go in and out as one text.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use worker::{Error, Result};

/// What no field has in it.
const BREAK: char = '\n';

/// Reads names and values in turn. The runtime joins those that came several times with a comma.
///
/// # Errors
/// One of them is none that HTTP can have.
pub(crate) fn read<'a>(mut fields: impl Iterator<Item = &'a str>) -> Result<HeaderMap> {
    let mut map = HeaderMap::with_capacity(16);
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(odd)?;
        map.append(name, HeaderValue::from_bytes(&bytes(value)).map_err(odd)?);
    }
    Ok(map)
}

/// Names and values in turn, a line each.
pub(crate) fn write(map: &HeaderMap) -> String {
    let mut fields = String::with_capacity(512);
    for (name, value) in map {
        if !fields.is_empty() {
            fields.push(BREAK);
        }
        fields.push_str(name.as_str());
        fields.push(BREAK);
        match value.to_str() {
            Ok(text) => fields.push_str(text),
            Err(_) => fields.extend(value.as_bytes().iter().copied().map(char::from)),
        }
    }
    fields
}

/// A byte for each character. A character that is no byte was none on the wire either: it stays what it is in UTF-8.
fn bytes(text: &str) -> Cow<'_, [u8]> {
    if text.is_ascii() {
        return text.as_bytes().into();
    }
    let bytes: Option<Vec<u8>> = text.chars().map(|char| u8::try_from(char).ok()).collect();
    bytes.map_or(text.as_bytes().into(), Into::into)
}

fn odd(error: impl Into<http::Error>) -> Error {
    Error::from(error.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test speaks by panicking")]

    use super::*;

    #[test]
    fn every_byte_is_a_character() {
        let all: Vec<u8> = (0..=255).collect();
        let text: String = all.iter().copied().map(char::from).collect();
        assert_eq!(bytes(&text), all.as_slice());
        for text in ["a\u{20ac}", "a"] {
            assert_eq!(bytes(text), text.as_bytes());
        }
    }

    #[test]
    fn fields_are_told_apart_and_may_be_empty() {
        let text = "accept\n\nif-match\n\"a\", \"\u{e4}\"\nx\n1";
        let map = read(text.split(BREAK)).unwrap();
        let found: Vec<_> = map.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(found, [("accept", &b""[..]), ("if-match", b"\"a\", \"\xe4\""), ("x", b"1")]);
        assert_eq!(write(&map), text);
        assert!(read(std::iter::empty()).unwrap().is_empty());
        assert!(read("a b\n1".split(BREAK)).is_err());
    }
}
