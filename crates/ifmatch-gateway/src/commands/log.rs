//! The log: lines on stderr as text or JSON, and the access log, also in a file or in the combined format.

use std::fmt::{self, Debug, Display};
use std::fs::{File, OpenOptions};
use std::io::{self, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_runtime::{Clock, SystemClock};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use ifmatch_gateway_commands::platform;
use ifmatch_gateway_commands::terminal;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::settings::{AccessLog, AccessLogFormat, Settings};
use ifmatch_gateway_service::gateway::tracker::ACCESS;

/// The default filter.
const DEFAULT_FILTER: &str = "info";

/// Starts logging.
///
/// # Errors
/// Fails if the filter is malformed, if the file of the access log can't be opened, or if logging has already been started.
pub(crate) fn start(settings: &Settings) -> Result<(), Error> {
    let format = settings
        .access_log_format
        .unwrap_or_else(|| settings.log_format.into());
    let access = match &settings.access_log {
        AccessLog::Log if settings.access_log_format.is_some() => {
            Some(lines(format, stderr, false))
        }
        AccessLog::Off | AccessLog::Log => None,
        AccessLog::Stdout => Some(lines(format, stdout, false)),
        AccessLog::File(path) => Some(lines(format, AccessFile::open(path.clone())?, false)),
    };
    let access =
        access.map(|lines| lines.with_filter(Targets::new().with_target(ACCESS, Level::DEBUG)));
    let log = lines(
        settings.log_format.into(),
        stderr,
        terminal::supports_colour(&stderr()),
    )
    .with_filter(filter(settings)?);
    let started = tracing_subscriber::registry()
        .with(log)
        .with(access)
        .with(RetryWarnings::layer())
        .try_init();
    started.map_err(|error| Error::runtime(format!("can't start the log: {error}")))
}

/// Checks the filter, and that the file of the access log can exist.
///
/// # Errors
/// Fails if the filter is malformed, or if the folder of the file is missing.
pub(crate) fn check(settings: &Settings) -> Result<(), Error> {
    filter(settings)?;
    let AccessLog::File(path) = &settings.access_log else {
        return Ok(());
    };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        None => Ok(()),
        Some(folder) => {
            let (path, folder) = (path.display(), folder.display());
            Err(Error::usage(format!(
                "can't open --access-log {path}. Create the folder {folder} first."
            )))
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
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(colours)
        .log_internal_errors(false);
    match format {
        AccessLogFormat::Text => lines.with_target(false).boxed(),
        AccessLogFormat::Json => lines.json().flatten_event(true).boxed(),
        AccessLogFormat::Combined => lines.event_format(CombinedLog).boxed(),
    }
}

/// Warns of an object store that fails, once a minute: its library repeats requests silently at this level.
#[derive(Debug, Default)]
struct RetryWarnings(Mutex<Vec<(String, Timestamp)>>);

impl RetryWarnings {
    /// Time for which a failure isn't repeated.
    const QUIET: Duration = Duration::from_mins(1);
    /// Maximum number of failures to remember.
    const MAX: usize = 16;

    /// Returns the layer, for the events of the library alone.
    fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
        Self::default().with_filter(Targets::new().with_target(OBJECT_STORE, Level::INFO))
    }

    /// Returns `true` if a failure is to be logged now.
    fn is_news(&self, failure: &str, now: Timestamp) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, at)| at.until(now) < Self::QUIET);
        let is_news = known.len() < Self::MAX && known.iter().all(|(known, _)| known != failure);
        if is_news {
            known.push((failure.to_owned(), now));
        }
        is_news
    }
}

impl<S: Subscriber> Layer<S> for RetryWarnings {
    fn on_event(&self, event: &Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut message = EventMessage::default();
        event.record(&mut message);
        if let Some(failure) = failure(&message.0)
            && self.is_news(failure, SystemClock.now())
        {
            tracing::warn!("the object store is failing, so requests are being retried: {failure}");
        }
    }
}

/// Returns what failed, from the library's message about a retry.
fn failure(message: &str) -> Option<&str> {
    let (what, rest) = message.split_once(", backing off for ")?;
    let cause = rest.split_once(": ").map(|(_, cause)| cause);
    Some(cause.unwrap_or_else(|| what.trim_start_matches("Encountered ")))
}

/// The message of an event.
#[derive(Default)]
struct EventMessage(String);

impl Visit for EventMessage {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// The variable that other programs' logs obey, too.
const RUST_LOG: &str = "RUST_LOG";
/// The library that speaks to object stores.
const OBJECT_STORE: &str = "object_store";
/// The library that speaks S3.
const S3S: &str = "s3s";

/// Returns the filter of `--log`, else of `RUST_LOG`, else `info`. `--access-log` enables the access log, at level debug,
/// regardless of the filter; one with a destination of its own isn't repeated here.
fn filter(settings: &Settings) -> Result<Targets, Error> {
    let from_env = || std::env::var(RUST_LOG).ok().filter(|text| !text.is_empty());
    let (text, source) = match (&settings.log, from_env()) {
        (Some(text), _) => (text.clone(), "--log"),
        (None, Some(text)) => (text, RUST_LOG),
        (None, None) => (DEFAULT_FILTER.to_owned(), "--log"),
    };
    if !has_level(&text) {
        return Err(invalid(source, &text, &"it contains no level"));
    }
    // `Targets` takes it for a module without a name.
    if text
        .split(',')
        .any(|directive| directive.trim().starts_with('='))
    {
        return Err(invalid(source, &text, &"a level has no module before it"));
    }
    let filter: Targets = text
        .parse()
        .map_err(|error| invalid(source, &text, &error))?;
    // It logs each refused request as an error, and valid signatures at level debug.
    let mut filter = filter.with_target(S3S, LevelFilter::OFF);
    // It logs each of many retries at level info. `RetryWarnings` says so once.
    if !text.contains(OBJECT_STORE) {
        filter = filter.with_target(OBJECT_STORE, LevelFilter::WARN);
    }
    let level = match settings.access_log {
        AccessLog::Off => return Ok(filter),
        AccessLog::Log if settings.access_log_format.is_none() => LevelFilter::DEBUG,
        AccessLog::Log | AccessLog::Stdout | AccessLog::File(_) => LevelFilter::OFF,
    };
    Ok(filter.with_target(ACCESS, level))
}

/// Returns `true` if a directive sets a log level. `Targets` reads an unknown level as the name of a module, logs that
/// completely, and silences all others.
fn has_level(filter: &str) -> bool {
    let levels = filter.split(',').map(|directive| {
        directive
            .rsplit_once('=')
            .map_or(directive, |(_, level)| level)
            .trim()
    });
    levels
        .filter(|level| !level.is_empty())
        .any(|level| level.parse::<LevelFilter>().is_ok())
}

fn invalid(source: &str, text: &str, why: &dyn Display) -> Error {
    Error::usage(format!(
        "{source} {text:?} is not a valid filter ({why}). Write a level (error, warn, info, debug, trace or off), or info,ifmatch_blob=debug."
    ))
}

/// The file of the access log. A process has one at most, since it has one log.
static FILE: OnceLock<AccessFile> = OnceLock::new();

/// The file of the access log.
#[derive(Clone)]
struct AccessFile {
    path: Arc<Path>,
    file: Arc<ArcSwap<File>>,
}

/// The file as it was open when a line began.
struct OpenFile(Arc<File>);

impl AccessFile {
    /// Opens the file of this process, and creates it if it is missing.
    ///
    /// # Errors
    /// Fails if the file can't be opened.
    fn open(path: PathBuf) -> Result<Self, Error> {
        let file = open_file(&path)?;
        let opened = Self {
            path: path.into(),
            file: Arc::new(ArcSwap::from_pointee(file)),
        };
        Ok(FILE.get_or_init(|| opened).clone())
    }
}

/// Opens the file of this process again, if there is one.
///
/// # Errors
/// Fails if the file can't be opened. Lines then still go to the one that was open.
pub(super) fn reopen_access() -> Result<(), Error> {
    if let Some(AccessFile { path, file }) = FILE.get() {
        file.store(Arc::new(open_file(path)?));
    }
    Ok(())
}

fn open_file(path: &Path) -> Result<File, Error> {
    let opened = platform::group_readable(OpenOptions::new().append(true).create(true)).open(path);
    let path = path.display();
    opened.map_err(|error| {
        Error::runtime(match error.kind() {
            io::ErrorKind::NotFound => {
                format!("can't open --access-log {path}. Create its folder first.")
            }
            _ => format!("can't open --access-log {path}: {error}. Check its permissions."),
        })
    })
}

impl<'a> MakeWriter<'a> for AccessFile {
    type Writer = OpenFile;

    fn make_writer(&'a self) -> OpenFile {
        OpenFile(self.file.load_full())
    }
}

impl Write for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Status of requests whose client disconnected before the response, as in nginx.
const DISCONNECTED: u64 = 499;

/// Writes the events of the access log in the combined format of Apache and nginx.
struct CombinedLog;

/// The fields of a line. Their texts are visible ASCII and spaces, without quotes and backslashes.
#[derive(Debug, Default)]
struct LogLine {
    client: String,
    forwarded_for: String,
    method: String,
    path: String,
    version: String,
    status: u64,
    bytes_out: u64,
    duration_us: u64,
    referer: String,
    user_agent: String,
}

impl<S, N> FormatEvent<S, N> for CombinedLog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = LogLine::default();
        event.record(&mut line);
        line.write(
            &mut writer,
            Duration::from_micros(SystemClock.wall().micros()),
        )
    }
}

impl Visit for LogLine {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "status" => self.status = value,
            "bytes_out" => self.bytes_out = value,
            "duration_us" => self.duration_us = value,
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(text) = self.text(field.name()) {
            value.clone_into(text);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if let Some(text) = self.text(field.name()) {
            *text = format!("{value:?}");
        }
    }
}

impl LogLine {
    fn text(&mut self, field: &str) -> Option<&mut String> {
        Some(match field {
            "client" => &mut self.client,
            "forwarded_for" => &mut self.forwarded_for,
            "method" => &mut self.method,
            "path" => &mut self.path,
            "version" => &mut self.version,
            "referer" => &mut self.referer,
            "user_agent" => &mut self.user_agent,
            _ => return None,
        })
    }

    /// Writes the line of a request that has ended at `end`, since 1970. Its time is when the request began.
    fn write(&self, out: &mut dyn fmt::Write, end: Duration) -> fmt::Result {
        let begin = end.saturating_sub(Duration::from_micros(self.duration_us));
        let Self {
            method,
            path,
            version,
            ..
        } = self;
        let status = if self.status == 0 {
            DISCONNECTED
        } else {
            self.status
        };
        let bytes = if self.bytes_out == 0 {
            "-".to_owned()
        } else {
            self.bytes_out.to_string()
        };
        let [referer, agent] =
            [&self.referer, &self.user_agent].map(|text| if text.is_empty() { "-" } else { text });
        let (client, time) = (self.client(), time(begin));
        writeln!(
            out,
            "{client} - - [{time}] \"{method} {path} {version}\" {status} {bytes} \"{referer}\" \"{agent}\""
        )
    }

    /// Returns the address of the client: the one that a trusted proxy in front names, or the connection's.
    fn client(&self) -> &str {
        let named = self
            .forwarded_for
            .rsplit(',')
            .next()
            .map(|last| last.trim_start_matches("%20"));
        let address = self
            .client
            .rsplit_once(':')
            .map_or(self.client.as_str(), |(address, _)| address);
        named
            .filter(|named| !named.is_empty())
            .unwrap_or_else(|| address.trim_matches(['[', ']']))
    }
}

/// Returns a time as `24/Nov/2026:19:51:20 +0000`.
fn time(since_1970: Duration) -> String {
    let date =
        HttpDate::from_unix(i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX)).to_string();
    let mut words = date.split(' ').skip(1);
    let mut next = || words.next().unwrap_or_default();
    format!("{}/{}/{}:{} +0000", next(), next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_store_that_fails_is_named_once_a_minute() {
        let retry = |seconds: u32| {
            format!(
                "Encountered server error with status 503 Service Unavailable, backing off for {seconds} seconds, retry 1 of 10"
            )
        };
        assert_eq!(
            failure(&retry(1)),
            Some("server error with status 503 Service Unavailable")
        );
        let transport = "Encountered transport error of kind Connect, backing off for 0.1 seconds, retry 1 of 10: HTTP error: refused";
        assert_eq!(failure(transport), Some("HTTP error: refused"));
        assert_eq!(failure("something else"), None);
        let retries = RetryWarnings::default();
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        let news = [
            (0, "503"),
            (1, "503"),
            (2, "refused"),
            (59, "503"),
            (60, "503"),
        ];
        assert_eq!(
            news.map(|(seconds, what)| retries.is_news(what, at(100 + seconds))),
            [true, false, true, false, true]
        );
    }

    #[test]
    fn a_filter_needs_a_level() {
        for filter in [
            "info",
            "WARN",
            "off",
            "0",
            "ifmatch_blob=debug",
            "hyper,info",
            "info,ifmatch[request{id=\"a\"}]=trace",
        ] {
            assert!(has_level(filter), "{filter}");
        }
        for filter in [
            "",
            " ",
            ",",
            "loud",
            "loud,louder",
            "verbose",
            "ifmatch_blob",
            "ifmatch_blob=",
            "ifmatch_blob=loud",
        ] {
            assert!(!has_level(filter), "{filter}");
        }
    }

    #[test]
    fn a_line_has_the_fields_of_apache() {
        let line = || LogLine {
            client: "192.0.2.7:4711".into(),
            method: "GET".into(),
            path: "/a%20b".into(),
            version: "HTTP/1.1".into(),
            status: 200,
            bytes_out: 5,
            duration_us: 1_500_000,
            ..LogLine::default()
        };
        let end = Duration::from_secs(1_795_549_882);
        let begin = "[24/Nov/2026:19:51:20 +0000]";
        for (line, expected) in [
            (
                line(),
                format!("192.0.2.7 - - {begin} \"GET /a%20b HTTP/1.1\" 200 5 \"-\" \"-\"\n"),
            ),
            (
                LogLine {
                    referer: "http://b/".into(),
                    user_agent: "curl/8 (x)".into(),
                    client: "[::1]:1".into(),
                    ..line()
                },
                format!(
                    "::1 - - {begin} \"GET /a%20b HTTP/1.1\" 200 5 \"http://b/\" \"curl/8 (x)\"\n"
                ),
            ),
            (
                LogLine {
                    forwarded_for: "evil,%20198.51.100.1".into(),
                    status: 0,
                    bytes_out: 0,
                    ..line()
                },
                format!("198.51.100.1 - - {begin} \"GET /a%20b HTTP/1.1\" 499 - \"-\" \"-\"\n"),
            ),
        ] {
            let mut written = String::new();
            line.write(&mut written, end).unwrap();
            assert_eq!(written, expected);
        }
    }
}
