//! A folder for bodies that are too large for the memory: bounded, and emptied when it is opened.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ifmatch_runtime::private_files;

use crate::file::FileBody;

/// What the names of bodies begin with.
const BODY: &str = "ifmatch-body-";
/// The file that says that the folder is in use.
const LOCK: &str = "ifmatch-cache.lock";

/// A folder for bodies that are too large for the memory.
///
/// They are temporary: nothing is synced, and whatever a process leaves behind is removed by the next one that opens the
/// folder. Other files in it are left alone. Each piece of a body is checked when it is read. When the folder is full, the
/// oldest bodies that nobody has asked for lately go.
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

/// The folder, and what is in it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    capacity: u64,
    names: AtomicU64,
    shelf: Mutex<Shelf>,
    /// The system holds it for this process until it is closed.
    _lock: File,
}

#[derive(Debug, Default)]
struct Shelf {
    /// Bytes of bodies, those that are being written too.
    taken: u64,
    /// The oldest first.
    bodies: VecDeque<Weak<FileBody>>,
}

impl Disk {
    /// Takes a folder, makes it if it is missing, and removes what bodies are in it. They may take so many bytes.
    ///
    /// # Errors
    /// The folder cannot be used, or another process uses it.
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
        let shelf = Mutex::default();
        Ok(Self(Arc::new(Folder { path, capacity: bytes, names: AtomicU64::new(0), shelf, _lock: lock })))
    }
}

impl Folder {
    /// The length of the longest body that is kept.
    pub(crate) fn longest(&self) -> u64 {
        self.capacity / 4
    }

    /// A name for a new body.
    pub(crate) fn name(&self) -> PathBuf {
        self.path.join(format!("{BODY}{}", self.names.fetch_add(1, Ordering::Relaxed)))
    }

    /// Takes room, others' if need be. False: there is none.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        // What is looked at must not end under the lock: its end gives room back.
        let mut seen = Vec::new();
        let mut kept = self.lock();
        let mut chances = kept.bodies.len();
        while kept.taken.saturating_add(bytes) > self.capacity {
            let Some(oldest) = kept.bodies.pop_front() else { return false };
            let Some(body) = oldest.upgrade() else { continue };
            if chances > 0 && body.was_used() {
                chances -= 1;
                kept.bodies.push_back(oldest);
            } else {
                kept.taken -= body.retire().unwrap_or_default();
            }
            seen.push(body);
        }
        kept.taken += bytes;
        drop(kept);
        seen.iter().filter(|body| body.is_retired()).for_each(|body| body.unlink());
        true
    }

    /// Gives room back.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.lock().taken -= bytes;
    }

    /// Puts a body among those that go when there is no room.
    pub(crate) fn put(&self, body: &Arc<FileBody>) {
        let mut kept = self.lock();
        if kept.bodies.len() == kept.bodies.capacity() {
            kept.bodies.retain(|body| body.strong_count() > 0);
        }
        kept.bodies.push_back(Arc::downgrade(body));
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
