//! The upstreams of the proxy, and their exchange while it runs.

use std::sync::Arc;

use ifmatch_proxy::{Proxy, ProxyBuilder};

use crate::commands::reload::Reloadable;
use crate::config::proxy::{ProxyConfig, guarded_timeout};
use crate::error::Error;
use crate::metrics::upstreams::{self, UpstreamMetrics};

/// Reads the configuration again.
pub(super) type Load<'a> = dyn Fn() -> Result<ProxyConfig, Error> + 'a;

/// Creates the proxy, with metrics of its upstreams.
///
/// # Errors
/// Fails if an upstream uses TLS and this machine has no root certificates.
pub(super) fn open(config: &ProxyConfig) -> Result<Proxy, Error> {
    let builder = config.proxy.clone();
    let metrics = UpstreamMetrics::new(&builder.upstreams());
    build(builder.observer(Arc::new(metrics)))
}

/// Creates the proxy.
///
/// # Errors
/// Fails if an upstream uses TLS and this machine has no root certificates.
pub(super) fn build(builder: ProxyBuilder) -> Result<Proxy, Error> {
    builder.build().map_err(|error| {
        Error::runtime(format!(
            "cannot connect to upstreams over TLS, since this machine has no root certificates: install them, or use \
             --upstream-ca: {error}"
        ))
    })
}

/// Replaces the upstreams, the certificate and the tokens by those of the current configuration. Changes nothing if that
/// is invalid.
///
/// # Errors
/// Fails if the configuration is invalid, listens elsewhere, switches TLS on or off, or gives a route of a `guarded` proxy a time of
/// its own.
pub(super) fn reload(load: &Load<'_>, proxy: &Proxy, running: &Reloadable<'_>, guarded: bool) -> Result<(), Error> {
    let config = load()?;
    if guarded && config.routes.iter().any(|route| route.answer_timeout.is_some()) {
        return Err(guarded_timeout());
    }
    let new = open(&config)?;
    running.read(&config.server)?.apply();
    upstreams::clear(proxy);
    proxy.replace(new);
    Ok(())
}
