//! A bounded folder for bodies that are too large for the memory, emptied when it is opened.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ifmatch_runtime::private_files;

use crate::body::on_disk::DiskBody;

/// Prefix of the names of bodies.
const BODY: &str = "ifmatch-body-";
/// File that is locked while the folder is in use.
const LOCK: &str = "ifmatch-cache.lock";

/// A folder for bodies that are too large for the memory.
///
/// The files are temporary: they are not synced, and the next process that opens the folder removes them. Other files are
/// left alone. Each piece of a body is verified when it is read. When the folder is full, the oldest bodies that were not
/// requested recently are evicted.
///
/// ```
/// use ifmatch_cache::{CacheLayer, Disk};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path();
/// let layer = CacheLayer::builder().disk(Disk::open(path, 20 << 30)?).build();
/// assert!(Disk::open(path, 20 << 30).is_err(), "it is in use");
/// # drop(layer);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Disk(pub(crate) Arc<Folder>);

/// The folder and its contents.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    capacity: u64,
    names: AtomicU64,
    contents: Mutex<Contents>,
    /// Holds the lock until it is closed.
    _lock: File,
}

#[derive(Debug, Default)]
struct Contents {
    /// Bytes of bodies, including those being written.
    taken: u64,
    /// Oldest first.
    bodies: VecDeque<Weak<DiskBody>>,
}

impl Disk {
    /// Opens a folder, creating it if necessary, and removes old bodies. New ones may take up to `bytes`.
    ///
    /// # Errors
    /// Fails if the folder cannot be used, or if another process uses it.
    pub fn open(path: impl Into<PathBuf>, bytes: u64) -> io::Result<Self> {
        let path = path.into();
        fs::create_dir_all(&path)?;
        let lock = private_files::create(&path.join(LOCK))?;
        lock.try_lock()?;
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(BODY) {
                fs::remove_file(entry.path())?;
            }
        }
        let contents = Mutex::default();
        Ok(Self(Arc::new(Folder { path, capacity: bytes, names: AtomicU64::new(0), contents, _lock: lock })))
    }
}

impl Folder {
    /// Returns the maximum length of a body.
    pub(crate) fn longest(&self) -> u64 {
        self.capacity / 4
    }

    /// Returns the path for a new body.
    pub(crate) fn name(&self) -> PathBuf {
        self.path.join(format!("{BODY}{}", self.names.fetch_add(1, Ordering::Relaxed)))
    }

    /// Allocates space, evicting other bodies if necessary. Returns `false` if there is not enough.
    pub(crate) fn allocate(&self, bytes: u64) -> bool {
        // Kept until the lock is released: dropping a body takes the lock to free its space.
        let mut seen = Vec::new();
        let mut contents = self.lock();
        let mut chances = contents.bodies.len();
        while contents.taken.saturating_add(bytes) > self.capacity {
            let Some(oldest) = contents.bodies.pop_front() else { return false };
            let Some(body) = oldest.upgrade() else { continue };
            if chances > 0 && body.was_used() {
                chances -= 1;
                contents.bodies.push_back(oldest);
            } else {
                contents.taken -= body.retire().unwrap_or_default();
            }
            seen.push(body);
        }
        contents.taken += bytes;
        drop(contents);
        seen.iter().filter(|body| body.is_retired()).for_each(|body| body.unlink());
        true
    }

    /// Frees space.
    pub(crate) fn free(&self, bytes: u64) {
        self.lock().taken -= bytes;
    }

    /// Adds a complete body, which may be evicted.
    pub(crate) fn add(&self, body: &Arc<DiskBody>) {
        let mut contents = self.lock();
        if contents.bodies.len() == contents.bodies.capacity() {
            contents.bodies.retain(|body| body.strong_count() > 0);
        }
        contents.bodies.push_back(Arc::downgrade(body));
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
