//! Configurations that are read while nothing starts: a reload exchanges the certificate and the tokens, and `--check` only reads.

use std::io::{Write, stderr};
use std::sync::Arc;

use ifmatch_gateway_commands::store_url::check_folder;
use ifmatch_gateway_commands::terminal;
use ifmatch_gateway_config::error::{Error, ErrorKind};
use ifmatch_gateway_config::proxy::ProxyConfig;
use ifmatch_gateway_config::sources::not_reloaded;
use ifmatch_gateway_config::{CacheConfig, Config, Records, ServerConfig, Storage};
use ifmatch_gateway_service::certificate::Validity;
use ifmatch_gateway_service::state::AppState;

use super::log;
use super::tls::{CertificateKeys, ReplaceableTls};

/// The replaceable parts of a server.
pub(crate) struct ReloadableParts<'a> {
    /// The configuration that the server was started with.
    pub(crate) started: &'a ServerConfig,
    /// Its TLS, if any.
    pub(crate) tls: Option<&'a ReplaceableTls>,
    /// The state that has its tokens.
    pub(crate) state: &'a AppState,
}

/// Certificates that have been read, and tokens that have been checked. Nothing has been exchanged yet.
pub(crate) struct NewCredentials<'a> {
    certificates: Option<(&'a ReplaceableTls, CertificateKeys)>,
    started: &'a ServerConfig,
    config: &'a ServerConfig,
    state: &'a AppState,
}

impl<'a> ReloadableParts<'a> {
    /// Reads the credentials of a new configuration.
    ///
    /// # Errors
    /// Fails if a file of the certificate is unusable, or if the new configuration listens elsewhere: it may allow
    /// access without tokens that is safe for its own address only.
    pub(crate) fn read(&self, new: &'a ServerConfig) -> Result<NewCredentials<'a>, Error> {
        let addresses = |config: &ServerConfig| {
            let settings = &config.settings;
            (
                settings.listen.clone(),
                settings.admin_listen,
                settings.redirect_listen.clone(),
            )
        };
        // A console on this machine may come and go with the tokens: its address then is the default one.
        let public_console = self
            .started
            .console
            .address
            .filter(|address| !address.is_loopback());
        if addresses(new) != addresses(self.started)
            || public_console.is_some() && new.console.address != public_console
        {
            return Err(Error::usage(
                "SIGHUP can't change listen addresses. Restart to change them.",
            ));
        }
        let certificates = match (self.tls, &new.tls[..]) {
            (None, []) => None,
            (Some(tls), files @ [_, ..]) => Some((tls, CertificateKeys::read(files)?)),
            _ => {
                return Err(Error::usage(
                    "SIGHUP can't switch TLS on or off. Restart to do so.",
                ));
            }
        };
        Ok(NewCredentials {
            certificates,
            started: self.started,
            config: new,
            state: self.state,
        })
    }
}

impl NewCredentials<'_> {
    /// Exchanges the certificates for new connections, and the tokens for new requests. Logs the settings that stay as they were.
    pub(crate) fn apply(self) {
        if let Some((tls, keys)) = self.certificates {
            tls.replace(keys, self.state);
        }
        self.state
            .access
            .store(Arc::new(self.config.access.clone()));
        let changed = not_reloaded(&self.started.in_force, &self.config.in_force);
        if !changed.is_empty() {
            tracing::warn!(
                "a reload doesn't change {}. Restart to apply the new values.",
                changed.join(", ")
            );
        }
    }
}

/// Checks the configuration of `ifmatch serve`, and prints `ok`.
///
/// # Errors
/// Describes the first setting or file that can't be used.
pub(crate) fn check_serve(config: &Config) -> Result<(), Error> {
    match &config.storage {
        Storage::Folder(data)
        | Storage::Store {
            records: Records::Folder(data),
            ..
        } => check_folder("--data", data)?,
        Storage::Store { .. } | Storage::Bucket { .. } => {}
    }
    finish(&config.server, config.cache.as_ref())
}

/// Checks the configuration of `ifmatch proxy`, and prints `ok`.
///
/// # Errors
/// Describes the first setting or file that can't be used, or states that this machine has no root certificates.
pub(crate) fn check_proxy(config: &ProxyConfig) -> Result<(), Error> {
    super::proxy::check(config).map_err(|error| match error.kind() {
        ErrorKind::Usage => error,
        _ => Error::usage(error.to_string()),
    })?;
    finish(&config.server, config.cache.as_ref())
}

fn finish(server: &ServerConfig, cache: Option<&CacheConfig>) -> Result<(), Error> {
    if let Some((cache, _)) = cache.and_then(|cache| cache.disk.as_ref()) {
        check_folder("--cache-dir", cache)?;
    }
    log::check(&server.settings)?;
    for problem in CertificateKeys::read(&server.tls)?
        .validities()
        .filter_map(Validity::problem)
    {
        // A closed stderr is ignored.
        drop(writeln!(stderr(), "warning: {problem}"));
    }
    terminal::print_line("ok")
}
