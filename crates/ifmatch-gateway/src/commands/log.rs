//! Logging to stderr, as text or JSON.

use std::fmt::Display;
use std::io::stderr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::fmt;

use crate::cli::terminal;
use crate::config::LogOptions;
use crate::config::settings::LogFormat;
use crate::error::Error;
use crate::gateway::tracker::ACCESS;

/// The default filter.
const DEFAULT_FILTER: &str = "info";

/// Starts logging.
///
/// # Errors
/// Fails if the filter is malformed, or if logging has already been started.
pub(crate) fn start(options: &LogOptions) -> Result<(), Error> {
    let filter = filter(options)?;
    let log = fmt().with_env_filter(filter).with_writer(stderr).with_ansi(terminal::supports_colour(&stderr()));
    // Reporting these on a closed stderr would panic.
    let log = log.log_internal_errors(false);
    let started = match options.format {
        LogFormat::Text => log.with_target(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| Error::runtime(format!("cannot start the log: {error}")))
}

/// Returns the filter of `--log`, else of `RUST_LOG`, else `info`. `--access-log` enables the access log, at level
/// debug, regardless of the filter.
fn filter(options: &LogOptions) -> Result<EnvFilter, Error> {
    let from_env = || std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|text| !text.is_empty());
    let (text, source) = match (&options.filter, from_env()) {
        (Some(text), _) => (text.clone(), "--log"),
        (None, Some(text)) => (text, EnvFilter::DEFAULT_ENV),
        (None, None) => (DEFAULT_FILTER.to_owned(), "--log"),
    };
    if !has_level(&text) {
        return Err(invalid(source, &text, &"it contains no level"));
    }
    let filter = EnvFilter::try_new(&text).map_err(|error| invalid(source, &text, &error))?;
    if !options.access {
        return Ok(filter);
    }
    let directive = format!("{ACCESS}=debug");
    let directive: Directive = directive.parse().map_err(|error| invalid(source, &directive, &error))?;
    Ok(filter.add_directive(directive))
}

/// Returns `true` if a directive sets a log level. The library reads an unknown level as the name of a module, which it
/// then logs completely while silencing all others.
fn has_level(filter: &str) -> bool {
    let levels =
        filter.split(',').map(|directive| directive.rsplit_once('=').map_or(directive, |(_, level)| level).trim());
    levels.filter(|level| !level.is_empty()).any(|level| level.parse::<LevelFilter>().is_ok())
}

fn invalid(source: &str, text: &str, why: &dyn Display) -> Error {
    Error::usage(format!(
        "{source} {text:?} is not a valid filter ({why}): write a level (error, warn, info, debug, trace or off), or info,ifmatch_blob=debug"
    ))
}

#[cfg(test)]
mod tests {
    use super::has_level;

    #[test]
    fn a_filter_needs_a_level() {
        for filter in
            ["info", "WARN", "off", "0", "ifmatch_blob=debug", "hyper,info", "info,ifmatch[request{id=\"a\"}]=trace"]
        {
            assert!(has_level(filter), "{filter}");
        }
        for filter in
            ["", " ", ",", "loud", "loud,louder", "verbose", "ifmatch_blob", "ifmatch_blob=", "ifmatch_blob=loud"]
        {
            assert!(!has_level(filter), "{filter}");
        }
    }
}
