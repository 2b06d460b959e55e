//! What a write makes invalid (RFC 9111 §4.4).

use http::header::{CONTENT_LOCATION, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use url::{Position, Url};

use super::fields::percent_encode;

/// Whether a method may change something on the origin. Methods unknown here may.
///
/// ```
/// use http::Method;
/// use ifmatch_cache::policy::invalidate::is_unsafe;
/// assert!(is_unsafe(&Method::PATCH));
/// assert!(is_unsafe(&Method::from_bytes(b"M-SEARCH").unwrap()));
/// assert!(!is_unsafe(&Method::from_bytes(b"QUERY").unwrap()));
/// ```
pub fn is_unsafe(method: &Method) -> bool {
    let registered = ["QUERY", "PROPFIND", "REPORT", "SEARCH", "PRI", "CONNECT"];
    !method.is_safe() && !registered.contains(&method.as_str())
}

/// Whether the response to an unsafe request makes stored responses invalid: it is no error.
///
/// ```
/// use http::StatusCode;
/// use ifmatch_cache::policy::invalidate::invalidates;
/// assert!(invalidates(StatusCode::SEE_OTHER) && !invalidates(StatusCode::CONFLICT));
/// ```
pub fn invalidates(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}

/// The other URIs that a response makes invalid: those in `Location` and `Content-Location`, if they are of the same
/// origin as the target. Each is the path and query, as the URL standard writes them. A URI without a path has `/`;
/// fragments are left out. Bytes beyond ASCII stand for themselves.
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
    lines.filter_map(|line| same_origin(target, line)).map(|url| url[Position::BeforePath..].to_owned()).collect()
}

/// The URI that a reference means where it is found, if it has the same origin.
pub(crate) fn same_origin(target: &str, reference: &HeaderValue) -> Option<Url> {
    let base = Url::parse(target).ok()?;
    let mut url = base.join(as_ascii(reference.as_bytes()).trim()).ok()?;
    url.set_fragment(None);
    (url.origin() == base.origin()).then_some(url)
}

/// A text in which bytes beyond ASCII are percent-encoded.
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
