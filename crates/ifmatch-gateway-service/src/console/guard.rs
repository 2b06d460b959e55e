//! The checks of each request, and the header fields that confine each page.
//!
//! - A page of another site can't send a change: browsers say where a request comes from, and each form has a token that such a page
//!   can't read.
//! - A name that an attacker lets resolve to this machine (DNS rebinding) isn't a host of the console.
//! - Names, header fields and contents are data: the templates escape them, and no page can run a script but the console's own.

use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HOST, LAST_MODIFIED, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use ifmatch_gateway_config::access::host_check;

use super::inside::RequestFailure;

/// Tells browsers which pages may embed a response, such as by `<img>` (Fetch standard).
pub(crate) const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");
/// Tells browsers which pages may keep a reference to the window of a page (HTML standard).
const CROSS_ORIGIN_OPENER_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-opener-policy");

/// The content security policy of the console's own pages.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; frame-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The content security policy of the content of a blob: a document of no origin, that loads nothing and runs nothing.
const SANDBOX: &str = "sandbox; default-src 'none'; frame-ancestors 'self'";

/// Refuses a request for a foreign host, if the console has local ones only, and one that a foreign page sends.
pub(super) fn check(head: &Parts, is_secure: bool, is_local: bool) -> Result<(), RequestFailure> {
    if is_local && !host_check::is_for_this_machine(head) {
        let detail = "The console doesn't answer to this host name. Use 127.0.0.1 or localhost.";
        return Err(RequestFailure::new(StatusCode::MISDIRECTED_REQUEST, detail));
    }
    let field = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let is_foreign = !matches!(field("sec-fetch-site"), None | Some("same-origin" | "none"));
    let is_link = head.method == Method::GET
        && field("sec-fetch-mode") == Some("navigate")
        && field("sec-fetch-dest") == Some("document");
    let own = |host: &str| format!("{}://{host}", if is_secure { "https" } else { "http" });
    let host = head
        .uri
        .authority()
        .map(Authority::as_str)
        .or(field(HOST.as_str()))
        .unwrap_or_default();
    let is_of_foreign_origin =
        !head.method.is_safe() && field(ORIGIN.as_str()).is_some_and(|origin| origin != own(host));
    if is_foreign && !is_link || is_of_foreign_origin {
        return Err(RequestFailure::new(
            StatusCode::FORBIDDEN,
            "Another site sent this request. Open the console itself.",
        ));
    }
    Ok(())
}

/// Confines a page of the console.
pub(super) fn protect(headers: &mut HeaderMap) {
    // `no-referrer` would hide the origin of forms, too.
    add(headers, POLICY, "same-origin");
}

/// Confines the content of a blob. Of its own header fields, those stay that say how to read it.
pub(super) fn sandbox(headers: &mut HeaderMap) {
    let kept = [
        CONTENT_TYPE,
        CONTENT_LENGTH,
        CONTENT_ENCODING,
        ETAG,
        LAST_MODIFIED,
    ];
    *headers = kept
        .into_iter()
        .filter_map(|name| headers.get(&name).cloned().map(|value| (name, value)))
        .collect();
    add(headers, SANDBOX, "no-referrer");
}

/// Adds the fields that confine a response, with these policies for its content and for `Referer`.
fn add(headers: &mut HeaderMap, policy: &'static str, referrer: &'static str) {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, referrer),
        (CACHE_CONTROL, "no-store"),
        (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
        (CROSS_ORIGIN_OPENER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
