//! Settings of `ifmatch proxy`, for flags, environment and configuration file.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::route::RouteSetting;
use super::units::{ByteSize, Span};

/// Default memory of a proxy's cache.
pub(super) const DEFAULT_CACHE: ByteSize = ByteSize::from_bytes(256 << 20);

/// Settings of `ifmatch proxy`, in addition to [`Settings`](super::settings::Settings). `None` and empty mean unset. In
/// the TOML file they form the table `[proxy]`.
///
/// ```
/// use ifmatch_gateway::config::proxy_settings::ProxySettings;
///
/// let settings: ProxySettings = toml::from_str("upstream = ['http://127.0.0.1:8000']").unwrap();
/// assert_eq!(settings.or(ProxySettings::defaults()).guard_writes, Some(false));
/// ```
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ProxySettings {
    /// Server to forward requests to. Repeatable.
    ///
    /// http://, https:// or h2c:// (HTTP/2 without TLS), a host, an optional port, and an optional path prefix.
    /// Several servers, also separated by commas, take turns. Options may follow the URL, separated by spaces:
    /// `weight=N` gives a server N times as many requests as one without, and `backup` uses a server only while no
    /// other one is available. For example `http://10.0.0.7:8080 weight=3,http://10.0.0.8:8080,http://10.0.0.9:8080
    /// backup`.
    #[arg(long, value_name = "URL", env = "IFMATCH_UPSTREAM", value_delimiter = ',', help_heading = "Upstreams")]
    pub upstream: Vec<String>,

    /// Other upstreams for a host, a path or both.
    ///
    /// For example `example.com/images=http://10.0.0.7:8080,http://10.0.0.8:8080`. The most specific route wins;
    /// `*.example.com` is for all hosts below example.com.
    /// Repeatable; separated by semicolons in the environment. In the file, `[[proxy.route]]` has more options.
    #[arg(long, value_name = "ROUTE=URLS", env = "IFMATCH_ROUTE", value_delimiter = ';', help_heading = "Upstreams")]
    pub route: Vec<RouteSetting>,

    /// Choice of the server: round-robin or least-connections.
    #[arg(
        long,
        hide_short_help = true,
        value_enum,
        value_name = "METHOD",
        env = "IFMATCH_BALANCE",
        help_heading = "Upstreams"
    )]
    pub balance: Option<Balancing>,

    /// Send the upstream's host as Host, instead of the client's.
    #[arg(long, value_name = "BOOL", env = "IFMATCH_REWRITE_HOST", help_heading = "Upstreams",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub rewrite_host: Option<bool>,

    /// Trust Forwarded and X-Forwarded-* headers of requests.
    ///
    /// Use it only behind another proxy of yours.
    #[arg(long, value_name = "BOOL", env = "IFMATCH_TRUST_FORWARDED", help_heading = "Upstreams",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub trust_forwarded: Option<bool>,

    /// Time to connect to a server, including DNS and TLS.
    ///
    /// Afterwards the next server is tried, or the client gets 502.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        env = "IFMATCH_CONNECT_TIMEOUT",
        help_heading = "Upstreams"
    )]
    pub connect_timeout: Option<Span>,

    /// Time for a server to begin or continue a response.
    ///
    /// It also limits the time in which a server takes each part of the request's content. Afterwards the client gets
    /// 504.
    #[arg(long, value_name = "TIME", env = "IFMATCH_ANSWER_TIMEOUT", help_heading = "Upstreams")]
    pub answer_timeout: Option<Span>,

    /// Maximum number of concurrent requests to one server.
    ///
    /// Further requests go to another server of the upstream, or wait. By default, all servers of an upstream
    /// together get half of --max-requests. Clients share them as they share --max-requests. As many requests as a
    /// quarter of --max-requests may wait for an upstream, up to --connect-timeout each; further ones get 503 with
    /// Retry-After.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        env = "IFMATCH_UPSTREAM_REQUESTS",
        help_heading = "Upstreams"
    )]
    pub upstream_requests: Option<u32>,

    /// Number of failures after which a server is skipped.
    ///
    /// They are consecutive failures, of several clients or for several paths: no response in time, a closed
    /// connection, invalid HTTP, or 502, 503 and 504. The server is skipped for --breaker-pause. If all servers of an
    /// upstream hang, clients get a stale response or 503 with Retry-After at once. 0 disables it.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        env = "IFMATCH_BREAKER_FAILURES",
        help_heading = "Upstreams"
    )]
    pub breaker_failures: Option<u32>,

    /// Time for which a server is skipped after it was unreachable, failed or hung.
    ///
    /// Unless it hangs, it still gets requests that no other server can take.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        env = "IFMATCH_BREAKER_PAUSE",
        help_heading = "Upstreams"
    )]
    pub breaker_pause: Option<Span>,

    /// PEM file of certificate authorities for https upstreams.
    ///
    /// They replace those of the system. To trust both, append the system's to the file.
    #[arg(long, hide_short_help = true, value_name = "FILE", env = "IFMATCH_UPSTREAM_CA", help_heading = "Upstreams")]
    pub upstream_ca: Option<PathBuf>,

    /// PEM file of the certificate sent to https upstreams.
    ///
    /// The proxy sends the chain to upstreams that ask for one (mutual TLS).
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FILE",
        env = "IFMATCH_UPSTREAM_CLIENT_CERT",
        help_heading = "Upstreams"
    )]
    pub upstream_client_cert: Option<PathBuf>,

    /// Private key of --upstream-client-cert, as a PEM file.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FILE",
        env = "IFMATCH_UPSTREAM_CLIENT_KEY",
        help_heading = "Upstreams"
    )]
    pub upstream_client_key: Option<PathBuf>,

    /// Offer HTTP/2 to https upstreams.
    ///
    /// They select it or HTTP/1.1 (ALPN). For HTTP/2 without TLS, write h2c:// in the URL of the upstream.
    #[arg(long, hide_short_help = true, value_name = "BOOL", env = "IFMATCH_UPSTREAM_HTTP2", help_heading = "Upstreams",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub upstream_http2: Option<bool>,

    /// Path for periodic health checks.
    ///
    /// A server that does not respond with 2xx within five seconds fails a check. The first check decides alone.
    /// After three failed checks in a row, a server gets no requests while another one is healthy; after two
    /// successful ones, it gets requests again.
    #[arg(long, value_name = "PATH", env = "IFMATCH_HEALTH_PATH", help_heading = "Upstreams")]
    pub health_path: Option<String>,

    /// Time between health checks of a server.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        env = "IFMATCH_HEALTH_INTERVAL",
        help_heading = "Upstreams"
    )]
    pub health_interval: Option<Span>,

    /// Guess the lifetime of responses that state none.
    ///
    /// The guess is a part of the time since their Last-Modified (RFC 9111 §4.2.2).
    #[arg(long, hide_short_help = true, value_name = "BOOL", env = "IFMATCH_GUESS_LIFETIMES", help_heading = "Cache",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub guess_lifetimes: Option<bool>,

    /// Lifetime of responses without a stated or guessed one.
    ///
    /// Responses to requests with credentials, and responses with cookies, get none.
    #[arg(long, value_name = "TIME", env = "IFMATCH_DEFAULT_TTL", help_heading = "Cache")]
    pub default_ttl: Option<Span>,

    /// Lifetime of 404, 405, 410, 414 and 501 responses that do not state one.
    #[arg(long, hide_short_help = true, value_name = "TIME", env = "IFMATCH_NEGATIVE_TTL", help_heading = "Cache")]
    pub negative_ttl: Option<Span>,

    /// Time to use stale responses if the upstream fails.
    ///
    /// It begins when the lifetime of a response ends, and counts while the upstream is unreachable, unless the
    /// response forbids it. 0s disables it.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        env = "IFMATCH_STALE_IF_UNREACHABLE",
        help_heading = "Cache"
    )]
    pub stale_if_unreachable: Option<Span>,

    /// Time to use stale responses if the upstream answers 500, 502, 503 or 504.
    ///
    /// It begins when the lifetime of a response ends, unless the response forbids it or states its own stale-if-error.
    /// Unset, only the latter counts.
    #[arg(long, hide_short_help = true, value_name = "TIME", env = "IFMATCH_STALE_IF_ERROR", help_heading = "Cache")]
    pub stale_if_error: Option<Span>,

    /// Time to use stale responses during their revalidation.
    ///
    /// It begins when the lifetime of a response ends. The proxy revalidates the response in the background, unless
    /// the response forbids it or states its own stale-while-revalidate. Unset, only the latter counts.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        env = "IFMATCH_STALE_WHILE_REVALIDATE",
        help_heading = "Cache"
    )]
    pub stale_while_revalidate: Option<Span>,

    /// Ignore Cache-Control and Pragma of requests.
    ///
    /// Clients can then not force requests to the upstream. `no-store` still prevents storing.
    #[arg(long, hide_short_help = true, value_name = "BOOL", env = "IFMATCH_IGNORE_CLIENT_CACHE_CONTROL", help_heading = "Cache",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub ignore_client_cache_control: Option<bool>,

    /// Store responses with cookies, for all clients.
    ///
    /// It applies to responses with Set-Cookie and an explicit lifetime that are not `public`: every client then gets
    /// the same cookie.
    #[arg(long, hide_short_help = true, value_name = "BOOL", env = "IFMATCH_SHARE_COOKIES", help_heading = "Cache",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub share_cookies: Option<bool>,

    /// Sort the query parameters of each request by name.
    ///
    /// Their order then makes no difference to the cache. The upstream receives the sorted query. Parameters with the
    /// same name keep their order.
    #[arg(long, hide_short_help = true, value_name = "BOOL", env = "IFMATCH_SORT_QUERY", help_heading = "Cache",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub sort_query: Option<bool>,

    /// Query parameters to remove, such as `utm_*,fbclid`.
    ///
    /// They are removed from each request before it is looked up and forwarded. `*` at the end matches any rest.
    /// Repeatable, or separated by commas.
    #[arg(long, value_name = "NAMES", env = "IFMATCH_DROP_QUERY", value_delimiter = ',', help_heading = "Cache")]
    pub drop_query: Vec<String>,

    /// Query parameters to keep; all others are removed.
    ///
    /// They are removed from each request before it is looked up and forwarded. Repeatable, or separated by commas.
    #[arg(long, value_name = "NAMES", env = "IFMATCH_KEEP_QUERY", value_delimiter = ',', help_heading = "Cache")]
    pub keep_query: Vec<String>,

    /// Register by which several proxies share their purges, such as `postgres://HOST/DATABASE`.
    ///
    /// A purge that one of them acknowledges then holds on all. A proxy that cannot reach the register validates stored responses
    /// before it uses them.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "URL",
        env = "IFMATCH_PURGE_REGISTER",
        hide_env_values = true,
        help_heading = "Cache"
    )]
    pub purge_register: Option<String>,

    /// Time for which a proxy uses stored responses after it has asked the register for purges.
    ///
    /// The proxy asks four times within it. Each purge waits for a little longer than this time.
    #[arg(long, hide_short_help = true, value_name = "TIME", env = "IFMATCH_PURGE_BOUND", help_heading = "Cache")]
    pub purge_bound: Option<Span>,

    /// Other proxies, which get each purge with its token, such as `http://10.0.0.8:9000`.
    ///
    /// For proxies without a shared register: give each the addresses of all others. Repeatable, or separated by commas.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "URL",
        env = "IFMATCH_PURGE_PEER",
        value_delimiter = ',',
        help_heading = "Cache"
    )]
    pub purge_peer: Vec<String>,

    /// Lose no conditional write, even if the upstream does.
    ///
    /// Conditional PUT, PATCH, POST and DELETE lose no update even if the upstream ignores conditions, and each
    /// response gets the hash of its content as its entity tag. Use it only if the upstreams are changed through this
    /// proxy alone.
    #[arg(long, value_name = "BOOL", env = "IFMATCH_GUARD_WRITES", help_heading = "Upstreams",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub guard_writes: Option<bool>,
}

/// Distribution of requests over servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balancing {
    /// Each server in turn, in proportion to the weights.
    RoundRobin,
    /// The server with the fewest requests in progress, divided by its weight.
    LeastConnections,
}

impl ProxySettings {
    /// Returns all defaults.
    pub fn defaults() -> Self {
        Self {
            rewrite_host: Some(false),
            trust_forwarded: Some(false),
            upstream_http2: Some(false),
            balance: Some(Balancing::RoundRobin),
            connect_timeout: Some(Span::from_secs(5)),
            answer_timeout: Some(Span::from_secs(60)),
            breaker_failures: Some(5),
            breaker_pause: Some(Span::from_secs(5)),
            health_interval: Some(Span::from_secs(10)),
            guess_lifetimes: Some(true),
            stale_if_unreachable: Some(Span::from_secs(3_600)),
            ignore_client_cache_control: Some(false),
            share_cookies: Some(false),
            sort_query: Some(false),
            purge_bound: Some(Span::from_secs(2)),
            guard_writes: Some(false),
            ..Self::default()
        }
    }

    /// Returns these settings, completed by those of `fallback`.
    #[must_use]
    pub fn or(self, fallback: Self) -> Self {
        Self {
            upstream: if self.upstream.is_empty() { fallback.upstream } else { self.upstream },
            route: if self.route.is_empty() { fallback.route } else { self.route },
            balance: self.balance.or(fallback.balance),
            rewrite_host: self.rewrite_host.or(fallback.rewrite_host),
            trust_forwarded: self.trust_forwarded.or(fallback.trust_forwarded),
            connect_timeout: self.connect_timeout.or(fallback.connect_timeout),
            answer_timeout: self.answer_timeout.or(fallback.answer_timeout),
            upstream_requests: self.upstream_requests.or(fallback.upstream_requests),
            breaker_failures: self.breaker_failures.or(fallback.breaker_failures),
            breaker_pause: self.breaker_pause.or(fallback.breaker_pause),
            upstream_ca: self.upstream_ca.or(fallback.upstream_ca),
            upstream_client_cert: self.upstream_client_cert.or(fallback.upstream_client_cert),
            upstream_client_key: self.upstream_client_key.or(fallback.upstream_client_key),
            upstream_http2: self.upstream_http2.or(fallback.upstream_http2),
            health_path: self.health_path.or(fallback.health_path),
            health_interval: self.health_interval.or(fallback.health_interval),
            guess_lifetimes: self.guess_lifetimes.or(fallback.guess_lifetimes),
            default_ttl: self.default_ttl.or(fallback.default_ttl),
            negative_ttl: self.negative_ttl.or(fallback.negative_ttl),
            stale_if_unreachable: self.stale_if_unreachable.or(fallback.stale_if_unreachable),
            stale_if_error: self.stale_if_error.or(fallback.stale_if_error),
            stale_while_revalidate: self.stale_while_revalidate.or(fallback.stale_while_revalidate),
            ignore_client_cache_control: self.ignore_client_cache_control.or(fallback.ignore_client_cache_control),
            share_cookies: self.share_cookies.or(fallback.share_cookies),
            sort_query: self.sort_query.or(fallback.sort_query),
            drop_query: if self.drop_query.is_empty() { fallback.drop_query } else { self.drop_query },
            keep_query: if self.keep_query.is_empty() { fallback.keep_query } else { self.keep_query },
            purge_register: self.purge_register.or(fallback.purge_register),
            purge_bound: self.purge_bound.or(fallback.purge_bound),
            purge_peer: if self.purge_peer.is_empty() { fallback.purge_peer } else { self.purge_peer },
            guard_writes: self.guard_writes.or(fallback.guard_writes),
        }
    }

    /// Returns the defaults for `--help`, by flag id.
    pub(crate) fn shown_defaults() -> Vec<(&'static str, String)> {
        let defaults = Self::defaults();
        let shown = [
            ("balance", Some("round-robin".to_owned())),
            ("connect_timeout", defaults.connect_timeout.map(|span| span.to_string())),
            ("answer_timeout", defaults.answer_timeout.map(|span| span.to_string())),
            ("breaker_failures", defaults.breaker_failures.map(|count| count.to_string())),
            ("breaker_pause", defaults.breaker_pause.map(|span| span.to_string())),
            ("health_interval", defaults.health_interval.map(|span| span.to_string())),
            ("stale_if_unreachable", defaults.stale_if_unreachable.map(|span| span.to_string())),
            ("purge_bound", defaults.purge_bound.map(|span| span.to_string())),
            ("cache", Some(DEFAULT_CACHE.to_string())),
        ];
        shown.into_iter().filter_map(|(id, value)| Some((id, value?))).collect()
    }
}
