//! Settings, for flags, environment and configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ifmatch_blob::service::DEFAULT_MAX_BODY;
use serde::Deserialize;

use super::access_log::AccessLog;
use super::address::ListenAddress;
use super::config_error;
use super::one_or_many::one_or_many;
use super::optional_address::OptionalAddress;
use super::proxy_settings::ProxySettings;
use super::units::{ByteSize, Span};
use crate::access::accounts::AccountSetting;
use crate::error::Error;

/// All settings. `None` and empty mean unset.
///
/// A setting has the same name as a flag (`--max-body-size`), an environment variable (`IFMATCH_MAX_BODY_SIZE`) and a
/// key of the TOML file (`max-body-size`). Flags override the environment, the environment overrides the file, and the
/// file overrides [`Settings::defaults`].
///
/// ```
/// use ifmatch_gateway::config::settings::Settings;
///
/// let file = Settings::from_toml("max-body-size = '1MiB'\nmax-waits = 2").unwrap();
/// let flags = Settings::from_toml("max-waits = 4").unwrap();
/// let merged = flags.or(file).or(Settings::defaults());
/// assert_eq!(merged.max_waits, Some(4));
/// assert_eq!(merged.max_body_size.unwrap().bytes(), 1024 * 1024);
/// assert!(Settings::from_toml("max-bodysize = '1MiB'").is_err());
/// ```
#[derive(Args, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// Folder for the blobs and their index.
    ///
    /// One process at a time uses it. It is created if missing, for this user only.
    #[arg(long, value_name = "DIR", env = "IFMATCH_DATA", help_heading = "Storage")]
    pub data: Option<PathBuf>,

    /// Object store for the blobs, such as `s3://bucket/prefix`.
    ///
    /// `s3://bucket/prefix`, `az://container/prefix`, `gs://bucket/prefix`, `file:///folder` or `memory://`.
    /// Credentials come from the usual variables (AWS_*, AZURE_*, GOOGLE_*). With --data as well, that folder keeps
    /// leases and other records across restarts.
    #[arg(long, value_name = "URL", env = "IFMATCH_STORE", help_heading = "Storage")]
    pub store: Option<String>,

    /// Register for the records of --store, in place of a folder.
    ///
    /// `postgres://USER@HOST/DATABASE`, which gateways share, `redis://HOST`, `etcd://HOST`, `s3://BUCKET/PREFIX`,
    /// `redb:///FILE` or `memory:`.
    #[arg(long, value_name = "URL", env = "IFMATCH_REGISTER", hide_env_values = true, help_heading = "Storage")]
    pub register: Option<String>,

    /// Accept a register that may lose acknowledged changes.
    ///
    /// Redis may lose them in a failover. Leases may then have two holders, and deleted containers may return.
    #[arg(long, hide_short_help = true, value_name = "BOOL", env = "IFMATCH_REGISTER_MAY_LOSE", help_heading = "Storage",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub register_may_lose: Option<bool>,

    /// Reject writes without a condition with 428.
    ///
    /// PUT and DELETE then need If-Match, If-None-Match or If-Unmodified-Since.
    #[arg(long, value_name = "BOOL", env = "IFMATCH_REQUIRE_CONDITIONS", help_heading = "Storage",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub require_conditions: Option<bool>,

    /// Memory for the cache; 0 disables it.
    ///
    /// `proxy` caches responses of upstreams. `serve` caches blobs of an object store, and revalidates them for each
    /// request.
    #[arg(long, value_name = "SIZE", env = "IFMATCH_CACHE", help_heading = "Cache")]
    pub cache: Option<ByteSize>,

    /// Maximum size of a body in memory, at most a quarter of the cache.
    ///
    /// Larger bodies are cached in --cache-dir, if set, and otherwise not at all.
    #[arg(long, hide_short_help = true, value_name = "SIZE", env = "IFMATCH_CACHE_BODY_SIZE", help_heading = "Cache")]
    pub cache_body_size: Option<ByteSize>,

    /// Folder for cached bodies that memory has no room for.
    ///
    /// It keeps bodies that are too large for memory, and responses evicted from memory. It outlives a restart: its
    /// responses are then verified, and validated before their first use.
    #[arg(long, value_name = "DIR", env = "IFMATCH_CACHE_DIR", help_heading = "Cache")]
    pub cache_dir: Option<PathBuf>,

    /// Maximum size of all bodies in --cache-dir.
    #[arg(long, value_name = "SIZE", env = "IFMATCH_CACHE_DISK", help_heading = "Cache")]
    pub cache_disk: Option<ByteSize>,

    /// Address to listen on. Repeatable.
    ///
    /// IP:PORT, localhost:PORT, or PORT for localhost. Port 0 selects a free port. Addresses beyond loopback require
    /// tokens or accounts. Without those, `serve` accepts only requests addressed to an IP address or to localhost.
    #[arg(long, value_name = "IP:PORT", env = "IFMATCH_LISTEN", value_delimiter = ',', help_heading = "Listening")]
    #[serde(deserialize_with = "one_or_many")]
    pub listen: Vec<ListenAddress>,

    /// Address for `/-/` and PURGE alone, which --listen then serves no more.
    ///
    /// It speaks HTTP without TLS: use loopback or a private network. An origin's own paths below `/-/` are then reachable.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "IP:PORT",
        env = "IFMATCH_ADMIN_LISTEN",
        help_heading = "Listening"
    )]
    pub admin_listen: Option<ListenAddress>,

    /// Address that redirects HTTP to the same URL with https, usually port 80. Repeatable.
    ///
    /// The port in the URL is that of the first --listen.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "IP:PORT",
        env = "IFMATCH_REDIRECT_LISTEN",
        value_delimiter = ',',
        help_heading = "Listening"
    )]
    #[serde(deserialize_with = "one_or_many")]
    pub redirect_listen: Vec<ListenAddress>,

    /// Address to serve tables on, or `off`.
    ///
    /// Tables need an account. If the default address is in use, the gateway warns and serves no tables.
    #[arg(long, value_name = "IP:PORT", env = "IFMATCH_LISTEN_TABLES", help_heading = "Listening")]
    pub listen_tables: Option<OptionalAddress>,

    /// Address to serve S3 clients on, or `off`.
    ///
    /// S3 clients need an account: its name is the access key id, and its key the secret key. If the default address is in
    /// use, the gateway warns and serves no S3 clients.
    #[arg(long, value_name = "IP:PORT", env = "IFMATCH_LISTEN_S3", help_heading = "Listening")]
    pub listen_s3: Option<OptionalAddress>,

    /// Host name of the S3 listener whose first label may be a bucket.
    ///
    /// For example `s3.example.com`: then a client may send `http://docs.s3.example.com/key` for `/docs/key`. Repeatable.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "NAME",
        env = "IFMATCH_S3_HOST",
        value_delimiter = ',',
        help_heading = "Listening"
    )]
    pub s3_host: Vec<String>,

    /// Address of the console, or `off`.
    ///
    /// Pages for an operator's browser. If the service listens on loopback only, they are at 127.0.0.1:10004 by default; if that is
    /// in use, the gateway warns and serves none. Addresses beyond loopback require tokens, as do all addresses if there are accounts.
    #[arg(long, hide_short_help = true, value_name = "IP:PORT", env = "IFMATCH_CONSOLE", help_heading = "Listening")]
    pub console: Option<OptionalAddress>,

    /// PEM file with the certificate chain.
    ///
    /// Enables TLS, with HTTP/2 and HTTP/1.1. Repeatable: a client gets the first certificate for the name that it requests
    /// (SNI), or else the first of all.
    #[arg(long, value_name = "FILE", env = "IFMATCH_TLS_CERT", value_delimiter = ',', help_heading = "Listening")]
    #[serde(deserialize_with = "one_or_many")]
    pub tls_cert: Vec<PathBuf>,

    /// PEM file with the private key of the certificate.
    ///
    /// Repeatable, in the order of the certificates.
    #[arg(long, value_name = "FILE", env = "IFMATCH_TLS_KEY", value_delimiter = ',', help_heading = "Listening")]
    #[serde(deserialize_with = "one_or_many")]
    pub tls_key: Vec<PathBuf>,

    /// Bearer token for reading.
    ///
    /// Repeatable. Prefer a file, since other users of this machine can see flags.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "IFMATCH_READ_TOKEN",
        hide_env_values = true,
        value_delimiter = ',',
        help_heading = "Access"
    )]
    pub read_token: Vec<String>,

    /// Bearer token for reading and writing.
    ///
    /// Repeatable.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "IFMATCH_WRITE_TOKEN",
        hide_env_values = true,
        value_delimiter = ',',
        help_heading = "Access"
    )]
    pub write_token: Vec<String>,

    /// File with tokens for reading, one per line.
    ///
    /// Empty lines and lines that start with # are ignored.
    #[arg(long, value_name = "FILE", env = "IFMATCH_READ_TOKEN_FILE", help_heading = "Access")]
    pub read_token_file: Option<PathBuf>,

    /// File with tokens for reading and writing, one per line.
    #[arg(long, value_name = "FILE", env = "IFMATCH_WRITE_TOKEN_FILE", help_heading = "Access")]
    pub write_token_file: Option<PathBuf>,

    /// Allow reads of blobs and listings without a token.
    ///
    /// Writes and `/-/…` still need a token, and requests in the Azure dialect a signature. With several accounts,
    /// so do reads of all but the first one, and the list of all containers.
    #[arg(long, value_name = "BOOL", env = "IFMATCH_PUBLIC_READ", help_heading = "Access",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub public_read: Option<bool>,

    /// Origin of web pages that may use the plain dialect or S3's (CORS).
    ///
    /// For example `https://app.example`, or `*` for all. Repeatable.
    #[arg(long, value_name = "ORIGIN", env = "IFMATCH_CORS_ORIGIN", value_delimiter = ',', help_heading = "Access")]
    pub cors_origin: Vec<String>,

    /// Account for Azure SDKs, with one or two keys in base64.
    ///
    /// Repeatable. The plain URLs of its containers are /CONTAINER for the first account, and /NAME.CONTAINER for the
    /// others. In the file: `[[accounts]]` with `name`, `key` and `key2`. Without accounts and tokens, the
    /// development account (`UseDevelopmentStorage=true`) is enabled, on loopback only.
    #[arg(
        long,
        value_name = "NAME:KEY[:KEY2]",
        env = "IFMATCH_ACCOUNTS",
        hide_env_values = true,
        value_delimiter = ',',
        help_heading = "Access"
    )]
    pub accounts: Vec<AccountSetting>,

    /// Maximum size of a request body.
    ///
    /// Larger ones get 413.
    #[arg(long, value_name = "SIZE", env = "IFMATCH_MAX_BODY_SIZE", help_heading = "Limits")]
    pub max_body_size: Option<ByteSize>,

    /// Maximum size of the request line and the headers.
    ///
    /// Larger ones get 431, as do more than 100 headers.
    #[arg(long, hide_short_help = true, value_name = "SIZE", env = "IFMATCH_MAX_HEADER_SIZE", help_heading = "Limits")]
    pub max_header_size: Option<ByteSize>,

    /// Maximum number of connections.
    ///
    /// A further connection replaces the one that was idle for longest, or waits until one closes.
    #[arg(long, value_name = "N", env = "IFMATCH_MAX_CONNECTIONS", help_heading = "Limits")]
    pub max_connections: Option<u32>,

    /// Maximum number of connections of one client, which is an IPv4 address or an IPv6 network (/64).
    ///
    /// A further connection replaces an idle one of the same client, or is closed. Set this if all clients share one
    /// address, for example behind a load balancer. By default, a client gets another connection as long as more are
    /// free than it holds, which is half of all at most.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        env = "IFMATCH_MAX_CONNECTIONS_PER_CLIENT",
        help_heading = "Limits"
    )]
    pub max_connections_per_client: Option<u32>,

    /// Maximum number of concurrent requests.
    ///
    /// Further ones get 503 with Retry-After. A proxy counts only requests that it forwards.
    #[arg(long, value_name = "N", env = "IFMATCH_MAX_REQUESTS", help_heading = "Limits")]
    pub max_requests: Option<u32>,

    /// Maximum number of concurrent requests of one client; further ones get 503 with Retry-After.
    ///
    /// Clients and the default are as for --max-connections-per-client. It applies to the slots of each upstream,
    /// too.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        env = "IFMATCH_MAX_REQUESTS_PER_CLIENT",
        help_heading = "Limits"
    )]
    pub max_requests_per_client: Option<u32>,

    /// Maximum number of reads that wait for a change (`Prefer: wait`), each up to a minute; further ones are answered at once.
    ///
    /// At most half of --max-requests; 256 by default, or that half. 0 disables waiting. Without
    /// --max-requests-per-client, a client gets another wait as long as more are free than it has.
    #[arg(long, hide_short_help = true, value_name = "N", env = "IFMATCH_MAX_WAITS", help_heading = "Limits")]
    pub max_waits: Option<u32>,

    /// Time to send a complete request head, or to finish a TLS handshake.
    ///
    /// Afterwards the connection is closed.
    #[arg(long, hide_short_help = true, value_name = "TIME", env = "IFMATCH_HEAD_TIMEOUT", help_heading = "Limits")]
    pub head_timeout: Option<Span>,

    /// Time in which a client must send at least 1 KiB of a body, or read at least 1 KiB of a response.
    ///
    /// A slower client gets 408, or its connection is closed, or its HTTP/2 stream is reset.
    #[arg(long, hide_short_help = true, value_name = "TIME", env = "IFMATCH_BODY_TIMEOUT", help_heading = "Limits")]
    pub body_timeout: Option<Span>,

    /// Time that a connection without requests is kept open.
    #[arg(long, hide_short_help = true, value_name = "TIME", env = "IFMATCH_KEEP_ALIVE", help_heading = "Limits")]
    pub keep_alive: Option<Span>,

    /// Time between a stop signal and the closing of the port.
    ///
    /// During the delay, `/-/health` and `/-/ready` respond 503, so that load balancers stop sending requests, and each response
    /// closes its connection (GOAWAY on HTTP/2), so that no request is on its way when the port closes.
    #[arg(long, value_name = "TIME", env = "IFMATCH_SHUTDOWN_DELAY", help_heading = "Running")]
    pub shutdown_delay: Option<Span>,

    /// Time for requests in flight to finish at a stop.
    ///
    /// It begins when the port is closed.
    #[arg(long, value_name = "TIME", env = "IFMATCH_SHUTDOWN_GRACE", help_heading = "Running")]
    pub shutdown_grace: Option<Span>,

    /// Filter of the log on stderr, such as `info`.
    ///
    /// A level (error, warn, info, debug, trace) or directives such as `info,ifmatch_blob=debug`. Defaults to
    /// `RUST_LOG`, or info.
    #[arg(long, value_name = "FILTER", env = "IFMATCH_LOG", help_heading = "Running")]
    pub log: Option<String>,

    /// Format of the log: text or json.
    #[arg(long, hide_short_help = true, value_name = "FORMAT", env = "IFMATCH_LOG_FORMAT", help_heading = "Running")]
    pub log_format: Option<LogFormat>,

    /// Log each request, on stderr or in a file.
    ///
    /// A line has the client, host, method, path, status, condition, decision, duration, bytes and request id. Without a
    /// value or with `true`, it goes to the log on stderr; `-` is stdout; other values name a file, which SIGHUP
    /// opens again.
    #[arg(long, value_name = "FILE", env = "IFMATCH_ACCESS_LOG", help_heading = "Running",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub access_log: Option<AccessLog>,

    /// Format of the lines of --access-log: text, json, or combined, which Apache and nginx write. By default, that of the log.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FORMAT",
        env = "IFMATCH_ACCESS_LOG_FORMAT",
        help_heading = "Running"
    )]
    pub access_log_format: Option<AccessLogFormat>,

    /// Settings of `ifmatch proxy`: the table `[proxy]` of the file, which `ifmatch serve` ignores.
    #[arg(skip)]
    pub proxy: ProxySettings,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}

/// Format of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
    /// The combined log format of Apache.
    Combined,
}

impl Settings {
    /// Returns all defaults.
    pub fn defaults() -> Self {
        Self {
            require_conditions: Some(false),
            cache_body_size: Some(ByteSize::from_bytes(16 << 20)),
            cache_disk: Some(ByteSize::from_bytes(10 << 30)),
            listen: vec![ListenAddress::One(SocketAddr::from(([127, 0, 0, 1], 10_000)))],
            listen_tables: Some(OptionalAddress::On(ListenAddress::One(SocketAddr::from(([127, 0, 0, 1], 10_002))))),
            listen_s3: Some(OptionalAddress::On(ListenAddress::One(SocketAddr::from(([127, 0, 0, 1], 10_003))))),
            max_body_size: Some(ByteSize::from_bytes(DEFAULT_MAX_BODY)),
            max_header_size: Some(ByteSize::from_bytes(32 << 10)),
            max_connections: Some(1_000),
            max_requests: Some(1_000),
            head_timeout: Some(Span::from_secs(15)),
            body_timeout: Some(Span::from_secs(30)),
            keep_alive: Some(Span::from_secs(75)),
            shutdown_delay: Some(Span::from_secs(0)),
            shutdown_grace: Some(Span::from_secs(30)),
            log_format: Some(LogFormat::Text),
            access_log: Some(AccessLog::Off),
            ..Self::default()
        }
    }

    /// Parses TOML.
    ///
    /// # Errors
    /// Names the line and column of the first invalid key or value, and shows no secrets.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| Error::usage(config_error::describe(text, &error)))
    }

    /// Returns these settings, completed by those of `fallback`.
    #[must_use]
    pub fn or(self, fallback: Self) -> Self {
        Self {
            data: self.data.or(fallback.data),
            store: self.store.or(fallback.store),
            register: self.register.or(fallback.register),
            register_may_lose: self.register_may_lose.or(fallback.register_may_lose),
            require_conditions: self.require_conditions.or(fallback.require_conditions),
            cache: self.cache.or(fallback.cache),
            cache_body_size: self.cache_body_size.or(fallback.cache_body_size),
            cache_dir: self.cache_dir.or(fallback.cache_dir),
            cache_disk: self.cache_disk.or(fallback.cache_disk),
            listen: first_set(self.listen, fallback.listen),
            admin_listen: self.admin_listen.or(fallback.admin_listen),
            redirect_listen: first_set(self.redirect_listen, fallback.redirect_listen),
            listen_tables: self.listen_tables.or(fallback.listen_tables),
            listen_s3: self.listen_s3.or(fallback.listen_s3),
            s3_host: first_set(self.s3_host, fallback.s3_host),
            console: self.console.or(fallback.console),
            tls_cert: first_set(self.tls_cert, fallback.tls_cert),
            tls_key: first_set(self.tls_key, fallback.tls_key),
            read_token: first_set(self.read_token, fallback.read_token),
            write_token: first_set(self.write_token, fallback.write_token),
            read_token_file: self.read_token_file.or(fallback.read_token_file),
            write_token_file: self.write_token_file.or(fallback.write_token_file),
            public_read: self.public_read.or(fallback.public_read),
            cors_origin: first_set(self.cors_origin, fallback.cors_origin),
            accounts: first_set(self.accounts, fallback.accounts),
            max_body_size: self.max_body_size.or(fallback.max_body_size),
            max_header_size: self.max_header_size.or(fallback.max_header_size),
            max_connections: self.max_connections.or(fallback.max_connections),
            max_connections_per_client: self.max_connections_per_client.or(fallback.max_connections_per_client),
            max_requests: self.max_requests.or(fallback.max_requests),
            max_requests_per_client: self.max_requests_per_client.or(fallback.max_requests_per_client),
            max_waits: self.max_waits.or(fallback.max_waits),
            head_timeout: self.head_timeout.or(fallback.head_timeout),
            body_timeout: self.body_timeout.or(fallback.body_timeout),
            keep_alive: self.keep_alive.or(fallback.keep_alive),
            shutdown_delay: self.shutdown_delay.or(fallback.shutdown_delay),
            shutdown_grace: self.shutdown_grace.or(fallback.shutdown_grace),
            log: self.log.or(fallback.log),
            log_format: self.log_format.or(fallback.log_format),
            access_log: self.access_log.or(fallback.access_log),
            access_log_format: self.access_log_format.or(fallback.access_log_format),
            proxy: self.proxy.or(fallback.proxy),
        }
    }

    /// Returns the defaults for `--help`, by flag id.
    pub(crate) fn shown_defaults() -> Vec<(&'static str, String)> {
        let defaults = Self::defaults();
        let shown = [
            ("cache_body_size", defaults.cache_body_size.map(|size| size.to_string())),
            ("cache_disk", defaults.cache_disk.map(|size| size.to_string())),
            ("listen", defaults.listen.first().map(ToString::to_string)),
            ("listen_tables", defaults.listen_tables.map(|listen| listen.to_string())),
            ("listen_s3", defaults.listen_s3.map(|listen| listen.to_string())),
            ("max_body_size", defaults.max_body_size.map(|size| size.to_string())),
            ("max_header_size", defaults.max_header_size.map(|size| size.to_string())),
            ("max_connections", defaults.max_connections.map(|count| count.to_string())),
            ("max_requests", defaults.max_requests.map(|count| count.to_string())),
            ("head_timeout", defaults.head_timeout.map(|span| span.to_string())),
            ("body_timeout", defaults.body_timeout.map(|span| span.to_string())),
            ("keep_alive", defaults.keep_alive.map(|span| span.to_string())),
            ("shutdown_delay", defaults.shutdown_delay.map(|span| span.to_string())),
            ("shutdown_grace", defaults.shutdown_grace.map(|span| span.to_string())),
            (
                "log_format",
                defaults.log_format.and_then(|format| Some(format.to_possible_value()?.get_name().to_owned())),
            ),
        ];
        shown.into_iter().filter_map(|(id, value)| Some((id, value?))).collect()
    }
}

fn first_set<T>(first: Vec<T>, fallback: Vec<T>) -> Vec<T> {
    if first.is_empty() { fallback } else { first }
}
