//! Reload: exchanges the certificate and the tokens of a running server.

use std::sync::Arc;

use rustls::sign::CertifiedKey;

use super::tls::Tls;
use crate::config::ServerConfig;
use crate::error::Error;
use crate::gateway::state::AppState;

/// The replaceable parts of a server.
pub(crate) struct Reloadable<'a> {
    /// The configuration that the server was started with.
    pub(crate) started: &'a ServerConfig,
    /// Its TLS, if any.
    pub(crate) tls: Option<&'a Tls>,
    /// The state that has its tokens.
    pub(crate) state: &'a AppState,
}

/// A certificate that has been read, and tokens that have been checked. Nothing has been exchanged yet.
pub(crate) struct Credentials<'a> {
    certificate: Option<(&'a Tls, CertifiedKey)>,
    config: &'a ServerConfig,
    state: &'a AppState,
}

impl<'a> Reloadable<'a> {
    /// Reads the credentials of a new configuration.
    ///
    /// # Errors
    /// Fails if a file of the certificate is unusable, or if the new configuration listens elsewhere: it may allow
    /// access without tokens that is safe for its own address only.
    pub(crate) fn read(&self, new: &'a ServerConfig) -> Result<Credentials<'a>, Error> {
        if new.listen != self.started.listen {
            return Err(Error::usage("the listen address cannot be changed by SIGHUP: restart to listen elsewhere"));
        }
        let certificate = match (self.tls, &new.tls) {
            (Some(tls), Some(files)) => Some((tls, files.certified_key()?)),
            (None, None) => None,
            _ => return Err(Error::usage("TLS for clients cannot be switched on or off by SIGHUP: restart for that")),
        };
        Ok(Credentials { certificate, config: new, state: self.state })
    }
}

impl Credentials<'_> {
    /// Exchanges the certificate for new connections, and the tokens for new requests.
    pub(crate) fn apply(self) {
        if let Some((tls, key)) = self.certificate {
            tls.replace(key, self.state);
        }
        self.state.access.store(Arc::new(self.config.access.clone()));
    }
}
