//! Routing by host and path.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Response, Uri, header};

use crate::error::ProxyErrorKind;
use crate::observer::UpstreamState;
use crate::upstream::client::HttpClient;
use crate::upstream::health::HealthCheck;
use crate::upstream::server::UpstreamServer;
use crate::upstream::{InvalidUpstream, Upstream};
use fields::{FieldRules, Messages};
use hosts::{RouteHosts, plain};
use redirect::Redirect;

pub(crate) mod fields;
mod hosts;
pub(crate) mod path;
#[cfg(test)]
mod path_fuzz;
pub(crate) mod public_url;
pub(crate) mod redirect;

/// The routes, most specific first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(Vec<RouteEntry>);

/// A route's destination, and its changes to requests and responses.
///
/// ```
/// use ifmatch_proxy::{FieldRules, Messages, Proxy, Redirect, Route, Upstream};
///
/// let images = Route::from(Upstream::parse(&["http://10.0.0.7:8080"])?).strip_prefix();
/// let images = images.response_fields(FieldRules::new(Messages::Responses).set("cache-control", "max-age=600")?);
/// let moved = Route::from(Redirect::new(308, "https://www.example.com{path}")?);
/// let builder = Proxy::builder().route("example.com/images", images)?.route("example.org", moved)?;
/// # drop(builder);
/// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
/// ```
#[derive(Clone)]
pub struct Route {
    destination: Destination,
    strips_prefix: bool,
    pub(crate) request: FieldRules,
    pub(crate) response: FieldRules,
    pub(crate) answer_timeout: Option<Duration>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) health: Option<HealthCheck>,
    /// The client that connects within the timeout of this route, if it has one.
    pub(crate) client: Option<HttpClient>,
    attachment: Option<Arc<dyn Any + Send + Sync>>,
}

#[derive(Clone, Debug)]
enum Destination {
    Upstream(Upstream),
    Redirect(Redirect),
}

/// A route with what it matches.
#[derive(Clone, Debug)]
struct RouteEntry {
    /// As configured.
    name: String,
    host: RouteHosts,
    /// Path in its normal form.
    path: String,
    /// Path as the most tolerant server reads it.
    loosest: Vec<u8>,
    route: Route,
}

/// Destination of a request.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// Name of the route.
    pub(crate) name: &'a str,
    pub(crate) route: &'a Route,
    /// Path to request, with the query.
    pub(crate) path: Cow<'a, str>,
    /// The removed prefix, without a trailing slash.
    pub(crate) prefix: Option<&'a str>,
}

impl From<Upstream> for Route {
    fn from(upstream: Upstream) -> Self {
        Self::new(Destination::Upstream(upstream))
    }
}

impl From<Redirect> for Route {
    fn from(redirect: Redirect) -> Self {
        Self::new(Destination::Redirect(redirect))
    }
}

impl Route {
    fn new(destination: Destination) -> Self {
        let [request, response] = [Messages::Requests, Messages::Responses].map(FieldRules::new);
        Self {
            destination,
            strips_prefix: false,
            request,
            response,
            answer_timeout: None,
            connect_timeout: None,
            health: None,
            client: None,
            attachment: None,
        }
    }

    /// Removes the path of the route from the paths of requests. The upstream gets it in `X-Forwarded-Prefix`, and the paths in its
    /// `Location` and `Content-Location` get it back.
    #[must_use]
    pub fn strip_prefix(self) -> Self {
        Self {
            strips_prefix: true,
            ..self
        }
    }

    /// Changes requests' header fields, after the proxy has set its own.
    #[must_use]
    pub fn request_fields(self, rules: FieldRules) -> Self {
        Self {
            request: rules,
            ..self
        }
    }

    /// Changes the header fields of responses, including redirections by this route.
    #[must_use]
    pub fn response_fields(self, rules: FieldRules) -> Self {
        Self {
            response: rules,
            ..self
        }
    }

    /// Sets this route's [answer timeout](crate::ProxyBuilder::answer_timeout), instead of the proxy's.
    #[must_use]
    pub fn answer_timeout(self, timeout: Duration) -> Self {
        Self {
            answer_timeout: Some(timeout),
            ..self
        }
    }

    /// Sets this route's [connect timeout](crate::ProxyBuilder::connect_timeout), instead of the proxy's.
    #[must_use]
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self {
            connect_timeout: Some(timeout),
            ..self
        }
    }

    /// Sets the [health check](crate::ProxyBuilder::health_check) for this route's servers, instead of the proxy's.
    #[must_use]
    pub fn health_check(self, check: HealthCheck) -> Self {
        Self {
            health: Some(check),
            ..self
        }
    }

    /// Attaches a value for layers in front of the proxy, which [`Proxy::attached`](crate::Proxy::attached) returns.
    #[must_use]
    pub fn attach<T: Any + Send + Sync>(self, value: T) -> Self {
        Self {
            attachment: Some(Arc::new(value)),
            ..self
        }
    }

    /// Returns the attached value of this type.
    pub(crate) fn attached<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.attachment.clone()?.downcast().ok()
    }

    /// Returns the upstream, unless the route redirects.
    pub(crate) fn upstream(&self) -> Option<&Upstream> {
        match &self.destination {
            Destination::Upstream(upstream) => Some(upstream),
            Destination::Redirect(_) => None,
        }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            destination,
            strips_prefix,
            request,
            response,
            ..
        } = self;
        let mut shown = f.debug_struct("Route");
        shown
            .field("destination", destination)
            .field("strips_prefix", strips_prefix);
        shown
            .field("request", request)
            .field("response", response)
            .finish_non_exhaustive()
    }
}

impl Target<'_> {
    /// Returns the redirection, unless the route has an upstream.
    pub(crate) fn redirection(&self) -> Option<Result<Response<()>, ProxyErrorKind>> {
        let Destination::Redirect(redirect) = &self.route.destination else {
            return None;
        };
        let mut answer = redirect.answer(&self.path);
        if let Some(answer) = &mut answer {
            self.route.response.apply(answer.headers_mut());
        }
        Some(answer.ok_or(ProxyErrorKind::AmbiguousPath))
    }
}

impl Routes {
    /// Adds a route from its text: `host/path`, `host` or `/path`.
    pub(crate) fn add(&mut self, text: &str, route: Route) -> Result<(), InvalidUpstream> {
        let invalid = || InvalidUpstream::route(text);
        let (host, path) = text.find('/').map_or((text, "/"), |at| text.split_at(at));
        let host = RouteHosts::parse(host).ok_or_else(invalid)?;
        if path::is_pattern(path) {
            return Err(InvalidUpstream::pattern(text));
        }
        let path = path::normal(path)
            .filter(|path| path::is_sound(path))
            .ok_or_else(invalid)?
            .into_owned();
        let loosest = path::loosest(&path).ok_or_else(invalid)?;
        if route.strips_prefix && path == "/" {
            return Err(InvalidUpstream::no_prefix(text));
        }
        if let Some(other) = self
            .0
            .iter()
            .find(|other| other.host == host && other.path == path)
        {
            return Err(InvalidUpstream::twice(text, &other.name));
        }
        self.0.push(RouteEntry {
            name: text.to_owned(),
            host,
            path,
            loosest,
            route,
        });
        self.0
            .sort_by_key(|entry| std::cmp::Reverse((entry.host.rank(), entry.path.len())));
        Ok(())
    }

    /// Finds the destination of a request.
    ///
    /// If paths decide what is reachable, a path's normal form and its [readings](path::readings) must match the same route. All
    /// readings in between then match it, too, since routes contain only plain segments. The normal form is forwarded.
    /// Otherwise paths have no meaning to the proxy and are forwarded unchanged.
    pub(crate) fn find<'a>(
        &'a self,
        uri: &'a Uri,
        headers: &HeaderMap,
    ) -> Result<Target<'a>, ProxyErrorKind> {
        let host = host(uri, headers);
        let for_host = || {
            self.0
                .iter()
                .filter(|entry| entry.host.include(host.as_deref()))
        };
        if !for_host().any(RouteEntry::has_path) {
            let RouteEntry { name, route, .. } =
                for_host().next().ok_or(ProxyErrorKind::NoRoute)?;
            let path = uri
                .path_and_query()
                .map_or("/", PathAndQuery::as_str)
                .into();
            return Ok(Target {
                name,
                route,
                path,
                prefix: None,
            });
        }
        let path = path::normal(uri.path()).ok_or(ProxyErrorKind::AmbiguousPath)?;
        let readings = path::readings(&path).ok_or(ProxyErrorKind::AmbiguousPath)?;
        let entry = for_host().find(|entry| is_below(path.as_bytes(), entry.path.as_bytes()));
        let loose_entry = |path: &[u8]| for_host().find(|entry| is_below(path, &entry.loosest));
        let identity = |entry: Option<&'a RouteEntry>| entry.map(std::ptr::from_ref);
        if readings
            .iter()
            .any(|reading| identity(loose_entry(reading)) != identity(entry))
        {
            return Err(ProxyErrorKind::AmbiguousPath);
        }
        let RouteEntry {
            name,
            route,
            path: route_path,
            ..
        } = entry.ok_or(ProxyErrorKind::NoRoute)?;
        let prefix = route
            .strips_prefix
            .then(|| route_path.trim_end_matches('/'));
        let path = match prefix.and_then(|prefix| path.strip_prefix(prefix)) {
            Some("") => "/".into(),
            Some(rest) => rest.to_owned().into(),
            None => path,
        };
        let path = uri
            .query()
            .map_or_else(|| path.clone(), |query| format!("{path}?{query}").into());
        Ok(Target {
            name,
            route,
            path,
            prefix,
        })
    }

    /// Returns `true` if any route redirects.
    pub(crate) fn has_redirect(&self) -> bool {
        self.0.iter().any(|entry| entry.route.upstream().is_none())
    }

    /// Returns `true` if any route has something for layers in front.
    pub(crate) fn has_attachment(&self) -> bool {
        self.0.iter().any(|entry| entry.route.attachment.is_some())
    }

    /// Returns all routes.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Route> {
        self.0.iter_mut().map(|entry| &mut entry.route)
    }

    /// Returns the upstreams whose health is checked, with their checks.
    pub(crate) fn checked<'a>(
        &'a self,
        default: Option<&'a HealthCheck>,
    ) -> impl Iterator<Item = (&'a Upstream, &'a HealthCheck)> {
        let check = move |entry: &'a RouteEntry| {
            Some((
                entry.route.upstream()?,
                entry.route.health.as_ref().or(default)?,
            ))
        };
        self.0.iter().filter_map(check)
    }

    /// Returns all upstreams.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.0.iter().filter_map(|entry| entry.route.upstream())
    }

    /// Applies the known state of servers in `old` to the same servers in these routes: their breakers, and their health
    /// if it is checked, by the check of the route or by the `default`.
    pub(crate) fn inherit(&self, old: &Self, default: Option<&HealthCheck>) {
        for (upstream, check) in self
            .0
            .iter()
            .filter_map(|entry| Some((entry.route.upstream()?, &entry.route.health)))
        {
            // Without checks, no server would recover. Another check may have another result, and decides soon.
            let is_checked = check.is_some() || default.is_some();
            for server in &*upstream.servers {
                if let Some(known) = old.servers().find(|known| known.is_same(server)) {
                    server.inherit_breaker(known);
                    server.set_unhealthy(is_checked && known.is_unhealthy());
                }
            }
        }
    }

    fn servers(&self) -> impl Iterator<Item = &UpstreamServer> {
        self.upstreams()
            .flat_map(|upstream| upstream.servers.iter())
    }

    /// Returns the current state of all upstreams.
    pub(crate) fn states(&self) -> Vec<UpstreamState> {
        self.0
            .iter()
            .filter_map(|entry| Some(entry.route.upstream()?.state(&entry.name)))
            .collect()
    }
}

impl RouteEntry {
    /// Returns `true` if the route or one of its servers has a path, which then decides what is reachable.
    fn has_path(&self) -> bool {
        self.path != "/"
            || self
                .route
                .upstream()
                .is_some_and(|upstream| upstream.servers.iter().any(UpstreamServer::has_base))
    }
}

/// Returns the host of a request as routes are compared with it, from its URL rather than from `Host` (RFC 9112 §3.2.2).
fn host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let named = || {
        headers
            .get(header::HOST)
            .and_then(|host| Authority::try_from(host.as_bytes()).ok())
    };
    uri.authority()
        .map(plain)
        .or_else(|| named().as_ref().map(plain))
}

/// Returns `true` if a path is the prefix or below it: `/images` includes `/images/cat`, but not `/imagesque`.
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| prefix.ends_with(b"/") || matches!(rest, [] | [b'/', ..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(routes: &[(&str, &str)]) -> Routes {
        let mut built = Routes::default();
        for (route, server) in routes {
            built
                .add(route, Upstream::parse(&[server]).expect("a server").into())
                .expect("a route");
        }
        built
    }

    /// Returns the server and the path that a request is sent to.
    fn found(routes: &Routes, host: &str, path: &str) -> Result<String, ProxyErrorKind> {
        let headers = HeaderMap::from_iter([(header::HOST, host.parse().expect("a host"))]);
        let uri = path.parse().expect("a path");
        let target = routes.find(&uri, &headers)?;
        Ok(match target.route.upstream() {
            Some(upstream) => format!("{} {}", upstream.servers[0].authority, target.path),
            None => target.redirection().expect("a redirection")?.headers()[header::LOCATION]
                .to_str()
                .expect("text")
                .to_owned(),
        })
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
            (
                "example.com",
                "/images/large/cat",
                "large /images/large/cat",
            ),
            ("example.com", "http://other.org/images", "images /images"),
            ("example.com.evil.org", "/", "any /"),
        ] {
            assert_eq!(
                found(&routes, host, path).as_deref(),
                Ok(expected),
                "{host}{path}"
            );
        }
    }

    #[test]
    fn a_wildcard_is_for_all_hosts_below_a_name() {
        let routes = routes(&[
            ("/", "http://any"),
            ("/images", "http://images"),
            ("*.Blog.example", "http://blogs"),
            ("*.blog.example/admin", "http://admin"),
            ("*.new.blog.example", "http://new"),
            ("a.blog.example", "http://one"),
        ]);
        for (host, path, expected) in [
            ("x.blog.example", "/", "blogs /"),
            ("X.BLOG.example.:80", "/images", "blogs /images"),
            ("x.y.blog.example", "/admin/x", "admin /admin/x"),
            ("a.blog.example", "/admin", "one /admin"),
            ("x.new.blog.example", "/admin", "new /admin"),
            ("new.blog.example", "/", "blogs /"),
            ("blog.example", "/images", "images /images"),
            ("evilblog.example", "/", "any /"),
            (".blog.example", "/", "any /"),
            ("x.blog.example.evil", "/", "any /"),
        ] {
            assert_eq!(
                found(&routes, host, path).as_deref(),
                Ok(expected),
                "{host}{path}"
            );
        }
    }

    #[test]
    fn two_routes_cannot_have_the_same_host_and_path() {
        let to = || Route::from(Upstream::parse(&["http://a"]).expect("a server"));
        for (one, other) in [
            ("/", "/"),
            ("a.example", "A.example."),
            ("a.example", "a.example/"),
            ("a.example", "a.example:8080"),
            ("*.a.example", "*.A.example"),
            ("a.example/%69mages", "a.example/images"),
        ] {
            let mut routes = Routes::default();
            routes.add(one, to()).expect("a route");
            let error = routes.add(other, to()).expect_err(other).to_string();
            assert!(error.contains(one) && error.contains(other), "{error}");
        }
        for (one, other) in [
            ("/", "a.example"),
            ("a.example", "*.example"),
            ("/a", "/a/"),
            ("a.example/a", "a.example"),
        ] {
            let mut routes = Routes::default();
            routes.add(one, to()).expect("a route");
            routes.add(other, to()).expect("another route");
        }
    }

    #[test]
    fn a_prefix_is_stripped_and_a_route_may_redirect() {
        let to = |url| Route::from(Upstream::parse(&[url]).expect("a server")).strip_prefix();
        let moved = |target| Route::from(Redirect::new(308, target).expect("a target"));
        let mut routes = Routes::default();
        for (text, route) in [
            (
                "/",
                Upstream::parse(&["http://any"]).expect("a server").into(),
            ),
            ("/images", to("http://images")),
            ("/docs/", to("http://docs/base")),
            ("/old", moved("https://new.example{path}")),
            ("/older", moved("/new{path}").strip_prefix()),
            ("moved.example", moved("https://new.example/")),
        ] {
            routes.add(text, route).expect("a route");
        }
        for (host, path, expected) in [
            ("h", "/images/cat?a", Ok("images /cat?a")),
            ("h", "/%69mages?a", Ok("images /?a")),
            ("h", "/images", Ok("images /")),
            ("h", "/images//cat", Ok("images //cat")),
            ("h", "/imagesque", Ok("any /imagesque")),
            ("h", "/docs/a", Ok("docs /a")),
            ("h", "/docs/", Ok("docs /")),
            ("h", "/images/..;/x", Err(ProxyErrorKind::AmbiguousPath)),
            ("h", "/old/a?b=c", Ok("https://new.example/old/a?b=c")),
            ("h", "/older//evil.example", Ok("/new//evil.example")),
            ("h", "/older", Ok("/new/")),
            ("h", "/older%2F..%2Fx", Err(ProxyErrorKind::AmbiguousPath)),
            ("moved.example", "/x", Ok("https://new.example/")),
            ("moved.example", "/images/x", Ok("https://new.example/")),
        ] {
            assert_eq!(
                found(&routes, host, path).as_deref(),
                expected.as_ref().map(|text| *text),
                "{host}{path}"
            );
        }
        assert!(
            routes.add("example.com", to("http://a")).is_err(),
            "nothing to strip"
        );
        assert_eq!(routes.states().len(), 3, "redirections have no upstream");
    }

    #[test]
    fn no_path_leads_out_of_a_route() {
        let confined = routes(&[("/", "http://any"), ("/public", "http://public")]);
        let based = routes(&[("/", "http://any/base")]);
        let open = routes(&[("/", "http://any"), ("a.example", "http://a")]);
        for path in [
            "/public/../x",
            "/public/%2e%2E/x",
            "/public/..;/x",
            "/public/..%253bx/x",
            "/public\\..\\x",
            "/%",
        ] {
            for routes in [&confined, &based] {
                assert_eq!(
                    found(routes, "h", path),
                    Err(ProxyErrorKind::AmbiguousPath),
                    "{path}"
                );
            }
            assert_eq!(found(&open, "h", path), Ok(format!("any {path}")));
        }
        for path in [
            "/public/..x",
            "/public/.well-known",
            "/public/x..;a",
            "/public//x%2Fy",
        ] {
            assert_eq!(found(&confined, "h", path), Ok(format!("public {path}")));
        }
    }

    #[test]
    fn a_path_has_one_route_in_all_readings() {
        let routes = routes(&[
            ("/", "http://any"),
            ("/admin", "http://guard"),
            ("/caf%c3%a9", "http://cafe"),
        ]);
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
            assert_eq!(
                found(&routes, "h", path).as_deref(),
                expected.as_ref().map(|text| *text),
                "{path}"
            );
        }
    }

    #[test]
    fn a_route_s_path_must_be_plain() {
        for route in [
            "/a//b",
            "/a;b",
            "/a/../b",
            "/a?b",
            "/a%2fb",
            "/%",
            "a b",
            "h/a#b",
            "*",
            "*.",
            "a.*",
            "*a.example",
            "*.*.example",
            "$host",
            "me@a",
            "*.a:80",
            "*.[::1]",
        ] {
            assert!(
                Routes::default()
                    .add(
                        route,
                        Upstream::parse(&["http://a"]).expect("a server").into()
                    )
                    .is_err(),
                "{route}"
            );
        }
    }
}
