//! Settings of `ifmatch proxy`, for flags, environment and configuration file.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::arguments;
use super::route::RouteSetting;
use super::units::Span;

/// Settings of `ifmatch proxy`, in addition to [`Settings`](super::settings::Settings). `None` and empty mean unset. In
/// the TOML file they form the table `[proxy]`.
///
/// ```
/// use ifmatch_gateway_config::proxy_settings::ProxySettings;
///
/// let settings: ProxySettings = toml::from_str("upstream = ['http://127.0.0.1:8000']").unwrap();
/// assert_eq!(settings.connect_timeout.to_string(), "5s");
/// ```
#[derive(Args, Clone, Debug, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ProxySettings {
    /// Server to forward requests to. Repeatable.
    ///
    /// A URL has the scheme http, https or h2c (HTTP/2 without TLS), a host, and optionally a port and a path. Several
    /// servers, which may also be separated by commas, take turns. Options follow the URL after spaces: `weight=N` gives a server N
    /// times the requests, and `backup` uses it only while no other is available:
    ///
    /// `--upstream 'http://10.0.0.7:80 weight=3,http://10.0.0.8:80 backup'`
    #[arg(
        long,
        value_name = "URL",
        value_delimiter = ',',
        help_heading = "Upstreams"
    )]
    pub upstream: Vec<String>,

    /// Upstreams for a host, a path or both. Repeatable.
    ///
    /// For example `example.com/images=http://10.0.0.7:8080,http://10.0.0.8:8080`. The most specific route wins;
    /// `*.example.com` matches all hosts below example.com. In the environment, semicolons separate routes.
    /// `[[proxy.route]]` in the file has more options.
    #[arg(
        long,
        value_name = "ROUTE=URLS",
        value_delimiter = ';',
        help_heading = "Upstreams"
    )]
    pub route: Vec<RouteSetting>,

    /// Choice of the server: round-robin or least-connections.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "METHOD",
        default_value = "round-robin",
        help_heading = "Upstreams"
    )]
    pub balance: Balancing,

    /// Send the upstream's host as Host, instead of the client's.
    #[arg(long, help_heading = "Upstreams")]
    pub rewrite_host: bool,

    /// Trust Forwarded and X-Forwarded-* of requests.
    ///
    /// Set this only behind another proxy of yours.
    #[arg(long, help_heading = "Upstreams")]
    pub trust_forwarded: bool,

    /// Time to connect to a server, including DNS and TLS.
    ///
    /// After that, the next server is tried, or the client gets 502.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        default_value = "5s",
        help_heading = "Upstreams"
    )]
    pub connect_timeout: Span,

    /// Time for a server to start or continue a response.
    ///
    /// Also the time to accept each part of a request's body. After that, the client gets 504.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "60s",
        help_heading = "Upstreams"
    )]
    pub answer_timeout: Span,

    /// Maximum number of concurrent requests to one server.
    ///
    /// Further requests go to another server, or wait. By default, all servers of an upstream share half of
    /// --max-requests. Up to a quarter of --max-requests may wait for an upstream, for --connect-timeout each; more get
    /// 503 with Retry-After. Clients share the slots as they share --max-requests.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        help_heading = "Upstreams"
    )]
    pub upstream_requests: Option<u32>,

    /// Consecutive failures after which a server is skipped; with 0, only unreachable servers are.
    ///
    /// The server is skipped for --breaker-pause. A failure is a missing response, a closed connection, invalid HTTP,
    /// 502, 503 or 504. The failures must come from several clients or paths. If all servers of an upstream hang,
    /// clients get a stale response or 503 at once.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        default_value = "5",
        help_heading = "Upstreams"
    )]
    pub breaker_failures: u32,

    /// Time to skip a server that was unreachable, failed or hung.
    ///
    /// Unless it hangs, it still gets requests that no other server can take.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        default_value = "5s",
        help_heading = "Upstreams"
    )]
    pub breaker_pause: Span,

    /// PEM file of certificate authorities for https upstreams.
    ///
    /// They replace the system's. To trust both, append the system's to the file.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FILE",
        help_heading = "Upstreams"
    )]
    pub upstream_ca: Option<PathBuf>,

    /// PEM file with the client certificate for https upstreams (mutual TLS).
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FILE",
        help_heading = "Upstreams"
    )]
    pub upstream_client_cert: Option<PathBuf>,

    /// PEM file with the private key of --upstream-client-cert.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FILE",
        help_heading = "Upstreams"
    )]
    pub upstream_client_key: Option<PathBuf>,

    /// Offer HTTP/2 to https upstreams (ALPN).
    ///
    /// For HTTP/2 without TLS, write h2c:// in the URL.
    #[arg(long, hide_short_help = true, help_heading = "Upstreams")]
    pub upstream_http2: bool,

    /// Path for periodic health checks.
    ///
    /// A check succeeds with a 2xx within five seconds. The first result takes effect immediately. After that, three
    /// failures in a row take a server out while another is healthy, and two successes bring it back.
    #[arg(long, value_name = "PATH", help_heading = "Upstreams")]
    pub health_path: Option<String>,

    /// Time between health checks of a server.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        default_value = "10s",
        help_heading = "Upstreams"
    )]
    pub health_interval: Span,

    /// Guess the lifetime of responses that state none.
    ///
    /// The guess is derived from Last-Modified (RFC 9111 §4.2.2).
    #[arg(
        long,
        hide_short_help = true,
        default_value = "true",
        help_heading = "Cache"
    )]
    pub guess_lifetimes: bool,

    /// Lifetime of responses without a stated or guessed one.
    ///
    /// Doesn't apply to requests with credentials, or to responses with cookies.
    #[arg(long, value_name = "TIME", help_heading = "Cache")]
    pub default_ttl: Option<Span>,

    /// Lifetime of responses with 404, 405, 410, 414 or 501 that state none.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        help_heading = "Cache"
    )]
    pub negative_ttl: Option<Span>,

    /// Time to serve stale responses while the upstream is unreachable; 0s disables it.
    ///
    /// Counts from the end of a response's lifetime. Doesn't apply to responses with must-revalidate, proxy-revalidate
    /// or no-cache. If unset, it's an hour, except for responses with s-maxage.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        help_heading = "Cache"
    )]
    pub stale_if_unreachable: Option<Span>,

    /// Time to serve stale responses if the upstream responds with 500, 502, 503 or 504.
    ///
    /// Counts from the end of a response's lifetime. Doesn't apply if the response forbids it; its own stale-if-error
    /// takes precedence.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        help_heading = "Cache"
    )]
    pub stale_if_error: Option<Span>,

    /// Time to serve stale responses while they are revalidated in the background.
    ///
    /// Counts from the end of a response's lifetime. Doesn't apply if the response forbids it; its own
    /// stale-while-revalidate takes precedence.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        help_heading = "Cache"
    )]
    pub stale_while_revalidate: Option<Span>,

    /// Ignore Cache-Control and Pragma of requests.
    ///
    /// Clients can't then force requests to the upstream. `no-store` still prevents storing.
    #[arg(long, hide_short_help = true, help_heading = "Cache")]
    pub ignore_client_cache_control: bool,

    /// Store responses with cookies, and share them with all clients.
    ///
    /// Applies to responses with an explicit lifetime that aren't `public`. Every client then gets the same cookie.
    #[arg(long, hide_short_help = true, help_heading = "Cache")]
    pub share_cookies: bool,

    /// Sort the query parameters of requests by name.
    ///
    /// The cache then ignores their order. The upstream gets the sorted query. Parameters of one name keep their order.
    #[arg(long, hide_short_help = true, help_heading = "Cache")]
    pub sort_query: bool,

    /// Query parameters to remove, such as `utm_*,fbclid`. Repeatable.
    ///
    /// They're removed before the lookup and before forwarding. `*` at the end matches any suffix.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "Cache"
    )]
    pub drop_query: Vec<String>,

    /// Query parameters to keep; all others are removed. Repeatable.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "Cache"
    )]
    pub keep_query: Vec<String>,

    /// Register through which proxies share purges, such as `postgres://HOST/DATABASE`.
    ///
    /// A purge that one proxy acknowledges then applies to all of them. A proxy that can't reach the register
    /// revalidates stored responses before use.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "URL",
        hide_env_values = true,
        help_heading = "Cache"
    )]
    pub purge_register: Option<String>,

    /// How long stored responses may be served before the register is asked for purges again.
    ///
    /// The proxy asks four times as often. A purge takes slightly longer than this time.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        default_value = "2s",
        help_heading = "Cache"
    )]
    pub purge_bound: Span,

    /// Other proxy that each purge is passed on to, with its token, such as `http://10.0.0.8:9000`. Repeatable.
    ///
    /// This is for proxies without a shared register. Give each proxy the addresses of all others.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "URL",
        value_delimiter = ',',
        help_heading = "Cache"
    )]
    pub purge_peer: Vec<String>,

    /// Prevent lost updates, even if the upstream doesn't.
    ///
    /// Conditional PUT, PATCH, POST and DELETE are then safe even if the upstream ignores conditions, and each
    /// response's tag is the hash of its content. All changes must go through this proxy, or others with the same register.
    #[arg(long, help_heading = "Upstreams")]
    pub guard_writes: bool,

    /// For --guard-writes: paths that differ only in case are one resource.
    #[arg(long, hide_short_help = true, help_heading = "Upstreams")]
    pub guard_ignore_case: bool,

    /// For --guard-writes: a path with a trailing slash and the same path without it are one resource.
    #[arg(long, hide_short_help = true, help_heading = "Upstreams")]
    pub guard_ignore_trailing_slash: bool,
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

impl Default for ProxySettings {
    fn default() -> Self {
        arguments::defaults()
    }
}
