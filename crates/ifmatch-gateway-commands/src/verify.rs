//! `ifmatch verify`: compares the bodies of a data folder with their hashes. `ifmatch gc`: removes files that belong to no blob.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs, io};

use clap::Args;
use ifmatch_blob_indexed::{Damage, Finding, OpenError, OpenErrorKind, Verification};
use ifmatch_gateway_config::error::Error;
use indicatif::HumanBytes;
use serde::Serialize;
use tokio::time::Instant;

use super::runtime::block_on;
use crate::progress::{ProgressDisplay, WorkDone};
use crate::terminal::{counted, print_line, printable};

/// File in the data folder with the state of an interrupted run.
const INTERRUPTED: &str = "verify-position";
/// Interval at which the position is saved.
const SAVE: Duration = Duration::from_secs(5);

/// `ifmatch verify …`
#[derive(Args)]
pub struct VerifyArgs {
    /// Data folder of a stopped gateway, or a backup.
    #[arg(long, value_name = "DIR", env = "IFMATCH_DATA", hide_env_values = true)]
    data: PathBuf,

    /// Random share of the bodies to read, such as 5%.
    #[arg(long, value_name = "SHARE", default_value = "100%")]
    sample: SampleShare,

    /// Fall back to the previous commit of a damaged index; may lose the last acknowledged write.
    #[arg(long)]
    accept_rollback: bool,

    /// Continue an interrupted run, and include the damage it found.
    #[arg(long)]
    resume: bool,

    /// Print JSON, one object per line: `status`, `damage` and `summary`.
    #[arg(long)]
    json: bool,
}

/// `ifmatch gc …`
#[derive(Args)]
pub struct GcArgs {
    /// Data folder of a stopped gateway.
    #[arg(long, value_name = "DIR", env = "IFMATCH_DATA", hide_env_values = true)]
    data: PathBuf,

    /// List the files, remove nothing.
    #[arg(long)]
    dry_run: bool,
}

/// A share between 0 and 1, written as a percentage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SampleShare(f64);

/// The end of the help of `ifmatch verify`.
pub const VERIFY_EXAMPLES: &str = "\
Examples:
  ifmatch verify --data ./data
  ifmatch verify --data ./data --sample 5%

Signals:
  SIGUSR1          prints the progress
  SIGINT, SIGTERM  stop; --resume continues later

Exit codes:
  0    all bodies intact
  1    failed
  2    invalid flags
  3    a body or the index is damaged: restore it from a backup
  11   another process uses the folder
  130  stopped by a signal";

/// The end of the help of `ifmatch gc`.
pub const GC_EXAMPLES: &str = "\
Examples:
  ifmatch gc --data ./data --dry-run
  ifmatch gc --data ./data

A crash can leave orphaned files. The next start of the gateway removes them, too.

Exit codes:
  0   done
  1   failed
  2   invalid flags
  3   the index is damaged: restore it from a backup
  11  another process uses the folder";

/// Verifies a data folder, and prints a line for each damaged body.
///
/// # Errors
/// Fails if a body is damaged, or if the folder can't be read or is in use.
pub fn verify(args: &VerifyArgs) -> Result<(), Error> {
    block_on(async {
        let mut run = VerifyRun::start(args).await?;
        while run.step().await? {}
        run.finish().await
    })
}

/// Removes files that belong to no blob, and prints them.
///
/// # Errors
/// Fails if the folder can't be read or is in use.
pub fn gc(args: &GcArgs) -> Result<(), Error> {
    block_on(async {
        let verification = Verification::open(&args.data)
            .await
            .map_err(|error| failed(&error))?;
        let orphaned = verification
            .superfluous()
            .await
            .map_err(|error| failed(&error))?;
        let mut bytes = 0;
        for file in orphaned.iter().filter_map(|found| found.file.as_deref()) {
            let in_file = |error: io::Error| {
                Error::runtime(format!(
                    "can't use {}: {error}. Check its permissions.",
                    file.display()
                ))
            };
            bytes += fs::metadata(file).map_err(in_file)?.len();
            if !args.dry_run {
                fs::remove_file(file).map_err(in_file)?;
            }
            print_line(&file.display().to_string())?;
        }
        let done = if args.dry_run {
            "would be removed"
        } else {
            "removed"
        };
        let files = counted(orphaned.len() as u64, "file", "files");
        print_line(&format!("{files} ({}) {done}", HumanBytes(bytes)))
    })
}

/// A run of `ifmatch verify`.
struct VerifyRun {
    verification: Verification,
    display: ProgressDisplay,
    /// File with the state of an unfinished run.
    state: PathBuf,
    /// When the state was saved last.
    saved: Instant,
    /// Number of damaged bodies so far, with those of the run that this one continues.
    losses: u64,
}

impl VerifyRun {
    /// Opens the folder, and continues an interrupted run if asked to.
    async fn start(args: &VerifyArgs) -> Result<Self, Error> {
        let opened = if args.accept_rollback {
            Verification::open_rolled_back(&args.data).await
        } else {
            Verification::open(&args.data).await
        };
        let mut verification = opened
            .map_err(|error| failed(&error))?
            .sample(args.sample.0);
        let state = args.data.join(INTERRUPTED);
        let mut losses = 0;
        if args.resume
            && let Some(interrupted) = InterruptedRun::load(&state)
        {
            verification = verification.resume(&interrupted.position);
            losses = interrupted.losses;
        }
        let total = verification.total();
        let display = ProgressDisplay::start(
            WorkDone {
                items: total.bodies,
                bytes: total.bytes,
            },
            args.json,
        )?;
        Ok(Self {
            verification,
            display,
            state,
            saved: Instant::now(),
            losses,
        })
    }

    /// Verifies some bodies. Returns `false` after the last one, or after a signal.
    async fn step(&mut self) -> Result<bool, Error> {
        let progress = self.verification.progress();
        let done = || WorkDone {
            items: progress.bodies(),
            bytes: progress.bytes(),
        };
        let step = self
            .display
            .during(self.verification.step(), done, || progress.stop())
            .await?;
        let Some(findings) = step.map_err(|error| failed(&error))? else {
            return Ok(false);
        };
        self.losses += findings
            .iter()
            .filter(|found| found.damage.is_loss())
            .count() as u64;
        findings
            .iter()
            .try_for_each(|found| self.display.report(&VerifyReport::from(found)))?;
        if self.saved.elapsed() > SAVE {
            save(
                &self.state,
                InterruptedRun::at(&self.verification, self.losses),
            )?;
            self.saved = Instant::now();
        }
        Ok(true)
    }

    /// Prints the orphaned files and the summary, and saves the state if a signal has ended the run early.
    async fn finish(self) -> Result<(), Error> {
        let Self {
            verification,
            display,
            state,
            losses,
            ..
        } = self;
        let progress = verification.progress();
        let orphaned = if progress.is_stopped() {
            Vec::new()
        } else {
            verification
                .superfluous()
                .await
                .map_err(|error| failed(&error))?
        };
        display.finish();
        orphaned
            .iter()
            .try_for_each(|found| display.report(&VerifyReport::from(found)))?;
        save(
            &state,
            InterruptedRun::at(&verification, losses).filter(|_| progress.is_stopped()),
        )?;
        display.report(&VerifyReport::Summary {
            bodies: progress.bodies(),
            bytes: progress.bytes(),
            damaged: losses,
            orphaned: orphaned.len(),
            seconds: display.elapsed().as_secs_f64(),
        })?;
        match losses {
            _ if progress.is_stopped() => {
                Err(Error::interrupted("stopped early. Continue with --resume."))
            }
            0 => Ok(()),
            _ => {
                let all = bodies(verification.total().bodies);
                Err(Error::damaged(format!(
                    "{losses} of {all} damaged or missing. Restore them from a backup."
                )))
            }
        }
    }
}

/// The state of an unfinished run.
struct InterruptedRun {
    /// Number of damaged bodies so far, which the result of the continued run includes.
    losses: u64,
    position: String,
}

impl InterruptedRun {
    /// Returns the state, or `None` before the first bodies are verified.
    fn at(verification: &Verification, losses: u64) -> Option<Self> {
        Some(Self {
            losses,
            position: verification.position()?.to_owned(),
        })
    }

    /// Reads a state: the number, and the position in the next line.
    fn load(file: &Path) -> Option<Self> {
        let text = fs::read_to_string(file).ok()?;
        let (losses, position) = text.split_once('\n')?;
        Some(Self {
            losses: losses.parse().ok()?,
            position: position.to_owned(),
        })
    }
}

impl fmt::Display for InterruptedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.losses, self.position)
    }
}

/// Saves the state of an unfinished run, or removes a finished one's.
fn save(file: &Path, run: Option<InterruptedRun>) -> Result<(), Error> {
    let saved = match run {
        Some(run) => fs::write(file, run.to_string()),
        None => fs::remove_file(file),
    };
    match saved {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::runtime(format!(
            "can't save the position in {}: {error}",
            file.display()
        ))),
        _ => Ok(()),
    }
}

/// A line of the result: JSON for programs, text for people.
#[derive(Serialize)]
#[serde(tag = "message", rename_all = "lowercase")]
enum VerifyReport<'a> {
    Damage {
        kind: &'static str,
        blob: Option<&'a str>,
        file: Option<String>,
        #[serde(skip)]
        damage: &'a Damage,
    },
    Summary {
        bodies: u64,
        bytes: u64,
        damaged: u64,
        orphaned: usize,
        seconds: f64,
    },
}

impl<'a> From<&'a Finding> for VerifyReport<'a> {
    fn from(found: &'a Finding) -> Self {
        let kind = match &found.damage {
            Damage::Changed => "changed",
            Damage::Missing => "missing",
            Damage::Record => "record",
            Damage::Index => "index",
            Damage::RolledBack => "rolled-back",
            Damage::LostCommit => "lost-commit",
            Damage::Superfluous => "orphaned",
            _ => "unreadable",
        };
        let file = found.file.as_ref().map(|file| file.display().to_string());
        Self::Damage {
            kind,
            blob: found.blob.as_deref(),
            file,
            damage: &found.damage,
        }
    }
}

impl fmt::Display for VerifyReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damage {
                blob: Some(blob),
                file: Some(file),
                damage,
                ..
            } => {
                write!(f, "{}: {damage} ({file})", printable(blob))
            }
            Self::Damage {
                blob: Some(blob),
                damage,
                ..
            } => write!(f, "{}: {damage}", printable(blob)),
            Self::Damage {
                file: Some(file),
                damage,
                ..
            } => write!(f, "{file}: {damage}"),
            Self::Damage { damage, .. } => damage.fmt(f),
            Self::Summary {
                bodies: read,
                bytes,
                damaged,
                orphaned,
                ..
            } => {
                let remains = if *orphaned == 0 {
                    ""
                } else {
                    "; `ifmatch gc` removes the orphaned files"
                };
                let (read, bytes) = (bodies(*read), HumanBytes(*bytes));
                write!(
                    f,
                    "read {read} ({bytes}): {damaged} damaged, {orphaned} orphaned{remains}"
                )
            }
        }
    }
}

fn bodies(number: u64) -> String {
    counted(number, "body", "bodies")
}

/// Returns the error of a command for a folder that can't be used.
fn failed(error: &OpenError) -> Error {
    match error.kind() {
        OpenErrorKind::InUse => Error::in_use(error.to_string()),
        OpenErrorKind::Missing => Error::usage(error.to_string()),
        OpenErrorKind::Unreadable => Error::damaged(error.to_string()),
        _ => Error::runtime(error.to_string()),
    }
}

impl FromStr for SampleShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent: Option<f64> = text
            .strip_suffix('%')
            .and_then(|number| number.parse().ok());
        let share = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
        share
            .map(|percent| Self(percent / 100.0))
            .ok_or_else(|| "write a percentage above 0, such as 5%".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_above_zero() {
        assert_eq!("5%".parse(), Ok(SampleShare(0.05)));
        assert_eq!("100%".parse(), Ok(SampleShare(1.0)));
        for wrong in ["5", "0%", "101%", "-1%", "NaN%", "", "%"] {
            assert!(wrong.parse::<SampleShare>().is_err(), "{wrong}");
        }
    }
}
