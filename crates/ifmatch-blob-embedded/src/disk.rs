//! System calls that durability relies on.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use fs4::statvfs;

/// A store's disk. All functions block.
///
/// A failed sync is final: a later one may succeed although the pages of the first were lost. Data is therefore never
/// synced twice. After a failure it is removed and rewritten under another name.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// Returns the space on the disk of a folder.
    fn space(&self, folder: &Path) -> io::Result<Space>;

    /// Makes a file's content durable.
    fn sync_file(&self, file: &File) -> io::Result<()>;

    /// Opens a folder before changes to its entries.
    fn open_folder<'a>(&self, path: &'a Path) -> io::Result<OpenFolder<'a>> {
        Ok(OpenFolder { path, file: File::open(path)? })
    }

    /// Makes a folder's entries durable, or reports any failure since the folder was opened.
    fn sync_folder(&self, folder: &OpenFolder<'_>) -> io::Result<()>;
}

/// Disk space, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) free: u64,
    pub(super) total: u64,
}

/// A folder opened for changes to its entries.
#[derive(Debug)]
pub(super) struct OpenFolder<'a> {
    pub(super) path: &'a Path,
    pub(super) file: File,
}

/// The disk of the operating system.
#[derive(Debug)]
pub(super) struct System;

impl Disk for System {
    fn space(&self, folder: &Path) -> io::Result<Space> {
        let stats = statvfs(folder)?;
        Ok(Space { free: stats.available_space(), total: stats.total_space() })
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_folder(&self, folder: &OpenFolder<'_>) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.path.display()));
        folder.file.sync_all().map_err(named)
    }
}
