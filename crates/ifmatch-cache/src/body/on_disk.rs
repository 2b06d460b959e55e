//! Bodies on disk: a bounded folder for bodies that are too large for the memory, or were evicted from it. They can be read
//! while they are written, and are verified when they are read.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::{fs, mem};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use ifmatch_core::digest::{ContentHash, Hasher, TagFormat};
use ifmatch_runtime::private_files;
use read_at::read_exact_at;

use crate::body::disk_index::FileId;
use crate::body::folder::{CacheFolder, ReservedSpace, lock};
use crate::body::in_memory::MemoryBody;

/// Size of the pieces in which a body is written, verified and read.
pub(crate) const PIECE: usize = 64 * 1024;

/// A body in a file. The file is deleted with it, unless the index has a row for it. An incomplete body has the pieces
/// written so far.
#[derive(Debug)]
pub(crate) struct DiskBody {
    folder: Arc<CacheFolder>,
    pub(crate) file: FileId,
    path: PathBuf,
    /// Key of its row in the index.
    row: OnceLock<Box<str>>,
    /// `true` if the row ends with the body: it only lets the index evict the file.
    is_slice: AtomicBool,
    written: Mutex<WrittenBody>,
    /// The open file, while it has readers. It stays readable after it was deleted.
    open: Mutex<Weak<File>>,
    gone: AtomicBool,
}

/// A body's content.
#[derive(Clone, Debug, Default)]
pub(crate) struct WrittenBody {
    pub(crate) len: u64,
    /// Checksum of each piece. Only the last piece of a complete body may be short.
    pub(crate) sums: Vec<u32>,
    pub(crate) trailers: Option<HeaderMap>,
    /// Hash of a complete body.
    pub(crate) hash: Option<ContentHash>,
}

impl DiskBody {
    fn new(folder: &Arc<CacheFolder>, file: FileId, written: WrittenBody) -> Self {
        Self {
            folder: Arc::clone(folder),
            file,
            path: folder.path(file),
            row: OnceLock::new(),
            is_slice: AtomicBool::new(false),
            written: Mutex::new(written),
            open: Mutex::default(),
            gone: AtomicBool::new(false),
        }
    }

    /// Returns the body of a row in the index.
    pub(crate) fn recorded(
        folder: &Arc<CacheFolder>,
        file: FileId,
        row: &str,
        written: WrittenBody,
    ) -> Self {
        let body = Self::new(folder, file, written);
        body.hand_over(row);
        body
    }

    /// Writes a body to a new file.
    ///
    /// # Errors
    /// Fails if there isn't enough space, or if the file can't be written.
    pub(crate) fn create(folder: &Arc<CacheFolder>, content: &MemoryBody) -> io::Result<Arc<Self>> {
        let space = folder
            .reserve(content.len)
            .ok_or(io::ErrorKind::StorageFull)?;
        let file = folder.new_file();
        let body = Arc::new(Self::new(folder, file, WrittenBody::default()));
        let mut output = BodyFile::new(body.create_file()?, space);
        let mut pending = BytesMut::new();
        for chunk in &content.chunks {
            pending.extend_from_slice(chunk);
            while pending.len() >= PIECE {
                output.write(&body, &pending.split_to(PIECE))?;
            }
        }
        if !pending.is_empty() {
            output.write(&body, &pending)?;
        }
        body.complete(content.trailers.clone(), output.hasher.finish());
        Ok(body)
    }

    fn create_file(&self) -> io::Result<File> {
        // Any body that is evicted makes room for a file.
        private_files::create(&self.path).inspect_err(|error| self.folder.note_failure(error, 1))
    }

    fn complete(&self, trailers: Option<HeaderMap>, hash: ContentHash) {
        let mut written = lock(&self.written);
        (written.trailers, written.hash) = (trailers, Some(hash));
    }

    /// Hands the file over to the row with this key in the index.
    pub(crate) fn hand_over(&self, row: &str) {
        // A body that has a row keeps it.
        let _ = self.row.set(row.into());
    }

    /// Hands the file over to a row that is removed with this body.
    pub(crate) fn lend(&self, row: &str) {
        self.is_slice.store(true, Ordering::Release);
        self.hand_over(row);
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.row.get().is_some()
    }

    /// Returns the content.
    pub(crate) fn written(&self) -> WrittenBody {
        lock(&self.written).clone()
    }

    /// Returns `true` if the file still has the recorded content.
    pub(crate) fn verify(&self) -> bool {
        let Some(file) = self.handle() else {
            return false;
        };
        let written = self.written();
        let (mut hasher, mut buffer) = (Hasher::new(TagFormat::Sha256), BytesMut::new());
        let whole = (0..written.sums.len()).all(|piece| {
            let bytes = self.try_read(&file, piece, &mut buffer);
            bytes.as_ref().is_ok_and(|bytes| {
                hasher.update(bytes);
                true
            })
        });
        let len = file.metadata().map(|metadata| metadata.len());
        whole && len.is_ok_and(|len| len == written.len) && written.hash == Some(hasher.finish())
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn len(&self) -> u64 {
        lock(&self.written).len
    }

    pub(crate) fn trailers(&self) -> Option<HeaderMap> {
        lock(&self.written).trailers.clone()
    }

    /// Returns `true` unless the file is known to be gone. Doesn't access the file system.
    pub(crate) fn is_there(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
    }

    /// Returns `true` if the file still exists. If another process has deleted it, the body isn't used again.
    pub(crate) fn exists(&self) -> bool {
        if self.is_there() && !self.path.exists() {
            self.discard();
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
        if self.is_recorded() {
            self.folder.note_use(self.file);
        }
        self.handle()
    }

    /// Returns the file handle shared by all readers. Returns `None` if the file is gone.
    pub(crate) fn handle(&self) -> Option<Arc<File>> {
        let mut open = lock(&self.open);
        if let Some(file) = open.upgrade() {
            return Some(file);
        }
        let file = File::open(&self.path).ok().map(Arc::new);
        match &file {
            Some(file) => *open = Arc::downgrade(file),
            None => self.discard(),
        }
        file
    }

    /// Deletes the file, and its row in the index. Current readers aren't affected.
    fn discard(&self) {
        let written = lock(&self.written);
        let was_gone = self.gone.swap(true, Ordering::AcqRel);
        let len = written.len;
        drop(written);
        match self.row.get() {
            Some(row) => self.folder.forget(row, self.file),
            None if was_gone => {}
            None => {
                // If that fails, the next start deletes it.
                drop(fs::remove_file(&self.path));
                self.folder.free(len);
            }
        }
    }

    /// Reads and verifies a piece. If that fails, the body isn't used again. Uses the memory of `buffer` once the bytes that
    /// were read into it before are gone, and returns it: the allocator would keep the memory that each thread allocates.
    pub(crate) fn read(
        self: &Arc<Self>,
        file: &Arc<File>,
        piece: usize,
        mut buffer: BytesMut,
    ) -> impl Future<Output = io::Result<(Bytes, BytesMut)>> + Send + use<> {
        let (body, file) = (Arc::clone(self), Arc::clone(file));
        self.folder.threads.run(move || {
            let bytes = body
                .try_read(&file, piece, &mut buffer)
                .inspect_err(|_| body.discard())?;
            Ok((bytes, buffer))
        })
    }

    fn try_read(&self, file: &File, piece: usize, buffer: &mut BytesMut) -> io::Result<Bytes> {
        let start = piece as u64 * PIECE as u64;
        let (len, sum) = {
            let written = lock(&self.written);
            (written.len, written.sums.get(piece).copied())
        };
        let left = usize::try_from(len.saturating_sub(start)).unwrap_or(PIECE);
        buffer.resize(left.min(PIECE), 0);
        read_exact_at(file, buffer, start)?;
        if sum != Some(crc32fast::hash(buffer)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the cached file was modified",
            ));
        }
        Ok(buffer.split().freeze())
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
        if !self.is_recorded() || self.is_slice.load(Ordering::Acquire) {
            self.discard();
        }
    }
}

/// The open file of a body that is being written.
struct BodyFile {
    file: File,
    space: ReservedSpace,
    hasher: Hasher,
}

impl BodyFile {
    fn new(file: File, space: ReservedSpace) -> Self {
        Self {
            file,
            space,
            hasher: Hasher::new(TagFormat::Sha256),
        }
    }

    /// Appends a piece.
    fn write(&mut self, body: &DiskBody, piece: &[u8]) -> io::Result<()> {
        let len = piece.len() as u64;
        let within = body.len() + len <= body.folder.longest();
        if !within || !self.space.take(len) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Err(error) = self.file.write_all(piece) {
            body.folder.free(len);
            body.folder.note_failure(&error, body.len() + len);
            return Err(error);
        }
        if !body.record(len, crc32fast::hash(piece)) {
            body.folder.free(len);
            return Err(io::Error::other("the file was deleted"));
        }
        self.hasher.update(piece);
        Ok(())
    }
}

/// Writes a body to a file. Dropping it before the end deletes the file.
pub(crate) struct DiskWriter {
    /// `None` once the body is complete.
    body: Option<Arc<DiskBody>>,
    /// `None` after a failure.
    output: Option<BodyFile>,
    pending: BytesMut,
}

impl DiskWriter {
    /// Creates a file in the reserved space, if any, with the bytes received so far. Also returns the body and the file
    /// handle for readers.
    pub(crate) async fn begin(
        folder: &Arc<CacheFolder>,
        space: Option<ReservedSpace>,
        so_far: impl IntoIterator<Item = Bytes>,
    ) -> io::Result<(Self, Arc<DiskBody>, Arc<File>)> {
        let body = Arc::new(DiskBody::new(
            folder,
            folder.new_file(),
            WrittenBody::default(),
        ));
        // Created first, so the file is deleted if anything fails.
        let mut writer = Self {
            body: Some(Arc::clone(&body)),
            output: None,
            pending: BytesMut::new(),
        };
        let new = Arc::clone(&body);
        let file = folder.threads.run(move || new.create_file()).await?;
        writer.output = Some(BodyFile::new(
            file,
            space.unwrap_or_else(|| ReservedSpace::none(folder)),
        ));
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
        let (body, output) = (self.body.take(), mem::take(&mut self.output));
        let body = body.ok_or(io::ErrorKind::NotFound)?;
        let output = output.ok_or_else(|| io::Error::other("an earlier write failed"))?;
        body.complete(trailers, output.hasher.finish());
        Ok(body)
    }

    async fn flush(&mut self, piece: Bytes) -> io::Result<()> {
        let (Some(body), Some(mut output)) = (self.body.clone(), self.output.take()) else {
            return Err(io::Error::other("an earlier write failed"));
        };
        let folder = Arc::clone(&body.folder);
        let write = move || output.write(&body, &piece).map(|()| output);
        self.output = Some(folder.threads.run(write).await?);
        Ok(())
    }
}

impl Drop for DiskWriter {
    fn drop(&mut self) {
        if let Some(body) = &self.body {
            body.discard();
        }
    }
}

/// Reading a file at a position, on Unix.
#[cfg(unix)]
mod read_at {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    /// Fills the buffer from a position. Leaves the cursor alone, so any number of readers can share one open file.
    pub(super) fn read_exact_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<()> {
        file.read_exact_at(buffer, position)
    }
}

/// Reading a file at a position, on systems other than Unix.
#[cfg(not(unix))]
mod read_at {
    use std::fs::File;
    use std::io::{self, Read, Seek, SeekFrom};
    use std::sync::{Mutex, PoisonError};

    /// Held while a file's cursor is moved and used.
    static CURSOR: Mutex<()> = Mutex::new(());

    /// Fills the buffer from a position.
    pub(super) fn read_exact_at(
        mut file: &File,
        buffer: &mut [u8],
        position: u64,
    ) -> io::Result<()> {
        let _cursor = CURSOR.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(position))?;
        file.read_exact(buffer)
    }
}
