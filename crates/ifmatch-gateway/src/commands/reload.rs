//! A reload: exchanges the certificates and the tokens of a running server.

use std::sync::Arc;

use ifmatch_gateway_config::ServerConfig;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::sources::not_reloaded;
use ifmatch_gateway_service::state::AppState;

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
    /// Fails if a file of the certificate is unusable, if TLS was switched on or off, or if the new configuration listens
    /// elsewhere: it may allow access without tokens that is safe for its own address only.
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
