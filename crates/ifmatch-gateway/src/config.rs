//! A configuration that can be run: [`Settings`] checked against each other, once.

use std::path::PathBuf;

use ifmatch_azure::accounts::Accounts;

use crate::access::{self, Access};
use crate::accounts::{self, AccountSetting, Reach};
use crate::address::ListenAddress;
use crate::error::Error;
use crate::settings::Settings;
use crate::switch::Switch;
use crate::units::ByteSize;

pub use cache::CacheConfig;
pub use server::{Limits, LogOptions, ServerConfig, TlsFiles};

pub(crate) mod cache;
pub(crate) mod server;

use server::needed;

/// What `ifmatch serve` runs with. Made by [`Config::from_settings`] only, so it is always sound.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the blobs are kept.
    pub place: Place,
    /// What is kept of an object store's blobs, if anything.
    pub cache: Option<CacheConfig>,
    /// Whether a write without a condition is refused.
    pub require_conditions: bool,
    /// How to listen, and what clients may ask for.
    pub server: ServerConfig,
    /// Address to serve tables on, if they are served.
    pub listen_tables: Option<ListenAddress>,
    /// Who may sign requests; without any, signed requests are refused.
    pub accounts: Accounts,
    /// `true` if the first account uses the well-known key.
    pub has_published_key: bool,
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
    /// assert_eq!(Config::from_settings(safe.clone()).unwrap().server.listen.port(), 10_000);
    ///
    /// let exposed = Settings { listen: "0.0.0.0:80".parse().ok(), ..safe };
    /// assert!(Config::from_settings(exposed).unwrap_err().to_string().contains("--write-token"));
    /// ```
    pub fn from_settings(settings: Settings) -> Result<Self, Error> {
        let tables_asked_for = matches!(settings.listen_tables, Some(Switch::On(_)));
        let settings = settings.or(Settings::defaults());
        let listen = needed(settings.listen, "--listen")?;
        let tables = match needed(settings.listen_tables, "--listen-tables")? {
            Switch::Off => None,
            Switch::On(address) => Some(address),
        };
        let reach = Reach::of([Some(listen), tables].into_iter().flatten());
        let (access, accounts) = credentials(&settings, reach)?;
        if !listen.is_loopback() && access.is_open() {
            return Err(exposed(listen));
        }
        if tables_asked_for && accounts.is_empty() {
            return Err(Error::usage("tables are for accounts only: set --accounts NAME:KEY, or --listen-tables off"));
        }
        Ok(Self {
            server: ServerConfig::new(&settings, access)?,
            cache: cache(&settings)?,
            place: place(settings.data, settings.store)?,
            require_conditions: settings.require_conditions.unwrap_or_default(),
            listen_tables: tables.filter(|_| !accounts.is_empty()),
            has_published_key: settings.accounts.first().is_none_or(AccountSetting::has_published_key),
            accounts,
        })
    }
}

/// The tokens and the accounts. Accounts with secrets close the plain dialect, in which nothing is signed, to everybody
/// without a token: it sees the same blobs.
fn credentials(settings: &Settings, reach: Reach) -> Result<(Access, Accounts), Error> {
    let access = access::from_settings(settings, reach)?;
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

fn cache(settings: &Settings) -> Result<Option<CacheConfig>, Error> {
    let cache = CacheConfig::new(settings, ByteSize::from_bytes(0))?;
    if cache.is_some() && settings.store.is_none() {
        return Err(Error::usage(
            "--cache is for --store: what lies in a folder of this machine is kept in memory by the system",
        ));
    }
    Ok(cache)
}

fn exposed(listen: ListenAddress) -> Error {
    Error::usage(format!(
        "{listen} can be reached from other machines, so it needs credentials: set --write-token-file (and \
         --read-token-file), or [[accounts]] in the file, or listen on 127.0.0.1 only.\nA good token: openssl rand -hex 32"
    ))
}
