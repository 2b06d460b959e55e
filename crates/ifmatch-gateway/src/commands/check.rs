//! `--check` of `serve` and `proxy`: reads a configuration and its files, and starts nothing.

use std::io::{Write, stderr};

use ifmatch_gateway_commands::store_url::check_folder;
use ifmatch_gateway_commands::terminal;
use ifmatch_gateway_config::error::{Error, ErrorKind};
use ifmatch_gateway_config::proxy::ProxyConfig;
use ifmatch_gateway_config::{CacheConfig, Config, Records, ServerConfig, Storage};
use ifmatch_gateway_service::certificate::Validity;

use super::log;
use super::tls::CertificateKeys;

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
    // A check fails with one exit code, whatever its reason.
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
