//! The log: lines on stderr, for people or as JSON.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::fmt;

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
    let log = fmt().with_env_filter(filter).with_writer(stderr).with_ansi(stderr().is_terminal());
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
    let text = options.filter.clone().or_else(from_env).unwrap_or_else(|| DEFAULT_FILTER.to_owned());
    let filter = EnvFilter::try_new(&text).map_err(|error| unusable(&text, &error))?;
    if !options.access {
        return Ok(filter);
    }
    let directive: Directive = format!("{ACCESS}=debug").parse().map_err(|error| unusable(ACCESS, &error))?;
    Ok(filter.add_directive(directive))
}

fn unusable(text: &str, error: &dyn std::error::Error) -> Error {
    Error::usage(format!("--log {text:?} is not a filter ({error}): write it like info, or info,ifmatch_blob=debug"))
}
