//! Routing by host and path.

use std::borrow::Cow;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Uri, header};

use crate::error::ProxyErrorKind;
use crate::observer::UpstreamState;
use crate::upstream::server::Server;
use crate::upstream::{InvalidUpstream, Upstream};

pub(crate) mod path;
#[cfg(test)]
mod path_fuzz;

/// The routes, most specific first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(Vec<Route>);

#[derive(Clone, Debug)]
struct Route {
    /// As configured.
    name: String,
    /// In lower case, without a port. `None` matches any host.
    host: Option<String>,
    /// Path in its normal form.
    path: String,
    /// Path as the most tolerant server reads it.
    loosest: Vec<u8>,
    upstream: Upstream,
}

/// Destination of a request.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// Name of the route.
    pub(crate) route: &'a str,
    pub(crate) upstream: &'a Upstream,
    /// Path to request, with the query.
    pub(crate) path: Cow<'a, str>,
}

impl Routes {
    /// Adds a route from its text: `host/path`, `host` or `/path`.
    pub(crate) fn add(&mut self, text: &str, upstream: Upstream) -> Result<(), InvalidUpstream> {
        let invalid = || InvalidUpstream::route(text);
        let (host, path) = text.find('/').map_or((text, "/"), |at| text.split_at(at));
        let host = match host {
            "" => None,
            host => Some(plain(&host.parse().map_err(|_| invalid())?)),
        };
        let path = path::normal(path).filter(|path| path::is_sound(path)).ok_or_else(invalid)?.into_owned();
        let loosest = path::loosest(&path).ok_or_else(invalid)?;
        self.0.push(Route { name: text.to_owned(), host, path, loosest, upstream });
        self.0.sort_by_key(|route| std::cmp::Reverse((route.host.is_some(), route.path.len())));
        Ok(())
    }

    /// Finds the destination of a request.
    ///
    /// If paths decide what is reachable, a path's normal form and its [readings](path::readings) must match the same route. All
    /// readings in between then match it, too, since routes contain only plain segments. The normal form is forwarded.
    /// Otherwise paths have no meaning to the proxy and are forwarded unchanged.
    pub(crate) fn find<'a>(&'a self, uri: &'a Uri, headers: &HeaderMap) -> Result<Target<'a>, ProxyErrorKind> {
        let host = host(uri, headers);
        let for_host = || self.0.iter().filter(|route| route.host.is_none() || route.host == host);
        if !for_host().any(Route::has_path) {
            let Route { name, upstream, .. } = for_host().next().ok_or(ProxyErrorKind::NoRoute)?;
            let path = uri.path_and_query().map_or("/", PathAndQuery::as_str).into();
            return Ok(Target { route: name, upstream, path });
        }
        let path = path::normal(uri.path()).ok_or(ProxyErrorKind::AmbiguousPath)?;
        let readings = path::readings(&path).ok_or(ProxyErrorKind::AmbiguousPath)?;
        let route = for_host().find(|route| is_below(path.as_bytes(), route.path.as_bytes()));
        let loose_route = |path: &[u8]| for_host().find(|route| is_below(path, &route.loosest));
        let identity = |route: Option<&'a Route>| route.map(std::ptr::from_ref);
        if readings.iter().any(|reading| identity(loose_route(reading)) != identity(route)) {
            return Err(ProxyErrorKind::AmbiguousPath);
        }
        let route = route.ok_or(ProxyErrorKind::NoRoute)?;
        let path = uri.query().map_or_else(|| path.clone(), |query| format!("{path}?{query}").into());
        Ok(Target { route: &route.name, upstream: &route.upstream, path })
    }

    /// Returns all upstreams.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.0.iter().map(|route| &route.upstream)
    }

    /// Applies the known state of servers in `old` to the same servers in these routes: their breakers, and their health
    /// if it `is_checked`.
    pub(crate) fn inherit(&self, old: &Self, is_checked: bool) {
        for server in self.servers() {
            if let Some(known) = old.servers().find(|known| known.is_same(server)) {
                server.inherit_breaker(known);
                // Without checks, no server would recover.
                server.set_unhealthy(is_checked && known.is_unhealthy());
            }
        }
    }

    fn servers(&self) -> impl Iterator<Item = &Server> {
        self.upstreams().flat_map(|upstream| upstream.servers.iter())
    }

    /// Returns the current state of all upstreams.
    pub(crate) fn states(&self) -> Vec<UpstreamState> {
        self.0.iter().map(|route| route.upstream.state(&route.name)).collect()
    }
}

impl Route {
    /// Returns `true` if the route or one of its servers has a path, which then decides what is reachable.
    fn has_path(&self) -> bool {
        self.path != "/" || self.upstream.servers.iter().any(Server::has_base)
    }
}

fn host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let named = || headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    uri.authority().map(plain).or_else(|| named().as_ref().map(plain))
}

/// Returns a host in lower case, without a port and without a trailing dot.
fn plain(authority: &Authority) -> String {
    let host = authority.host();
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Returns `true` if a path is the prefix or below it: `/images` includes `/images/cat`, but not `/imagesque`.
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| prefix.ends_with(b"/") || matches!(rest, [] | [b'/', ..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(routes: &[(&str, &str)]) -> Routes {
        let mut built = Routes::default();
        for (route, server) in routes {
            built.add(route, Upstream::parse(&[server]).expect("a server")).expect("a route");
        }
        built
    }

    /// Returns the server and the path that a request is sent to.
    fn found(routes: &Routes, host: &str, path: &str) -> Result<String, ProxyErrorKind> {
        let headers = HeaderMap::from_iter([(header::HOST, host.parse().expect("a host"))]);
        let uri = path.parse().expect("a path");
        let target = routes.find(&uri, &headers)?;
        Ok(format!("{} {}", target.upstream.servers[0].authority, target.path))
    }

    #[test]
    fn the_most_specific_route_wins() {
        let routes = routes(&[
            ("/", "http://any"),
            ("/images", "http://images"),
            ("Example.com", "http://example"),
            ("example.com/images/large/", "http://large"),
        ]);
        for (host, path, expected) in [
            ("other.org", "/", "any /"),
            ("other.org", "/images/cat?a=%2e", "images /images/cat?a=%2e"),
            ("other.org", "/imagesque", "any /imagesque"),
            ("EXAMPLE.com:8080", "/images/cat", "example /images/cat"),
            ("example.com.", "/images/cat", "example /images/cat"),
            ("example.com", "/images/large/cat", "large /images/large/cat"),
            ("example.com", "http://other.org/images", "images /images"),
            ("example.com.evil.org", "/", "any /"),
        ] {
            assert_eq!(found(&routes, host, path).as_deref(), Ok(expected), "{host}{path}");
        }
    }

    #[test]
    fn no_path_leads_out_of_a_route() {
        let confined = routes(&[("/", "http://any"), ("/public", "http://public")]);
        let based = routes(&[("/", "http://any/base")]);
        let open = routes(&[("/", "http://any"), ("a.example", "http://a")]);
        for path in ["/public/../x", "/public/%2e%2E/x", "/public/..;/x", "/public/..%253bx/x", "/public\\..\\x", "/%"]
        {
            for routes in [&confined, &based] {
                assert_eq!(found(routes, "h", path), Err(ProxyErrorKind::AmbiguousPath), "{path}");
            }
            assert_eq!(found(&open, "h", path), Ok(format!("any {path}")));
        }
        for path in ["/public/..x", "/public/.well-known", "/public/x..;a", "/public//x%2Fy"] {
            assert_eq!(found(&confined, "h", path), Ok(format!("public {path}")));
        }
    }

    #[test]
    fn a_path_has_one_route_in_all_readings() {
        let routes = routes(&[("/", "http://any"), ("/admin", "http://guard"), ("/caf%c3%a9", "http://cafe")]);
        for (path, expected) in [
            ("/%61dmin/x", Ok("guard /admin/x")),
            ("/admin/%252561", Ok("guard /admin/%252561")),
            ("/admin;x", Err(ProxyErrorKind::AmbiguousPath)),
            ("/admin%2Fx", Err(ProxyErrorKind::AmbiguousPath)),
            ("/admin%3Fx", Err(ProxyErrorKind::AmbiguousPath)),
            ("/admin%00", Err(ProxyErrorKind::AmbiguousPath)),
            ("/admin\\x", Err(ProxyErrorKind::AmbiguousPath)),
            ("/%2561dmin", Err(ProxyErrorKind::AmbiguousPath)),
            ("//admin/", Err(ProxyErrorKind::AmbiguousPath)),
            ("/;/admin", Err(ProxyErrorKind::AmbiguousPath)),
            ("/;%2Fx/admin", Err(ProxyErrorKind::AmbiguousPath)),
            ("/;%5Cx/admin", Err(ProxyErrorKind::AmbiguousPath)),
            ("/;\\x/admin", Err(ProxyErrorKind::AmbiguousPath)),
            ("/;%252Fx/admin", Err(ProxyErrorKind::AmbiguousPath)),
            ("/%3B%252Fx/admin", Err(ProxyErrorKind::AmbiguousPath)),
            ("/%253B%25252Fx/admin/y", Err(ProxyErrorKind::AmbiguousPath)),
            ("http://h//admin", Err(ProxyErrorKind::AmbiguousPath)),
            ("http://h?/admin", Ok("any /?/admin")),
            ("//shop;x/a%2fb", Ok("any //shop;x/a%2Fb")),
            ("/caf%C3%a9/x", Ok("cafe /caf%C3%A9/x")),
        ] {
            assert_eq!(found(&routes, "h", path).as_deref(), expected.as_ref().map(|text| *text), "{path}");
        }
    }

    #[test]
    fn a_route_s_path_must_be_plain() {
        for route in ["/a//b", "/a;b", "/a/../b", "/a?b", "/a%2fb", "/%", "a b", "h/a#b"] {
            assert!(
                Routes::default().add(route, Upstream::parse(&["http://a"]).expect("a server")).is_err(),
                "{route}"
            );
        }
    }
}
