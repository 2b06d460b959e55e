//! Header fields of HTTP/2 requests in the form of HTTP/1, which other recipients expect.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

/// Removes white space around values. RFC 9113 §8.2.1 calls such a request malformed. As in HTTP/1, the white space is not part of
/// the value, so `Cookie`, `If-Match` and others mean the same to every recipient behind this server.
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

/// Joins the split fields into the single one that other recipients expect (RFC 9113 §8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) else { return };
    let mut cookie = first.to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        cookie.extend_from_slice(b"; ");
        cookie.extend_from_slice(crumb);
    }
    if let Ok(mut cookie) = HeaderValue::from_bytes(&cookie) {
        cookie.set_sensitive(true);
        headers.insert(COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, ETAG};

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

    #[test]
    fn split_cookies_are_joined_in_order() {
        for (crumbs, cookie) in
            [(&[][..], &[][..]), (&["a=1"], &["a=1"]), (&["a=1", "b=\u{e9}", "", "c=3"], &["a=1; b=\u{e9}; ; c=3"])]
        {
            let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("*/*"))]);
            for crumb in crumbs {
                headers.append(COOKIE, HeaderValue::from_bytes(crumb.as_bytes()).unwrap());
            }
            join_cookies(&mut headers);
            let joined: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
            assert_eq!(joined, cookie.iter().map(|cookie| cookie.as_bytes()).collect::<Vec<_>>());
        }
    }
}
