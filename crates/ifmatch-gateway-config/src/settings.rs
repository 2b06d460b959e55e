//! Settings, for flags, environment and configuration file.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use ifmatch_blob::service::DEFAULT_MAX_BODY;
use serde::Deserialize;

use super::address::{ListenAddress, OptionalAddress};
use super::proxy_settings::ProxySettings;
use super::units::{ByteSize, Span, deserialize_by_from_str, one_or_many};
use super::{arguments, config_error};
use crate::access::accounts::AccountSetting;
use crate::error::Error;

/// All settings. `None` and empty mean unset.
///
/// A setting has the same name as a flag (`--max-body-size`), an environment variable (`IFMATCH_MAX_BODY_SIZE`) and a
/// key of the TOML file (`max-body-size`). Flags override the environment, the environment overrides the file, and the
/// file overrides the defaults, which the fields state.
///
/// ```
/// use ifmatch_gateway_config::settings::Settings;
///
/// let settings = Settings::from_toml("max-body-size = '1MiB'").unwrap();
/// assert_eq!(settings.max_body_size.bytes(), 1024 * 1024);
/// assert_eq!(settings.max_requests, 1_000);
/// assert!(Settings::from_toml("max-bodysize = '1MiB'").is_err());
/// ```
#[derive(Args, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Settings {
    /// Folder for the blobs and their index, or a bucket for the blobs.
    ///
    /// One process at a time can use a folder. It is created if missing, readable by this user only. Any number of
    /// gateways can use a bucket, such as `s3://bucket/prefix`, with an index in --register, but no other program may.
    #[arg(long, value_name = "DIR", help_heading = "Storage")]
    pub data: Option<PathBuf>,

    /// Object store for the blobs, such as `s3://bucket/prefix`.
    ///
    /// Other URLs are `az://container/prefix`, `gs://bucket/prefix`, `file:///folder` and `memory://`. Credentials come from the
    /// usual variables (AWS_*, AZURE_*, GOOGLE_*). Add --data or --register for leases, and to keep records across restarts.
    #[arg(long, value_name = "URL", help_heading = "Storage")]
    pub store: Option<String>,

    /// Register for the records of --store, or for the index of a bucket in --data.
    ///
    /// Several gateways can share `postgres://USER@HOST/DATABASE`, `etcd://HOST`, `redis://HOST` or `s3://BUCKET/PREFIX`.
    /// `redb:///FILE` and `memory:` are for a single one.
    #[arg(
        long,
        value_name = "URL",
        hide_env_values = true,
        help_heading = "Storage"
    )]
    pub register: Option<String>,

    /// Accept a register that may lose acknowledged changes.
    ///
    /// Redis may lose some changes in a failover. A lease may then have two holders, and a deleted container may return.
    #[arg(long, hide_short_help = true, help_heading = "Storage")]
    pub register_may_lose: bool,

    /// Reject unconditional writes with 428.
    ///
    /// PUT and DELETE then need If-Match, If-None-Match or If-Unmodified-Since.
    #[arg(long, help_heading = "Storage")]
    pub require_conditions: bool,

    /// State that the disk or the store encrypts all blobs.
    ///
    /// The gateway doesn't encrypt, and can't check this. S3 clients may then request `AES256`, and responses confirm
    /// it; otherwise, such requests get 501.
    #[arg(long, hide_short_help = true, help_heading = "Storage")]
    pub encrypted_at_rest: bool,

    /// Memory for the cache; 0 disables it.
    ///
    /// `proxy` caches responses of upstreams. `serve` caches blobs of an object store, and revalidates them on each
    /// request.
    #[arg(long, value_name = "SIZE", help_heading = "Cache")]
    pub cache: Option<ByteSize>,

    /// Maximum size of a body in memory, at most a quarter of the cache.
    ///
    /// Larger bodies go to --cache-dir, if set, or aren't cached.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "SIZE",
        default_value = "16MiB",
        help_heading = "Cache"
    )]
    pub cache_body_size: ByteSize,

    /// Folder for bodies that are too large for memory or evicted from it.
    ///
    /// Its responses survive a restart. They are then verified, and revalidated before their first use.
    #[arg(long, value_name = "DIR", help_heading = "Cache")]
    pub cache_dir: Option<PathBuf>,

    /// Maximum size of all bodies in --cache-dir.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "10GiB",
        help_heading = "Cache"
    )]
    pub cache_disk: ByteSize,

    /// Address to listen on. Repeatable.
    ///
    /// IP:PORT, localhost:PORT, or PORT for localhost. Port 0 selects a free port. Addresses beyond loopback require
    /// tokens or accounts. Without those, `serve` accepts only requests to an IP address or a local name, such as localhost.
    #[arg(
        long,
        value_name = "IP:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:10000",
        help_heading = "Listening"
    )]
    #[serde(deserialize_with = "one_or_many")]
    pub listen: Vec<ListenAddress>,

    /// Address for `/-/` and PURGE. --listen then stops serving them.
    ///
    /// Plain HTTP: use loopback or a private network. An upstream's own paths below `/-/` become reachable.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "IP:PORT",
        help_heading = "Listening"
    )]
    pub admin_listen: Option<ListenAddress>,

    /// Address that redirects HTTP to HTTPS, usually port 80. Repeatable.
    ///
    /// Redirects to the same URL, with the port of the first --listen.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "IP:PORT",
        value_delimiter = ',',
        help_heading = "Listening"
    )]
    #[serde(deserialize_with = "one_or_many")]
    pub redirect_listen: Vec<ListenAddress>,

    /// Address for tables, or `off`.
    ///
    /// Tables need an account. If the default address is in use, the gateway warns and starts without tables.
    #[arg(long, value_name = "IP:PORT", help_heading = "Listening")]
    pub listen_tables: Option<OptionalAddress>,

    /// Address for S3 clients, or `off`.
    ///
    /// S3 needs an account: its name is the access key ID, its key the secret key. If the default address is in use,
    /// the gateway warns and starts without S3.
    #[arg(long, value_name = "IP:PORT", help_heading = "Listening")]
    pub listen_s3: Option<OptionalAddress>,

    /// Host whose subdomains are buckets for S3 clients. Repeatable.
    ///
    /// With `s3.example.com`, `http://docs.s3.example.com/key` is `/docs/key`.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Listening"
    )]
    pub s3_host: Vec<String>,

    /// Address of the operator's console, or `off`.
    ///
    /// On by default at 127.0.0.1:10004 if the service listens on loopback only; if that address is in use, the gateway
    /// warns and starts without the console. Requires tokens beyond loopback, and wherever there are accounts.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "IP:PORT",
        help_heading = "Listening"
    )]
    pub console: Option<OptionalAddress>,

    /// PEM file with the certificate chain. Repeatable.
    ///
    /// Enables TLS, with HTTP/2 and HTTP/1.1. A client gets the first certificate for the name it requests (SNI), or
    /// else the first of all.
    #[arg(
        long,
        value_name = "FILE",
        value_delimiter = ',',
        help_heading = "Listening"
    )]
    #[serde(deserialize_with = "one_or_many")]
    pub tls_cert: Vec<PathBuf>,

    /// PEM file with the private key. Repeatable, in the order of --tls-cert.
    #[arg(
        long,
        value_name = "FILE",
        value_delimiter = ',',
        help_heading = "Listening"
    )]
    #[serde(deserialize_with = "one_or_many")]
    pub tls_key: Vec<PathBuf>,

    /// Bearer token for reading. Repeatable.
    ///
    /// Other users of this machine can see flags: prefer a file.
    #[arg(
        long,
        value_name = "TOKEN",
        hide_env_values = true,
        value_delimiter = ',',
        help_heading = "Access"
    )]
    pub read_token: Vec<String>,

    /// Bearer token for reading and writing. Repeatable.
    #[arg(
        long,
        value_name = "TOKEN",
        hide_env_values = true,
        value_delimiter = ',',
        help_heading = "Access"
    )]
    pub write_token: Vec<String>,

    /// File with read tokens, one per line.
    ///
    /// Empty lines and lines that start with # are ignored.
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    pub read_token_file: Option<PathBuf>,

    /// File with write tokens, one per line.
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    pub write_token_file: Option<PathBuf>,

    /// Allow reads of blobs and listings without a token.
    ///
    /// Writes and `/-/…` still need a token, and Azure requests a signature. With several accounts, only the first
    /// account's blobs and listings are public; the list of all containers isn't.
    #[arg(long, help_heading = "Access")]
    pub public_read: bool,

    /// Origin of web pages that may use the plain dialect or S3 (CORS). Repeatable.
    ///
    /// For example `https://app.example`, or `*` for all origins.
    #[arg(
        long,
        value_name = "ORIGIN",
        value_delimiter = ',',
        help_heading = "Access"
    )]
    pub cors_origin: Vec<String>,

    /// Account for Azure SDKs and S3, with base64 keys. Repeatable.
    ///
    /// The plain URLs of its containers are /CONTAINER for the first account, and /NAME.CONTAINER for others. In the
    /// file: `[[accounts]]` with `name`, `key` and `key2`. Without accounts and tokens, the development account
    /// (`UseDevelopmentStorage=true`) is on, on loopback only.
    #[arg(
        long,
        value_name = "NAME:KEY[:KEY2]",
        hide_env_values = true,
        value_delimiter = ',',
        help_heading = "Access"
    )]
    pub accounts: Vec<AccountSetting>,

    /// Maximum size of a request body; larger ones get 413.
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize::from_bytes(DEFAULT_MAX_BODY), help_heading = "Limits")]
    pub max_body_size: ByteSize,

    /// Maximum size of the request line and headers; larger ones get 431.
    ///
    /// A request with more than 100 headers gets 431, too.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "SIZE",
        default_value = "32KiB",
        help_heading = "Limits"
    )]
    pub max_header_size: ByteSize,

    /// Maximum number of connections.
    ///
    /// Beyond that, a new connection replaces the longest-idle one, or waits.
    #[arg(
        long,
        value_name = "N",
        default_value = "1000",
        help_heading = "Limits"
    )]
    pub max_connections: u32,

    /// Maximum number of connections per client: an IPv4 address or an IPv6 /64.
    ///
    /// Beyond that, a new connection replaces an idle one of the same client, or is closed. By default, a client
    /// may connect while more slots are free than it already holds. Set this if all clients share an address, such as a
    /// load balancer's.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        help_heading = "Limits"
    )]
    pub max_connections_per_client: Option<u32>,

    /// Maximum number of concurrent requests; more get 503 with Retry-After.
    ///
    /// A proxy counts only requests that it forwards.
    #[arg(
        long,
        value_name = "N",
        default_value = "1000",
        help_heading = "Limits"
    )]
    pub max_requests: u32,

    /// Maximum number of concurrent requests per client; more get 503 with Retry-After.
    ///
    /// Clients and the default are as for --max-connections-per-client. Also applies to each upstream's slots.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        help_heading = "Limits"
    )]
    pub max_requests_per_client: Option<u32>,

    /// Maximum number of reads waiting for a change (`Prefer: wait`); any more return immediately.
    ///
    /// At most half of --max-requests; by default, that half or 256, whichever is smaller. Each waits up to a minute. 0
    /// disables waiting. Without --max-requests-per-client, a client may wait while more slots are free than it already
    /// holds.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        help_heading = "Limits"
    )]
    pub max_waits: Option<u32>,

    /// Time to send a request head or finish a TLS handshake.
    ///
    /// After that, the connection is closed.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        default_value = "15s",
        help_heading = "Limits"
    )]
    pub head_timeout: Span,

    /// Time in which a client must send or read at least 1 KiB of a body.
    ///
    /// A slower client gets 408, or its connection or HTTP/2 stream is closed.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        default_value = "30s",
        help_heading = "Limits"
    )]
    pub body_timeout: Span,

    /// Time after which an idle connection is closed.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        default_value = "75s",
        help_heading = "Limits"
    )]
    pub keep_alive: Span,

    /// Delay between a stop signal and closing the port.
    ///
    /// Meanwhile `/-/health` and `/-/ready` respond 503, so load balancers stop sending requests, and each response
    /// closes its connection (GOAWAY on HTTP/2).
    #[arg(
        long,
        value_name = "TIME",
        default_value = "0s",
        help_heading = "Running"
    )]
    pub shutdown_delay: Span,

    /// Time for requests in flight to finish, once the port is closed.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "30s",
        help_heading = "Running"
    )]
    pub shutdown_grace: Span,

    /// Log filter, such as `info`.
    ///
    /// A level (error, warn, info, debug, trace) or directives such as `info,ifmatch_blob=debug`. The log goes to
    /// stderr. Defaults to `RUST_LOG`, or info.
    #[arg(long, value_name = "FILTER", help_heading = "Running")]
    pub log: Option<String>,

    /// Log format: text or json.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Running"
    )]
    pub log_format: LogFormat,

    /// Log each request, on stderr or in a file.
    ///
    /// A line has the client, host, method, path, status, condition, decision, duration, bytes and request ID. Without a
    /// value or with `true`, lines go to the log on stderr, and with `-` to stdout. Any other value is a file, which SIGHUP
    /// reopens.
    #[arg(long, value_name = "FILE", default_value = "false", help_heading = "Running", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub access_log: AccessLog,

    /// Access log format: text, json or combined; by default the log's.
    ///
    /// `combined` is what Apache and nginx write.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "FORMAT",
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

/// Destination of the access log: `true`, `false`, `-`, or a file.
///
/// ```
/// use ifmatch_gateway_config::settings::AccessLog;
///
/// assert_eq!("-".parse(), Ok(AccessLog::Stdout));
/// assert_eq!("/var/log/ifmatch.log".parse(), Ok(AccessLog::File("/var/log/ifmatch.log".into())));
/// assert!("".parse::<AccessLog>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Requests aren't logged.
    Off,
    /// Lines of the log on stderr.
    Log,
    /// Lines on stdout.
    Stdout,
    /// Lines at the end of a file.
    File(PathBuf),
}

/// Error returned for an empty destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write true, false, - for stdout, or the path of a file")]
pub struct InvalidAccessLog;

impl From<bool> for AccessLog {
    fn from(is_on: bool) -> Self {
        if is_on { Self::Log } else { Self::Off }
    }
}

impl FromStr for AccessLog {
    type Err = InvalidAccessLog;

    fn from_str(text: &str) -> Result<Self, InvalidAccessLog> {
        match text {
            "" => Err(InvalidAccessLog),
            "-" => Ok(Self::Stdout),
            text => Ok(text
                .parse::<bool>()
                .map_or_else(|_| Self::File(text.into()), Self::from)),
        }
    }
}

deserialize_by_from_str!(AccessLog: "true, false, \"-\" for stdout, or the path of a file");

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

impl From<LogFormat> for AccessLogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// Shows no values, since some are secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

impl Default for Settings {
    fn default() -> Self {
        arguments::defaults()
    }
}

impl Settings {
    /// Parses TOML. What it doesn't set has its default.
    ///
    /// # Errors
    /// Names the line and column of the first invalid key or value, and shows no secrets.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| Error::usage(config_error::describe(text, &error)))
    }
}
