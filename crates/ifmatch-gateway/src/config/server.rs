//! The server's part of a configuration: what holds whatever it serves.

use std::path::PathBuf;
use std::time::Duration;

use crate::access::Access;
use crate::address::ListenAddress;
use crate::error::Error;
use crate::settings::{LogFormat, Settings};
use crate::share::Share;
use crate::units::Span;

/// How to listen, and what clients may ask for.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Address to listen on.
    pub listen: ListenAddress,
    /// Certificate and key, if the gateway speaks TLS.
    pub tls: Option<TlsFiles>,
    /// Who may do what.
    pub access: Access,
    /// What one client may ask of the machine.
    pub limits: Limits,
    /// How long `/-/health` says 503 before the port is closed.
    pub shutdown_delay: Duration,
    /// How long requests in flight get to finish.
    pub shutdown_grace: Duration,
    /// Number of worker threads; `None` is one per core.
    pub threads: Option<u16>,
    /// What is logged, and how.
    pub log: LogOptions,
}

/// The files of a TLS certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

/// What one client may ask of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body of a request, in bytes.
    pub body_size: u64,
    /// Largest request head, in bytes.
    pub header_size: usize,
    /// Limits on concurrent connections.
    pub connections: Share,
    /// Limits on concurrent requests.
    pub requests: Share,
    /// Most requests at a time on one HTTP/2 connection.
    pub streams: u32,
    /// Time to send a request head.
    pub head_timeout: Duration,
    /// Time without enough progress of a body.
    pub body_timeout: Duration,
    /// Time that an idle connection is kept.
    pub keep_alive: Duration,
}

/// What is logged, and how.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Directives of the filter; `None` reads `RUST_LOG`, and else logs from `info` up.
    pub filter: Option<String>,
    /// How a line looks.
    pub format: LogFormat,
    /// Whether there is a line for each request.
    pub access: bool,
}

/// The smallest head limit that HTTP/1.1 clients can live with (and hyper accepts).
const LEAST_HEADER_SIZE: u64 = 8 << 10;

/// More threads than this are more than any machine has cores.
const MOST_THREADS: u16 = 1024;

impl ServerConfig {
    /// The server's part of settings that the defaults have completed.
    ///
    /// # Errors
    /// Names the flags that are missing or contradict each other.
    pub(crate) fn new(settings: &Settings, access: Access) -> Result<Self, Error> {
        if let Some(threads) = settings.threads.filter(|threads| !(1..=MOST_THREADS).contains(threads)) {
            return Err(Error::usage(format!(
                "--threads is {threads}: it must be at least 1 and at most {MOST_THREADS}; one per core is enough"
            )));
        }
        Ok(Self {
            listen: needed(settings.listen, "--listen")?,
            tls: tls_files(settings.tls_cert.clone(), settings.tls_key.clone())?,
            access,
            limits: limits(settings)?,
            shutdown_delay: needed(settings.shutdown_delay, "--shutdown-delay")?.duration(),
            shutdown_grace: needed(settings.shutdown_grace, "--shutdown-grace")?.duration(),
            threads: settings.threads,
            log: LogOptions {
                filter: settings.log.clone(),
                format: needed(settings.log_format, "--log-format")?,
                access: settings.access_log.unwrap_or_default(),
            },
        })
    }

    /// The scheme of its URLs.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

fn tls_files(cert: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<TlsFiles>, Error> {
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Some(TlsFiles { cert, key })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Error::usage("--tls-cert needs --tls-key, the private key of that certificate")),
        (None, Some(_)) => Err(Error::usage("--tls-key needs --tls-cert, the certificate of that key")),
    }
}

fn limits(settings: &Settings) -> Result<Limits, Error> {
    let header_size = needed(settings.max_header_size, "--max-header-size")?;
    if header_size.bytes() < LEAST_HEADER_SIZE || u32::try_from(header_size.bytes()).is_err() {
        return Err(Error::usage(format!(
            "--max-header-size is {header_size}: it must be at least 8KiB and less than 4GiB"
        )));
    }
    Ok(Limits {
        body_size: needed(settings.max_body_size, "--max-body-size")?.bytes(),
        header_size: header_size.as_usize(),
        connections: Share {
            all: at_least_one(settings.max_connections, "--max-connections")?,
            per_client: per_client(settings.max_connections_per_client, "--max-connections-per-client")?,
        },
        requests: Share {
            all: at_least_one(settings.max_requests, "--max-requests")?,
            per_client: per_client(settings.max_requests_per_client, "--max-requests-per-client")?,
        },
        streams: at_least_one(settings.max_streams, "--max-streams")?,
        head_timeout: not_zero(settings.head_timeout, "--head-timeout")?,
        body_timeout: not_zero(settings.body_timeout, "--body-timeout")?,
        keep_alive: not_zero(settings.keep_alive, "--keep-alive")?,
    })
}

/// Parses an optional per-client limit.
fn per_client(value: Option<u32>, flag: &str) -> Result<Option<u32>, Error> {
    value.map(|count| at_least_one(Some(count), flag)).transpose()
}

/// Requires a number greater than zero.
pub(crate) fn at_least_one(value: Option<u32>, flag: &str) -> Result<u32, Error> {
    match needed(value, flag)? {
        0 => Err(Error::usage(format!("{flag} must be at least 1"))),
        count => Ok(count),
    }
}

/// A time that is longer than nothing.
pub(crate) fn not_zero(value: Option<Span>, flag: &str) -> Result<Duration, Error> {
    match needed(value, flag)?.duration() {
        Duration::ZERO => Err(Error::usage(format!("{flag} must be longer than nothing"))),
        duration => Ok(duration),
    }
}

/// What must be set by now: the defaults have been filled in.
pub(crate) fn needed<T>(value: Option<T>, flag: &str) -> Result<T, Error> {
    value.ok_or_else(|| Error::usage(format!("{flag} is not set")))
}
