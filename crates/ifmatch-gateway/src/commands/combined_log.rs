//! The combined format of the access log, as Apache and nginx write it.

use std::fmt::{self, Debug, Write};
use std::time::Duration;

use ifmatch_core::date::HttpDate;
use ifmatch_runtime::{Clock, SystemClock};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Status of requests whose client disconnected before the response, as in nginx.
const DISCONNECTED: u64 = 499;

/// Writes the events of the access log as lines.
pub(super) struct Combined;

/// The fields of a line. Their texts are visible ASCII and spaces, without quotes and backslashes.
#[derive(Debug, Default)]
struct Line {
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

impl<S, N> FormatEvent<S, N> for Combined
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = Line::default();
        event.record(&mut line);
        line.write(&mut writer, Duration::from_micros(SystemClock.wall().micros()))
    }
}

impl Visit for Line {
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

impl Line {
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

    /// Writes the line of a request that has ended at `end`, since 1970. Its time is that of the beginning.
    fn write(&self, out: &mut dyn Write, end: Duration) -> fmt::Result {
        let begin = end.saturating_sub(Duration::from_micros(self.duration_us));
        let Self { method, path, version, .. } = self;
        let status = if self.status == 0 { DISCONNECTED } else { self.status };
        let bytes = if self.bytes_out == 0 { "-".to_owned() } else { self.bytes_out.to_string() };
        let [referer, agent] = [&self.referer, &self.user_agent].map(|text| if text.is_empty() { "-" } else { text });
        let (client, time) = (self.client(), time(begin));
        writeln!(out, "{client} - - [{time}] \"{method} {path} {version}\" {status} {bytes} \"{referer}\" \"{agent}\"")
    }

    /// Returns the address of the client: the one that a trusted proxy in front names, or that of the connection.
    fn client(&self) -> &str {
        let named = self.forwarded_for.rsplit(',').next().map(|last| last.trim_start_matches("%20"));
        let address = self.client.rsplit_once(':').map_or(self.client.as_str(), |(address, _)| address);
        named.filter(|named| !named.is_empty()).unwrap_or_else(|| address.trim_matches(['[', ']']))
    }
}

/// Returns a time as `24/Nov/2026:19:51:20 +0000`.
fn time(since_1970: Duration) -> String {
    let date = HttpDate::from_unix(i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX)).to_string();
    let mut words = date.split(' ').skip(1);
    let mut next = || words.next().unwrap_or_default();
    format!("{}/{}/{}:{} +0000", next(), next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_fields_of_apache() {
        let line = || Line {
            client: "192.0.2.7:4711".into(),
            method: "GET".into(),
            path: "/a%20b".into(),
            version: "HTTP/1.1".into(),
            status: 200,
            bytes_out: 5,
            duration_us: 1_500_000,
            ..Line::default()
        };
        let end = Duration::from_secs(1_795_549_882);
        let begin = "[24/Nov/2026:19:51:20 +0000]";
        for (line, expected) in [
            (line(), format!("192.0.2.7 - - {begin} \"GET /a%20b HTTP/1.1\" 200 5 \"-\" \"-\"\n")),
            (
                Line {
                    referer: "http://b/".into(),
                    user_agent: "curl/8 (x)".into(),
                    client: "[::1]:1".into(),
                    ..line()
                },
                format!("::1 - - {begin} \"GET /a%20b HTTP/1.1\" 200 5 \"http://b/\" \"curl/8 (x)\"\n"),
            ),
            (
                Line { forwarded_for: "evil,%20198.51.100.1".into(), status: 0, bytes_out: 0, ..line() },
                format!("198.51.100.1 - - {begin} \"GET /a%20b HTTP/1.1\" 499 - \"-\" \"-\"\n"),
            ),
        ] {
            let mut written = String::new();
            line.write(&mut written, end).unwrap();
            assert_eq!(written, expected);
        }
    }
}
