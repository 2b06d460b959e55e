//! Progress of long commands: a bar on a terminal, a line a minute elsewhere, and a line for each SIGUSR1.

use std::fmt;
use std::future::Future;
use std::io::{IsTerminal, stderr};
use std::pin::pin;
use std::time::Duration;

use ifmatch_gateway_config::error::Error;
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::terminal::{counted, print_line};
use crate::platform::{AskedSignal, StopSignals};

/// Interval of updates of the bar.
const BAR: Duration = Duration::from_millis(100);
/// Interval of lines without a terminal.
const LINE: Duration = Duration::from_mins(1);
/// Interval of status lines in JSON.
const JSON: Duration = Duration::from_secs(1);

/// The display of a command's progress.
pub(crate) struct ProgressDisplay {
    started: Instant,
    total: WorkDone,
    form: DisplayForm,
    /// When to show the progress.
    ticks: Interval,
    /// Asks for a line.
    report: AskedSignal,
    stop: StopSignals,
}

/// The work that is done, or all of it.
#[derive(Clone, Copy)]
pub(crate) struct WorkDone {
    /// Number of items.
    pub(crate) items: u64,
    /// Number of bytes.
    pub(crate) bytes: u64,
}

/// How progress is shown.
enum DisplayForm {
    /// On a terminal.
    Bar(ProgressBar),
    /// As text on stderr.
    Lines,
    /// As status lines on stdout.
    Json,
}

impl ProgressDisplay {
    /// Starts the display for this `total` of work, as JSON on stdout or for people on stderr. SIGINT and SIGTERM no
    /// longer end the process.
    ///
    /// # Errors
    /// Fails if the system refuses to handle signals.
    pub(crate) fn start(total: WorkDone, as_json: bool) -> Result<Self, Error> {
        let failed = |error| Error::runtime(format!("can't handle signals: {error}"));
        let (form, every) = if as_json {
            (DisplayForm::Json, JSON)
        } else if stderr().is_terminal() {
            (DisplayForm::Bar(bar(total.bytes)), BAR)
        } else {
            (DisplayForm::Lines, LINE)
        };
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is immediate.
        ticks.reset();
        Ok(Self {
            started: Instant::now(),
            total,
            form,
            ticks,
            report: AskedSignal::to_report().map_err(failed)?,
            stop: StopSignals::listen().map_err(failed)?,
        })
    }

    /// Waits for `work` and shows its progress. Calls `stop` at SIGINT and SIGTERM, after which the work must end soon.
    ///
    /// # Errors
    /// Fails if a line can't be written.
    pub(crate) async fn during<F: Future>(
        &mut self,
        work: F,
        done: impl Fn() -> WorkDone,
        stop: impl Fn(),
    ) -> Result<F::Output, Error> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                output = work.as_mut() => return Ok(output),
                _ = self.ticks.tick() => self.show(done(), false)?,
                () = self.report.next() => self.show(done(), true)?,
                _ = self.stop.next() => stop(),
            }
        }
    }

    /// Prints a line of the result on stdout, above the bar: as JSON for programs, as text for people.
    ///
    /// # Errors
    /// Fails if the line can't be written.
    pub(crate) fn report(&self, result: &(impl Serialize + fmt::Display)) -> Result<(), Error> {
        match &self.form {
            DisplayForm::Json => {
                let json = serde_json::to_string(result)
                    .map_err(|error| Error::runtime(error.to_string()))?;
                print_line(&json)
            }
            DisplayForm::Bar(bar) => bar.suspend(|| print_line(&result.to_string())),
            DisplayForm::Lines => print_line(&result.to_string()),
        }
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let DisplayForm::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }

    /// Moves the bar, or prints a line, above a bar only if it is `asked` for.
    fn show(&self, done: WorkDone, asked: bool) -> Result<(), Error> {
        match &self.form {
            DisplayForm::Json => return print_line(&self.status(done)),
            DisplayForm::Bar(bar) if asked => bar.suspend(|| eprint_line(&self.line(done))),
            DisplayForm::Bar(bar) => bar.set_position(done.bytes),
            DisplayForm::Lines => eprint_line(&self.line(done)),
        }
        Ok(())
    }

    /// Returns the progress as a status line.
    fn status(&self, done: WorkDone) -> String {
        json!({
            "message": "status",
            "items": done.items,
            "bytes": done.bytes,
            "total_items": self.total.items,
            "total_bytes": self.total.bytes,
            "seconds": self.elapsed().as_secs_f64(),
        })
        .to_string()
    }

    /// Returns the progress as text: what is done, the rate, and the time left.
    fn line(&self, done: WorkDone) -> String {
        let seconds = self.elapsed().as_secs().max(1);
        let rate = done.bytes / seconds;
        let left = match self
            .total
            .bytes
            .saturating_sub(done.bytes)
            .checked_div(rate)
        {
            Some(left) => format!("{} left", HumanDuration(Duration::from_secs(left))),
            None => "time left unknown".to_owned(),
        };
        let (bytes, total) = (HumanBytes(done.bytes), HumanBytes(self.total.bytes));
        let blobs = counted(self.total.items, "blob", "blobs");
        format!(
            "{} of {blobs}, {bytes} of {total}, {}/s, {left}",
            done.items,
            HumanBytes(rate)
        )
    }
}

/// Returns a bar for this number of bytes.
fn bar(bytes: u64) -> ProgressBar {
    let template = "{wide_bar} {percent:>3}% {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(bytes).with_style(style)
}

#[expect(clippy::print_stderr, reason = "progress is not part of the result")]
fn eprint_line(line: &str) {
    eprintln!("{line}");
}
