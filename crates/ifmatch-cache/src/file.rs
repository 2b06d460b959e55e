//! Bodies in files: written while they come, and checked when they are read.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use crate::block::{Blocking, block};
use crate::disk::Folder;
use crate::private;

/// What is written, checked and read at once.
pub(crate) const PIECE: usize = 64 * 1024;

/// A complete body in a file, which goes with it.
#[derive(Debug)]
pub(crate) struct FileBody {
    folder: Arc<Folder>,
    path: PathBuf,
    pub(crate) len: u64,
    /// The checksum of each piece.
    sums: Box<[u32]>,
    pub(crate) trailers: Option<HeaderMap>,
    used: AtomicBool,
    gone: AtomicBool,
}

impl FileBody {
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
        (size_of::<Self>() + size_of_val(&*self.sums) + self.path.as_os_str().len()) as u64
    }

    /// The file, to be read. None: it is gone.
    pub(crate) fn open(&self) -> Option<File> {
        self.used.store(true, Ordering::Relaxed);
        let file = File::open(&self.path).ok();
        if file.is_none() {
            self.folder.give_back(self.remove());
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
        if freed > 0 {
            self.unlink();
        }
        freed
    }

    /// Takes the file out of use, and says how many bytes that makes room for. It is still to be [unlinked](Self::unlink).
    pub(crate) fn retire(&self) -> u64 {
        if self.gone.swap(true, Ordering::AcqRel) { 0 } else { self.len }
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Removes the file from the folder. One that is not there any more, or stays, is removed at the next start.
    pub(crate) fn unlink(&self) {
        drop(fs::remove_file(&self.path));
    }

    /// Reads a piece, and checks it. What was changed on the disk is not used again.
    pub(crate) fn read(&self, file: File, piece: usize) -> io::Result<(File, Bytes)> {
        let read = self.try_read(file, piece);
        if read.is_err() {
            self.folder.give_back(self.remove());
        }
        read
    }

    fn try_read(&self, mut file: File, piece: usize) -> io::Result<(File, Bytes)> {
        let start = piece as u64 * PIECE as u64;
        let left = usize::try_from(self.len.saturating_sub(start)).unwrap_or(PIECE);
        let mut bytes = vec![0; left.min(PIECE)];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut bytes)?;
        if self.sums.get(piece) != Some(&crc32fast::hash(&bytes)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file was changed"));
        }
        Ok((file, bytes.into()))
    }
}

impl Drop for FileBody {
    fn drop(&mut self) {
        let freed = self.remove();
        if freed > 0 {
            self.folder.give_back(freed);
        }
    }
}

/// A body on its way into a file. Dropped before its end, nothing of it stays.
pub(crate) struct Spool {
    folder: Arc<Folder>,
    path: PathBuf,
    file: Option<File>,
    pending: BytesMut,
    sums: Vec<u32>,
    taken: u64,
}

impl Spool {
    /// Begins with what has come so far.
    pub(crate) async fn begin(folder: &Arc<Folder>, so_far: impl IntoIterator<Item = Bytes>) -> io::Result<Self> {
        let path = folder.name();
        let (folder, pending) = (Arc::clone(folder), BytesMut::new());
        let mut spool = Self { folder, path: path.clone(), file: None, pending, sums: Vec::new(), taken: 0 };
        spool.file = Some(done(block(move || private::create(&path))).await?);
        for chunk in so_far {
            spool.write(&chunk).await?;
        }
        Ok(spool)
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
        let body = Arc::new(FileBody {
            folder: Arc::clone(&self.folder),
            path: std::mem::take(&mut self.path),
            len: std::mem::take(&mut self.taken),
            sums: std::mem::take(&mut self.sums).into(),
            trailers,
            used: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        });
        self.folder.put(&body);
        Ok(body)
    }

    async fn flush(&mut self, piece: Bytes) -> io::Result<()> {
        let len = piece.len() as u64;
        let within = self.taken + len <= self.folder.longest();
        if !within || !self.folder.take(len) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.taken += len;
        let mut file = self.file.take().ok_or_else(|| io::Error::other("an earlier piece was not written"))?;
        let write = move || file.write_all(&piece).map(|()| (file, crc32fast::hash(&piece)));
        let (file, sum) = done(block(write)).await?;
        self.file = Some(file);
        self.sums.push(sum);
        Ok(())
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // It has no path once it is a body.
        if !self.path.as_os_str().is_empty() {
            drop(fs::remove_file(&self.path));
            self.folder.give_back(self.taken);
        }
    }
}

async fn done<T: Send + 'static>(work: Blocking<io::Result<T>>) -> io::Result<T> {
    work.await.unwrap_or_else(|| Err(io::Error::other("stopped")))
}
