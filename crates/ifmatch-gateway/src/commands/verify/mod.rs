//! `ifmatch verify`: compares all stored bodies with their hashes. `ifmatch gc`: removes files that belong to no blob.

mod running;

use std::fmt;
use std::fs;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use ifmatch_blob_embedded::{Damage, Finding, OpenError, OpenErrorKind, Verification};
use serde_json::json;
use tokio::time::Instant;

use super::http_client::Connection;
use super::runtime::block_on;
use crate::cli::progress::{Display, Done};
use crate::cli::terminal::{counted, print_line, printable};
use crate::config::units::{ByteSize, count};
use crate::error::Error;

/// File in the data folder with the state of an interrupted run.
const INTERRUPTED: &str = "verify-position";
/// Interval at which the position is saved.
const SAVE: Duration = Duration::from_secs(5);

/// `ifmatch verify …`
#[derive(Args)]
pub(crate) struct VerifyArgs {
    /// Data folder. Stop its gateway first. Without this flag and --url, that of `IFMATCH_DATA`.
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    data: Option<PathBuf>,

    /// URL of a running gateway, or of a container: reads the bodies through it instead, of any kind of store. Up to 16
    /// MiB of small bodies that it has just served come from its memory.
    #[arg(long)]
    url: Option<String>,

    /// Maximum number of bytes to read per second, such as 20MiB.
    #[arg(long, value_name = "SIZE", requires = "url")]
    rate: Option<ByteSize>,

    /// Maximum number of bodies to read at a time.
    #[arg(long, value_name = "N", default_value = "4", requires = "url", value_parser = count)]
    jobs: NonZero<usize>,

    #[command(flatten)]
    connection: Connection,

    /// Read a random share of the bodies only, such as 5%.
    #[arg(long, value_name = "SHARE", default_value = "100%")]
    sample: Share,

    /// Open an index whose newest commit is damaged, from the commit before it: the last acknowledged write may be lost.
    #[arg(long, conflicts_with = "url")]
    accept_rollback: bool,

    /// Continue an interrupted run. The result includes the damage that it found.
    #[arg(long, conflicts_with = "url")]
    resume: bool,

    /// Print JSON, one object per line: messages of the kinds `status`, `damage` and `summary`, and with `--url` `error`.
    #[arg(long)]
    json: bool,
}

/// `ifmatch gc …`
#[derive(Args)]
pub(crate) struct GcArgs {
    /// Data folder. Stop its gateway first.
    #[arg(long, value_name = "DIR", env = "IFMATCH_DATA")]
    data: PathBuf,

    /// List the files without removing them.
    #[arg(long)]
    dry_run: bool,
}

/// A share between 0 and 1, written as a percentage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(f64);

pub(crate) const VERIFY_EXAMPLES: &str = "\
Examples:
  ifmatch verify --data ./data
  ifmatch verify --data ./data --sample 5%
  ifmatch verify --url http://127.0.0.1:10000 --rate 20MiB

Signals:
  SIGUSR1          prints the progress
  SIGINT, SIGTERM  stop; --resume continues later

Exit codes:
  0    all bodies are as they were stored
  1    could not finish
  2    invalid flags
  3    a body or the index is damaged: restore it from a backup
  11   another process uses the folder
  130  stopped by a signal";

pub(crate) const GC_EXAMPLES: &str = "\
A crash can leave files that belong to no blob. The next start of the gateway removes them as well.

Examples:
  ifmatch gc --data ./data --dry-run
  ifmatch gc --data ./data

Exit codes:
  0   done
  1   could not finish
  2   invalid flags
  11  another process uses the folder";

/// Verifies a data folder, or the bodies of a running gateway, and prints a line for each damaged body.
///
/// # Errors
/// Fails if a body is damaged, or if the folder cannot be read or is in use.
pub(crate) fn verify(args: &VerifyArgs) -> Result<(), Error> {
    block_on(async {
        // Not by clap, for which the variable would conflict with --url as well.
        let data = args.data.clone().or_else(|| std::env::var_os("IFMATCH_DATA").map(PathBuf::from));
        match (&args.url, data) {
            (Some(url), _) => running::verify(url, args).await,
            (None, Some(folder)) => verify_folder(&folder, args).await,
            (None, None) => Err(Error::usage("set --data DIR or --url URL")),
        }
    })
}

/// Removes files that belong to no blob, and prints them.
///
/// # Errors
/// Fails if the folder cannot be read or is in use.
pub(crate) fn gc(args: &GcArgs) -> Result<(), Error> {
    block_on(async {
        let verification = Verification::open(&args.data).await.map_err(|error| failed(&error))?;
        let superfluous = verification.superfluous().await.map_err(|error| failed(&error))?;
        let mut bytes = 0;
        for file in superfluous.iter().filter_map(|found| found.file.as_deref()) {
            let in_file = |error: io::Error| Error::runtime(format!("{}: {error}", file.display()));
            bytes += fs::metadata(file).map_err(in_file)?.len();
            if !args.dry_run {
                fs::remove_file(file).map_err(in_file)?;
            }
            print_line(&file.display().to_string())?;
        }
        let done = if args.dry_run { "would be removed" } else { "removed" };
        let files = counted(superfluous.len() as u64, "file", "files");
        print_line(&format!("{files} with {} {done}", indicatif::HumanBytes(bytes)))
    })
}

async fn verify_folder(folder: &Path, args: &VerifyArgs) -> Result<(), Error> {
    let opened = if args.accept_rollback {
        Verification::open_rolled_back(folder).await
    } else {
        Verification::open(folder).await
    };
    let mut verification = opened.map_err(|error| failed(&error))?.sample(args.sample.0);
    let state = folder.join(INTERRUPTED);
    let mut losses = 0;
    if args.resume
        && let Some(run) = fs::read_to_string(&state).ok().and_then(|text| Interrupted::parse(&text))
    {
        verification = verification.resume(&run.position);
        losses = run.losses;
    }
    let (total, progress) = (verification.total(), verification.progress());
    let done = || Done { items: progress.bodies(), bytes: progress.bytes() };
    let mut display = Display::start(Done { items: total.bodies, bytes: total.bytes }, args.json)?;
    let mut saved = Instant::now();
    while let Some(findings) =
        display.during(verification.step(), done, || progress.stop()).await?.map_err(|error| failed(&error))?
    {
        losses += findings.iter().filter(|found| found.damage.is_loss()).count() as u64;
        findings.iter().try_for_each(|found| display.print(&line(found, args.json)))?;
        if saved.elapsed() > SAVE {
            save(&state, Interrupted::at(&verification, losses))?;
            saved = Instant::now();
        }
    }
    let is_stopped = progress.is_stopped();
    let superfluous =
        if is_stopped { Vec::new() } else { verification.superfluous().await.map_err(|error| failed(&error))? };
    display.finish();
    superfluous.iter().try_for_each(|found| print_line(&line(found, args.json)))?;
    save(&state, Interrupted::at(&verification, losses).filter(|_| is_stopped))?;
    print_line(&summary(&display, done(), losses, superfluous.len(), args.json))?;
    match losses {
        _ if is_stopped => Err(Error::interrupted("stopped before the end: continue with --resume")),
        0 => Ok(()),
        _ => Err(Error::damaged(format!("{losses} of {} damaged or missing", bodies(total.bodies)))),
    }
}

/// The state of an unfinished run.
#[derive(Debug, PartialEq, Eq)]
struct Interrupted {
    /// Number of damaged bodies so far, which the result of the continued run includes.
    losses: u64,
    position: String,
}

impl Interrupted {
    /// Returns the state, or `None` before the first bodies are verified.
    fn at(verification: &Verification, losses: u64) -> Option<Self> {
        Some(Self { losses, position: verification.position()?.to_owned() })
    }

    /// Parses the text of a state: the number, and the position in the next line.
    fn parse(text: &str) -> Option<Self> {
        let (losses, position) = text.split_once('\n')?;
        Some(Self { losses: losses.parse().ok()?, position: position.to_owned() })
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.losses, self.position)
    }
}

/// Saves the state of an unfinished run, or removes that of a finished one.
fn save(file: &Path, run: Option<Interrupted>) -> Result<(), Error> {
    let saved = match run {
        Some(run) => fs::write(file, run.to_string()),
        None => fs::remove_file(file),
    };
    match saved {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::runtime(format!("cannot save the position in {}: {error}", file.display())))
        }
        _ => Ok(()),
    }
}

fn line(found: &Finding, as_json: bool) -> String {
    let file = found.file.as_ref().map(|file| file.display().to_string());
    if as_json {
        let kind = match &found.damage {
            Damage::Changed => "changed",
            Damage::Missing => "missing",
            Damage::Record => "record",
            Damage::Index => "index",
            Damage::RolledBack => "rolled-back",
            Damage::LostCommit => "lost-commit",
            Damage::Superfluous => "superfluous",
            _ => "unreadable",
        };
        let damage = json!({ "message": "damage", "kind": kind, "blob": found.blob, "file": file });
        return damage.to_string();
    }
    let blob = found.blob.as_deref().map(printable);
    match (blob.as_deref(), file.as_deref()) {
        (Some(blob), Some(file)) => format!("{blob}: {} ({file})", found.damage),
        (Some(one), None) | (None, Some(one)) => format!("{one}: {}", found.damage),
        (None, None) => found.damage.to_string(),
    }
}

fn summary(display: &Display, done: Done, damaged: u64, superfluous: usize, as_json: bool) -> String {
    let seconds = display.elapsed().as_secs_f64();
    if as_json {
        let (bodies, bytes) = (done.items, done.bytes);
        let summary = json!({
            "message": "summary", "bodies": bodies, "bytes": bytes, "damaged": damaged, "superfluous": superfluous,
            "seconds": seconds,
        });
        return summary.to_string();
    }
    let bytes = indicatif::HumanBytes(done.bytes);
    let remains = if superfluous == 0 { "" } else { "; `ifmatch gc` removes the superfluous ones" };
    format!("read {} with {bytes}: {damaged} damaged, {superfluous} superfluous{remains}", bodies(done.items))
}

fn bodies(number: u64) -> String {
    counted(number, "body", "bodies")
}

impl Share {
    /// Returns `true` for this share of all random numbers.
    fn includes(self, random: u64) -> bool {
        // 32 bits, which a float represents exactly.
        f64::from(u32::try_from(random >> 32).unwrap_or(u32::MAX)) < self.0 * f64::from(u32::MAX) + 1.0
    }
}

fn failed(error: &OpenError) -> Error {
    match error.kind() {
        OpenErrorKind::InUse => Error::in_use(error.to_string()),
        OpenErrorKind::Missing => Error::usage(error.to_string()),
        OpenErrorKind::Unreadable => Error::damaged(error.to_string()),
        _ => Error::runtime(error.to_string()),
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent: Option<f64> = text.strip_suffix('%').and_then(|number| number.parse().ok());
        let share = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
        share.map(|percent| Self(percent / 100.0)).ok_or_else(|| "a percentage, for example 5%".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_above_zero() {
        assert_eq!("5%".parse(), Ok(Share(0.05)));
        assert_eq!("100%".parse(), Ok(Share(1.0)));
        for wrong in ["5", "0%", "101%", "-1%", "NaN%", "", "%"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
        let tenth = Share(0.1);
        assert_eq!((tenth.includes(0), tenth.includes(u64::MAX / 5)), (true, false));
        assert!(Share(1.0).includes(u64::MAX));
    }
}
