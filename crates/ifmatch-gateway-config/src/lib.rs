//! The configuration of `ifmatch serve` and `ifmatch proxy`: validated [`Settings`].
//!
//! [`settings`] and [`proxy_settings`] state each setting once, with its default. `arguments` turns them into flags and
//! variables, and `sources` merges those with the file. [`Config`] and [`ProxyConfig`](proxy::ProxyConfig) hold the
//! validated result.

use std::path::{Path, PathBuf};

use ifmatch_blob::accounts::Accounts;
use ifmatch_blob::cors::Cors;
use ifmatch_blob::waits::Waits;

use crate::access::Access;
use crate::access::accounts::{self, AccountSetting};
use crate::error::Error;

pub use pem::TlsFiles;
pub use server::{CacheConfig, S3, ServerConfig, TABLES};

pub mod access;
pub mod address;
pub mod arguments;
mod config_error;
pub mod endpoint_paths;
pub mod error;
pub(crate) mod pem;
pub mod proxy;
pub mod proxy_settings;
pub mod register_url;
pub mod route;
mod server;
pub mod settings;
pub mod shown_url;
pub mod sources;
pub mod text;
pub mod trust;
pub mod units;

use address::{Exposure, ListenAddress, OptionalAddress, OptionalListener, check_listeners};
use register_url::RegisterUrl;
use settings::Settings;
use units::ByteSize;

/// Configuration of `ifmatch serve`. Always valid, since only [`Config::from_settings`] creates it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Storage of the blobs.
    pub storage: Storage,
    /// Cache in front of an object store, if any.
    pub cache: Option<CacheConfig>,
    /// The origins of web pages that may use the plain dialect, if any.
    pub cors: Option<Cors>,
    /// Maximum number of reads that wait for a change.
    pub max_waits: usize,
    /// Listener, TLS, access, limits and logging.
    pub server: ServerConfig,
    /// Address to serve tables on, if they are served.
    pub listen_tables: OptionalListener,
    /// Address to serve S3 clients on, if they are served.
    pub listen_s3: OptionalListener,
    /// Accounts for signed requests. If empty, signed requests are rejected.
    pub accounts: Accounts,
}

/// Storage of blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A folder.
    Folder(PathBuf),
    /// The same store in a bucket, with its index in a register. Other gateways may share both.
    Bucket {
        /// URL of the bucket.
        url: String,
        /// The register of the index.
        register: RegisterUrl,
    },
    /// An object store, with its records elsewhere.
    Store {
        /// URL of the object store.
        url: String,
        /// Place of the records.
        records: Records,
    },
}

/// Place of the records of an object store: leases, permits and the data of containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records {
    /// The memory of this process. Leases are unavailable.
    Memory,
    /// A folder, for this process only.
    Folder(PathBuf),
    /// A register. Other gateways may share it.
    Register(RegisterUrl),
}

impl Storage {
    /// Returns the folder on this machine, if there is one.
    pub fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::Folder(folder)
            | Self::Store {
                records: Records::Folder(folder),
                ..
            } => Some(folder.clone()),
            Self::Store { .. } | Self::Bucket { .. } => None,
        }
    }
}

impl Config {
    /// Validates `settings`, and reads the token files.
    ///
    /// # Errors
    /// Names flags that are missing, contradict each other, or would make the gateway unsafe.
    ///
    /// ```
    /// use ifmatch_gateway_config::{Config, settings::Settings};
    ///
    /// let safe = Settings { data: Some("data".into()), ..Settings::default() };
    /// assert_eq!(Config::from_settings(safe.clone()).unwrap().server.settings.listen[0].port(), 10_000);
    ///
    /// let exposed = Settings { listen: vec!["0.0.0.0:80".parse().unwrap()], ..safe };
    /// assert!(Config::from_settings(exposed).unwrap_err().to_string().contains("--write-token"));
    /// ```
    pub fn from_settings(settings: Settings) -> Result<Self, Error> {
        let tables = OptionalListener::new(settings.listen_tables, TABLES);
        let s3 = OptionalListener::new(settings.listen_s3, S3);
        let of_blobs = || {
            settings
                .listen
                .iter()
                .chain(&settings.admin_listen)
                .copied()
        };
        let optional = [tables.address, s3.address, console_address(&settings)]
            .into_iter()
            .flatten();
        let exposure = Exposure::of(of_blobs().chain(optional));
        let (access, accounts) = credentials(&settings, exposure)?;
        if let Exposure::Network(address) = Exposure::of(of_blobs())
            && access.is_open()
        {
            return Err(exposed(address));
        }
        for (listener, flag, clients) in [
            (tables, "--listen-tables", "tables"),
            (s3, "--listen-s3", "S3 clients"),
        ] {
            if listener.is_requested && accounts.is_empty() {
                let message =
                    format!("{clients} need an account. Set --accounts NAME:KEY, or {flag} off.");
                return Err(Error::usage(message).about(flag));
            }
        }
        check_listeners(&[
            ("--listen", &settings.listen),
            ("--redirect-listen", &settings.redirect_listen),
            ("--admin-listen", settings.admin_listen.as_slice()),
            // A default address that is taken isn't served.
            ("--listen-tables", tables.requested().as_slice()),
            ("--listen-s3", s3.requested().as_slice()),
        ])?;
        let with_accounts = |listener| {
            if accounts.is_empty() {
                OptionalListener::default()
            } else {
                listener
            }
        };
        let server = ServerConfig::new(settings, access)?;
        let settings = &server.settings;
        Ok(Self {
            max_waits: max_waits(settings)?,
            cors: Cors::new(&settings.cors_origin).map_err(|error| {
                Error::usage(format!("--cors-origin: {error}")).about("--cors-origin")
            })?,
            cache: cache(settings)?,
            storage: storage(settings)?,
            server,
            listen_tables: with_accounts(tables),
            listen_s3: with_accounts(s3),
            accounts,
        })
    }

    /// Returns `true` if the first account has the published key.
    pub fn has_published_key(&self) -> bool {
        self.server
            .settings
            .accounts
            .first()
            .is_none_or(AccountSetting::has_published_key)
    }

    /// Returns `true` if everyone knows the key of one of the accounts.
    pub fn accepts_published_key(&self) -> bool {
        let is_implicit = self.server.settings.accounts.is_empty() && !self.accounts.is_empty();
        is_implicit || accounts::have_published_key(&self.server.settings.accounts)
    }

    /// Returns `true` if the same accounts with the same keys may sign requests.
    pub fn has_accounts_of(&self, other: &Self) -> bool {
        // Without settings, the tokens determine if there is the development account.
        self.server.settings.accounts == other.server.settings.accounts
            && self.accounts.is_empty() == other.accounts.is_empty()
    }
}

/// Returns the address that is set for the console.
fn console_address(settings: &Settings) -> Option<ListenAddress> {
    settings.console.and_then(OptionalAddress::address)
}

/// Returns the tokens and the accounts. If accounts have secrets, the plain dialect needs a token as well: it has no
/// signatures and gives access to the same blobs.
fn credentials(settings: &Settings, exposure: Exposure) -> Result<(Access, Accounts), Error> {
    let access = access::from_settings(settings, exposure)?;
    if settings.accounts.is_empty() {
        let is_private = access.is_open() && exposure == Exposure::Loopback;
        let accounts = if is_private {
            Accounts::development()
        } else {
            Accounts::default()
        };
        return Ok((access, accounts));
    }
    let accounts = accounts::resolve(&settings.accounts, exposure)?;
    let access = if accounts::have_secrets(&settings.accounts) {
        access.never_open()
    } else {
        access
    };
    Ok((access, accounts))
}

/// Parses `--register`, here since clap would show the password of a wrong one.
fn parse_register(url: Option<&str>) -> Result<Option<RegisterUrl>, Error> {
    url.map(str::parse).transpose()
}

/// Returns where the blobs and their records are.
fn storage(settings: &Settings) -> Result<Storage, Error> {
    let register = parse_register(settings.register.as_deref())?;
    match (settings.data.clone(), settings.store.clone(), register) {
        (None, None, _) => Err(Error::usage(
            "no storage. Set --data DIR for a folder on this machine, or --store URL for an object store.",
        )),
        (Some(data), None, register) if is_url(&data) => {
            let url = data.to_string_lossy().into_owned();
            let register = register.ok_or_else(|| needs_register(&url))?;
            check_index(&url, &register)?;
            Ok(Storage::Bucket { url, register })
        }
        (Some(_), None, Some(_)) => Err(Error::setting(
            "--register",
            "needs --store, or the URL of a bucket in --data, since only one process can use a folder. Set --data \
             s3://BUCKET/PREFIX, or remove --register.",
        )),
        (Some(data), Some(_), None) if is_url(&data) => Err(Error::setting(
            "--data",
            "is a bucket, and --store is another. Use one: --data for a bucket that only gateways use, --store for one \
             whose objects other programs use, too.",
        )),
        (Some(_), Some(_), Some(_)) => Err(Error::setting(
            "--data",
            "and --register both keep the records of --store. Use one.",
        )
        .about("--register")),
        (Some(folder), None, None) => Ok(Storage::Folder(folder)),
        (_, Some(url), _) if !url.contains(':') => Err(Error::setting(
            "--store",
            format!(
                "takes a URL. For the folder {url}, write --store file://{}, or --data {url}.",
                std::path::absolute(&url)
                    .unwrap_or_else(|_| url.clone().into())
                    .display()
            ),
        )),
        (None, Some(url), None) => Ok(Storage::Store {
            url,
            records: Records::Memory,
        }),
        (Some(folder), Some(url), None) => Ok(Storage::Store {
            url,
            records: Records::Folder(folder),
        }),
        (None, Some(url), Some(register)) => Ok(Storage::Store {
            url,
            records: Records::Register(register),
        }),
    }
}

/// Returns `true` for the URL of a bucket in place of a folder.
fn is_url(data: &Path) -> bool {
    data.to_str()
        .is_some_and(|data| data.contains("://") || data.starts_with("memory:"))
}

/// Refuses a register for the index of a bucket if it ends before the bucket does.
///
/// # Errors
/// Fails if the register is in memory, and the bucket isn't.
pub fn check_index(url: &str, register: &RegisterUrl) -> Result<(), Error> {
    if matches!(register.engine(), register_url::Engine::Memory) && !url.starts_with("memory:") {
        return Err(needs_register(url));
    }
    Ok(())
}

/// Returns the error for a bucket whose index has no lasting register.
fn needs_register(url: &str) -> Error {
    Error::usage(format!(
        "--data {} needs a register that outlasts this process, for the index. Set --register postgres://USER@HOST/DATABASE or \
         --register etcd://HOST.",
        shown_url::without_secrets(url)
    ))
}

/// Returns the maximum number of waits. Leaves slots for other requests even if every wait is in progress.
fn max_waits(settings: &Settings) -> Result<usize, Error> {
    let half = settings.max_requests as usize / 2;
    match settings.max_waits.map(|waits| waits as usize) {
        None => Ok(half.min(Waits::DEFAULT_MAX)),
        Some(waits) if waits <= half => Ok(waits),
        Some(waits) => Err(Error::setting(
            "--max-waits",
            format!(
                "is {waits}. Set it to at most half of --max-requests ({half}), so that other requests get slots."
            ),
        )),
    }
}

/// Returns the cache in front of an object store, if it is enabled.
fn cache(settings: &Settings) -> Result<Option<CacheConfig>, Error> {
    let cache = CacheConfig::new(settings, ByteSize::from_bytes(0))?;
    if cache.is_some()
        && settings.store.is_none()
        && settings.data.as_deref().is_none_or(|data| !is_url(data))
    {
        return Err(Error::setting(
            "--cache",
            "needs a bucket: the operating system already caches the files in --data. Remove --cache.",
        ));
    }
    Ok(cache)
}

/// Returns the error for a gateway that other machines could use without credentials.
fn exposed(listen: ListenAddress) -> Error {
    Error::usage(format!(
        "other machines can reach {listen}, so credentials are required. Set --write-token-file (and --read-token-file), or \
         [[accounts]] in the file, or listen on 127.0.0.1.\nTo create a token: openssl rand -hex 32 > write.token"
    ))
}
