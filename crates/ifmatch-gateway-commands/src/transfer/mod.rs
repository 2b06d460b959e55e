//! `ifmatch import` and `ifmatch export`: copies between a folder and a container of a running gateway, which write only
//! what differs and can be repeated after an interruption. Also the client that `ifmatch verify --url` reads with.

pub(crate) mod location;
pub(crate) mod remote;

mod export;
mod import;
mod objects;

use std::fmt;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use clap::Args;
use futures_util::{Stream, StreamExt};
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::units::count;
use indicatif::HumanBytes;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::http_client::Connection;
use crate::progress::{Display, Done};
use crate::terminal::{counted, print_line, printable};

pub use export::export;
pub use import::import;

/// `ifmatch import …`
#[derive(Args)]
pub struct ImportArgs {
    /// Folder to read, or objects: `s3://bucket/prefix`, `az://container/prefix` or `gs://bucket/prefix`.
    #[arg(value_name = "SOURCE")]
    source: PathBuf,

    /// Container to write, or a folder in it, such as `http://127.0.0.1:10000/docs`.
    url: String,

    #[command(flatten)]
    options: Options,
}

/// `ifmatch export …`
#[derive(Args)]
pub struct ExportArgs {
    /// Container to read, or a folder in it, such as `http://127.0.0.1:10000/docs`.
    url: String,

    /// Folder to write.
    folder: PathBuf,

    #[command(flatten)]
    options: Options,
}

/// Options of both.
#[derive(Args)]
struct Options {
    #[command(flatten)]
    connection: Connection,

    /// Maximum concurrent transfers.
    #[arg(long, value_name = "N", default_value = "16", value_parser = count)]
    jobs: NonZero<usize>,

    /// Print JSON, one object per line: `status`, `skipped`, `error` and `summary`.
    #[arg(long)]
    json: bool,
}

/// The end of the help of `ifmatch import`.
pub const IMPORT_EXAMPLES: &str = "\
Examples:
  ifmatch import ./site http://127.0.0.1:10000/site
  ifmatch import ./site https://blobs.example.com/site/2026 \\
    --token-file write.token
  AWS_REGION=eu-west-1 \\
    ifmatch import s3://my-bucket/site http://127.0.0.1:10000/site

Each file becomes a blob named by its path below the folder. The container is created if it is missing. Unchanged blobs are \
skipped, so a second run writes nothing and an interrupted one continues. A blob that differs is replaced unless another writer \
has changed it since the comparison; its headers stay. Nothing is deleted, and symbolic links are skipped.

Credentials and region of an object store come from the environment, as for `ifmatch serve --store`. Objects keep their \
headers. S3 and Azure provide no SHA-256, so each run reads all objects, through temporary files (TMPDIR).

Signals:
  SIGUSR1          prints the progress
  SIGINT, SIGTERM  stop; the next run continues

Exit codes:
  0    all files stored
  1    failed, or some files were not stored
  2    invalid flags
  3    conflict: another writer changed a blob, which was left as it is
  130  stopped by a signal";

/// The end of the help of `ifmatch export`.
pub const EXPORT_EXAMPLES: &str = "\
Examples:
  ifmatch export http://127.0.0.1:10000/site ./site
  ifmatch export https://blobs.example.com/site/2026 ./site \\
    --token-file read.token --json

Each blob becomes a file. The folder is created if it is missing. Unchanged files are skipped, so a second run writes nothing and \
an interrupted one continues. A file that differs is REPLACED, once the new bytes match the gateway's hash. Nothing is deleted, \
and nothing is written through a symbolic link.

Signals:
  SIGUSR1          prints the progress
  SIGINT, SIGTERM  stop; the next run continues

Exit codes:
  0    all blobs written
  1    failed, or some blobs were not read
  2    invalid flags
  3    a blob is damaged, or something other than a file is in its place
  11   another export uses the folder
  130  stopped by a signal";

/// The result of one blob.
pub(crate) enum Outcome {
    /// The target was written.
    Written,
    /// The target already had these bytes.
    Unchanged,
    /// There is nothing to transfer, for this reason.
    Skipped(&'static str),
}

/// The reason why one blob wasn't transferred.
#[derive(Debug)]
pub(crate) struct Fault {
    kind: FaultKind,
    detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    /// Another writer was faster, or something else is in the target's place.
    Conflict,
    /// The bytes aren't those that were stored.
    Damage,
    /// Any other reason.
    Failed,
    /// A reason that may pass, such as a broken connection.
    Passing,
    /// The server can't be reached, which may pass.
    Unreachable,
    /// A reason that applies to all further blobs.
    Last,
}

/// The work done so far.
#[derive(Debug)]
pub(crate) struct Progress {
    items: AtomicU64,
    bytes: AtomicU64,
    started: Instant,
    /// Maximum number of bytes per second.
    rate: Option<NonZero<u64>>,
}

/// The number of blobs by result.
#[derive(Default)]
struct Tally {
    written: u64,
    unchanged: u64,
    skipped: u64,
    conflicts: u64,
    damaged: u64,
    failed: u64,
}

impl Progress {
    /// Starts without a limit, or with a maximum number of bytes per second.
    pub(crate) fn start(rate: Option<NonZero<u64>>) -> Arc<Self> {
        Arc::new(Self { items: AtomicU64::new(0), bytes: AtomicU64::new(0), started: Instant::now(), rate })
    }

    /// Waits until the rate is within its limit.
    pub(crate) async fn pace(&self) {
        if let Some(rate) = self.rate {
            let due = Duration::from_millis(self.bytes.load(Relaxed).saturating_mul(1000) / rate);
            sleep_until(self.started + due).await;
        }
    }

    /// Counts bytes.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts a blob.
    pub(crate) fn add_item(&self) {
        self.items.fetch_add(1, Relaxed);
    }

    /// Returns the state for a display.
    pub(crate) fn done(&self) -> Done {
        Done { items: self.items.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }
}

impl Fault {
    fn new(kind: FaultKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    fn conflict(detail: impl Into<String>) -> Self {
        Self::new(FaultKind::Conflict, detail)
    }

    pub(crate) fn damage(detail: impl Into<String>) -> Self {
        Self::new(FaultKind::Damage, detail)
    }

    fn failed(detail: impl Into<String>) -> Self {
        Self::new(FaultKind::Failed, detail)
    }

    fn passing(detail: impl Into<String>) -> Self {
        Self::new(FaultKind::Passing, detail)
    }

    fn unreachable(detail: impl Into<String>) -> Self {
        Self::new(FaultKind::Unreachable, detail)
    }

    fn last(detail: impl Into<String>) -> Self {
        Self::new(FaultKind::Last, detail)
    }

    /// Returns `true` if a further attempt may succeed.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.kind, FaultKind::Passing | FaultKind::Unreachable)
    }

    /// Returns `true` if the bytes aren't those that were stored.
    pub(crate) fn is_damage(&self) -> bool {
        self.kind == FaultKind::Damage
    }

    /// Returns `true` if all further blobs would fail as well.
    pub(crate) fn is_last(&self) -> bool {
        matches!(self.kind, FaultKind::Unreachable | FaultKind::Last)
    }

    /// Returns the name of the kind in JSON.
    pub(crate) fn kind(&self) -> &'static str {
        match self.kind {
            FaultKind::Conflict => "conflict",
            FaultKind::Damage => "damage",
            FaultKind::Failed | FaultKind::Passing | FaultKind::Unreachable | FaultKind::Last => "failed",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Tally {
    fn add(&mut self, result: &Result<Outcome, Fault>) {
        let count = match result {
            Ok(Outcome::Written) => &mut self.written,
            Ok(Outcome::Unchanged) => &mut self.unchanged,
            Ok(Outcome::Skipped(_)) => &mut self.skipped,
            Err(fault) => match fault.kind() {
                "conflict" => &mut self.conflicts,
                "damage" => &mut self.damaged,
                _ => &mut self.failed,
            },
        };
        *count += 1;
    }

    fn summary(&self, display: &Display, bytes: u64, as_json: bool) -> String {
        let Self { written, unchanged, skipped, conflicts, damaged, failed } = self;
        if as_json {
            let seconds = display.elapsed().as_secs_f64();
            let summary = json!({
                "message": "summary", "written": written, "unchanged": unchanged, "skipped": skipped,
                "conflicts": conflicts, "damaged": damaged, "failed": failed, "bytes": bytes, "seconds": seconds,
            });
            return summary.to_string();
        }
        let bytes = HumanBytes(bytes);
        let faults = [(conflicts, "in conflict"), (damaged, "damaged"), (failed, "failed"), (skipped, "skipped")];
        let faults = faults.iter().filter(|(count, _)| **count > 0).map(|(count, kind)| format!(", {count} {kind}"));
        format!("{written} written, {unchanged} unchanged{}, {bytes} transferred", faults.collect::<String>())
    }
}

/// Runs tasks, `jobs` at a time, and passes their results to `take` until that breaks or a signal arrives. Returns `true`
/// after a signal.
///
/// # Errors
/// Fails if the display or `take` does.
pub(crate) async fn run_all<T, F: Future<Output = T>>(
    tasks: impl Stream<Item = F>,
    jobs: NonZero<usize>,
    progress: &Progress,
    display: &mut Display,
    mut take: impl FnMut(&Display, T) -> Result<ControlFlow<()>, Error>,
) -> Result<bool, Error> {
    let (stop, mut stopped) = watch::channel(false);
    let mut running = pin!(tasks.buffer_unordered(jobs.get()));
    loop {
        let next = async {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => None,
                result = running.next() => result,
            }
        };
        let stop_all = || {
            stop.send_replace(true);
        };
        let Some(result) = display.during(next, || progress.done(), stop_all).await? else {
            return Ok(*stop.borrow());
        };
        progress.add_item();
        if take(display, result)?.is_break() {
            return Ok(false);
        }
    }
}

/// Collects the results of `transfers`, and prints the faults and a summary.
///
/// # Errors
/// Fails unless all results are good and no signal has ended the command.
async fn collect<F>(
    transfers: impl Stream<Item = F>,
    total: Done,
    progress: &Progress,
    options: &Options,
) -> Result<(), Error>
where
    F: Future<Output = (String, Result<Outcome, Fault>)>,
{
    let mut display = Display::start(total, options.json)?;
    let (mut tally, mut last) = (Tally::default(), None);
    let is_stopped = run_all(transfers, options.jobs, progress, &mut display, |display, (name, result)| {
        tally.add(&result);
        if let Some(line) = line(&name, &result, options.json) {
            display.print(&line)?;
        }
        last = result.err().filter(Fault::is_last);
        Ok(if last.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    let is_stopped = is_stopped.await?;
    display.finish();
    print_line(&tally.summary(&display, progress.done().bytes, options.json))?;
    let Tally { conflicts, damaged, failed, .. } = tally;
    match last {
        Some(last) => Err(Error::runtime(format!("stopped early. {last}"))),
        None if is_stopped => Err(Error::interrupted("stopped early. Run the command again to continue.")),
        None if damaged > 0 => Err(Error::damaged(format!("{} damaged", counted(damaged, "blob", "blobs")))),
        None if conflicts > 0 => Err(Error::conflict(format!(
            "{}: the blobs or files were left as they are",
            counted(conflicts, "conflict", "conflicts")
        ))),
        None if failed > 0 => {
            Err(Error::runtime(format!("{failed} of {} failed", counted(total.items, "transfer", "transfers"))))
        }
        None => Ok(()),
    }
}

/// Returns the line about a result, unless it needs none.
fn line(name: &str, result: &Result<Outcome, Fault>, as_json: bool) -> Option<String> {
    let (kind, detail) = match result {
        Ok(Outcome::Written | Outcome::Unchanged) => return None,
        Ok(Outcome::Skipped(reason)) => ("skipped", (*reason).to_owned()),
        Err(fault) => (fault.kind(), fault.to_string()),
    };
    let message = if result.is_ok() { "skipped" } else { "error" };
    Some(if as_json {
        json!({ "message": message, "kind": kind, "blob": name, "detail": detail }).to_string()
    } else {
        printable(&format!("{name}: {detail}"))
    })
}
