//! `ifmatch verify`: compares all stored bodies with their hashes. `ifmatch gc`: removes files that belong to no blob.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs, io};

use clap::Args;
use futures_util::{StreamExt, stream};
use ifmatch_blob::name::{BlobName, BlobPath};
use ifmatch_blob_embedded::{Damage, Finding, OpenError, OpenErrorKind, Verification};
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::units::{ByteSize, count};
use ifmatch_runtime::nonce;
use indicatif::HumanBytes;
use serde_json::json;
use tokio::time::Instant;

use super::http_client::{Connection, DEFAULT_URL, origin};
use super::runtime::block_on;
use crate::progress::{Display, Done};
use crate::terminal::{counted, print_line, printable};
use crate::transfer::location::Location;
use crate::transfer::remote::Remote;
use crate::transfer::{Fault, Progress, run_all};

/// File in the data folder with the state of an interrupted run.
const INTERRUPTED: &str = "verify-position";
/// Number of concurrent reads through a gateway, unless it is set.
const JOBS: NonZero<usize> = NonZero::<usize>::MIN.saturating_add(3);
/// Interval at which the position is saved.
const SAVE: Duration = Duration::from_secs(5);

/// `ifmatch verify …`
#[derive(Args)]
pub struct VerifyArgs {
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "url",
        help = "Data folder of a stopped gateway [env: IFMATCH_DATA]"
    )]
    data: Option<PathBuf>,

    #[arg(long, value_name = "URL", help = URL_HELP, long_help = URL_LONG_HELP)]
    url: Option<String>,

    /// Maximum bytes per second through a gateway, such as 20MiB.
    #[arg(long, value_name = "SIZE", conflicts_with = "data")]
    rate: Option<ByteSize>,

    #[arg(
        long,
        value_name = "N",
        conflicts_with = "data",
        value_parser = count,
        help = "Maximum concurrent reads through a gateway [default: 4]"
    )]
    jobs: Option<NonZero<usize>>,

    #[command(flatten)]
    connection: Connection,

    /// Random share of the bodies to read, such as 5%.
    #[arg(long, value_name = "SHARE", default_value = "100%")]
    sample: Share,

    /// Fall back to the previous commit of a damaged index; may lose the last acknowledged write.
    #[arg(long, conflicts_with = "url")]
    accept_rollback: bool,

    /// Continue an interrupted run, and include the damage it found.
    #[arg(long, conflicts_with = "url")]
    resume: bool,

    /// Print JSON, one object per line: `status`, `damage`, `error` and `summary`.
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

const URL_HELP: &str = "URL of a running gateway or a container [env: IFMATCH_URL] [default: http://127.0.0.1:10000]";
const URL_LONG_HELP: &str = "\
URL of a running gateway or a container.

Reads the bodies through the gateway, whatever its store. Up to 16 MiB of small bodies may come from its memory.

[env: IFMATCH_URL] [default: http://127.0.0.1:10000]";

/// A share between 0 and 1, written as a percentage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(f64);

/// The end of the help of `ifmatch verify`.
pub const VERIFY_EXAMPLES: &str = "\
Examples:
  ifmatch verify --data ./data
  ifmatch verify --data ./data --sample 5%
  ifmatch verify --url http://127.0.0.1:10000 --rate 20MiB

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
  11  another process uses the folder";

/// Verifies a data folder, or the bodies of a running gateway, and prints a line for each damaged body.
///
/// # Errors
/// Fails if a body is damaged, or if the folder can't be read or is in use.
pub fn verify(args: &VerifyArgs) -> Result<(), Error> {
    block_on(async {
        // Not by clap, for which a variable would conflict with the other flag.
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let of_gateway = args.rate.is_some() || args.jobs.is_some();
        let data = args.data.clone().or_else(|| variable("IFMATCH_DATA").filter(|_| !of_gateway).map(PathBuf::from));
        match (&args.url, data) {
            (None, Some(folder)) => verify_folder(&folder, args).await,
            (None, None) if args.accept_rollback || args.resume => {
                Err(Error::usage("--accept-rollback and --resume need the data folder: set --data DIR"))
            }
            (Some(url), _) => verify_running(url, args).await,
            (None, None) => {
                let url = variable("IFMATCH_URL").and_then(|url| url.into_string().ok());
                verify_running(url.as_deref().unwrap_or(DEFAULT_URL), args).await
            }
        }
    })
}

/// Removes files that belong to no blob, and prints them.
///
/// # Errors
/// Fails if the folder can't be read or is in use.
pub fn gc(args: &GcArgs) -> Result<(), Error> {
    block_on(async {
        let verification = Verification::open(&args.data).await.map_err(|error| failed(&error))?;
        let orphaned = verification.superfluous().await.map_err(|error| failed(&error))?;
        let mut bytes = 0;
        for file in orphaned.iter().filter_map(|found| found.file.as_deref()) {
            let in_file = |error: io::Error| Error::runtime(format!("{}: {error}", file.display()));
            bytes += fs::metadata(file).map_err(in_file)?.len();
            if !args.dry_run {
                fs::remove_file(file).map_err(in_file)?;
            }
            print_line(&file.display().to_string())?;
        }
        let done = if args.dry_run { "would be removed" } else { "removed" };
        let files = counted(orphaned.len() as u64, "file", "files");
        print_line(&format!("{files} ({}) {done}", indicatif::HumanBytes(bytes)))
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
    let orphaned =
        if is_stopped { Vec::new() } else { verification.superfluous().await.map_err(|error| failed(&error))? };
    display.finish();
    orphaned.iter().try_for_each(|found| print_line(&line(found, args.json)))?;
    save(&state, Interrupted::at(&verification, losses).filter(|_| is_stopped))?;
    print_line(&summary(&display, done(), losses, orphaned.len(), args.json))?;
    match losses {
        _ if is_stopped => Err(Error::interrupted("stopped early. Continue with --resume.")),
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

/// Saves the state of an unfinished run, or removes a finished one's.
fn save(file: &Path, run: Option<Interrupted>) -> Result<(), Error> {
    let saved = match run {
        Some(run) => fs::write(file, run.to_string()),
        None => fs::remove_file(file),
    };
    match saved {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::runtime(format!("can't save the position in {}: {error}", file.display())))
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
            Damage::Superfluous => "orphaned",
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

fn summary(display: &Display, done: Done, damaged: u64, orphaned: usize, as_json: bool) -> String {
    let seconds = display.elapsed().as_secs_f64();
    if as_json {
        let (bodies, bytes) = (done.items, done.bytes);
        let summary = json!({
            "message": "summary", "bodies": bodies, "bytes": bytes, "damaged": damaged, "orphaned": orphaned,
            "seconds": seconds,
        });
        return summary.to_string();
    }
    let bytes = indicatif::HumanBytes(done.bytes);
    let remains = if orphaned == 0 { "" } else { "; `ifmatch gc` removes the orphaned files" };
    format!("read {} ({bytes}): {damaged} damaged, {orphaned} orphaned{remains}", bodies(done.items))
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
        share.map(|percent| Self(percent / 100.0)).ok_or_else(|| "write a percentage above 0, such as 5%".to_owned())
    }
}

/// The blobs to read, and the sum of their lengths.
#[derive(Default)]
struct Listed {
    blobs: Vec<BlobPath>,
    bytes: u64,
}

/// The state of one body.
enum Body {
    Intact,
    /// The gateway states no hash of it.
    NoHash,
    /// The blob was deleted in the meantime.
    Gone,
}

/// The number of bodies by state.
#[derive(Default)]
struct Tally {
    read: u64,
    no_hash: u64,
    damaged: u64,
    failed: u64,
}

/// Verifies the bodies of a running gateway, and prints a line for each damaged one.
///
/// # Errors
/// Fails if a body is damaged or can't be read.
async fn verify_running(url: &str, args: &VerifyArgs) -> Result<(), Error> {
    let location = Location::parse(url)?;
    let remote = Remote::new(&location, &args.connection)?;
    let Listed { blobs, bytes } = list(&remote, &location, args.sample).await?;
    let rate = args.rate.map(|rate| {
        NonZero::new(rate.bytes()).ok_or_else(|| Error::usage("--rate can't be 0. Set it to a size such as 20MiB."))
    });
    let progress = Progress::start(rate.transpose()?);
    let total = Done { items: blobs.len() as u64, bytes };
    let mut display = Display::start(total, args.json)?;
    let (mut tally, mut last) = (Tally::default(), None);
    let tasks = stream::iter(blobs).map(|blob| async {
        let result = body(&remote, &blob, &progress).await;
        (blob, result)
    });
    let is_stopped = run_all(tasks, args.jobs.unwrap_or(JOBS), &progress, &mut display, |display, (blob, result)| {
        tally.add(&result);
        if let Err(fault) = result {
            display.print(&fault_line(&blob, &fault, args.json))?;
            last = Some(fault).filter(Fault::is_last);
        }
        Ok(if last.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    let is_stopped = is_stopped.await?;
    display.finish();
    print_line(&tally.summary(&display, progress.done().bytes, args.json))?;
    let Tally { damaged, failed, .. } = tally;
    match last {
        Some(last) => Err(Error::runtime(format!("stopped early. {last}"))),
        None if is_stopped => Err(Error::interrupted("stopped early")),
        None if damaged > 0 => Err(Error::damaged(format!("{damaged} of {} damaged or missing", bodies(total.items)))),
        None if failed > 0 => Err(Error::runtime(format!("{failed} of {} could not be read", bodies(total.items)))),
        None => Ok(()),
    }
}

/// Lists the sampled blobs of a location.
async fn list(remote: &Remote, location: &Location, sample: Share) -> Result<Listed, Error> {
    let containers = match &location.container {
        Some(container) => vec![container.clone()],
        None => remote.containers().await?,
    };
    let mut listed = Listed::default();
    for container in containers {
        let entries = remote.list(&container, &location.prefix).await?;
        if entries.is_none() && location.container.is_some() {
            return Err(Error::runtime(format!("no such container: {container} at {}", origin(&location.server))));
        }
        for entry in entries.unwrap_or_default() {
            if sample.includes(nonce().map_err(|error| Error::runtime(error.to_string()))?) {
                let name =
                    BlobName::new(&entry.name).map_err(|error| Error::runtime(format!("{}: {error}", entry.name)))?;
                listed.blobs.push(BlobPath { container: container.clone(), name });
                listed.bytes += entry.size;
            }
        }
    }
    Ok(listed)
}

async fn body(remote: &Remote, blob: &BlobPath, progress: &Progress) -> Result<Body, Fault> {
    match remote.hash(blob, progress).await? {
        None => Ok(Body::Gone),
        Some((head, found)) => match head.hash {
            None => Ok(Body::NoHash),
            Some(stated) if stated == found => Ok(Body::Intact),
            Some(_) => Err(Fault::damage("the bytes differ from what was stored")),
        },
    }
}

impl Tally {
    fn add(&mut self, result: &Result<Body, Fault>) {
        match result {
            Ok(Body::Gone) => {}
            Ok(Body::Intact) => self.read += 1,
            Ok(Body::NoHash) => {
                self.read += 1;
                self.no_hash += 1;
            }
            Err(fault) if fault.is_damage() => {
                self.read += 1;
                self.damaged += 1;
            }
            Err(_) => self.failed += 1,
        }
    }

    fn summary(&self, display: &Display, bytes: u64, as_json: bool) -> String {
        let Self { read, no_hash, damaged, failed } = self;
        if as_json {
            let seconds = display.elapsed().as_secs_f64();
            let summary = json!({
                "message": "summary", "bodies": read, "bytes": bytes, "damaged": damaged, "failed": failed,
                "without_hash": no_hash, "seconds": seconds,
            });
            return summary.to_string();
        }
        let rest = [(no_hash, "without a hash"), (failed, "unreadable")];
        let rest = rest.iter().filter(|(count, _)| **count > 0).map(|(count, kind)| format!(", {count} {kind}"));
        let (read, bytes) = (bodies(*read), HumanBytes(bytes));
        format!("read {read} ({bytes}): {damaged} damaged{}", rest.collect::<String>())
    }
}

fn fault_line(blob: &BlobPath, fault: &Fault, as_json: bool) -> String {
    let name = format!("{}/{}", blob.container, blob.name);
    if !as_json {
        return format!("{name}: {fault}");
    }
    let (message, kind) = if fault.is_damage() { ("damage", "changed") } else { ("error", "failed") };
    json!({ "message": message, "kind": kind, "blob": name, "detail": fault.to_string() }).to_string()
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
