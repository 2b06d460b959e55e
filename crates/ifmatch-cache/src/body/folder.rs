//! The folder of the bodies on disk: its space, its index, and its start.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

use ifmatch_runtime::private_files;
use redb::Error;

use crate::body::disk_index::{DiskIndex, FileId, IndexTransaction};
use crate::body::free_space;
use crate::body::threads::WorkerThreads;

/// Prefix of the names of bodies.
const BODY: &str = "ifmatch-body-";
/// File that is locked while the folder is in use.
const LOCK: &str = "ifmatch-cache.lock";
/// The index.
const INDEX: &str = "ifmatch-cache.redb";

/// Maximum number of bodies that are spared in one eviction because they were requested.
const CHANCES: usize = 64;
/// Maximum number of requested bodies that are remembered.
const REMEMBERED: usize = 100_000;

/// A folder for bodies that are too large for the memory, or were evicted from it.
///
/// It outlives the process. Responses of earlier processes are verified by their hash, and validated with the origin, before
/// they are used. Files that aren't in the index are removed in the background; files of other programs are left alone.
/// When the folder is full, or the file system has less than 16 MiB left (or a sixteenth, if that is less), the oldest bodies
/// that weren't requested recently are evicted.
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
pub struct Disk(pub(crate) Arc<CacheFolder>);

/// Locks the folder for this process.
fn lock_folder(path: &Path) -> io::Result<File> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let lock = private_files::create(path).map_err(named)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => {
            let message =
                "another process uses it: stop that one, or give each process a folder of its own";
            Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
        }
        Err(fs::TryLockError::Error(error)) => Err(named(error)),
    }
}

/// The folder and its contents.
#[derive(Debug)]
pub(crate) struct CacheFolder {
    path: PathBuf,
    /// Maximum number of bytes of bodies.
    capacity: u64,
    /// Number of the next body of this process.
    names: AtomicU64,
    contents: Mutex<FolderContents>,
    /// Held by the thread that changes the index.
    changing: Mutex<()>,
    /// Rows of files that aren't used any more, with these files.
    forgotten: Mutex<Vec<(Box<str>, FileId)>>,
    pub(crate) index: Arc<DiskIndex>,
    cleaner: LeftoverCleaner,
    pub(crate) threads: WorkerThreads,
    /// Returns the number of bytes that are missing on the disk before so many can be written.
    missing: fn(&Path, u64) -> u64,
    /// `true` once a problem with the file system was logged.
    warned: AtomicBool,
    /// Holds the lock until it is closed, as the last field.
    _lock: File,
}

/// The space that bodies take, and those that were requested.
#[derive(Debug, Default)]
struct FolderContents {
    /// Bytes of bodies, including those being written.
    taken: u64,
    /// Bytes among them that are reserved but not written yet.
    unwritten: u64,
    /// Files requested since they were last spared.
    used: HashSet<FileId>,
}

impl Disk {
    /// Opens a folder, creating it if necessary. Bodies may take up to `bytes`.
    ///
    /// # Errors
    /// Fails if the folder can't be used, or if another process uses it.
    pub fn open(path: impl Into<PathBuf>, bytes: u64) -> io::Result<Self> {
        let path = path.into();
        fs::create_dir_all(&path)?;
        let lock = lock_folder(&path.join(LOCK))?;
        let index = Arc::new(DiskIndex::open(&path.join(INDEX)).map_err(io::Error::other)?);
        if index.run == 1 {
            remove_bodies(&path)?;
        }
        let contents = Mutex::new(FolderContents {
            taken: index.bytes(),
            ..FolderContents::default()
        });
        let cleaner = LeftoverCleaner::start(&path, &index)?;
        Ok(Self(Arc::new(CacheFolder {
            path,
            capacity: bytes,
            names: AtomicU64::new(0),
            contents,
            changing: Mutex::default(),
            forgotten: Mutex::default(),
            index,
            cleaner,
            threads: WorkerThreads::start()?,
            missing: free_space::missing,
            warned: AtomicBool::new(false),
            _lock: lock,
        })))
    }
}

impl CacheFolder {
    /// Returns a body's maximum length.
    pub(crate) fn longest(&self) -> u64 {
        self.capacity / 4
    }

    /// Returns the name of a new body. No process used it before.
    pub(crate) fn new_file(&self) -> FileId {
        FileId {
            run: self.index.run,
            number: self.names.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Returns a body's path.
    pub(crate) fn path(&self, file: FileId) -> PathBuf {
        self.path
            .join(format!("{BODY}{}-{}", file.run, file.number))
    }

    /// Allocates space, evicting other bodies if necessary. Returns `false` if there isn't enough.
    fn allocate(&self, bytes: u64) -> bool {
        let mut has_evicted_for_disk = false;
        loop {
            let mut contents = self.lock();
            let wanted = contents.taken.saturating_add(bytes);
            let missing = (self.missing)(&self.path, contents.unwritten.saturating_add(bytes));
            let excess = wanted.saturating_sub(self.capacity).max(missing);
            if excess == 0 {
                contents.taken = wanted;
                return true;
            }
            drop(contents);
            if missing > 0 {
                self.warn(&"the disk is nearly full: the cache evicts files before it has reached its own limit");
                // An evicted file that is being read takes its space until then. Others aren't evicted in its place.
                if mem::replace(&mut has_evicted_for_disk, true) {
                    return false;
                }
            }
            if bytes > self.capacity || !self.evict(excess) {
                return false;
            }
        }
    }

    /// Handles a failure to write `bytes` of a body: makes room for the next one if that helps.
    pub(crate) fn note_failure(&self, error: &io::Error, bytes: u64) {
        self.warn(error);
        // A quota doesn't show in the free space.
        if matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        ) {
            self.evict(bytes);
        }
    }

    fn warn(&self, problem: &dyn fmt::Display) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(folder = %self.path.display(), "cannot store all bodies in the cache folder: {problem}");
        }
    }

    /// Evicts the oldest bodies to free this number of bytes. Returns `false` if none is left.
    fn evict(&self, bytes: u64) -> bool {
        let mut chances = CHANCES;
        let evict = |change: &mut IndexTransaction<'_>| {
            let mut freed = 0;
            while freed < bytes {
                let Some((key, row)) = change.first()? else {
                    break;
                };
                if chances > 0 && self.lock().used.remove(&row.file) {
                    chances -= 1;
                    change.put(&key, row)?;
                } else {
                    freed += row.len.max(1);
                    change.remove(&key)?;
                }
            }
            Ok(())
        };
        self.change(false, evict) > 0
    }

    /// Changes the index, and deletes the files that no row names any more. Returns their number.
    pub(crate) fn change(
        &self,
        durable: bool,
        change: impl FnOnce(&mut IndexTransaction<'_>) -> Result<(), Error>,
    ) -> usize {
        self.try_change(durable, change).unwrap_or_default()
    }

    /// Changes the index as [`change`](Self::change) does. Returns `None` if the index is broken.
    pub(crate) fn try_change(
        &self,
        durable: bool,
        change: impl FnOnce(&mut IndexTransaction<'_>) -> Result<(), Error>,
    ) -> Option<usize> {
        let changing = lock(&self.changing);
        let gone = self.index.change(durable, change);
        drop(changing);
        let gone = gone.map(|gone| self.delete(&gone));
        self.remove_forgotten();
        gone
    }

    fn delete(&self, gone: &[(FileId, u64)]) -> usize {
        for (file, len) in gone {
            // If that fails, the next start deletes it.
            drop(fs::remove_file(self.path(*file)));
            self.free(*len);
        }
        gone.len()
    }

    /// Removes a row that names this file. If the index is being changed, the thread that does so removes the row
    /// afterwards: it may wait for a lock of the caller, or be the caller.
    pub(crate) fn forget(&self, key: &str, file: FileId) {
        lock(&self.forgotten).push((key.into(), file));
        self.remove_forgotten();
    }

    fn remove_forgotten(&self) {
        while !lock(&self.forgotten).is_empty() {
            let _changing = match self.changing.try_lock() {
                Ok(changing) => changing,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let forgotten = mem::take(&mut *lock(&self.forgotten));
            let gone = self.index.change(false, |change| {
                for (key, file) in &forgotten {
                    if change.get(key)?.is_some_and(|row| row.file == *file) {
                        change.remove(key)?;
                    }
                }
                Ok(())
            });
            self.delete(&gone.unwrap_or_default());
        }
    }

    /// Spares a body at its next eviction.
    pub(crate) fn note_use(&self, file: FileId) {
        let mut contents = self.lock();
        if contents.used.len() >= REMEMBERED {
            contents.used.clear();
        }
        contents.used.insert(file);
    }

    /// Reserves space for a body of this length. Returns `None` if there isn't enough.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<ReservedSpace> {
        let fits = bytes <= self.longest() && self.allocate(bytes);
        fits.then(|| {
            self.lock().unwritten += bytes;
            ReservedSpace {
                folder: Arc::clone(self),
                left: bytes,
            }
        })
    }

    /// Frees space.
    pub(crate) fn free(&self, bytes: u64) {
        let mut contents = self.lock();
        contents.taken = contents.taken.saturating_sub(bytes);
    }

    /// Returns the number of bytes of bodies, including those being written.
    pub(crate) fn taken(&self) -> u64 {
        self.lock().taken
    }

    fn lock(&self) -> MutexGuard<'_, FolderContents> {
        lock(&self.contents)
    }
}

/// Locks a mutex, whether or not a thread has panicked with it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for CacheFolder {
    fn drop(&mut self) {
        self.cleaner.stop();
        self.index.sync();
    }
}

/// Space reserved for a body. Released on drop.
#[derive(Debug)]
pub(crate) struct ReservedSpace {
    folder: Arc<CacheFolder>,
    left: u64,
}

impl ReservedSpace {
    /// Reserves nothing yet.
    pub(crate) fn none(folder: &Arc<CacheFolder>) -> Self {
        Self {
            folder: Arc::clone(folder),
            left: 0,
        }
    }

    /// Takes bytes from the reserved space, or else from the rest. Returns `false` if there aren't enough.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let missing = bytes.saturating_sub(self.left);
        let taken = missing == 0 || self.folder.allocate(missing);
        let used = if taken { bytes - missing } else { 0 };
        self.left -= used;
        self.folder.lock().unwritten -= used;
        taken
    }
}

impl Drop for ReservedSpace {
    fn drop(&mut self) {
        self.folder.lock().unwritten -= self.left;
        self.folder.free(self.left);
    }
}

/// Deletes the files that earlier processes left without a row.
#[derive(Debug)]
struct LeftoverCleaner {
    stops: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl LeftoverCleaner {
    fn start(path: &Path, index: &Arc<DiskIndex>) -> io::Result<Self> {
        let stops = Arc::<AtomicBool>::default();
        let (path, index, stopped) = (path.to_owned(), Arc::clone(index), Arc::clone(&stops));
        // After an error, the next start deletes what is left.
        let clean = move || drop(clean(&path, &index, &stopped));
        let thread = thread::Builder::new()
            .name("cache-cleaner".to_owned())
            .spawn(clean)?;
        Ok(Self {
            stops,
            thread: Mutex::new(Some(thread)),
        })
    }

    fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        let thread = lock(&self.thread).take();
        drop(thread.map(JoinHandle::join));
    }
}

/// Deletes all bodies, which a new index doesn't know.
fn remove_bodies(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(BODY) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Deletes files of earlier processes. New rows name them only if they were in the index before.
fn clean(path: &Path, index: &DiskIndex, stopped: &AtomicBool) -> io::Result<()> {
    let Some(files) = index.files() else {
        return Ok(());
    };
    let known: HashSet<FileId> = files.into_iter().collect();
    for entry in fs::read_dir(path)? {
        if stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let Some(numbers) = name.strip_prefix(BODY) else {
            continue;
        };
        let file = numbers.split_once('-').and_then(|(run, number)| {
            Some(FileId {
                run: run.parse().ok()?,
                number: number.parse().ok()?,
            })
        });
        if file.is_none_or(|file| file.run < index.run && !known.contains(&file)) {
            fs::remove_file(path.join(&*name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::disk_index::DiskRow;

    /// A disk of 1,000 bytes.
    fn missing_of_small_disk(path: &Path, bytes: u64) -> u64 {
        let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
        let bodies = files.filter(|file| {
            !file
                .file_name()
                .to_string_lossy()
                .starts_with("ifmatch-cache.")
        });
        let used: u64 = bodies.map(|file| file.metadata().unwrap().len()).sum();
        (used + bytes).saturating_sub(1_000)
    }

    fn small(path: &Path) -> CacheFolder {
        let mut folder = Arc::into_inner(Disk::open(path, 1 << 30).unwrap().0).unwrap();
        folder.missing = missing_of_small_disk;
        folder
    }

    fn put(folder: &CacheFolder, key: &str) -> bool {
        let file = folder.new_file();
        if !folder.allocate(100) {
            return false;
        }
        fs::write(folder.path(file), [0; 100]).unwrap();
        let row = DiskRow {
            at: 0,
            run: 1,
            began: 0,
            file,
            len: 100,
            groups: Vec::new(),
            head: Vec::new(),
        };
        folder.change(false, |change| change.put(key, row));
        true
    }

    #[test]
    fn on_a_full_disk_new_bodies_replace_old_ones() {
        let path = tempfile::tempdir().unwrap();
        let folder = small(path.path());
        for number in 0..30 {
            assert!(put(&folder, &format!("{number}")), "{number}");
        }
        let kept: Vec<bool> = (0..30)
            .map(|number| folder.index.row(&format!("{number}")).is_some())
            .collect();
        assert_eq!(kept, (0..30).map(|number| number >= 20).collect::<Vec<_>>());
        assert_eq!(folder.taken(), 1_000);
    }

    /// Another program fills the disk. The cache gives up the space that it needs, not all that it has.
    #[test]
    fn a_body_evicts_no_more_than_it_needs_if_that_does_not_help() {
        let path = tempfile::tempdir().unwrap();
        let mut folder = small(path.path());
        assert!((0..10).all(|number| put(&folder, &format!("{number}"))));
        fs::write(path.path().join("foreign"), [0; 300]).unwrap();
        folder.missing = |path, bytes| missing_of_small_disk(path, bytes).max(1);
        assert!(!put(&folder, "more"));
        assert!(folder.taken() >= 500, "{}", folder.taken());
    }

    #[test]
    fn reserved_space_counts_until_it_is_written_or_given_back() {
        let path = tempfile::tempdir().unwrap();
        let folder = Arc::new(small(path.path()));
        let reserved = folder.reserve(900).unwrap();
        assert!(folder.reserve(200).is_none());
        drop(reserved);
        assert!(folder.reserve(900).is_some());
    }
}
