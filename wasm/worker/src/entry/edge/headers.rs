//! Header fields. The runtime's are texts with a character for each byte.
//!
//! They go in and out as one text each: a call of the runtime for each field would take longer than all else that is done
//! with them.

use http::{HeaderMap, HeaderName, HeaderValue};
use js_sys::{Array, JSON};
use wasm_bindgen::JsValue;
use worker::{Error, Result, web_sys};

/// What no field has in it.
const BREAK: &str = "\n";

/// The fields of a request. The runtime joins those that came several times with a comma.
pub(crate) fn from_js(headers: &web_sys::Headers) -> Result<HeaderMap> {
    let fields = Array::from(headers).flat(1).join(BREAK);
    parse(&String::from(fields))
}

/// The same for a response, as the runtime's functions take it.
pub(crate) fn to_js(map: &HeaderMap) -> Result<JsValue> {
    let fields: Vec<_> = map.iter().map(|(name, value)| (name.as_str(), text(value.as_bytes()))).collect();
    Ok(JSON::parse(&serde_json::to_string(&fields)?)?)
}

/// Names and values in turn.
fn parse(fields: &str) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    let mut fields = fields.split(BREAK);
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(odd)?;
        map.append(name, HeaderValue::from_bytes(&bytes(value)).map_err(odd)?);
    }
    Ok(map)
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
    #![allow(clippy::unwrap_used, reason = "a test speaks by panicking")]

    use super::*;

    #[test]
    fn every_byte_is_a_character() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes(&text(&all)), all);
        assert_eq!(bytes("a\u{20ac}"), "a\u{20ac}".as_bytes());
    }

    #[test]
    fn fields_are_told_apart_and_may_be_empty() {
        let map = parse("accept\n\nif-match\n\"a\", \"\u{e4}\"\nx\n1").unwrap();
        let found: Vec<_> = map.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(found, [("accept", &b""[..]), ("if-match", b"\"a\", \"\xe4\""), ("x", b"1")]);
        assert!(parse("").unwrap().is_empty());
        assert!(parse("a b\n1").is_err());
    }
}
