//! Bodies in files: read while they are written, and checked when they are read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use ifmatch_runtime::private_files;

use crate::block::{Blocking, block};
use crate::disk::Folder;
use crate::read_at::read_exact_at;

/// What is written, checked and read at once.
pub(crate) const PIECE: usize = 64 * 1024;

/// A body in a file, which goes with it. Until it is complete, it has the pieces that were written.
#[derive(Debug)]
pub(crate) struct FileBody {
    folder: Arc<Folder>,
    path: PathBuf,
    written: Mutex<Written>,
    /// The open file while it is read: it stays readable when it is no longer in the folder.
    open: Mutex<Weak<File>>,
    used: AtomicBool,
    gone: AtomicBool,
}

#[derive(Debug, Default)]
struct Written {
    len: u64,
    /// The checksum of each piece. All are full, but the last of a complete body.
    sums: Vec<u32>,
    trailers: Option<HeaderMap>,
}

impl FileBody {
    /// Returns the number of bytes that were written. It is final once the body is complete.
    pub(crate) fn len(&self) -> u64 {
        lock(&self.written).len
    }

    pub(crate) fn trailers(&self) -> Option<HeaderMap> {
        lock(&self.written).trailers.clone()
    }

    /// Whether the file is still there, as far as is known without asking the system.
    pub(crate) fn is_there(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
    }

    /// Whether the file is still there. One that somebody else has removed is not used again.
    pub(crate) fn exists(&self) -> bool {
        if self.is_there() && !self.path.exists() {
            self.folder.give_back(self.remove());
        }
        self.is_there()
    }

    /// The bytes of memory that it takes.
    pub(crate) fn size(&self) -> u64 {
        let sums = size_of_val(&*lock(&self.written).sums);
        (size_of::<Self>() + sums + self.path.as_os_str().len()) as u64
    }

    /// The file, to be read. None: it is gone.
    pub(crate) fn open(&self) -> Option<Arc<File>> {
        self.used.store(true, Ordering::Relaxed);
        self.shared()
    }

    /// Returns the file, shared by all its readers. None: it is gone.
    fn shared(&self) -> Option<Arc<File>> {
        let mut open = lock(&self.open);
        if let Some(file) = open.upgrade() {
            return Some(file);
        }
        let file = File::open(&self.path).ok().map(Arc::new);
        match &file {
            Some(file) => *open = Arc::downgrade(file),
            None => self.folder.give_back(self.remove()),
        }
        file
    }

    /// Whether somebody has asked for it since this was asked last.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Removes the file, and says how many bytes that makes room for. Who reads it may go on.
    pub(crate) fn remove(&self) -> u64 {
        let freed = self.retire();
        if freed.is_some() {
            self.unlink();
        }
        freed.unwrap_or_default()
    }

    /// Takes the file out of use, and says how many bytes that makes room for. It is still to be [unlinked](Self::unlink).
    /// None: it was out of use.
    pub(crate) fn retire(&self) -> Option<u64> {
        let written = lock(&self.written);
        (!self.gone.swap(true, Ordering::AcqRel)).then_some(written.len)
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Removes the file from the folder. One that is not there any more, or stays, is removed at the next start.
    pub(crate) fn unlink(&self) {
        drop(fs::remove_file(&self.path));
    }

    /// Reads a piece, and checks it. What was changed on the disk is not used again.
    pub(crate) fn read(&self, file: &File, piece: usize) -> io::Result<Bytes> {
        let read = self.try_read(file, piece);
        if read.is_err() {
            self.folder.give_back(self.remove());
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
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file was changed"));
        }
        Ok(bytes.into())
    }

    /// Notes a piece that was written. False: the file is out of use.
    fn note(&self, len: u64, sum: u32) -> bool {
        let mut written = lock(&self.written);
        let is_there = self.is_there();
        if is_there {
            written.len += len;
            written.sums.push(sum);
        }
        is_there
    }
}

impl Drop for FileBody {
    fn drop(&mut self) {
        self.folder.give_back(self.remove());
    }
}

/// The writer of a body in a file. Dropped before its end, it takes the file out of use.
pub(crate) struct Spool {
    /// None: it is complete.
    body: Option<Arc<FileBody>>,
    file: Option<File>,
    pending: BytesMut,
}

impl Spool {
    /// Begins a file with the bytes that have come. Returns the file for its readers as well.
    pub(crate) async fn begin(
        folder: &Arc<Folder>,
        so_far: impl IntoIterator<Item = Bytes>,
    ) -> io::Result<(Self, Arc<FileBody>, Arc<File>)> {
        let path = folder.name();
        let body = Arc::new(FileBody {
            folder: Arc::clone(folder),
            path: path.clone(),
            written: Mutex::default(),
            open: Mutex::default(),
            used: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        });
        // Before anything can fail: then the file goes with it.
        let mut spool = Self { body: Some(Arc::clone(&body)), file: None, pending: BytesMut::new() };
        spool.file = Some(done(block(move || private_files::create(&path))).await?);
        let open = body.shared().ok_or(io::ErrorKind::NotFound)?;
        for chunk in so_far {
            spool.write(&chunk).await?;
        }
        Ok((spool, body, open))
    }

    /// Adds bytes.
    pub(crate) async fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(chunk);
        while self.pending.len() >= PIECE {
            let piece = self.pending.split_to(PIECE).freeze();
            self.flush(piece).await?;
        }
        Ok(())
    }

    /// The body, which is complete.
    pub(crate) async fn finish(mut self, trailers: Option<HeaderMap>) -> io::Result<Arc<FileBody>> {
        if !self.pending.is_empty() {
            let rest = self.pending.split().freeze();
            self.flush(rest).await?;
        }
        let body = self.body.take().ok_or(io::ErrorKind::NotFound)?;
        lock(&body.written).trailers = trailers;
        body.folder.put(&body);
        Ok(body)
    }

    async fn flush(&mut self, piece: Bytes) -> io::Result<()> {
        let (Some(body), Some(mut file)) = (&self.body, self.file.take()) else {
            return Err(io::Error::other("an earlier piece was not written"));
        };
        let len = piece.len() as u64;
        let within = body.len() + len <= body.folder.longest();
        if !within || !body.folder.take(len) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let write = move || file.write_all(&piece).map(|()| (file, crc32fast::hash(&piece)));
        let written = done(block(write)).await;
        if !written.as_ref().is_ok_and(|(_, sum)| body.note(len, *sum)) {
            body.folder.give_back(len);
            return Err(written.err().unwrap_or_else(|| io::Error::other("the file is out of use")));
        }
        self.file = written.ok().map(|(file, _)| file);
        Ok(())
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Some(body) = &self.body {
            body.folder.give_back(body.remove());
        }
    }
}

async fn done<T: Send + 'static>(work: Blocking<io::Result<T>>) -> io::Result<T> {
    work.await.unwrap_or_else(|| Err(io::Error::other("stopped")))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
