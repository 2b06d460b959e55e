//! The log: lines on stderr, for people or as JSON.

use std::fmt::Display;
use std::io::stderr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::fmt;

use crate::colour;
use crate::config::LogOptions;
use crate::error::Error;
use crate::settings::LogFormat;
use crate::ticket::ACCESS;

/// What is logged when nobody says otherwise.
const DEFAULT_FILTER: &str = "info";

/// Sends what the program reports to stderr.
///
/// # Errors
/// The filter is malformed, or there is a log already.
pub(crate) fn start(options: &LogOptions) -> Result<(), Error> {
    let filter = filter(options)?;
    let log = fmt().with_env_filter(filter).with_writer(stderr).with_ansi(colour::is_wanted(&stderr()));
    // Said on stderr, where that is closed, it would be a panic of whoever has something to report.
    let log = log.log_internal_errors(false);
    let started = match options.format {
        LogFormat::Text => log.with_target(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| Error::runtime(format!("the log cannot be started: {error}")))
}

/// `--log`, else `RUST_LOG`, else `info`. The line for each request is at debug level, and comes with `--access-log`
/// whatever the level.
fn filter(options: &LogOptions) -> Result<EnvFilter, Error> {
    let from_env = || std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|text| !text.is_empty());
    let (text, source) = match (&options.filter, from_env()) {
        (Some(text), _) => (text.clone(), "--log"),
        (None, Some(text)) => (text, EnvFilter::DEFAULT_ENV),
        (None, None) => (DEFAULT_FILTER.to_owned(), "--log"),
    };
    if !names_a_level(&text) {
        return Err(unusable(source, &text, &"it names no level"));
    }
    let filter = EnvFilter::try_new(&text).map_err(|error| unusable(source, &text, &error))?;
    if !options.access {
        return Ok(filter);
    }
    let directive = format!("{ACCESS}=debug");
    let directive: Directive = directive.parse().map_err(|error| unusable(source, &directive, &error))?;
    Ok(filter.add_directive(directive))
}

/// Returns `true` if a directive sets a log level. The library reads an unknown level as the name of a module, which it
/// then logs completely while silencing all others.
fn names_a_level(filter: &str) -> bool {
    let levels =
        filter.split(',').map(|directive| directive.rsplit_once('=').map_or(directive, |(_, level)| level).trim());
    levels.filter(|level| !level.is_empty()).any(|level| level.parse::<LevelFilter>().is_ok())
}

fn unusable(source: &str, text: &str, why: &dyn Display) -> Error {
    Error::usage(format!(
        "{source} {text:?} is not a filter ({why}): write a level (error, warn, info, debug, trace or off), or info,ifmatch_blob=debug"
    ))
}

#[cfg(test)]
mod tests {
    use super::names_a_level;

    #[test]
    fn a_filter_names_a_level() {
        for filter in
            ["info", "WARN", "off", "0", "ifmatch_blob=debug", "hyper,info", "info,ifmatch[request{id=\"a\"}]=trace"]
        {
            assert!(names_a_level(filter), "{filter}");
        }
        for filter in
            ["", " ", ",", "loud", "loud,louder", "verbose", "ifmatch_blob", "ifmatch_blob=", "ifmatch_blob=loud"]
        {
            assert!(!names_a_level(filter), "{filter}");
        }
    }
}
