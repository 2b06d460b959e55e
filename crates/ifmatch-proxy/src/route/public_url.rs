//! URLs of an upstream in its responses, as the proxy's clients know them.

use http::header::{CONTENT_LOCATION, Entry, LOCATION};
use http::{HeaderMap, HeaderValue};
use url::{Position, Url};

use crate::upstream::server::UpstreamServer;

/// A forwarded request, whose response may name URLs of the server.
#[derive(Debug)]
pub(crate) struct ForwardedRequest<'a> {
    pub(crate) server: &'a UpstreamServer,
    /// Path of the request, without the server's base path.
    pub(crate) path: &'a str,
    /// Prefix that was removed from the path, without a trailing slash.
    pub(crate) prefix: &'a str,
    /// Host and port in the client's request.
    pub(crate) host: Option<&'a str>,
}

impl ForwardedRequest<'_> {
    /// Replaces the URLs of the server in `Location` and `Content-Location` by those that lead to it through the proxy.
    pub(crate) fn publish(&self, response: &mut HeaderMap) {
        for name in [LOCATION, CONTENT_LOCATION] {
            let Entry::Occupied(mut lines) = response.entry(name) else {
                continue;
            };
            for line in lines.iter_mut() {
                if let Some(public) = self.public(line) {
                    *line = public;
                }
            }
        }
    }

    /// Returns the URL for clients, or `None` if it is the same, or doesn't lead to the server.
    fn public(&self, reference: &HeaderValue) -> Option<HeaderValue> {
        let reference = str::from_utf8(reference.as_bytes()).ok()?;
        let origin = format!("{}://{}", self.server.scheme, self.server.authority);
        let requested = Url::parse(&format!("{origin}{}{}", self.server.base(), self.path)).ok()?;
        let named = requested.join(reference).ok()?;
        let names_host = Url::parse(reference).is_ok() || reference.trim_start().starts_with("//");
        let is_of_server = named.origin() == requested.origin();
        let changes_paths = !self.prefix.is_empty() || self.server.has_base();
        let origin = match (names_host, is_of_server) {
            // An internal name, which clients can't use.
            (true, true) => "",
            (true, false) if changes_paths && self.is_public(&named) => {
                &named[..Position::BeforePath]
            }
            (false, true) if changes_paths => "",
            _ => return None,
        };
        let path = &named[Position::BeforePath..];
        // A server that reads `X-Forwarded-Prefix` has added the prefix itself.
        let is_translated = !self.prefix.is_empty() && rest(path, self.prefix).is_some();
        if is_translated && !(names_host && is_of_server) {
            return None;
        }
        let mut public = format!("{}{}", self.prefix, rest(path, self.server.base())?);
        if !public.starts_with('/') {
            public.insert(0, '/');
        }
        // A second slash would make the first segment a host.
        if public.starts_with("//") {
            return None;
        }
        HeaderValue::from_str(&format!("{origin}{public}")).ok()
    }

    /// Returns `true` if a URL has the host of the client's request, with either scheme.
    fn is_public(&self, url: &Url) -> bool {
        let public = self
            .host
            .and_then(|host| Url::parse(&format!("{}://{host}", url.scheme())).ok());
        let is_same = |public: Url| {
            (public.host_str(), public.port_or_known_default())
                == (url.host_str(), url.port_or_known_default())
        };
        matches!(url.scheme(), "http" | "https") && public.is_some_and(is_same)
    }
}

/// Returns the rest of a path, with its query and fragment, after a prefix without a trailing slash.
fn rest<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    path.strip_prefix(prefix)
        .filter(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Upstream;

    /// The rows: the `Location` of the server, and that for the client, if another.
    fn check(server: &str, prefix: &str, path: &str, rows: &[(&str, &str)]) {
        let upstream = Upstream::parse(&[server]).expect("a server");
        let forwarded = ForwardedRequest {
            server: &upstream.servers[0],
            path,
            prefix,
            host: Some("Shop.example:8080"),
        };
        for (location, expected) in rows {
            let mut headers = HeaderMap::new();
            for name in [LOCATION, CONTENT_LOCATION] {
                headers.insert(
                    &name,
                    HeaderValue::from_bytes(location.as_bytes()).expect("a value"),
                );
                forwarded.publish(&mut headers);
                let expected = if expected.is_empty() {
                    location
                } else {
                    expected
                };
                assert_eq!(
                    headers[&name].as_bytes(),
                    expected.as_bytes(),
                    "{server} {prefix} {path}: {location}"
                );
            }
        }
    }

    #[test]
    fn a_removed_prefix_is_added_to_urls_of_the_server() {
        check(
            "http://10.0.0.7:8000",
            "/images",
            "/a/b",
            &[
                ("/new?x=/y#z", "/images/new?x=/y#z"),
                ("/", "/images/"),
                ("new", "/images/a/new"),
                ("../../../new", "/images/new"),
                ("?x", "/images/a/b?x"),
                ("http://10.0.0.7:8000/new", "/images/new"),
                ("//10.0.0.7:8000/new", "/images/new"),
                (
                    "http://shop.example:8080/new",
                    "http://shop.example:8080/images/new",
                ),
                (
                    "https://shop.example:8080/new",
                    "https://shop.example:8080/images/new",
                ),
                ("/imagesque", "/images/imagesque"),
                ("/ü", "/images/%C3%BC"),
                // The server knows the prefix.
                ("/images/new", ""),
                ("/images", ""),
                ("http://shop.example:8080/images/new", ""),
                // By its internal name it is the server's own path.
                ("http://10.0.0.7:8000/images/new", "/images/images/new"),
                // Not of this server.
                ("http://shop.example/new", ""),
                ("http://other.example/new", ""),
                ("//other.example/new", ""),
                ("/\\other.example/new", ""),
                ("http://10.0.0.7/new", ""),
                ("https://10.0.0.7:8000/new", ""),
                ("mailto:a@b.example", ""),
                ("http://[", ""),
            ],
        );
        check(
            "http://10.0.0.7:8000",
            "/images",
            "/",
            &[("new", "/images/new"), ("", "/images/")],
        );
    }

    #[test]
    fn the_base_path_of_a_server_is_removed_from_its_urls() {
        check(
            "http://inner/base",
            "/images",
            "/a",
            &[
                ("/base/new", "/images/new"),
                ("/base", "/images"),
                ("http://inner/base?x", "/images?x"),
                ("http://inner:80/base/new", "/images/new"),
                ("/images/new", ""),
                ("/elsewhere", ""),
                ("/based", ""),
                ("http://inner/elsewhere", ""),
            ],
        );
        check(
            "https://inner/base",
            "",
            "/a",
            &[
                ("/base/new", "/new"),
                ("/base", "/"),
                ("/base?x", "/?x"),
                ("b", "/b"),
                ("/elsewhere", ""),
                (
                    "http://shop.example:8080/base/new",
                    "http://shop.example:8080/new",
                ),
                ("/base//other.example", ""),
            ],
        );
    }

    #[test]
    fn without_a_prefix_only_the_name_of_the_server_is_removed() {
        check(
            "http://inner:8000",
            "",
            "/a/b",
            &[
                ("http://inner:8000/new?x", "/new?x"),
                ("http://INNER:8000", "/"),
                ("http://inner:8000//other.example", ""),
                ("/new", ""),
                ("new", ""),
                ("http://shop.example:8080/a/../new", ""),
            ],
        );
    }
}
