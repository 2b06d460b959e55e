//! The calls of the system that durability rests on.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use fs4::statvfs;

/// The disk of a store. All functions block.
///
/// A failed sync is final: a later one may succeed although the pages of the first were lost. So nothing is synced a second
/// time; what was to be durable is removed, and written anew under another name.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// The room on the disk of a folder.
    fn space(&self, folder: &Path) -> io::Result<Space>;

    /// Makes the bytes of a file durable.
    fn sync_file(&self, file: &File) -> io::Result<()>;

    /// Opens a folder whose names are about to change.
    fn open_folder<'a>(&self, path: &'a Path) -> io::Result<OpenFolder<'a>> {
        Ok(OpenFolder { path, file: File::open(path)? })
    }

    /// Makes the names in a folder durable, or reports a failure that has occurred since the folder was opened.
    fn sync_folder(&self, folder: &OpenFolder<'_>) -> io::Result<()>;
}

/// The room on a disk, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) free: u64,
    pub(super) total: u64,
}

/// A folder whose names are about to change.
#[derive(Debug)]
pub(super) struct OpenFolder<'a> {
    pub(super) path: &'a Path,
    pub(super) file: File,
}

/// The disk as the system shows it.
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
