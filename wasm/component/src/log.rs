//! Writes the libraries' tracing events to standard error.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use wasip3::cli::stderr;
use wasip3::wit_stream;

/// Subscriber that writes events, and ignores spans.
struct Console;

/// Installs the subscriber.
pub(crate) fn begin() {
    // A second call has no effect.
    let _ = tracing::subscriber::set_global_default(Console);
}

impl Subscriber for Console {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!(
            "{} {}:",
            event.metadata().level(),
            event.metadata().target()
        ));
        event.record(&mut line);
        line.0.push('\n');
        let (mut writer, reader) = wit_stream::new();
        drop(wasip3::spawn_local(async move {
            let written = stderr::write_via_stream(reader);
            // There is no other place to report a failure.
            drop(writer.write_all(line.0.into_bytes()).await);
            drop(writer);
            let _ = written.await;
        }));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Text of an event: its message and its fields.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
