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
/// use ifmatch_gateway::config::proxy_settings::ProxySettings;
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
    /// http://, https:// or h2c:// (HTTP/2 without TLS), a host, an optional port, and an optional path prefix.
    /// Several servers, also separated by commas, take turns. Options may follow the URL, separated by spaces:
    /// `weight=N` gives a server N times as many requests as one without, and `backup` uses a server only while no
    /// other one is available. For example `http://10.0.0.7:8080 weight=3,http://10.0.0.8:8080,http://10.0.0.9:8080
    /// backup`.
    #[arg(long, value_name = "URL", value_delimiter = ',', help_heading = "Upstreams")]
    pub upstream: Vec<String>,

    /// Other upstreams for a host, a path or both.
    ///
    /// For example `example.com/images=http://10.0.0.7:8080,http://10.0.0.8:8080`. The most specific route wins;
    /// `*.example.com` is for all hosts below example.com.
    /// Repeatable; separated by semicolons in the environment. In the file, `[[proxy.route]]` has more options.
    #[arg(long, value_name = "ROUTE=URLS", value_delimiter = ';', help_heading = "Upstreams")]
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

    /// Trust Forwarded and X-Forwarded-* headers of requests.
    ///
    /// Use it only behind another proxy of yours.
    #[arg(long, help_heading = "Upstreams")]
    pub trust_forwarded: bool,

    /// Time to connect to a server, including DNS and TLS.
    ///
    /// Afterwards the next server is tried, or the client gets 502.
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "5s", help_heading = "Upstreams")]
    pub connect_timeout: Span,

    /// Time for a server to begin or continue a response.
    ///
    /// It also limits the time in which a server takes each part of the request's content. Afterwards the client gets
    /// 504.
    #[arg(long, value_name = "TIME", default_value = "60s", help_heading = "Upstreams")]
    pub answer_timeout: Span,

    /// Maximum number of concurrent requests to one server.
    ///
    /// Further requests go to another server of the upstream, or wait. By default, all servers of an upstream
    /// together get half of --max-requests. Clients share them as they share --max-requests. As many requests as a
    /// quarter of --max-requests may wait for an upstream, up to --connect-timeout each; further ones get 503 with
    /// Retry-After.
    #[arg(long, hide_short_help = true, value_name = "N", help_heading = "Upstreams")]
    pub upstream_requests: Option<u32>,

    /// Number of failures after which a server is skipped.
    ///
    /// They are consecutive failures, of several clients or for several paths: no response in time, a closed
    /// connection, invalid HTTP, or 502, 503 and 504. The server is skipped for --breaker-pause. If all servers of an
    /// upstream hang, clients get a stale response or 503 with Retry-After at once. 0 disables it.
    #[arg(long, hide_short_help = true, value_name = "N", default_value = "5", help_heading = "Upstreams")]
    pub breaker_failures: u32,

    /// Time for which a server is skipped after it was unreachable, failed or hung.
    ///
    /// Unless it hangs, it still gets requests that no other server can take.
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "5s", help_heading = "Upstreams")]
    pub breaker_pause: Span,

    /// PEM file of certificate authorities for https upstreams.
    ///
    /// They replace those of the system. To trust both, append the system's to the file.
    #[arg(long, hide_short_help = true, value_name = "FILE", help_heading = "Upstreams")]
    pub upstream_ca: Option<PathBuf>,

    /// PEM file of the certificate sent to https upstreams.
    ///
    /// The proxy sends the chain to upstreams that ask for one (mutual TLS).
    #[arg(long, hide_short_help = true, value_name = "FILE", help_heading = "Upstreams")]
    pub upstream_client_cert: Option<PathBuf>,

    /// Private key of --upstream-client-cert, as a PEM file.
    #[arg(long, hide_short_help = true, value_name = "FILE", help_heading = "Upstreams")]
    pub upstream_client_key: Option<PathBuf>,

    /// Offer HTTP/2 to https upstreams.
    ///
    /// They select it or HTTP/1.1 (ALPN). For HTTP/2 without TLS, write h2c:// in the URL of the upstream.
    #[arg(long, hide_short_help = true, help_heading = "Upstreams")]
    pub upstream_http2: bool,

    /// Path for periodic health checks.
    ///
    /// A server that does not respond with 2xx within five seconds fails a check. The first check decides alone.
    /// After three failed checks in a row, a server gets no requests while another one is healthy; after two
    /// successful ones, it gets requests again.
    #[arg(long, value_name = "PATH", help_heading = "Upstreams")]
    pub health_path: Option<String>,

    /// Time between health checks of a server.
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "10s", help_heading = "Upstreams")]
    pub health_interval: Span,

    /// Guess the lifetime of responses that state none.
    ///
    /// The guess is a part of the time since their Last-Modified (RFC 9111 §4.2.2).
    #[arg(long, hide_short_help = true, default_value = "true", help_heading = "Cache")]
    pub guess_lifetimes: bool,

    /// Lifetime of responses without a stated or guessed one.
    ///
    /// Responses to requests with credentials, and responses with cookies, get none.
    #[arg(long, value_name = "TIME", help_heading = "Cache")]
    pub default_ttl: Option<Span>,

    /// Lifetime of 404, 405, 410, 414 and 501 responses that do not state one.
    #[arg(long, hide_short_help = true, value_name = "TIME", help_heading = "Cache")]
    pub negative_ttl: Option<Span>,

    /// Time to use stale responses if the upstream fails.
    ///
    /// It begins when the lifetime of a response ends, and counts while the upstream is unreachable, unless the
    /// response forbids it. 0s disables it.
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "3600s", help_heading = "Cache")]
    pub stale_if_unreachable: Span,

    /// Time to use stale responses if the upstream answers 500, 502, 503 or 504.
    ///
    /// It begins when the lifetime of a response ends, unless the response forbids it or states its own stale-if-error.
    /// Unset, only the latter counts.
    #[arg(long, hide_short_help = true, value_name = "TIME", help_heading = "Cache")]
    pub stale_if_error: Option<Span>,

    /// Time to use stale responses during their revalidation.
    ///
    /// It begins when the lifetime of a response ends. The proxy revalidates the response in the background, unless
    /// the response forbids it or states its own stale-while-revalidate. Unset, only the latter counts.
    #[arg(long, hide_short_help = true, value_name = "TIME", help_heading = "Cache")]
    pub stale_while_revalidate: Option<Span>,

    /// Ignore Cache-Control and Pragma of requests.
    ///
    /// Clients can then not force requests to the upstream. `no-store` still prevents storing.
    #[arg(long, hide_short_help = true, help_heading = "Cache")]
    pub ignore_client_cache_control: bool,

    /// Store responses with cookies, for all clients.
    ///
    /// It applies to responses with Set-Cookie and an explicit lifetime that are not `public`: every client then gets
    /// the same cookie.
    #[arg(long, hide_short_help = true, help_heading = "Cache")]
    pub share_cookies: bool,

    /// Sort the query parameters of each request by name.
    ///
    /// Their order then makes no difference to the cache. The upstream receives the sorted query. Parameters with the
    /// same name keep their order.
    #[arg(long, hide_short_help = true, help_heading = "Cache")]
    pub sort_query: bool,

    /// Query parameters to remove, such as `utm_*,fbclid`.
    ///
    /// They are removed from each request before it is looked up and forwarded. `*` at the end matches any rest.
    /// Repeatable, or separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Cache")]
    pub drop_query: Vec<String>,

    /// Query parameters to keep; all others are removed.
    ///
    /// They are removed from each request before it is looked up and forwarded. Repeatable, or separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Cache")]
    pub keep_query: Vec<String>,

    /// Register by which several proxies share their purges, such as `postgres://HOST/DATABASE`.
    ///
    /// A purge that one of them acknowledges then holds on all. A proxy that cannot reach the register validates stored responses
    /// before it uses them.
    #[arg(long, hide_short_help = true, value_name = "URL", hide_env_values = true, help_heading = "Cache")]
    pub purge_register: Option<String>,

    /// Time for which a proxy uses stored responses after it has asked the register for purges.
    ///
    /// The proxy asks four times within it. Each purge waits for a little longer than this time.
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "2s", help_heading = "Cache")]
    pub purge_bound: Span,

    /// Other proxies, which get each purge with its token, such as `http://10.0.0.8:9000`.
    ///
    /// For proxies without a shared register: give each the addresses of all others. Repeatable, or separated by commas.
    #[arg(long, hide_short_help = true, value_name = "URL", value_delimiter = ',', help_heading = "Cache")]
    pub purge_peer: Vec<String>,

    /// Lose no conditional write, even if the upstream does.
    ///
    /// Conditional PUT, PATCH, POST and DELETE lose no update even if the upstream ignores conditions, and each
    /// response gets the hash of its content as its entity tag. Use it only if the upstreams are changed through this
    /// proxy alone.
    #[arg(long, help_heading = "Upstreams")]
    pub guard_writes: bool,
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
