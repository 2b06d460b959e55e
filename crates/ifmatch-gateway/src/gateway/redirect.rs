//! The redirection from HTTP to the same URL with TLS.

use bytes::Bytes;
use http::header::{HOST, LOCATION};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode};
use ifmatch_core::fields;
use ifmatch_core::problem::Problem;

/// The port of https, which URLs omit.
const HTTPS: u16 = 443;

/// Returns 308 to the URL of a request with `https` and this port, or 400 if the request names no valid host.
pub(super) fn to_tls<B>(request: &Request<B>, port: u16) -> Response<Bytes> {
    let named = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let field = || fields::lines(request.headers(), HOST).next().map(HeaderValue::as_bytes);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    match named.or_else(field).and_then(|host| location(host, port, path)) {
        Some(location) => {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
            response.headers_mut().insert(LOCATION, location);
            response
        }
        None => Problem::bad_request("name a valid host, and a path").to_response(),
    }
}

fn location(host: &[u8], port: u16, path: &str) -> Option<HeaderValue> {
    let authority = Authority::try_from(host).ok().filter(|authority| !authority.as_str().contains('@'))?;
    let host = authority.host();
    if host.is_empty() || !path.starts_with('/') {
        return None;
    }
    let url = if port == HTTPS { format!("https://{host}{path}") } else { format!("https://{host}:{port}{path}") };
    HeaderValue::from_str(&url).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_has_the_host_the_port_of_tls_and_the_path() {
        for (host, port, path, expected) in [
            ("a.example", 443, "/x?y", Some("https://a.example/x?y")),
            ("a.example:80", 443, "//evil.example", Some("https://a.example//evil.example")),
            ("A.example:8080", 8443, "/", Some("https://A.example:8443/")),
            ("[::1]:80", 8443, "/", Some("https://[::1]:8443/")),
            ("user@a.example", 443, "/", None),
            ("a.example/b", 443, "/", None),
            ("a b", 443, "/", None),
            ("", 443, "/", None),
            ("a.example", 443, "*", None),
        ] {
            let found = location(host.as_bytes(), port, path);
            assert_eq!(found, expected.map(HeaderValue::from_static), "{host} {path}");
        }
    }
}
