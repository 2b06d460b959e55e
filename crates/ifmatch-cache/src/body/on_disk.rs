//! Bodies on disk: a bounded folder for bodies that are too large for the memory. They can be read while they are written,
//! and are verified when they are read.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use ifmatch_runtime::private_files;
use tokio::task::spawn_blocking;

use crate::body::read_at::read_exact_at;

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

    /// Reserves space for a body of this length. Returns `None` if there is not enough.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Space> {
        let fits = bytes <= self.longest() && self.allocate(bytes);
        fits.then(|| Space { folder: Arc::clone(self), left: bytes })
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
        lock(&self.contents)
    }
}

/// Space reserved for a body. Released on drop.
#[derive(Debug)]
pub(crate) struct Space {
    folder: Arc<Folder>,
    left: u64,
}

impl Space {
    /// Takes bytes from the reserved space, or else from the rest. Returns `false` if there are not enough.
    fn take(&mut self, bytes: u64) -> bool {
        let missing = bytes.saturating_sub(self.left);
        let taken = missing == 0 || self.folder.allocate(missing);
        self.left -= if taken { bytes - missing } else { 0 };
        taken
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.folder.free(self.left);
    }
}

/// Size of the pieces in which a body is written, verified and read.
pub(crate) const PIECE: usize = 64 * 1024;

/// A body in a file, which is deleted with it. An incomplete body has the pieces written so far.
#[derive(Debug)]
pub(crate) struct DiskBody {
    folder: Arc<Folder>,
    path: PathBuf,
    written: Mutex<Written>,
    /// The open file, while it has readers. It stays readable after it was deleted.
    open: Mutex<Weak<File>>,
    used: AtomicBool,
    gone: AtomicBool,
}

#[derive(Debug, Default)]
struct Written {
    len: u64,
    /// Checksum of each piece. Only the last piece of a complete body may be short.
    sums: Vec<u32>,
    trailers: Option<HeaderMap>,
}

impl DiskBody {
    /// Returns the number of bytes written so far.
    pub(crate) fn len(&self) -> u64 {
        lock(&self.written).len
    }

    pub(crate) fn trailers(&self) -> Option<HeaderMap> {
        lock(&self.written).trailers.clone()
    }

    /// Returns `true` unless the file is known to be gone. Does not access the file system.
    pub(crate) fn is_there(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
    }

    /// Returns `true` if the file still exists. If another process has deleted it, the body is not used again.
    pub(crate) fn exists(&self) -> bool {
        if self.is_there() && !self.path.exists() {
            self.folder.free(self.remove());
        }
        self.is_there()
    }

    /// Returns the size in memory.
    pub(crate) fn size(&self) -> u64 {
        let sums = size_of_val(&*lock(&self.written).sums);
        (size_of::<Self>() + sums + self.path.as_os_str().len()) as u64
    }

    /// Opens the file for a request. Returns `None` if it is gone.
    pub(crate) fn open(&self) -> Option<Arc<File>> {
        self.used.store(true, Ordering::Relaxed);
        self.handle()
    }

    /// Returns the file handle shared by all readers. Returns `None` if the file is gone.
    fn handle(&self) -> Option<Arc<File>> {
        let mut open = lock(&self.open);
        if let Some(file) = open.upgrade() {
            return Some(file);
        }
        let file = File::open(&self.path).ok().map(Arc::new);
        match &file {
            Some(file) => *open = Arc::downgrade(file),
            None => self.folder.free(self.remove()),
        }
        file
    }

    /// Returns `true` if the body was requested since the last call.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Deletes the file, and returns the number of bytes freed. Current readers are not affected.
    pub(crate) fn remove(&self) -> u64 {
        let freed = self.retire();
        if freed.is_some() {
            self.unlink();
        }
        freed.unwrap_or_default()
    }

    /// Marks the file as gone, and returns the number of bytes freed. The caller must then [unlink](Self::unlink) it.
    /// Returns `None` if it was gone already.
    pub(crate) fn retire(&self) -> Option<u64> {
        let written = lock(&self.written);
        (!self.gone.swap(true, Ordering::AcqRel)).then_some(written.len)
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Deletes the file. If that fails, the next start does.
    pub(crate) fn unlink(&self) {
        drop(fs::remove_file(&self.path));
    }

    /// Reads and verifies a piece. If that fails, the body is not used again.
    pub(crate) fn read(&self, file: &File, piece: usize) -> io::Result<Bytes> {
        let read = self.try_read(file, piece);
        if read.is_err() {
            self.folder.free(self.remove());
        }
        read
    }

    fn try_read(&self, file: &File, piece: usize) -> io::Result<Bytes> {
        let start = piece as u64 * PIECE as u64;
        let (len, sum) = {
            let written = lock(&self.written);
            (written.len, written.sums.get(piece).copied())
        };
        let left = usize::try_from(len.saturating_sub(start)).unwrap_or(PIECE);
        let mut bytes = vec![0; left.min(PIECE)];
        read_exact_at(file, &mut bytes, start)?;
        if sum != Some(crc32fast::hash(&bytes)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the cached file was modified"));
        }
        Ok(bytes.into())
    }

    /// Records a written piece. Returns `false` if the file is gone.
    fn record(&self, len: u64, sum: u32) -> bool {
        let mut written = lock(&self.written);
        let is_there = self.is_there();
        if is_there {
            written.len += len;
            written.sums.push(sum);
        }
        is_there
    }
}

impl Drop for DiskBody {
    fn drop(&mut self) {
        self.folder.free(self.remove());
    }
}

/// Writes a body to a file. Dropping it before the end deletes the file.
pub(crate) struct DiskWriter {
    /// `None` once the body is complete.
    body: Option<Arc<DiskBody>>,
    space: Space,
    file: Option<File>,
    pending: BytesMut,
}

impl DiskWriter {
    /// Creates a file in the reserved space, if any, with the bytes received so far. Also returns the body and the file handle for readers.
    pub(crate) async fn begin(
        folder: &Arc<Folder>,
        space: Option<Space>,
        so_far: impl IntoIterator<Item = Bytes>,
    ) -> io::Result<(Self, Arc<DiskBody>, Arc<File>)> {
        let path = folder.name();
        let body = Arc::new(DiskBody {
            folder: Arc::clone(folder),
            path: path.clone(),
            written: Mutex::default(),
            open: Mutex::default(),
            used: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        });
        // Created first, so that the file is deleted if anything fails.
        let space = space.unwrap_or_else(|| Space { folder: Arc::clone(folder), left: 0 });
        let mut writer = Self { body: Some(Arc::clone(&body)), space, file: None, pending: BytesMut::new() };
        writer.file = Some(spawn_blocking(move || private_files::create(&path)).await??);
        let open = body.handle().ok_or(io::ErrorKind::NotFound)?;
        for chunk in so_far {
            writer.write(&chunk).await?;
        }
        Ok((writer, body, open))
    }

    /// Appends bytes.
    pub(crate) async fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(chunk);
        while self.pending.len() >= PIECE {
            let piece = self.pending.split_to(PIECE).freeze();
            self.flush(piece).await?;
        }
        Ok(())
    }

    /// Completes the body.
    pub(crate) async fn finish(mut self, trailers: Option<HeaderMap>) -> io::Result<Arc<DiskBody>> {
        if !self.pending.is_empty() {
            let rest = self.pending.split().freeze();
            self.flush(rest).await?;
        }
        let body = self.body.take().ok_or(io::ErrorKind::NotFound)?;
        lock(&body.written).trailers = trailers;
        body.folder.add(&body);
        Ok(body)
    }

    async fn flush(&mut self, piece: Bytes) -> io::Result<()> {
        let (Some(body), Some(mut file)) = (&self.body, self.file.take()) else {
            return Err(io::Error::other("an earlier write failed"));
        };
        let len = piece.len() as u64;
        let within = body.len() + len <= body.folder.longest();
        if !within || !self.space.take(len) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let write = move || file.write_all(&piece).map(|()| (file, crc32fast::hash(&piece)));
        let written = spawn_blocking(write).await?;
        if !written.as_ref().is_ok_and(|(_, sum)| body.record(len, *sum)) {
            body.folder.free(len);
            return Err(written.err().unwrap_or_else(|| io::Error::other("the file was deleted")));
        }
        self.file = written.ok().map(|(file, _)| file);
        Ok(())
    }
}

impl Drop for DiskWriter {
    fn drop(&mut self) {
        if let Some(body) = &self.body {
            body.folder.free(body.remove());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
