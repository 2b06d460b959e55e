//! White space around field values, which HTTP/2 forbids and HTTP/1 removes.

use http::{HeaderMap, HeaderValue};

/// Removes white space around values. RFC 9113 §8.2.1 calls such a request malformed; like in HTTP/1, it is no part of the value,
/// so that `Cookie`, `If-Match` and others mean the same to everyone behind this server.
pub(super) fn trim(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        let trimmed = value.as_bytes().trim_ascii();
        if trimmed.len() == value.len() {
            continue;
        }
        if let Ok(mut trimmed) = HeaderValue::from_bytes(trimmed) {
            trimmed.set_sensitive(value.is_sensitive());
            *value = trimmed;
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::{COOKIE, ETAG};

    use super::*;

    #[test]
    fn blanks_are_removed_around_values_only() {
        let fields = [(ETAG, " \t\"a b\" "), (COOKIE, "a=b; c=d"), (COOKIE, "  ")];
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::from_static(value));
        }
        trim(&mut headers);
        let values: Vec<_> = headers.iter().map(|(_, value)| value.to_str().unwrap()).collect();
        assert_eq!(values, ["\"a b\"", "a=b; c=d", ""]);
    }
}
