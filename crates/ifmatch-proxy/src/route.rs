//! Which upstream answers which host and path.

use http::uri::Authority;
use http::{HeaderMap, Uri, header};

use crate::upstream::{InvalidUpstream, Server, Upstream};

/// The routes, the most particular first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(Vec<Route>);

#[derive(Clone, Debug)]
struct Route {
    /// In lower case, without a port; none for any host.
    host: Option<String>,
    /// Begins with a slash.
    path: String,
    upstream: Upstream,
}

impl Routes {
    /// Adds a route from its text: `host/path`, `host` or `/path`.
    pub(crate) fn add(&mut self, text: &str, upstream: Upstream) -> Result<(), InvalidUpstream> {
        let (host, path) = text.find('/').map_or((text, "/"), |at| text.split_at(at));
        let host = match host {
            "" => None,
            host => {
                let authority: Authority = host.parse().map_err(|_| InvalidUpstream(text.to_owned()))?;
                Some(authority.host().to_ascii_lowercase())
            }
        };
        self.0.push(Route { host, path: path.to_owned(), upstream });
        self.0.sort_by_key(|route| std::cmp::Reverse((route.host.is_some(), route.path.len())));
        Ok(())
    }

    /// The upstream for a request.
    pub(crate) fn find(&self, uri: &Uri, headers: &HeaderMap) -> Option<&Upstream> {
        let host = host(uri, headers);
        let matches = |route: &&Route| {
            let same_host = route.host.is_none() || route.host == host;
            same_host && is_below(uri.path(), &route.path)
        };
        self.0.iter().find(matches).map(|route| &route.upstream)
    }

    /// Whether a path could lead out of what the routes confine: it has dot segments, and the routes or the servers' own
    /// paths say what can be reached. Whoever decodes a path more than others would see another one.
    pub(crate) fn are_left_by(&self, path: &str) -> bool {
        if !has_dot_segments(path) {
            return false;
        }
        let has_base = |upstream: &Upstream| upstream.servers.iter().any(Server::has_base);
        self.0.iter().any(|route| route.path != "/" || has_base(&route.upstream))
    }

    /// All upstreams.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.0.iter().map(|route| &route.upstream)
    }
}

fn host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let named = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let authority = uri.authority().cloned().or(named)?;
    Some(authority.host().to_ascii_lowercase())
}

/// Whether a path has them, in any of the ways in which servers are known to read it.
fn has_dot_segments(path: &str) -> bool {
    if !path.contains("..") && !path.contains("/.") && !path.contains('%') {
        return false;
    }
    let path = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
    path.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."))
}

/// Whether a path is the prefix itself, or below it: `/images` has `/images/cat`, not `/imagesque`.
fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_particular_route_wins() {
        let mut routes = Routes::default();
        for (route, server) in [
            ("/", "http://any"),
            ("/images", "http://images"),
            ("Example.com", "http://example"),
            ("example.com/images/large/", "http://large"),
        ] {
            routes.add(route, Upstream::parse(&[server]).expect("a server")).expect("a route");
        }
        for (host, path, expected) in [
            ("other.org", "/", "any"),
            ("other.org", "/images/cat", "images"),
            ("other.org", "/imagesque", "any"),
            ("EXAMPLE.com:8080", "/images/cat", "example"),
            ("example.com", "/images/large/cat", "large"),
            ("example.com.evil.org", "/", "any"),
        ] {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().expect("a host"))]);
            let found = routes.find(&path.parse().expect("a path"), &headers).expect("a route");
            assert_eq!(found.servers[0].authority, expected, "{host}{path}");
        }
    }

    #[test]
    fn no_path_leads_out_of_a_route() {
        let mut open = Routes::default();
        open.add("/", Upstream::parse(&["http://any"]).expect("a server")).expect("a route");
        let mut confined = open.clone();
        confined.add("/public", Upstream::parse(&["http://public"]).expect("a server")).expect("a route");
        let mut based = Routes::default();
        based.add("/", Upstream::parse(&["http://any/base"]).expect("a server")).expect("a route");
        for path in [
            "/public/../x",
            "/public/..",
            "/public/./x",
            "/public/%2e%2E/x",
            "/public/..%2fx",
            "/public/..%5Cx",
            "/public\\..\\x",
            "/../x",
        ] {
            assert!(confined.are_left_by(path) && based.are_left_by(path), "{path}");
            assert!(!open.are_left_by(path), "{path}");
        }
        for path in ["/public/..x", "/public/.well-known", "/public/x..", "/public/%2e%2ex", "/%2520"] {
            assert!(!confined.are_left_by(path), "{path}");
        }
    }
}
