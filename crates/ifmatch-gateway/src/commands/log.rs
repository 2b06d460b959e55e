//! Logging to stderr, as text or JSON, and the access log.

use std::fmt::Display;
use std::io::{stderr, stdout};

use tracing::{Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{Directive, EnvFilter, LevelFilter, Targets};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::access_file::AccessFile;
use super::combined_log::Combined;
use crate::cli::terminal;
use crate::config::LogOptions;

use crate::config::settings::{AccessLog, AccessLogFormat, LogFormat};
use crate::error::Error;
use crate::gateway::tracker::ACCESS;

/// The default filter.
const DEFAULT_FILTER: &str = "info";

/// Starts logging.
///
/// # Errors
/// Fails if the filter is malformed, if the file of the access log cannot be opened, or if logging has already been started.
pub(crate) fn start(options: &LogOptions) -> Result<(), Error> {
    let format = options.access_format.unwrap_or_else(|| options.format.into());
    let access = match &options.access {
        AccessLog::Log if options.access_format.is_some() => Some(lines(format, stderr, false)),
        AccessLog::Off | AccessLog::Log => None,
        AccessLog::Stdout => Some(lines(format, stdout, false)),
        AccessLog::File(path) => Some(lines(format, AccessFile::open(path.clone())?, false)),
    };
    let access = access.map(|lines| lines.with_filter(Targets::new().with_target(ACCESS, Level::DEBUG)));
    let log = lines(options.format.into(), stderr, terminal::supports_colour(&stderr())).with_filter(filter(options)?);
    let started = tracing_subscriber::registry().with(log).with(access).try_init();
    started.map_err(|error| Error::runtime(format!("cannot start the log: {error}")))
}

/// Checks the filter, and that the file of the access log can exist.
///
/// # Errors
/// Fails if the filter is malformed, or if the folder of the file is missing.
pub(crate) fn check(options: &LogOptions) -> Result<(), Error> {
    filter(options)?;
    let AccessLog::File(path) = &options.access else { return Ok(()) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        None => Ok(()),
        Some(folder) => {
            let (path, folder) = (path.display(), folder.display());
            Err(Error::usage(format!("cannot open --access-log {path}: there is no folder {folder}; create it")))
        }
    }
}

/// Returns the layer that writes lines.
fn lines<S, W>(format: AccessLogFormat, writer: W, colours: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // Reporting errors on a closed stderr would panic.
    let lines = fmt::layer().with_writer(writer).with_ansi(colours).log_internal_errors(false);
    match format {
        AccessLogFormat::Text => lines.with_target(false).boxed(),
        AccessLogFormat::Json => lines.json().flatten_event(true).boxed(),
        AccessLogFormat::Combined => lines.event_format(Combined).boxed(),
    }
}

impl From<LogFormat> for AccessLogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// Silences the library that speaks S3.
const S3S_OFF: &str = "s3s=off";

/// Returns the filter of `--log`, else of `RUST_LOG`, else `info`. `--access-log` enables the access log, at level debug,
/// regardless of the filter; one with a destination of its own is not repeated here.
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
    // The library logs each refused request as an error, and valid signatures at level debug.
    let quiet: Directive = S3S_OFF.parse().map_err(|error| invalid(source, S3S_OFF, &error))?;
    let filter = filter.add_directive(quiet);
    let level = match options.access {
        AccessLog::Off => return Ok(filter),
        AccessLog::Log if options.access_format.is_none() => "debug",
        AccessLog::Log | AccessLog::Stdout | AccessLog::File(_) => "off",
    };
    let directive = format!("{ACCESS}={level}");
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
