//! `serve --check` and `proxy --check`: a configuration is read and validated with its files, and nothing else happens.

use std::io::{Write, stderr};

use super::tls::Keys;
use super::{folder, log};
use crate::cli::terminal;
use crate::config::proxy::ProxyConfig;
use crate::config::{CacheConfig, Config, Records, ServerConfig, Storage};
use crate::error::{Error, ErrorKind};
use crate::gateway::certificate::Validity;

/// Checks the configuration of `ifmatch serve`, and prints `ok`.
///
/// # Errors
/// Describes the first setting or file that cannot be used.
pub(crate) fn serve(config: &Config) -> Result<(), Error> {
    match &config.storage {
        Storage::Folder(data) | Storage::Store { records: Records::Folder(data), .. } => folder::check("--data", data)?,
        Storage::Store { .. } => {}
    }
    finish(&config.server, config.cache.as_ref())
}

/// Checks the configuration of `ifmatch proxy`, and prints `ok`.
///
/// # Errors
/// Describes the first setting or file that cannot be used, or states that this machine has no root certificates.
pub(crate) fn proxy(config: &ProxyConfig) -> Result<(), Error> {
    super::proxy::check(config).map_err(|error| match error.kind() {
        ErrorKind::Usage => error,
        _ => Error::usage(error.to_string()),
    })?;
    finish(&config.server, config.cache.as_ref())
}

fn finish(server: &ServerConfig, cache: Option<&CacheConfig>) -> Result<(), Error> {
    if let Some((cache, _)) = cache.and_then(|cache| cache.disk.as_ref()) {
        folder::check("--cache-dir", cache)?;
    }
    log::check(&server.log)?;
    for problem in Keys::read(&server.tls)?.validities().filter_map(Validity::problem) {
        // A closed stderr is ignored.
        drop(writeln!(stderr(), "warning: {problem}"));
    }
    terminal::print_line("ok")
}
