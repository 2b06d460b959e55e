//! Invalidation by unsafe requests (RFC 9111 §4.4).

use http::header::{CONTENT_LOCATION, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use url::{Position, Url};

use super::fields::percent_encode;

/// Returns `true` if a method may change state on the origin. Unknown methods count as unsafe.
///
/// ```
/// use http::Method;
/// use ifmatch_cache::policy::invalidate::is_unsafe;
/// assert!(is_unsafe(&Method::PATCH));
/// assert!(is_unsafe(&Method::from_bytes(b"M-SEARCH").unwrap()));
/// assert!(!is_unsafe(&Method::from_bytes(b"QUERY").unwrap()));
/// ```
pub fn is_unsafe(method: &Method) -> bool {
    // Safe methods that `Method` doesn't know, and two that are for no resource.
    let harmless = ["QUERY", "PROPFIND", "REPORT", "SEARCH", "PRI", "CONNECT"];
    !method.is_safe() && !harmless.contains(&method.as_str())
}

/// Returns `true` if a response with this status to an unsafe request invalidates stored responses: it isn't an error.
///
/// ```
/// use http::StatusCode;
/// use ifmatch_cache::policy::invalidate::invalidates;
/// assert!(invalidates(StatusCode::SEE_OTHER) && !invalidates(StatusCode::CONFLICT));
/// ```
pub fn invalidates(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}

/// Returns the other URIs that a response invalidates: those in `Location` and `Content-Location` with the same origin as
/// the target. Returns their path and query as normalized by the URL standard, without the fragment. An empty path becomes
/// `/`. Non-ASCII bytes are percent-encoded.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::invalidate::also_changed;
///
/// let mut headers = HeaderMap::new();
/// headers.append(header::LOCATION, HeaderValue::from_static("../b#top"));
/// headers.append(header::CONTENT_LOCATION, HeaderValue::from_static("http://other.example/b"));
/// assert_eq!(also_changed("http://a.example/x/y", &headers), ["/b"]);
/// ```
pub fn also_changed(target: &str, response: &HeaderMap) -> Vec<String> {
    let fields = [LOCATION, CONTENT_LOCATION];
    let lines = fields.iter().flat_map(|name| response.get_all(name));
    lines
        .filter_map(|line| same_origin(target, line))
        .map(|url| url[Position::BeforePath..].to_owned())
        .collect()
}

/// Resolves a reference against the target. Returns `None` if the origins differ.
pub(crate) fn same_origin(target: &str, reference: &HeaderValue) -> Option<Url> {
    let base = Url::parse(target).ok()?;
    let mut url = base.join(as_ascii(reference.as_bytes()).trim()).ok()?;
    url.set_fragment(None);
    (url.origin() == base.origin()).then_some(url)
}

/// Percent-encodes non-ASCII bytes.
fn as_ascii(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            0..128 => text.push(char::from(*byte)),
            128.. => percent_encode(*byte, &mut text),
        }
    }
    text
}
