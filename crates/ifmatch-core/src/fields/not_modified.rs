//! The header fields of a 304 response (RFC 9110 §15.4.5).

use http::header::ETAG;
use http::{HeaderMap, HeaderName};

/// Turns a 200's header fields into the corresponding 304's.
///
/// Drops fields that describe the representation or its transfer, since the client has them. Keeps `Last-Modified` only
/// without an `ETag`. Keeps all other fields, since a 304 updates the client's stored response: the fields required by
/// the RFC (`Date`, `ETag`, `Vary`, `Cache-Control`, `Expires`, `Content-Location`), CORS fields, without which browsers
/// hide the response from the page, security policies, `Set-Cookie`, and unknown fields.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_core::fields::not_modified::retain_304_headers;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::ETAG, HeaderValue::from_static("\"v1\""));
/// headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
/// headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("10"));
/// retain_304_headers(&mut headers);
/// assert!(headers.contains_key(header::ETAG) && headers.contains_key(header::VARY));
/// assert!(!headers.contains_key(header::CONTENT_LENGTH));
/// ```
pub fn retain_304_headers(headers: &mut HeaderMap) {
    let tagged = headers.contains_key(ETAG);
    let dropped: Vec<HeaderName> = headers
        .keys()
        .filter(|name| !is_retained_by_304(name, tagged))
        .cloned()
        .collect();
    for name in dropped {
        headers.remove(name);
    }
}

/// Returns `true` if a 304 keeps this field of the corresponding 200. `tagged` is `true` if the 200 has an `ETag`.
///
/// ```
/// use http::header::{CONTENT_TYPE, LAST_MODIFIED, VARY};
/// use ifmatch_core::fields::not_modified::is_retained_by_304;
///
/// assert!(is_retained_by_304(&VARY, true));
/// assert!(!is_retained_by_304(&CONTENT_TYPE, true));
/// assert!(is_retained_by_304(&LAST_MODIFIED, false) && !is_retained_by_304(&LAST_MODIFIED, true));
/// ```
pub fn is_retained_by_304(name: &HeaderName, tagged: bool) -> bool {
    match name.as_str() {
        "accept-ranges"
        | "content-digest"
        | "content-disposition"
        | "content-encoding"
        | "content-language"
        | "content-length"
        | "content-md5"
        | "content-range"
        | "content-type"
        | "digest"
        | "repr-digest"
        | "trailer"
        | "transfer-encoding"
        | "unencoded-digest" => false,
        "last-modified" => !tagged,
        _ => true,
    }
}
