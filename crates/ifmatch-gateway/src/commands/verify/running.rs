//! `ifmatch verify --url`: reads the bodies through a running gateway, and compares them with the hashes that it states.

use std::num::NonZero;
use std::ops::ControlFlow;

use futures_util::{StreamExt, stream};
use ifmatch_blob::name::{BlobName, BlobPath};
use ifmatch_runtime::nonce;
use indicatif::HumanBytes;
use serde_json::json;

use super::{Share, VerifyArgs, bodies};
use crate::cli::progress::{Display, Done};
use crate::cli::terminal::print_line;
use crate::commands::transfer::location::Location;
use crate::commands::transfer::remote::Remote;
use crate::commands::transfer::{Fault, Progress, run_all};
use crate::error::Error;

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
    /// The blob was deleted meanwhile.
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
/// Fails if a body is damaged or cannot be read.
pub(super) async fn verify(url: &str, args: &VerifyArgs) -> Result<(), Error> {
    let location = Location::parse(url)?;
    let remote = Remote::new(&location, &args.connection)?;
    let Listed { blobs, bytes } = list(&remote, &location, args.sample).await?;
    let rate =
        args.rate.map(|rate| NonZero::new(rate.bytes()).ok_or_else(|| Error::usage("--rate must be at least 1B")));
    let progress = Progress::start(rate.transpose()?);
    let total = Done { items: blobs.len() as u64, bytes };
    let mut display = Display::start(total, args.json)?;
    let (mut tally, mut last) = (Tally::default(), None);
    let tasks = stream::iter(blobs).map(|blob| async {
        let result = body(&remote, &blob, &progress).await;
        (blob, result)
    });
    let is_stopped = run_all(tasks, args.jobs, &progress, &mut display, |display, (blob, result)| {
        tally.add(&result);
        if let Err(fault) = result {
            display.print(&line(&blob, &fault, args.json))?;
            last = Some(fault).filter(Fault::is_last);
        }
        Ok(if last.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    let is_stopped = is_stopped.await?;
    display.finish();
    print_line(&tally.summary(&display, progress.done().bytes, args.json))?;
    let Tally { damaged, failed, .. } = tally;
    match last {
        Some(last) => Err(Error::runtime(format!("stopped before the end: {last}"))),
        None if is_stopped => Err(Error::interrupted("stopped before the end")),
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
            return Err(Error::runtime(format!("{}{container}: there is no such container", location.server)));
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
            Some(_) => Err(Fault::damage("the bytes differ from those that were stored")),
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
        let rest = [(no_hash, "without a hash to compare"), (failed, "not readable")];
        let rest = rest.iter().filter(|(count, _)| **count > 0).map(|(count, kind)| format!(", {count} {kind}"));
        let (read, bytes) = (bodies(*read), HumanBytes(bytes));
        format!("read {read} with {bytes}: {damaged} damaged{}", rest.collect::<String>())
    }
}

fn line(blob: &BlobPath, fault: &Fault, as_json: bool) -> String {
    let name = format!("{}/{}", blob.container, blob.name);
    if !as_json {
        return format!("{name}: {fault}");
    }
    let (message, kind) = if fault.is_damage() { ("damage", "changed") } else { ("error", "failed") };
    json!({ "message": message, "kind": kind, "blob": name, "detail": fault.to_string() }).to_string()
}
