//! Configuration shared by all servers: listener, TLS, access, limits and logging.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ifmatch_http_server::{Limits, SlotLimit};
use rustls::sign::CertifiedKey;
use url::Url;

use super::access_log::AccessLog;
use super::address::{Exposure, ListenAddress};
use super::collector;
use super::fixed::Fixed;
use super::listeners;
use super::optional_address::{OptionalAddress, OptionalListener};
use super::pem::{self, PemFile};
use super::settings::{AccessLogFormat, LogFormat, Settings};
use super::units::Span;
use crate::access::Access;
use crate::cli::in_force::InForce;
use crate::error::Error;

/// Configuration shared by all servers.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses to listen on.
    pub listen: Vec<ListenAddress>,
    /// Address for the gateway's own endpoints alone, if they have one.
    pub admin_listen: Option<ListenAddress>,
    /// Address of the console, if there is one.
    pub console: OptionalListener,
    /// Addresses that redirect to TLS.
    pub redirect_listen: Vec<ListenAddress>,
    /// Certificates and keys. None if the gateway speaks no TLS.
    pub tls: Vec<TlsFiles>,
    /// Access by tokens.
    pub access: Access,
    /// Limits on clients.
    pub limits: Limits,
    /// Maximum size of a request body, in bytes.
    pub max_body: u64,
    /// Time between the start of a shutdown, which `/-/health` reports, and the closing of the port.
    pub shutdown_delay: Duration,
    /// Time for requests in flight to finish.
    pub shutdown_grace: Duration,
    /// Logging.
    pub log: LogOptions,
    /// URL to which traces are sent, if they are.
    pub traces: Option<Url>,
    /// The settings that a reload does not change.
    pub(crate) fixed: Fixed,
    /// The settings at the start, with their sources.
    pub(crate) in_force: Vec<InForce>,
}

/// The files of a TLS certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Reads the certificate and its key.
    ///
    /// # Errors
    /// Fails if a file cannot be read or contains no certificate or key, or if they do not match.
    pub(crate) fn certified_key(&self) -> Result<CertifiedKey, Error> {
        let cert = PemFile { flag: "--tls-cert", path: &self.cert };
        pem::certified_key(cert, PemFile { flag: "--tls-key", path: &self.key })
    }
}

/// Logging.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Filter directives, or `None` for `RUST_LOG` and `info` if that is not set either.
    pub filter: Option<String>,
    /// Format of a line.
    pub format: LogFormat,
    /// Destination of a line for each request.
    pub access: AccessLog,
    /// Format of these lines, or `None` for that of the log.
    pub access_format: Option<AccessLogFormat>,
}

/// Minimum of `--max-header-size`, which practical clients need and hyper requires.
const MIN_HEADER_SIZE: u64 = 8 << 10;

impl ServerConfig {
    /// Validates `settings`, which include the defaults.
    ///
    /// # Errors
    /// Names flags that are missing or contradict each other.
    pub(crate) fn new(settings: &Settings, access: Access) -> Result<Self, Error> {
        let console = console(settings, &access)?;
        listeners::check(&[
            ("--listen", &settings.listen),
            ("--redirect-listen", &settings.redirect_listen),
            ("--admin-listen", settings.admin_listen.as_slice()),
            // A default address that is taken is not served.
            ("--console", console.address.filter(|_| console.is_requested).as_slice()),
        ])?;
        Ok(Self {
            listen: settings.listen.clone(),
            admin_listen: settings.admin_listen,
            console,
            redirect_listen: settings.redirect_listen.clone(),
            tls: tls_files(settings)?,
            access,
            limits: limits(settings)?,
            max_body: required(settings.max_body_size, "--max-body-size")?.bytes(),
            shutdown_delay: required(settings.shutdown_delay, "--shutdown-delay")?.duration(),
            shutdown_grace: required(settings.shutdown_grace, "--shutdown-grace")?.duration(),
            log: LogOptions {
                filter: settings.log.clone(),
                format: required(settings.log_format, "--log-format")?,
                access: settings.access_log.clone().unwrap_or(AccessLog::Off),
                access_format: settings.access_log_format,
            },
            fixed: Fixed::of(settings),
            in_force: Vec::new(),
            traces: collector::endpoint(|name| std::env::var(name).ok())?,
        })
    }

    /// Returns the scheme of its URLs.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_empty() { "http" } else { "https" }
    }
}

/// The address of the console unless another one is set.
const CONSOLE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_004);

/// Returns the address of the console. By default there is one if only this machine can reach the service, and an operator can sign
/// in or need not.
fn console(settings: &Settings, access: &Access) -> Result<OptionalListener, Error> {
    let can_sign_in = access.is_open() || !access.has_no_tokens();
    let services = settings.listen.iter().chain(&settings.admin_listen).copied();
    match settings.console {
        Some(OptionalAddress::Off) => Ok(OptionalListener::default()),
        Some(OptionalAddress::On(_)) if !can_sign_in => {
            Err(Error::usage("the console needs a token to sign in with: set --write-token-file, or --console off"))
        }
        Some(OptionalAddress::On(address)) if access.is_open() && !address.is_loopback() => Err(Error::usage(format!(
            "other machines can reach the console at {address}, so a token is required: set --write-token-file, or use \
             --console 127.0.0.1:10004"
        ))),
        Some(OptionalAddress::On(address)) => Ok(OptionalListener { address: Some(address), is_requested: true }),
        None => {
            let is_on = can_sign_in && Exposure::of(services) == Exposure::Loopback;
            let address = is_on.then_some(ListenAddress::One(CONSOLE));
            Ok(OptionalListener { address, is_requested: false })
        }
    }
}

fn tls_files(settings: &Settings) -> Result<Vec<TlsFiles>, Error> {
    let (certs, keys) = (&settings.tls_cert, &settings.tls_key);
    match (certs.len(), keys.len()) {
        (0, 0) if !settings.redirect_listen.is_empty() => {
            Err(Error::usage("--redirect-listen redirects to TLS: set --tls-cert and --tls-key as well"))
        }
        (_, 0) if !certs.is_empty() => {
            Err(Error::usage("--tls-cert needs --tls-key, the private key of the certificate"))
        }
        (0, _) if !keys.is_empty() => Err(Error::usage("--tls-key needs --tls-cert, the certificate of the key")),
        (certs, keys) if certs != keys => Err(Error::usage(format!(
            "--tls-cert names {certs} files and --tls-key {keys}: name one key for each certificate, in the same order"
        ))),
        _ => Ok(certs.iter().zip(keys).map(|(cert, key)| TlsFiles { cert: cert.clone(), key: key.clone() }).collect()),
    }
}

fn limits(settings: &Settings) -> Result<Limits, Error> {
    let header_size = required(settings.max_header_size, "--max-header-size")?;
    if header_size.bytes() < MIN_HEADER_SIZE || u32::try_from(header_size.bytes()).is_err() {
        return Err(Error::usage(format!(
            "--max-header-size is {header_size}, but must be at least 8KiB and less than 4GiB"
        )));
    }
    Ok(Limits {
        header_size: header_size.as_usize(),
        connections: SlotLimit {
            total: at_least_one(settings.max_connections, "--max-connections")?,
            per_client: per_client(settings.max_connections_per_client, "--max-connections-per-client")?,
        },
        requests: SlotLimit {
            total: at_least_one(settings.max_requests, "--max-requests")?,
            per_client: per_client(settings.max_requests_per_client, "--max-requests-per-client")?,
        },
        head_timeout: positive(settings.head_timeout, "--head-timeout")?,
        body_timeout: positive(settings.body_timeout, "--body-timeout")?,
        keep_alive: positive(settings.keep_alive, "--keep-alive")?,
        ..Limits::default()
    })
}

/// Parses an optional per-client limit.
fn per_client(value: Option<u32>, flag: &str) -> Result<Option<u32>, Error> {
    value.map(|count| at_least_one(Some(count), flag)).transpose()
}

/// Requires a number greater than zero.
pub(crate) fn at_least_one(value: Option<u32>, flag: &str) -> Result<u32, Error> {
    match required(value, flag)? {
        0 => Err(Error::usage(format!("{flag} must be at least 1"))),
        count => Ok(count),
    }
}

/// Requires a time greater than zero.
pub(crate) fn positive(value: Option<Span>, flag: &str) -> Result<Duration, Error> {
    match required(value, flag)?.duration() {
        Duration::ZERO => Err(Error::usage(format!("{flag} must be greater than zero"))),
        duration => Ok(duration),
    }
}

/// Requires a setting that may have no default.
pub(crate) fn required<T>(value: Option<T>, flag: &str) -> Result<T, Error> {
    value.ok_or_else(|| Error::usage(format!("{flag} is not set")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(toml: &str) -> Result<OptionalListener, String> {
        let settings = Settings::from_toml(toml).map_err(|error| error.to_string())?.or(Settings::defaults());
        let access = Access::new(&settings.read_token, &settings.write_token).map_err(|error| error.to_string())?;
        let access = if settings.accounts.is_empty() { access } else { access.never_open() };
        super::console(&settings, &access).map_err(|error| error.to_string())
    }

    #[test]
    fn the_console_is_on_where_only_this_machine_reaches_it_and_never_open_to_others() {
        let token = "write-token = ['0123456789abcdef']";
        let account = "accounts = [{ name = 'a', key = 'c2VjcmV0' }]";
        let at = |toml: &str| console(toml).map(|listener| listener.address.map(|address| address.to_string()));
        let on = |address: &str| Ok(Some(address.to_owned()));
        assert_eq!(at(""), on("127.0.0.1:10004"));
        assert_eq!(at(token), on("127.0.0.1:10004"));
        assert_eq!(at("console = 'off'"), Ok(None));
        assert_eq!(at(account), Ok(None));
        assert_eq!(at(&format!("{token}\nlisten = '0.0.0.0:80'")), Ok(None));
        assert_eq!(at(&format!("{token}\nconsole = '0.0.0.0:1'")), on("0.0.0.0:1"));
        for (toml, part) in
            [("console = '0.0.0.0:1'", "other machines"), (&*format!("{account}\nconsole = '1'"), "sign in")]
        {
            let error = at(toml).unwrap_err();
            assert!(error.contains(part) && error.contains("--write-token-file"), "{error}");
        }
    }
}
