//! Configuration shared by all servers: listeners, TLS, access, limits, the cache and traces.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ifmatch_http_server::{ServerLimits, SlotLimit};
use url::Url;

use super::address::{Exposure, ListenAddress, OptionalAddress, OptionalListener, check_listeners};
use super::pem::TlsFiles;
use super::settings::Settings;
use super::sources::InForce;
use super::units::{ByteSize, Span};
use crate::access::Access;
use crate::error::Error;

/// Configuration shared by all servers.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The settings, of which those without a field here are valid as they are.
    pub settings: Settings,
    /// Address of the console, if there is one.
    pub console: OptionalListener,
    /// Certificates and keys. Empty if the server speaks no TLS.
    pub tls: Vec<TlsFiles>,
    /// Access by tokens.
    pub access: Access,
    /// Limits on clients.
    pub limits: ServerLimits,
    /// URL to which traces are sent, if they are.
    pub traces: Option<Url>,
    /// The settings at the start, with their sources.
    pub in_force: Vec<InForce>,
}

/// Capacity of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Memory, in bytes.
    pub memory: u64,
    /// Maximum size of a body in memory, in bytes.
    pub body: u64,
    /// Folder for larger bodies and its capacity in bytes, if any.
    pub disk: Option<(PathBuf, u64)>,
}

/// Minimum of `--max-header-size`, which practical clients need and hyper requires.
const MIN_HEADER_SIZE: u64 = 8 << 10;

impl ServerConfig {
    /// Validates `settings`.
    ///
    /// # Errors
    /// Names flags that are missing or contradict each other.
    pub(crate) fn new(settings: Settings, access: Access) -> Result<Self, Error> {
        if settings.listen.is_empty() {
            return Err(Error::setting(
                "--listen",
                "is empty. Name an address, or remove it.",
            ));
        }
        if let Some(name) = settings.s3_host.iter().find(|name| !is_host_name(name)) {
            return Err(Error::setting(
                "--s3-host",
                format!(
                    "{name:?} isn't the name of a host. Write it without a scheme, port, path or *, such as s3.example.com."
                ),
            ));
        }
        let console = console(&settings, &access)?;
        check_listeners(&[
            ("--listen", &settings.listen),
            ("--redirect-listen", &settings.redirect_listen),
            ("--admin-listen", settings.admin_listen.as_slice()),
            // A default address that is taken isn't served.
            ("--console", console.requested().as_slice()),
        ])?;
        Ok(Self {
            console,
            tls: tls_files(&settings)?,
            access,
            limits: limits(&settings)?,
            settings,
            in_force: Vec::new(),
            traces: collector(|name| std::env::var(name).ok())?,
        })
    }

    /// Returns the scheme of the server's URLs.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_empty() { "http" } else { "https" }
    }
}

impl CacheConfig {
    /// Returns the cache in `settings`, or `None` if it is disabled. `default_memory` applies if `--cache` isn't set.
    ///
    /// # Errors
    /// Fails if there is a folder for bodies, but no memory.
    pub(crate) fn new(
        settings: &Settings,
        default_memory: ByteSize,
    ) -> Result<Option<Self>, Error> {
        let memory = settings.cache.unwrap_or(default_memory).bytes();
        if memory == 0 {
            return match settings.cache_dir {
                Some(_) => Err(Error::setting(
                    "--cache-dir",
                    "needs --cache, the memory for small bodies. Set it, such as --cache 256MiB.",
                )),
                None => Ok(None),
            };
        }
        Ok(Some(Self {
            memory,
            body: settings.cache_body_size.bytes(),
            disk: settings
                .cache_dir
                .clone()
                .map(|folder| (folder, settings.cache_disk.bytes())),
        }))
    }
}

/// Returns `true` for the name of a host, such as `s3.example.com`.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.bytes().all(is_plain)
    };
    name.split('.').all(is_label)
}

/// The address for tables, unless another is set.
pub const TABLES: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_002);
/// The address for S3 clients, unless another is set.
pub const S3: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_003);
/// The address of the console, unless another is set.
const CONSOLE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_004);

/// Returns the address of the console. By default there is one if only this machine can reach the service, and an operator can sign
/// in or needn't.
fn console(settings: &Settings, access: &Access) -> Result<OptionalListener, Error> {
    let can_sign_in = access.is_open() || !access.has_no_tokens();
    let services = settings
        .listen
        .iter()
        .chain(&settings.admin_listen)
        .copied();
    match settings.console {
        Some(OptionalAddress::Off) => Ok(OptionalListener::default()),
        Some(OptionalAddress::On(_)) if !can_sign_in => {
            let message = "the console needs a token to sign in with. Set --write-token-file, or --console off.";
            Err(Error::usage(message).about("--console"))
        }
        Some(OptionalAddress::On(address)) if access.is_open() && !address.is_loopback() => Err(Error::usage(format!(
            "other machines can reach the console at {address}, so a token is required. Set --write-token-file, or \
             --console 127.0.0.1:10004."
        ))
        .about("--console")),
        Some(OptionalAddress::On(address)) => Ok(OptionalListener { address: Some(address), is_requested: true }),
        None => {
            let is_on = can_sign_in && Exposure::of(services) == Exposure::Loopback;
            let address = is_on.then_some(ListenAddress::One(CONSOLE));
            Ok(OptionalListener { address, is_requested: false })
        }
    }
}

/// Returns the certificates, each with its key.
fn tls_files(settings: &Settings) -> Result<Vec<TlsFiles>, Error> {
    let (certs, keys) = (&settings.tls_cert, &settings.tls_key);
    match (certs.len(), keys.len()) {
        (0, 0) if !settings.redirect_listen.is_empty() => Err(Error::setting(
            "--redirect-listen",
            "redirects to TLS. Set --tls-cert and --tls-key, too.",
        )),
        (_, 0) if !certs.is_empty() => Err(Error::setting(
            "--tls-cert",
            "needs --tls-key, its private key. Set both.",
        )),
        (0, _) if !keys.is_empty() => Err(Error::setting(
            "--tls-key",
            "needs --tls-cert, its certificate. Set both.",
        )),
        (certs, keys) if certs != keys => Err(Error::setting(
            "--tls-cert",
            format!(
                "names {certs} files and --tls-key {keys}. Name one key for each certificate, in the same order."
            ),
        )),
        _ => Ok(certs
            .iter()
            .zip(keys)
            .map(|(cert, key)| TlsFiles {
                cert: cert.clone(),
                key: key.clone(),
            })
            .collect()),
    }
}

/// Returns the limits on clients.
fn limits(settings: &Settings) -> Result<ServerLimits, Error> {
    let header_size = settings.max_header_size;
    if header_size.bytes() < MIN_HEADER_SIZE || u32::try_from(header_size.bytes()).is_err() {
        return Err(Error::setting(
            "--max-header-size",
            format!("is {header_size}. Set it to at least 8KiB and less than 4GiB."),
        ));
    }
    Ok(ServerLimits {
        header_size: header_size.as_usize(),
        connections: SlotLimit {
            total: at_least_one(settings.max_connections, "--max-connections")?,
            per_client: per_client(
                settings.max_connections_per_client,
                "--max-connections-per-client",
            )?,
        },
        requests: SlotLimit {
            total: at_least_one(settings.max_requests, "--max-requests")?,
            per_client: per_client(
                settings.max_requests_per_client,
                "--max-requests-per-client",
            )?,
        },
        head_timeout: positive(settings.head_timeout, "--head-timeout")?,
        body_timeout: positive(settings.body_timeout, "--body-timeout")?,
        keep_alive: positive(settings.keep_alive, "--keep-alive")?,
        ..ServerLimits::default()
    })
}

/// Requires a limit per client to be greater than zero, if it is set.
fn per_client(value: Option<u32>, flag: &str) -> Result<Option<u32>, Error> {
    value.map(|count| at_least_one(count, flag)).transpose()
}

/// Requires a number greater than zero.
pub(crate) fn at_least_one(value: u32, flag: &str) -> Result<u32, Error> {
    match value {
        0 => Err(Error::setting(flag, "can't be 0. Set it to at least 1.")),
        count => Ok(count),
    }
}

/// Requires a time greater than zero.
pub(crate) fn positive(value: Span, flag: &str) -> Result<Duration, Error> {
    match value.duration() {
        Duration::ZERO => Err(Error::setting(
            flag,
            "can't be 0. Set it to a time such as 30s.",
        )),
        duration => Ok(duration),
    }
}

/// Path for traces below the URL of a collector.
const TRACES_PATH: &str = "/v1/traces";

/// Returns the URL to which traces are sent, by OpenTelemetry's variables.
///
/// # Errors
/// Names the variable without a usable URL, and doesn't show its value, which may contain a password.
fn collector(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Url>, Error> {
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    if let Some(exact) = variable(EXACT) {
        return collector_url(EXACT, &exact).map(Some);
    }
    let Some(base) = variable(BASE) else {
        return Ok(None);
    };
    let mut url = collector_url(BASE, &base)?;
    let path = format!("{}{TRACES_PATH}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(Some(url))
}

/// The variable with the URL for traces.
const EXACT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// The variable with the URL of the collector.
const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Parses the URL in the variable `source`.
fn collector_url(source: &str, text: &str) -> Result<Url, Error> {
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| {
        Error::usage(format!(
            "{source} is not the URL of a collector. Use http://HOST:4318, or https:// with TLS."
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(toml: &str) -> Result<OptionalListener, String> {
        let settings = Settings::from_toml(toml).map_err(|error| error.to_string())?;
        let access = Access::new(&settings.read_token, &settings.write_token)
            .map_err(|error| error.to_string())?;
        let access = if settings.accounts.is_empty() {
            access
        } else {
            access.never_open()
        };
        super::console(&settings, &access).map_err(|error| error.to_string())
    }

    #[test]
    fn the_console_is_on_where_only_this_machine_reaches_it_and_never_open_to_others() {
        let token = "write-token = ['0123456789abcdef']";
        let account = "accounts = [{ name = 'a', key = 'c2VjcmV0' }]";
        let at = |toml: &str| {
            console(toml).map(|listener| listener.address.map(|address| address.to_string()))
        };
        let on = |address: &str| Ok(Some(address.to_owned()));
        assert_eq!(at(""), on("127.0.0.1:10004"));
        assert_eq!(at(token), on("127.0.0.1:10004"));
        assert_eq!(at("console = 'off'"), Ok(None));
        assert_eq!(at(account), Ok(None));
        assert_eq!(at(&format!("{token}\nlisten = '0.0.0.0:80'")), Ok(None));
        assert_eq!(
            at(&format!("{token}\nconsole = '0.0.0.0:1'")),
            on("0.0.0.0:1")
        );
        for (toml, part) in [
            ("console = '0.0.0.0:1'", "other machines"),
            (&*format!("{account}\nconsole = '1'"), "sign in"),
        ] {
            let error = at(toml).unwrap_err();
            assert!(
                error.contains(part) && error.contains("--write-token-file"),
                "{error}"
            );
        }
    }

    fn found(variables: &[(&str, &str)]) -> Option<String> {
        collector(|name| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).into())
        })
        .unwrap()
        .map(Into::into)
    }

    #[test]
    fn the_variable_for_traces_precedes_that_for_all_signals() {
        let both = [(BASE, "http://base:4318"), (EXACT, "http://exact/spans")];
        assert_eq!(found(&both).as_deref(), Some("http://exact/spans"));
        assert_eq!(
            found(&both[..1]).as_deref(),
            Some("http://base:4318/v1/traces")
        );
        assert_eq!(
            found(&[(BASE, "https://host/otel/")]).as_deref(),
            Some("https://host/otel/v1/traces")
        );
    }

    #[test]
    fn nothing_is_sent_unless_asked_for() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(BASE, "")]), None);
        assert_eq!(
            found(&[(BASE, "http://base"), ("OTEL_SDK_DISABLED", "True")]),
            None
        );
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_password() {
        for url in [
            "localhost:4318",
            "grpc://me:secret@host",
            "http://me:secret@:1",
            "secret",
        ] {
            let error = collector(|name| (name == BASE).then(|| url.to_owned()))
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with(BASE) && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
