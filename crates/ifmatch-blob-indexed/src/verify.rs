//! Verification of a data folder: reads all bodies again, and compares them with their hashes.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::available_parallelism;

use futures_util::{StreamExt, stream};
use ifmatch_core::digest::{ContentHash, Hasher};
use ifmatch_core::record::Record;
use ifmatch_redb::{Integrity, RedbRegister};
use ifmatch_register::{Driver, Key, RegisterError};
use ifmatch_runtime::nonce;
use tokio::task::spawn_blocking;

use super::body_files::{Folder, Root, files, is_incoming, is_missing, nonce_of};
use super::disk::System;
use super::error::OpenError;
use super::key;
use super::payload::{Payload, PayloadError, Place};
use ifmatch_blob::records::next_page;

/// Size of the buffer for reading, in bytes.
const BUFFER: usize = 1 << 20;
/// Denominator of sampled shares.
const SHARES: u64 = 1 << 32;

/// The verification of a data folder that no other process has open. It changes no blob.
///
/// ```
/// use ifmatch_blob_indexed::{IndexedStore, Verification};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # drop(IndexedStore::open(folder.path()).await?);
/// let mut verification = Verification::open(folder.path()).await?;
/// assert_eq!(verification.total().bodies, 0);
/// while let Some(findings) = verification.step().await? {
///     assert!(findings.is_empty());
/// }
/// assert!(verification.superfluous().await?.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct Verification {
    driver: Driver,
    folder: Arc<Folder>,
    /// The damage of the index, until it is reported.
    index: Option<Finding>,
    total: Total,
    referenced: Arc<Referenced>,
    read: Arc<Progress>,
    after: Option<Key>,
    /// Share of the bodies to read, of [`SHARES`].
    share: u64,
    seed: u64,
}

/// The number and size of stored bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Number of bodies.
    pub bodies: u64,
    /// Sum of their lengths, in bytes.
    pub bytes: u64,
}

/// The bodies read so far, for a display of progress. Reading stops soon after [`Progress::stop`].
#[derive(Debug, Default)]
pub struct Progress {
    bodies: AtomicU64,
    bytes: AtomicU64,
    stopped: AtomicBool,
}

/// Something wrong with a stored body.
#[derive(Debug)]
pub struct Finding {
    /// `container/blob`, or `None` for a file that belongs to none.
    pub blob: Option<String>,
    /// The file of the body, or `None` for a body in the index.
    pub file: Option<PathBuf>,
    /// The kind of damage.
    pub damage: Damage,
}

/// The kind of a [`Finding`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Damage {
    /// The bytes differ from those that were stored.
    Changed,
    /// The file doesn't exist.
    Missing,
    /// The file can't be read.
    Unreadable(io::Error),
    /// The record in the index is damaged.
    Record,
    /// A part of the index differs from its checksum. Any blob may be changed or hidden.
    Index,
    /// The newest commit in the index is incomplete, and isn't used. Unless the machine lost power, an acknowledged write is
    /// missing.
    RolledBack,
    /// The newest commit in the index is damaged: the last acknowledged write may be missing.
    LostCommit,
    /// No blob refers to the file, which can be removed: the remains of a crash.
    Superfluous,
}

/// The numbers of the bodies to which records refer.
#[derive(Debug, Default)]
struct Referenced {
    bodies: HashSet<u64>,
    /// `true` if a damaged record, or a damaged index, may refer to any file.
    incomplete: bool,
}

/// One body to read.
struct Task {
    blob: String,
    hash: ContentHash,
    length: u64,
    place: Place,
    file: Option<PathBuf>,
}

impl Verification {
    /// Locks a data folder, opens its index, and counts the bodies.
    ///
    /// # Errors
    /// Same as [`IndexedStore::open`](crate::IndexedStore::open); also fails if the folder contains no store.
    pub async fn open(folder: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_index(folder.as_ref().to_owned(), |index| {
            RedbRegister::open_read_only(index)
        })
        .await
    }

    /// Opens a folder as [`Verification::open`] does, even if the newest commit in its index is damaged: continues from the commit
    /// before it, and so does the next start of the store. The last acknowledged write may be lost.
    ///
    /// # Errors
    /// Same as [`Verification::open`].
    pub async fn open_rolled_back(folder: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_index(folder.as_ref().to_owned(), |index| {
            RedbRegister::open_rolled_back(index)
        })
        .await
    }

    async fn open_index(
        path: PathBuf,
        open_register: fn(&Path) -> Result<RedbRegister, ifmatch_redb::OpenError>,
    ) -> Result<Self, OpenError> {
        let open = move || {
            let index = path.join("index.redb");
            if is_missing(&index) {
                return Err(OpenError::no_store(&path));
            }
            let failed = |error| OpenError::folder(&path, error);
            let folder = Folder::create(Root::take(&path).map_err(failed)?, Arc::new(System))
                .map_err(failed)?;
            let failed = |error| OpenError::index(&index, error);
            // Before it is opened, which may replace an index that wasn't closed cleanly by a copy.
            let damage = match RedbRegister::integrity(&index).map_err(failed)? {
                Integrity::Intact => None,
                Integrity::RolledBack => Some(Damage::RolledBack),
                Integrity::LostCommit => Some(Damage::LostCommit),
                Integrity::Damaged => Some(Damage::Index),
            };
            let register = open_register(&index).map_err(failed)?;
            Ok((
                folder,
                register,
                damage.map(|damage| Finding {
                    blob: None,
                    file: Some(index),
                    damage,
                }),
            ))
        };
        let (folder, register, index) = spawn_blocking(open).await.map_err(OpenError::other)??;
        let mut verification = Self {
            driver: Driver::new(register),
            folder: Arc::new(folder),
            index,
            total: Total::default(),
            referenced: Arc::default(),
            read: Arc::default(),
            after: None,
            share: SHARES,
            seed: nonce().map_err(OpenError::other)?,
        };
        verification.count().await?;
        Ok(verification)
    }

    /// Reads only a random share of the bodies, between 0 and 1.
    #[must_use]
    pub fn sample(mut self, share: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "the share is between 0 and 1"
        )]
        let share = (share.clamp(0.0, 1.0) * SHARES as f64) as u64;
        self.share = share;
        self
    }

    /// Continues after a [`Verification::position`] of an earlier run. Ignores a position that is none.
    #[must_use]
    pub fn resume(mut self, position: &str) -> Self {
        self.after = Key::new(position).ok();
        self
    }

    /// Returns the number and size of all bodies in the folder.
    pub fn total(&self) -> Total {
        self.total
    }

    /// Returns the progress, which is updated while bodies are read.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.read)
    }

    /// Returns the position after the last complete step, for [`Verification::resume`].
    pub fn position(&self) -> Option<&str> {
        self.after.as_ref().map(Key::as_str)
    }

    /// Verifies the next bodies, up to a thousand. Returns the damaged ones, or `None` after the last body. Returns a damaged
    /// index first.
    ///
    /// # Errors
    /// Fails if the index can't be read.
    pub async fn step(&mut self) -> Result<Option<Vec<Finding>>, OpenError> {
        if let Some(index) = self.index.take() {
            return Ok(Some(vec![index]));
        }
        let before = self.after.clone();
        let Some(records) = self.page().await? else {
            return Ok(None);
        };
        let (mut findings, mut tasks) = (Vec::new(), Vec::new());
        for (key, record) in &records {
            match self.task(key, record) {
                Ok(task) => tasks.extend(task),
                Err(PayloadError::Damaged) => findings.push(damaged_record(key)),
                Err(error @ PayloadError::Newer(_)) => {
                    return Err(OpenError::record(key.as_str(), error));
                }
            }
        }
        let threads = available_parallelism().map_or(1, NonZero::get);
        let read = |task: Task| {
            let progress = Arc::clone(&self.read);
            spawn_blocking(move || task.verify(&progress))
        };
        let mut reading = stream::iter(tasks).map(read).buffer_unordered(threads);
        while let Some(found) = reading.next().await {
            findings.extend(found.map_err(OpenError::other)?);
        }
        if self.read.is_stopped() {
            // Some bodies were left out.
            self.after = before;
            return Ok(None);
        }
        Ok(Some(findings))
    }

    /// Returns the files to which no blob refers, including incomplete uploads. Returns none if a record or the index is
    /// damaged, since the files may be its own.
    ///
    /// # Errors
    /// Fails if a folder can't be read.
    pub async fn superfluous(&self) -> Result<Vec<Finding>, OpenError> {
        if self.referenced.incomplete {
            return Ok(Vec::new());
        }
        let (folder, referenced) = (Arc::clone(&self.folder), Arc::clone(&self.referenced));
        let list = move || {
            let mut found = files(folder.temporary(), is_incoming)?;
            for shard in folder.shards() {
                let is_unknown = |name: &str| {
                    nonce_of(name).is_some_and(|nonce| !referenced.bodies.contains(&nonce))
                };
                found.extend(files(&shard, is_unknown)?);
            }
            Ok(found)
        };
        let found: io::Result<_> = spawn_blocking(list).await.map_err(OpenError::other)?;
        let found: Vec<_> =
            found.map_err(|error| OpenError::folder(self.folder.temporary(), error))?;
        let finding = |file| Finding {
            blob: None,
            file: Some(file),
            damage: Damage::Superfluous,
        };
        Ok(found.into_iter().map(finding).collect())
    }

    async fn count(&mut self) -> Result<(), OpenError> {
        let mut referenced = Referenced {
            incomplete: self.index.is_some(),
            ..Referenced::default()
        };
        while let Some(records) = self.page().await? {
            for (key, record) in &records {
                match self.payload(record) {
                    Ok(None) => {}
                    Ok(Some(payload)) => {
                        self.total.bodies += 1;
                        self.total.bytes += payload.length;
                        referenced
                            .bodies
                            .extend(payload.file().map(|name| name.nonce));
                    }
                    Err(PayloadError::Damaged) => referenced.incomplete = true,
                    Err(error @ PayloadError::Newer(_)) => {
                        return Err(OpenError::record(key.as_str(), error));
                    }
                }
            }
        }
        self.after = None;
        self.referenced = Arc::new(referenced);
        Ok(())
    }

    async fn page(&mut self) -> Result<Option<Vec<(Key, Record)>>, OpenError> {
        let mut after = self.after.clone();
        let page: Result<_, RegisterError> =
            next_page(self.driver.register(), key::BLOBS, &mut after).await;
        let page = page.map_err(OpenError::register)?;
        if page.is_some() {
            self.after = after;
        }
        Ok(page)
    }

    /// Returns the payload of a blob, or `None` for the record of a deletion.
    fn payload(&self, record: &Record) -> Result<Option<Payload>, PayloadError> {
        let Some(version) = record.state(self.driver.now()).version() else {
            return Ok(None);
        };
        Payload::of(version).map(Some)
    }

    /// Returns the task for a record, or `None` if it has no body or isn't in the sample.
    fn task(&self, key: &Key, record: &Record) -> Result<Option<Task>, PayloadError> {
        let Some(payload) = self.payload(record)? else {
            return Ok(None);
        };
        if self.share < SHARES && random(self.seed, key) >= self.share {
            return Ok(None);
        }
        let file = payload.file().map(|name| self.folder.body(&name));
        let blob = key::path_of(key);
        Ok(Some(Task {
            blob,
            hash: payload.hash,
            length: payload.length,
            place: payload.place,
            file,
        }))
    }
}

impl fmt::Debug for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verification")
            .field("total", &self.total)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl Progress {
    /// Returns the number of bodies read.
    pub fn bodies(&self) -> u64 {
        self.bodies.load(Relaxed)
    }

    /// Returns the number of bytes read.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Counts a body of this length.
    pub(super) fn count(&self, length: u64) {
        self.bodies.fetch_add(1, Relaxed);
        self.bytes.fetch_add(length, Relaxed);
    }

    /// Ends the current step early.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Returns `true` after [`Progress::stop`].
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }
}

impl Damage {
    /// Returns `true` if a blob is affected.
    pub fn is_loss(&self) -> bool {
        !matches!(self, Self::Superfluous | Self::RolledBack)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("the bytes differ from what was stored"),
            Self::Missing => f.write_str("the body is missing"),
            Self::Unreadable(error) => write!(f, "the body can't be read: {error}"),
            Self::Record => f.write_str("the record in the index is damaged"),
            Self::Index => {
                f.write_str("a page fails its checksum, so any blob may be damaged. Restore a backup.")
            }
            Self::LostCommit => {
                f.write_str("the newest commit is damaged, so the last acknowledged write may be missing. Restore a backup.")
            }
            Self::RolledBack => f.write_str(
                "the newest commit is incomplete and isn't used. After a power failure, nothing acknowledged is missing. \
                 Otherwise, restore a backup: the last acknowledged write is gone.",
            ),
            Self::Superfluous => f.write_str("orphaned"),
        }
    }
}

impl Task {
    /// Reads the body. Blocks.
    fn verify(self, progress: &Progress) -> Option<Finding> {
        let read = match (&self.place, &self.file) {
            (Place::Inline(bytes), _) => hash(&bytes[..], self.hash, progress),
            // Appends that have no record, and later versions, lengthen a file.
            (_, Some(file)) => {
                File::open(file).and_then(|file| hash(file.take(self.length), self.hash, progress))
            }
            (_, None) => Err(io::ErrorKind::NotFound.into()),
        };
        let damage = match read {
            _ if progress.is_stopped() => return None,
            Ok(read) if read == (self.hash, self.length) => None,
            Ok(_) => Some(Damage::Changed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Damage::Missing),
            Err(error) => Some(Damage::Unreadable(error)),
        };
        progress.bodies.fetch_add(1, Relaxed);
        damage.map(|damage| Finding {
            blob: Some(self.blob),
            file: self.file,
            damage,
        })
    }
}

/// Returns the hash of all bytes, in the format of `expected`, and their number.
fn hash(
    mut from: impl Read,
    expected: ContentHash,
    progress: &Progress,
) -> io::Result<(ContentHash, u64)> {
    let mut hasher = Hasher::new(expected.format());
    let mut buffer = vec![0; BUFFER];
    let mut length = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok((hasher.finish(), length)),
            Ok(_) if progress.is_stopped() => return Ok((hasher.finish(), length)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..count]);
        length += count as u64;
        progress.bytes.fetch_add(count as u64, Relaxed);
    }
}

fn damaged_record(key: &Key) -> Finding {
    Finding {
        blob: Some(key::path_of(key)),
        file: None,
        damage: Damage::Record,
    }
}

/// Returns a number below [`SHARES`] that depends on the seed and the key.
fn random(seed: u64, key: &Key) -> u64 {
    let hash = ContentHash::of(&[&seed.to_be_bytes()[..], key.as_str().as_bytes()].concat());
    hash.as_bytes()
        .iter()
        .take(4)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
