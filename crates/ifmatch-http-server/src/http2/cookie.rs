//! Joining of cookies, which HTTP/2 clients may split into several fields.

use http::{HeaderMap, HeaderValue, header};

/// Joins the split fields into the single one that other recipients expect (RFC 9113 §8.2.3).
pub(super) fn join(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes);
    let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) else { return };
    let mut cookie = first.to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        cookie.extend_from_slice(b"; ");
        cookie.extend_from_slice(crumb);
    }
    if let Ok(mut cookie) = HeaderValue::from_bytes(&cookie) {
        cookie.set_sensitive(true);
        headers.insert(header::COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_cookies_are_joined_in_order() {
        for (crumbs, cookie) in
            [(&[][..], &[][..]), (&["a=1"], &["a=1"]), (&["a=1", "b=\u{e9}", "", "c=3"], &["a=1; b=\u{e9}; ; c=3"])]
        {
            let mut headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("*/*"))]);
            for crumb in crumbs {
                headers.append(header::COOKIE, HeaderValue::from_bytes(crumb.as_bytes()).unwrap());
            }
            join(&mut headers);
            let joined: Vec<_> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
            assert_eq!(joined, cookie.iter().map(|cookie| cookie.as_bytes()).collect::<Vec<_>>());
        }
    }
}
