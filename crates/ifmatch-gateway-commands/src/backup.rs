//! `ifmatch backup`: copies the data folder of a running gateway by way of a snapshot. A repeated backup copies new bodies
//! only.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use clap::Args;
use ifmatch_gateway_config::endpoint_paths::SNAPSHOT;
use ifmatch_gateway_config::error::Error;
use indicatif::HumanBytes;
use reqwest::{Method, StatusCode};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::http_client::{GatewayArgs, ask, origin, rejected};
use super::runtime::block_on;
use crate::platform::identity;
use crate::progress::{ProgressDisplay, WorkDone};
use crate::terminal::counted;

/// The index in a data folder.
const INDEX: &str = "index.redb";
/// The body that is being copied. The next start of a gateway on the backup removes what remains of it.
const INCOMPLETE: &str = "0000000000000000";

/// `ifmatch backup …`
#[derive(Args)]
pub struct BackupArgs {
    /// The gateway's data folder, on this machine, or the bucket of several gateways.
    #[arg(long, value_name = "DIR", env = "IFMATCH_DATA", hide_env_values = true)]
    data: PathBuf,

    /// Register with the index of the bucket.
    #[arg(
        long,
        value_name = "URL",
        env = "IFMATCH_REGISTER",
        hide_env_values = true
    )]
    register: Option<String>,

    /// Folder for the backup: a new one, or an earlier backup of a folder to update.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,

    #[command(flatten)]
    gateway: GatewayArgs,

    /// Print JSON, one object per line: `status` and `summary`.
    #[arg(long)]
    json: bool,
}

impl BackupArgs {
    /// Returns the URL of a bucket, its register, and the folder for the backup, or `None` if a folder is backed up.
    pub fn bucket(&self) -> Option<(&str, Option<&str>, &Path)> {
        let url = self.data.to_str().filter(|data| data.contains("://"))?;
        Some((url, self.register.as_deref(), &self.to))
    }
}

/// The end of the help of `ifmatch backup`.
pub const EXAMPLES: &str = "\
Examples:
  ifmatch backup --data /var/lib/ifmatch --to /mnt/backup/ifmatch
  ifmatch verify --data /mnt/backup/ifmatch
  ifmatch backup --data s3://bucket/blobs --register postgres://db.example/app --to ./backup

The backup of a folder is a consistent snapshot of all blobs, leases and containers; the backup of a bucket has each blob as it was \
at one moment, but not all at the same one. The gateways keep running. A gateway with tokens requires a write token. The backup is a \
data folder: serve it, or copy it into a bucket with `ifmatch restore`.

Signals:
  SIGUSR1          prints the progress
  SIGINT, SIGTERM  stop; the earlier backup stays valid, and the next run continues

Exit codes:
  0    backup complete
  1    failed
  2    invalid flags
  11   another process uses the backup folder
  130  stopped by a signal";

/// The response of the gateway to a snapshot.
#[derive(Deserialize)]
struct TakenSnapshot {
    bodies: u64,
    bytes: u64,
}

/// The copy of a snapshot.
struct SnapshotCopy {
    from: PathBuf,
    to: PathBuf,
    /// The index of the snapshot.
    index: File,
    progress: Arc<CopyProgress>,
    /// Keeps other processes from the backup.
    _lock: File,
}

/// The bodies that are in the backup, and the bytes that were copied.
#[derive(Default)]
struct CopyProgress {
    bodies: AtomicU64,
    bytes: AtomicU64,
    is_stopped: AtomicBool,
}

impl CopyProgress {
    /// Returns the work that is done.
    fn done(&self) -> WorkDone {
        WorkDone {
            items: self.bodies.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }

    /// Ends the copy before the next body.
    fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
    }
}

/// The last line: JSON for programs, text for people.
#[derive(Serialize)]
#[serde(tag = "message", rename = "summary")]
struct BackupSummary {
    bodies: u64,
    bytes: u64,
    copied_bytes: u64,
    seconds: f64,
}

impl fmt::Display for BackupSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bodies, all) = (
            counted(self.bodies, "body", "bodies"),
            HumanBytes(self.bytes),
        );
        write!(
            f,
            "backed up {bodies} ({all}, {} new)",
            HumanBytes(self.copied_bytes)
        )
    }
}

/// Brings a backup up to date.
///
/// # Errors
/// Fails if the gateway takes no snapshot, or a folder can't be used.
pub fn run(args: &BackupArgs) -> Result<(), Error> {
    block_on(async {
        if is_within(&args.to, &args.data) {
            return Err(Error::usage(
                "--to is inside the data folder. Choose a folder outside it.",
            ));
        }
        let lock = lock(&args.to)?;
        let from = args.data.join("snapshot");
        let before = fs::metadata(from.join(INDEX))
            .map(|file| identity(&file))
            .ok();
        let snapshot: TakenSnapshot = request(args, Method::PUT).await?;
        let index = File::open(from.join(INDEX)).ok();
        let taken = index
            .as_ref()
            .and_then(|index| index.metadata().map(|file| identity(&file)).ok());
        let Some(index) = index.filter(|_| taken != before) else {
            return Err(Error::usage(format!(
                "the gateway's snapshot isn't in {}. Set --data to the data folder of the gateway at {}.",
                from.display(),
                origin(&args.gateway.url)
            )));
        };
        let total = WorkDone {
            items: snapshot.bodies,
            bytes: snapshot.bytes,
        };
        let mut display = ProgressDisplay::start(total, args.json)?;
        let progress = Arc::<CopyProgress>::default();
        let copy = SnapshotCopy {
            from,
            to: args.to.clone(),
            index,
            progress: Arc::clone(&progress),
            _lock: lock,
        };
        let copying = spawn_blocking(move || {
            let copied = copy.run();
            // The snapshot of another backup that has replaced it stays.
            (copied, copy.check_snapshot().is_ok())
        });
        let ended = display
            .during(copying, || progress.done(), || progress.stop())
            .await?;
        display.finish();
        let (copied, is_ours) = ended.map_err(|error| Error::runtime(error.to_string()))?;
        // Also after a failure: it would keep the space of all that is deleted from now on.
        let removed = if is_ours {
            request::<IgnoredAny>(args, Method::DELETE).await.map(drop)
        } else {
            Ok(())
        };
        let is_complete = copied?;
        removed?;
        if !is_complete {
            return Err(Error::interrupted(
                "stopped early. Run the command again to continue.",
            ));
        }
        let TakenSnapshot { bodies, bytes } = snapshot;
        let (copied_bytes, seconds) = (progress.done().bytes, display.elapsed().as_secs_f64());
        display.report(&BackupSummary {
            bodies,
            bytes,
            copied_bytes,
            seconds,
        })
    })
}

/// Returns `true` if a folder, which needn't exist, is another one or below it. The snapshot is removed at the end, and a
/// backup in its place would be as well.
fn is_within(folder: &Path, other: &Path) -> bool {
    let existing = std::path::absolute(folder).ok();
    let existing = existing.as_deref().and_then(|folder| {
        folder
            .ancestors()
            .find_map(|above| above.canonicalize().ok())
    });
    existing
        .zip(other.canonicalize().ok())
        .is_some_and(|(folder, other)| folder.starts_with(other))
}

/// Locks the folder for a backup, and creates it if it doesn't exist.
fn lock(folder: &Path) -> Result<File, Error> {
    let failed = |error: io::Error| {
        Error::runtime(format!(
            "can't use {}: {error}. Check its permissions.",
            folder.display()
        ))
    };
    ifmatch_blob_indexed::create_folder(folder).map_err(failed)?;
    let lock =
        ifmatch_runtime::private_files::open_or_create(&folder.join("lock")).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            let folder = folder.display();
            Err(Error::in_use(format!(
                "another process uses {folder}. Stop it, or choose another folder with --to."
            )))
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Sends a request about the gateway's snapshot.
async fn request<T: DeserializeOwned>(args: &BackupArgs, method: Method) -> Result<T, Error> {
    let GatewayArgs { url, connection } = &args.gateway;
    let url = url
        .join(SNAPSHOT)
        .map_err(|error| Error::usage(format!("--url {url}: {error}")))?;
    let request = connection.client(&url, None)?.request(method, url.clone());
    ask(&url, request).await?.map_err(|(status, detail)| {
        Error::runtime(match status {
            StatusCode::NOT_FOUND => {
                format!(
                    "{} has no data folder to back up. Back up the store itself, or correct --url.",
                    origin(&url)
                )
            }
            status => rejected(&origin(&url), status, &detail),
        })
    })
}

impl SnapshotCopy {
    /// Copies bodies first, then replaces the index, and then removes bodies that it no longer has. After an interruption at
    /// any point, the backup is the earlier one or the new one. Returns `false` if a signal has stopped it.
    fn run(&self) -> Result<bool, Error> {
        create(&self.to.join("bodies"))?;
        let bodies = list(&self.from)?;
        let existing: HashSet<PathBuf> = list(&self.to)?.into_iter().collect();
        if !self.copy_bodies(&bodies, &existing)? {
            return Ok(false);
        }
        let index = self.to.join("index.redb.new");
        copy(&self.from.join(INDEX), &index)?;
        self.check_snapshot()?;
        rename(&index, &self.to.join(INDEX))?;
        sync(&self.to)?;
        let current: HashSet<&PathBuf> = bodies.iter().collect();
        for body in existing.iter().filter(|body| !current.contains(body)) {
            let file = self.to.join(body);
            fs::remove_file(&file).map_err(|error| at(&file, &error))?;
        }
        Ok(true)
    }

    /// Copies all bodies but the existing ones. Returns `false` if a signal has stopped it.
    fn copy_bodies(&self, bodies: &[PathBuf], existing: &HashSet<PathBuf>) -> Result<bool, Error> {
        let temporary = self.to.join("tmp");
        create(&temporary)?;
        let incomplete = temporary.join(INCOMPLETE);
        // Those of existing bodies as well: the backup that copied them may have been interrupted before it synced them.
        let mut folders = HashSet::from([self.to.join("bodies")]);
        for body in bodies {
            if self.progress.is_stopped.load(Relaxed) {
                return Ok(false);
            }
            let to = self.to.join(body);
            let folder = to.parent().unwrap_or(&self.to).to_owned();
            if !existing.contains(body) {
                create(&folder)?;
                self.progress
                    .bytes
                    .fetch_add(copy(&self.from.join(body), &incomplete)?, Relaxed);
                rename(&incomplete, &to)?;
            }
            folders.insert(folder);
            self.progress.bodies.fetch_add(1, Relaxed);
        }
        folders.iter().try_for_each(|folder| sync(folder))?;
        Ok(true)
    }

    /// Fails if the snapshot was replaced since the index was opened, since a list of its bodies may then be of either.
    fn check_snapshot(&self) -> Result<(), Error> {
        let file = self.from.join(INDEX);
        let opened = self
            .index
            .metadata()
            .map(|file| identity(&file))
            .map_err(|error| at(&file, &error))?;
        if fs::metadata(&file).is_ok_and(|found| identity(&found) == opened) {
            return Ok(());
        }
        let from = self.from.display();
        Err(Error::runtime(format!(
            "another backup replaced or removed the snapshot in {from}. Run the command again."
        )))
    }
}

/// Returns the paths of all bodies, relative to their data folder.
fn list(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let (mut found, mut folders) = (Vec::new(), vec![root.join("bodies")]);
    while let Some(folder) = folders.pop() {
        let failed = |error: io::Error| at(&folder, &error);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push(entry.path());
            } else if let Ok(relative) = entry.path().strip_prefix(root) {
                found.push(relative.to_owned());
            }
        }
    }
    Ok(found)
}

/// Copies a file durably. Returns its size in bytes.
fn copy(from: &Path, to: &Path) -> Result<u64, Error> {
    // The error may be of either file.
    let failed = |error: io::Error| {
        Error::runtime(format!(
            "can't copy {} to {}: {error}. Check the permissions and the free space.",
            from.display(),
            to.display()
        ))
    };
    let bytes = fs::copy(from, to).map_err(failed)?;
    // Windows syncs only what may be written.
    let synced = OpenOptions::new()
        .write(true)
        .open(to)
        .and_then(|file| file.sync_all());
    synced.map(|()| bytes).map_err(|error| at(to, &error))
}

fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(|error| at(to, &error))
}

/// Creates a folder unless it exists.
fn create(folder: &Path) -> Result<(), Error> {
    match ifmatch_runtime::private_files::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(at(folder, &error)),
        _ => Ok(()),
    }
}

/// Makes the names in a folder durable.
fn sync(folder: &Path) -> Result<(), Error> {
    ifmatch_runtime::folders::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| at(folder, &error))
}

/// Returns the error of a command that can't use a file or a folder.
fn at(path: &Path, error: &io::Error) -> Error {
    Error::runtime(format!(
        "can't use {}: {error}. Check its permissions and the free space.",
        path.display()
    ))
}

#[cfg(unix)]
#[cfg(test)]
mod link_tests {
    use super::*;

    #[test]
    fn a_backup_is_outside_of_the_data_folder() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        fs::create_dir(&data).unwrap();
        std::os::unix::fs::symlink(&data, root.path().join("link")).unwrap();
        for within in ["data", "data/snapshot", "data/a/b", "link/snapshot"] {
            assert!(is_within(&root.path().join(within), &data), "{within}");
        }
        for outside in ["", "data2", "backup/data"] {
            assert!(!is_within(&root.path().join(outside), &data), "{outside}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a snapshot with one body, whose name is also its content.
    fn snapshot(folder: &Path, name: &str) {
        fs::create_dir_all(folder.join("bodies/00")).unwrap();
        fs::write(folder.join("bodies/00").join(name), name).unwrap();
        fs::write(folder.join(INDEX), name).unwrap();
    }

    #[test]
    fn a_snapshot_replaced_meanwhile_is_no_backup() {
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("snapshot"), root.path().join("to"));
        let copy = || SnapshotCopy {
            index: File::open(from.join(INDEX)).unwrap(),
            from: from.clone(),
            to: to.clone(),
            progress: Arc::default(),
            _lock: lock(&to).unwrap(),
        };
        let backed_up = || {
            (
                fs::read_to_string(to.join(INDEX)).unwrap(),
                to.join("bodies/00/first").is_file(),
            )
        };
        snapshot(&from, "first");
        assert!(copy().run().unwrap());
        assert_eq!(backed_up(), ("first".to_owned(), true));

        let late = copy();
        fs::rename(&from, root.path().join("snapshot.old")).unwrap();
        snapshot(&from, "second");
        let error = late.run().unwrap_err().to_string();
        assert!(error.contains("replaced"), "{error}");
        assert_eq!(
            backed_up(),
            ("first".to_owned(), true),
            "the earlier backup stays valid"
        );
        drop(late);
        assert!(copy().run().unwrap());
        assert_eq!(backed_up(), ("second".to_owned(), false));
    }
}
