//! The response of a route that redirects.

use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode, Uri};

use crate::upstream::InvalidUpstream;

/// Placeholder for the path and the query of a request.
const PATH: &str = "{path}";

/// A redirection: its status, and the target, which the path of the request may follow.
///
/// ```
/// use ifmatch_proxy::Redirect;
///
/// assert!(Redirect::new(308, "https://www.example.com{path}").is_ok());
/// assert!(Redirect::new(200, "https://www.example.com").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    status: StatusCode,
    target: String,
    /// `true` if the path and the query of the request follow the target.
    with_path: bool,
}

impl Redirect {
    /// Creates a redirection to an `http` or `https` URL, or to a path of the same host. `{path}` at the end stands for the path
    /// and the query of the request.
    ///
    /// # Errors
    /// Fails if the status isn't 301, 302, 307 or 308, or if the target is invalid, or could lead to a host that the client
    /// chooses.
    pub fn new(status: u16, target: &str) -> Result<Self, InvalidUpstream> {
        let invalid = || InvalidUpstream::redirect(target);
        let status = StatusCode::from_u16(status)
            .ok()
            .filter(|status| matches!(status.as_u16(), 301 | 302 | 307 | 308));
        let status = status.ok_or_else(InvalidUpstream::status)?;
        let (target, with_path) = target
            .strip_suffix(PATH)
            .map_or((target, false), |before| (before, true));
        let uri: Uri = target.parse().map_err(|_| invalid())?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let is_path = target
            .strip_prefix('/')
            .is_some_and(|rest| !rest.starts_with(['/', '\\']));
        // The path begins with a slash. A second one before it would make its first segment a host.
        let is_open = with_path && target.ends_with('/');
        if is_open
            || !(is_web || is_path)
            || target.contains(['#', '{', '$'])
            || HeaderValue::from_str(target).is_err()
        {
            return Err(invalid());
        }
        Ok(Self {
            status,
            target: target.to_owned(),
            with_path,
        })
    }

    /// Returns the response to a request for this path and query. `None` if the path isn't valid in a header field, or is the `*` of
    /// an OPTIONS, which would become a part of the target's host.
    pub(crate) fn answer(&self, path: &str) -> Option<Response<()>> {
        if self.with_path && !path.starts_with('/') {
            return None;
        }
        let location = format!("{}{}", self.target, if self.with_path { path } else { "" });
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        response
            .headers_mut()
            .insert(LOCATION, HeaderValue::from_str(&location).ok()?);
        Some(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_may_contain_the_path_of_the_request() {
        for (target, path, expected) in [
            (
                "https://b.example{path}",
                "/a%20b?c",
                "https://b.example/a%20b?c",
            ),
            (
                "https://b.example:8443/new{path}",
                "/a",
                "https://b.example:8443/new/a",
            ),
            ("https://b.example/", "/a?b", "https://b.example/"),
            ("/new{path}", "//evil.example", "/new//evil.example"),
            (
                "https://b.example{path}",
                "//evil.example",
                "https://b.example//evil.example",
            ),
            ("/", "//evil.example", "/"),
        ] {
            let answer = Redirect::new(301, target)
                .expect(target)
                .answer(path)
                .expect("a location");
            assert_eq!(
                (answer.status().as_u16(), &answer.headers()[LOCATION]),
                (301, &HeaderValue::from_static(expected))
            );
        }
        for (target, path) in [("/new{path}", "/a\r\nb"), ("https://b.example{path}", "*")] {
            let redirect = Redirect::new(301, target).expect(target);
            assert!(redirect.answer(path).is_none(), "{path}");
        }
    }

    #[test]
    fn a_redirection_leads_to_no_host_that_a_client_chooses() {
        for target in [
            "",
            "{path}",
            "/{path}",
            "//b.example",
            "/\\b.example",
            "https://{path}",
            "https://b.example/{path}",
            "b.example",
            "ftp://b.example",
            "javascript:alert(1)",
            "https://b.example{path}{path}",
            "https://b.example{path}.evil",
            "/a#b",
            "/a b",
            "https://b.example$request_uri",
            "/a/$1",
        ] {
            assert!(Redirect::new(308, target).is_err(), "{target}");
        }
        for status in [200, 300, 303, 304, 999] {
            assert!(Redirect::new(status, "/a").is_err(), "{status}");
        }
    }
}
