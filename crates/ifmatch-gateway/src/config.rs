//! A configuration that can be run: [`Settings`] checked against each other, once.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ifmatch_blob::accounts::Accounts;

use crate::access::Access;
use crate::accounts::{self, Reach};
use crate::error::Error;
use crate::settings::{LogFormat, Settings};
use crate::switch::Switch;

/// What `ifmatch serve` runs with. Made by [`Config::from_settings`] only, so it is always sound.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the blobs are kept.
    pub place: Place,
    /// Whether a write without a condition is refused.
    pub require_conditions: bool,
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Address to serve tables on, if they are served.
    pub listen_tables: Option<SocketAddr>,
    /// Certificate and key, if the gateway speaks TLS.
    pub tls: Option<TlsFiles>,
    /// Who may do what.
    pub access: Access,
    /// Who may sign requests; without any, signed requests are refused.
    pub accounts: Accounts,
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

/// Where the blobs are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The embedded store in a folder.
    Folder(PathBuf),
    /// An object store by its URL, and the folder that remembers what is known of its blobs, if any.
    Store {
        /// The object store.
        url: String,
        /// The folder of the register; without one it lives in memory.
        register: Option<PathBuf>,
    },
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
    /// Most connections at a time.
    pub connections: u32,
    /// Most requests at a time.
    pub requests: u32,
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

impl Config {
    /// Checks `settings`, completed by the defaults, and reads the token files they name.
    ///
    /// # Errors
    /// Names the flags that are missing, contradict each other, or would make the gateway unsafe.
    ///
    /// ```
    /// use ifmatch_gateway::{config::Config, settings::Settings};
    ///
    /// let safe = Settings { data: Some("data".into()), ..Settings::default() };
    /// assert_eq!(Config::from_settings(safe.clone()).unwrap().listen.port(), 10_000);
    ///
    /// let exposed = Settings { listen: "0.0.0.0:80".parse().ok(), ..safe };
    /// assert!(Config::from_settings(exposed).unwrap_err().to_string().contains("--write-token"));
    /// ```
    pub fn from_settings(settings: Settings) -> Result<Self, Error> {
        let tables_asked_for = matches!(settings.listen_tables, Some(Switch::On(_)));
        let settings = settings.or(Settings::defaults());
        let limits = limits(&settings)?;
        let listen = needed(settings.listen, "--listen")?;
        let tables = match needed(settings.listen_tables, "--listen-tables")? {
            Switch::Off => None,
            Switch::On(address) => Some(address),
        };
        let reach = Reach::of([Some(listen), tables].into_iter().flatten());
        let (access, accounts) = credentials(&settings, reach)?;
        if !listen.ip().is_loopback() && access.is_open() {
            return Err(exposed(listen));
        }
        if tables_asked_for && accounts.is_empty() {
            return Err(Error::usage("tables are for accounts only: set --accounts NAME:KEY, or --listen-tables off"));
        }
        if settings.threads == Some(0) {
            return Err(Error::usage("--threads must be at least 1"));
        }
        Ok(Self {
            place: place(settings.data, settings.store)?,
            require_conditions: settings.require_conditions.unwrap_or_default(),
            listen,
            listen_tables: tables.filter(|_| !accounts.is_empty()),
            tls: tls_files(settings.tls_cert, settings.tls_key)?,
            access,
            accounts,
            limits,
            shutdown_delay: needed(settings.shutdown_delay, "--shutdown-delay")?.duration(),
            shutdown_grace: needed(settings.shutdown_grace, "--shutdown-grace")?.duration(),
            threads: settings.threads,
            log: LogOptions {
                filter: settings.log,
                format: needed(settings.log_format, "--log-format")?,
                access: settings.access_log.unwrap_or_default(),
            },
        })
    }
}

/// The tokens and the accounts. Accounts with secrets close the plain dialect, in which nothing is signed, to everybody
/// without a token: it sees the same blobs.
fn credentials(settings: &Settings, reach: Reach) -> Result<(Access, Accounts), Error> {
    let access = Access::from_settings(settings)?;
    if settings.accounts.is_empty() {
        let is_ours = access.is_open() && reach == Reach::ThisMachine;
        let accounts = if is_ours { Accounts::development() } else { Accounts::default() };
        return Ok((access, accounts));
    }
    let accounts = accounts::resolve(&settings.accounts, reach)?;
    let access = if accounts::have_secrets(&settings.accounts) { access.never_open() } else { access };
    Ok((access, accounts))
}

fn place(data: Option<PathBuf>, store: Option<String>) -> Result<Place, Error> {
    match (data, store) {
        (None, None) => Err(Error::usage(
            "say where to keep the blobs: --data DIR for a folder on this machine, or --store URL for an object store",
        )),
        (Some(folder), None) => Ok(Place::Folder(folder)),
        (register, Some(url)) => Ok(Place::Store { url, register }),
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

fn exposed(listen: SocketAddr) -> Error {
    Error::usage(format!(
        "{listen} can be reached from other machines, so it needs credentials: set --write-token-file (and \
         --read-token-file), or [[accounts]] in the file, or listen on 127.0.0.1 only.\nA good token: openssl rand -hex 32"
    ))
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
        connections: at_least_one(settings.max_connections, "--max-connections")?,
        requests: at_least_one(settings.max_requests, "--max-requests")?,
        streams: at_least_one(settings.max_streams, "--max-streams")?,
        head_timeout: not_zero(settings.head_timeout, "--head-timeout")?,
        body_timeout: not_zero(settings.body_timeout, "--body-timeout")?,
        keep_alive: not_zero(settings.keep_alive, "--keep-alive")?,
    })
}

fn at_least_one(value: Option<u32>, flag: &str) -> Result<u32, Error> {
    match needed(value, flag)? {
        0 => Err(Error::usage(format!("{flag} must be at least 1"))),
        count => Ok(count),
    }
}

fn not_zero(value: Option<crate::units::Span>, flag: &str) -> Result<Duration, Error> {
    match needed(value, flag)?.duration() {
        Duration::ZERO => Err(Error::usage(format!("{flag} must be longer than nothing"))),
        duration => Ok(duration),
    }
}

fn needed<T>(value: Option<T>, flag: &str) -> Result<T, Error> {
    value.ok_or_else(|| Error::usage(format!("{flag} is not set")))
}
