//! The configuration of `ifmatch proxy`.

use std::time::Duration;

use ifmatch_cache::policy::freshness::Heuristic;
use ifmatch_cache::policy::query::{QueryFilter, QueryRules};
use ifmatch_http_server::SlotLimit;
use ifmatch_proxy::{Balance, HealthCheck, Proxy, ProxyBuilder, Upstream};
use url::Url;

use super::address::Exposure;
use super::arguments;
use super::pem;
use super::proxy_settings::{Balancing, ProxySettings};
use super::register_url::{Engine, RegisterUrl};
use super::route::Route;
use super::server::{CacheConfig, ServerConfig, at_least_one, positive};
use super::settings::Settings;
use super::shown_url::without_secrets;
use super::units::{ByteSize, Span};
use crate::access;
use crate::error::Error;

/// Default memory of the cache.
pub(super) const DEFAULT_CACHE: ByteSize = ByteSize::from_bytes(256 << 20);

/// Maximum time until the response to a health check begins.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of consecutive failed health checks after which a server gets no more requests.
const HEALTH_FAILURES: u32 = 3;

/// Number of consecutive successful health checks after which a server gets requests again.
const HEALTH_SUCCESSES: u32 = 2;

/// Configuration of `ifmatch proxy`. Always valid, since only [`ProxyConfig::from_settings`] creates it.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Listeners, TLS, access and limits, and all settings. The proxy's settings without a field here are valid as they are.
    pub server: ServerConfig,
    /// Routes to upstreams. `/` is the route of requests that match no other.
    pub routes: Vec<Route>,
    /// The cache, unless disabled.
    pub cache: Option<CacheConfig>,
    /// Lifetime of responses that don't state one. `None` to store them for validation only.
    pub heuristic: Option<Heuristic>,
    /// Rules for the queries of requests.
    pub query: QueryRules,
    /// The guard of writes, if the upstreams are changed through this proxy, and through others with the same register, only.
    pub guard: Option<Guard>,
    /// The other proxies that purges are for.
    pub purges: PurgeConfig,
    /// The proxy, with its upstreams and limits.
    pub proxy: ProxyBuilder,
}

/// The proxies that a purge of one of them is for.
#[derive(Clone, Debug)]
pub enum PurgeConfig {
    /// This proxy alone.
    Alone,
    /// Those that share a register.
    Register {
        /// The register.
        url: RegisterUrl,
        /// Time for which stored responses are used after the register was asked.
        bound: Duration,
    },
    /// These peers.
    Peers(Vec<Url>),
}

/// The guard of writes.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Register of the versions, unless they are in memory.
    pub register: Option<RegisterUrl>,
}

impl ProxyConfig {
    /// Validates `settings`, and reads the token files.
    ///
    /// Forwarded requests need no token, since the upstream decides. The proxy's own endpoints need one if other
    /// machines can reach them.
    ///
    /// # Errors
    /// Names flags that are missing, contradict each other, or belong to `ifmatch serve`.
    ///
    /// ```
    /// use ifmatch_gateway_config::{proxy::ProxyConfig, settings::Settings};
    ///
    /// let toml = "listen = '0.0.0.0:80'\n[proxy]\nupstream = ['http://127.0.0.1:8000']";
    /// let settings = Settings::from_toml(toml).unwrap();
    /// assert!(!ProxyConfig::from_settings(settings).unwrap().server.access.is_open());
    /// assert!(ProxyConfig::from_settings(Settings::default()).unwrap_err().to_string().contains("--upstream"));
    /// ```
    pub fn from_settings(settings: Settings) -> Result<Self, Error> {
        reject_storage(&settings)?;
        // The addresses of the proxy's own endpoints.
        let console = super::console_address(&settings);
        let exposure = match settings.admin_listen {
            Some(admin) => Exposure::of([admin].into_iter().chain(console)),
            None => Exposure::of(settings.listen.iter().copied().chain(console)),
        };
        let access = access::from_settings(&settings, exposure)?;
        let access = if exposure == Exposure::Loopback {
            access
        } else {
            access.never_open()
        };
        let routes = routes(&settings.proxy)?;
        let server = ServerConfig::new(settings, access)?;
        let (settings, own) = (&server.settings, &server.settings.proxy);
        Ok(Self {
            proxy: builder(own, &routes, server.limits.requests)?,
            routes,
            cache: CacheConfig::new(settings, DEFAULT_CACHE)?,
            heuristic: heuristic(own),
            query: query_rules(own, settings.cache)?,
            guard: guard(own, settings.register.as_deref())?,
            purges: purges(own, settings.cache)?,
            server,
        })
    }
}

/// Returns the guard of writes, if it is enabled.
fn guard(settings: &ProxySettings, register: Option<&str>) -> Result<Option<Guard>, Error> {
    if !settings.guard_writes {
        return match register {
            None => Ok(None),
            Some(_) => Err(Error::setting(
                "--register",
                "needs --guard-writes, whose records it keeps. Add it, or remove --register.",
            )),
        };
    }
    let register = super::parse_register(register)?.filter(|url| *url.engine() != Engine::Memory);
    if settings
        .route
        .iter()
        .any(|route| route.0.answer_timeout.is_some())
    {
        return Err(guarded_timeout());
    }
    Ok(Some(Guard { register }))
}

/// Returns the error for a route with a timeout of its own. The guard gives up a write after `--answer-timeout`, so a route that waits
/// longer would let another write begin in the meantime.
pub fn guarded_timeout() -> Error {
    Error::setting(
        "--guard-writes",
        "needs one --answer-timeout for all routes. Remove answer-timeout from the routes.",
    )
}

/// Returns the proxies that purges are for.
fn purges(settings: &ProxySettings, cache: Option<ByteSize>) -> Result<PurgeConfig, Error> {
    let is_set = settings.purge_register.is_some() || !settings.purge_peer.is_empty();
    if is_set && cache.is_some_and(|cache| cache.bytes() == 0) {
        return Err(Error::setting(
            "--purge-register",
            "and --purge-peer need the cache. Remove them, or remove --cache 0.",
        )
        .about("--purge-peer"));
    }
    let peer = |text: &String| {
        let is_usable = |url: &Url| {
            matches!(url.scheme(), "http" | "https") && url.has_host() && url.path() == "/"
        };
        text.parse().ok().filter(is_usable).ok_or_else(|| {
            let shown = without_secrets(text);
            Error::setting(
                "--purge-peer",
                format!("can't be '{shown}'. Use a proxy's address, such as http://10.0.0.8:9000."),
            )
        })
    };
    match (
        super::parse_register(settings.purge_register.as_deref())?,
        &settings.purge_peer[..],
    ) {
        (None, []) => Ok(PurgeConfig::Alone),
        (None, peers) => peers
            .iter()
            .map(peer)
            .collect::<Result<_, _>>()
            .map(PurgeConfig::Peers),
        (Some(url), []) if matches!(url.engine(), Engine::Memory | Engine::Redb(_)) => {
            Err(Error::setting(
                "--purge-register",
                format!(
                    "can't be {url}, which only one process can use. Use PostgreSQL, etcd, Redis or an object store."
                ),
            ))
        }
        (Some(url), []) => Ok(PurgeConfig::Register {
            url,
            bound: positive(settings.purge_bound, "--purge-bound")?,
        }),
        (Some(_), _) => Err(Error::setting(
            "--purge-register",
            "and --purge-peer can't be combined. Keep the register: it needs no list of peers.",
        )
        .about("--purge-peer")),
    }
}

/// Returns the rules for queries. Without a cache, nothing applies them.
fn query_rules(settings: &ProxySettings, cache: Option<ByteSize>) -> Result<QueryRules, Error> {
    let names = [
        ("--drop-query", &settings.drop_query),
        ("--keep-query", &settings.keep_query),
    ];
    for (flag, names) in names {
        let is_name = |name: &&String| {
            let name = name.strip_suffix('*').unwrap_or(name);
            !name.contains(['&', '=', '?', '#', '*'])
        };
        if let Some(wrong) = names.iter().find(|name| name.is_empty() || !is_name(name)) {
            let detail =
                "Write a parameter's decoded name, such as 'page', or a prefix, such as 'utm_*'.";
            return Err(Error::setting(
                flag,
                format!("contains '{wrong}', which isn't a name. {detail}"),
            ));
        }
    }
    let filter = match (&settings.drop_query[..], &settings.keep_query[..]) {
        ([], []) => QueryFilter::None,
        (drop, []) => QueryFilter::Drop(drop.to_vec()),
        ([], keep) => QueryFilter::Keep(keep.to_vec()),
        _ => {
            return Err(Error::setting(
                "--drop-query",
                "and --keep-query can't be combined. Use one.",
            )
            .about("--keep-query"));
        }
    };
    let rules = QueryRules {
        sort: settings.sort_query,
        filter,
    };
    if rules.is_active() && cache.is_some_and(|cache| cache.bytes() == 0) {
        let message = "--sort-query, --drop-query and --keep-query need the cache. Remove them, or remove --cache 0.";
        return Err(Error::usage(message)
            .about("--sort-query")
            .about("--drop-query")
            .about("--keep-query"));
    }
    Ok(rules)
}

/// Returns the heuristic for lifetimes that upstreams don't state, unless all of its parts are disabled.
fn heuristic(settings: &ProxySettings) -> Option<Heuristic> {
    let guesses = settings.guess_lifetimes;
    let (default, errors) = (
        settings.default_ttl.map(Span::duration),
        settings.negative_ttl.map(Span::duration),
    );
    let percent = if guesses {
        Heuristic::default().percent
    } else {
        0
    };
    let heuristic = Heuristic {
        percent,
        default: default.unwrap_or_default(),
        errors,
        ..Heuristic::default()
    };
    (guesses || default.is_some() || errors.is_some()).then_some(heuristic)
}

/// Rejects the settings of `ifmatch serve`.
fn reject_storage(settings: &Settings) -> Result<(), Error> {
    match arguments::OF_STORAGE
        .iter()
        .find(|(_, is_set)| is_set(settings))
    {
        Some((id, _)) => Err(Error::setting(
            &format!("--{}", id.replace('_', "-")),
            "is for `ifmatch serve`. A proxy stores no blobs: remove it, or use `ifmatch serve`.",
        )),
        None => Ok(()),
    }
}

/// Returns the routes, with `--upstream` as the one of `/`.
fn routes(settings: &ProxySettings) -> Result<Vec<Route>, Error> {
    let mut routes: Vec<Route> = settings.route.iter().map(|route| route.0.clone()).collect();
    if !settings.upstream.is_empty() {
        routes.push(Route::to("/", settings.upstream.clone()));
    }
    if routes.is_empty() {
        let message = "no upstream. Set --upstream http://127.0.0.1:8000, or --route to forward some requests only.";
        return Err(Error::usage(message).about("--upstream"));
    }
    Ok(routes)
}

/// Returns the proxy with its routes and upstreams.
fn builder(
    settings: &ProxySettings,
    routes: &[Route],
    max_requests: SlotLimit,
) -> Result<ProxyBuilder, Error> {
    let mut builder = Proxy::builder()
        .http2(settings.upstream_http2)
        .rewrite_host(settings.rewrite_host)
        .trust_forwarded(settings.trust_forwarded)
        .connect_timeout(positive(settings.connect_timeout, "--connect-timeout")?)
        .answer_timeout(positive(settings.answer_timeout, "--answer-timeout")?);
    let check = |path: &str| {
        Ok::<_, Error>(HealthCheck {
            path: path.to_owned(),
            interval: positive(settings.health_interval, "--health-interval")?,
            timeout: HEALTH_TIMEOUT,
            failures: HEALTH_FAILURES,
            successes: HEALTH_SUCCESSES,
        })
    };
    let mut secure = false;
    for route in routes {
        let flag = if route.pattern == "/" {
            "--upstream"
        } else {
            "--route"
        };
        let usage = |error: ifmatch_proxy::InvalidUpstream| {
            Error::usage(format!("{flag}: {error}"))
                .about_route(&route.pattern)
                .about(flag)
        };
        let upstream = route.upstream().transpose().map_err(usage)?;
        secure |= upstream.as_ref().is_some_and(Upstream::is_secure);
        let upstream = upstream
            .map(|upstream| configured(upstream, settings, max_requests))
            .transpose()?;
        builder = builder
            .route(
                &route.pattern,
                route.build(upstream, &check("/")?).map_err(usage)?,
            )
            .map_err(usage)?;
    }
    let builder = pem::configure_upstreams(builder, settings, secure)?;
    match &settings.health_path {
        None => Ok(builder),
        Some(path) if path.starts_with('/') => Ok(builder.health_check(check(path)?)),
        Some(path) => Err(Error::setting(
            "--health-path",
            format!("must start with a slash: write /{path}"),
        )),
    }
}

/// Applies the settings of all upstreams.
fn configured(
    upstream: Upstream,
    settings: &ProxySettings,
    max_requests: SlotLimit,
) -> Result<Upstream, Error> {
    let upstream = limit(upstream, settings, max_requests)?.breaker(
        settings.breaker_failures,
        positive(settings.breaker_pause, "--breaker-pause")?,
    );
    Ok(match settings.balance {
        Balancing::RoundRobin => upstream.balance(Balance::RoundRobin),
        Balancing::LeastConnections => upstream.balance(Balance::LeastConnections),
    })
}

/// Limits the requests of an upstream. By default, a hanging upstream leaves slots to the others. Clients share its slots as they
/// share the proxy's.
fn limit(
    upstream: Upstream,
    settings: &ProxySettings,
    max_requests: SlotLimit,
) -> Result<Upstream, Error> {
    let queue = max_requests.total / 4;
    let upstream = upstream.per_client(max_requests.per_client);
    match settings.upstream_requests {
        None => Ok(upstream.share(max_requests.total / 2, queue)),
        Some(requests) => Ok(upstream.limit(at_least_one(requests, "--upstream-requests")?, queue)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(toml: &str) -> String {
        Settings::from_toml(toml)
            .and_then(ProxyConfig::from_settings)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn storage_flags_are_rejected_by_name() {
        for (line, flag) in [
            ("data = 'd'", "--data"),
            ("store = 'memory://'", "--store"),
            ("require-conditions = true", "--require-conditions"),
            ("listen-tables = '127.0.0.1:1'", "--listen-tables"),
            ("listen-s3 = '127.0.0.1:1'", "--listen-s3"),
            ("accounts = [{ name = 'a', key = 'a2V5' }]", "--accounts"),
            ("public-read = true", "--public-read"),
            ("cors-origin = ['https://a.example']", "--cors-origin"),
            ("max-waits = 1", "--max-waits"),
        ] {
            let error = error(&format!("{line}\n[proxy]\nupstream = ['http://a']"));
            assert!(
                error.starts_with(flag) && error.contains("ifmatch serve"),
                "{line}: {error}"
            );
        }
    }

    #[test]
    fn rules_for_queries_need_a_cache() {
        for line in [
            "sort-query = true",
            "drop-query = ['utm_*']",
            "keep-query = ['*']",
        ] {
            let settings =
                |cache: &str| format!("{cache}\n[proxy]\nupstream = ['http://a']\n{line}");
            assert!(
                error(&settings("cache = '0'")).contains("need the cache"),
                "{line}"
            );
            let config =
                ProxyConfig::from_settings(Settings::from_toml(&settings("")).unwrap()).unwrap();
            assert!(config.query.is_active(), "{line}");
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn errors_name_the_flag() {
        for (lines, part) in [
            ("", "--upstream"),
            ("upstream = ['a']", "'a' is not a valid upstream"),
            (
                "upstream = ['http://a weight=x']",
                "'weight=x' is not an option",
            ),
            (
                "upstream = ['http://a backup']",
                "all servers of an upstream are backups",
            ),
            (
                "upstream = ['http://a']\nbalance = 'random'",
                "least-connections",
            ),
            (
                "upstream = ['http://a']\nhealth-path = 'up'",
                "--health-path",
            ),
            (
                "upstream = ['http://a']\npurge-register = 'redb:///x'",
                "only one process",
            ),
            (
                "upstream = ['http://a']\npurge-register = 'x'",
                "not the URL of a register",
            ),
            (
                "upstream = ['http://a']\npurge-peer = ['10.0.0.8:9000']",
                "--purge-peer can't be '10.0.0.8:9000'",
            ),
            (
                "upstream = ['http://a']\npurge-peer = ['http://b/c']",
                "--purge-peer can't be 'http://b/c'",
            ),
            (
                "upstream = ['http://a']\npurge-peer = ['http://b']\npurge-register = 'redis://b'",
                "can't be combined",
            ),
            (
                "upstream = ['http://a']\npurge-register = 'redis://b'\npurge-bound = '0s'",
                "--purge-bound",
            ),
            (
                "upstream = ['http://a']\nanswer-timeout = '0s'",
                "--answer-timeout",
            ),
            (
                "upstream = ['http://a']\nupstream-requests = 0",
                "--upstream-requests",
            ),
            (
                "upstream = ['http://a']\nbreaker-pause = '0s'",
                "--breaker-pause",
            ),
            (
                "upstream = ['http://a']\nhealth-path = '/'\nhealth-interval = '0s'",
                "--health-interval",
            ),
            (
                "upstream = ['http://a']\nupstream-ca = 'ca.pem'",
                "--upstream-ca needs",
            ),
            (
                "upstream = ['https://a']\nupstream-ca = 'missing.pem'",
                "can't read --upstream-ca missing.pem",
            ),
            (
                "upstream = ['https://a']\nupstream-client-key = 'k'",
                "--upstream-client-key needs --upstream-client-cert",
            ),
            (
                "upstream = ['https://a']\nupstream-client-cert = 'c'",
                "--upstream-client-cert needs --upstream-client-key",
            ),
            (
                "upstream = ['http://a']\ndrop-query = ['a']\nkeep-query = ['b']",
                "can't be combined",
            ),
            (
                "upstream = ['http://a']\ndrop-query = ['a=b']",
                "--drop-query contains 'a=b'",
            ),
            (
                "upstream = ['http://a']\nkeep-query = ['a*b']",
                "--keep-query contains 'a*b'",
            ),
            (
                "upstream = ['http://a']\nkeep-query = ['']",
                "--keep-query contains ''",
            ),
            ("route = ['a b=http://a']", "a b"),
            (
                "route = ['a=http://a', 'A.=http://b']",
                "'A.' has the same host and path as the route 'a'",
            ),
            (
                "upstream = ['http://a']\nroute = ['/=http://b']",
                "--upstream: '/' has the same host and path",
            ),
            (
                "route = ['*.a=http://$b']",
                "'http://$b' is not a valid upstream",
            ),
            (
                "guard-writes = true\n[[proxy.route]]\nmatch = 'a'\nupstream = ['http://a']\nanswer-timeout = '1s'",
                "--guard-writes needs one --answer-timeout",
            ),
            ("[[proxy.route]]\nmatch = 'a'", "line 2, column 1"),
            (
                "[[proxy.route]]\nmatch = 'a'\nupstream = ['http://a']\nredirect = 'http://b'",
                "either upstream or redirect",
            ),
            (
                "[[proxy.route]]\nupstream = ['http://a']",
                "missing field `match`",
            ),
            (
                "[[proxy.route]]\nmatch = 'a'\nupstream = ['http://a']\nstrip = true",
                "unknown field `strip`",
            ),
            (
                "[[proxy.route]]\nmatch = 'a'\nupstream = ['http://a']\nstrip-prefix = true",
                "'a' has no path to strip",
            ),
            (
                "[[proxy.route]]\nmatch = 'a'\nupstream = ['http://a']\nstatus = 301",
                "status needs redirect",
            ),
            (
                "[[proxy.route]]\nmatch = 'a'\nredirect = 'https://b/{path}'",
                "'https://b/{path}' is not a valid redirect target",
            ),
            (
                "[[proxy.route]]\nmatch = 'a'\nredirect = 'https://b'\nstatus = 200",
                "301, 302, 307 or 308",
            ),
            (
                "[[proxy.route]]\nmatch = 'a'\nupstream = ['http://a']\nrequest-headers.set.Host = 'b'",
                "cannot change 'Host'",
            ),
            (
                "[[proxy.route]]\nmatch = 'a'\nupstream = ['http://a']\nresponse-headers.remove = ['ETag']",
                "cannot change 'ETag'",
            ),
            (
                "route = ['/a/../b=http://a']",
                "'/a/../b' is not a valid route",
            ),
        ] {
            let error = error(&format!("[proxy]\n{lines}"));
            assert!(error.contains(part), "{lines}: {error}");
        }
    }
}
