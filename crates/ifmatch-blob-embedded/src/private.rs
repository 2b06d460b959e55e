//! Private files and folders on systems that control access by rules of their own.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a folder below one that is there.
pub(super) fn create(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)
}

/// Creates a file that does not exist yet.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    File::create_new(path)
}

/// Opens a file for writing, creating it if necessary.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

/// Leaves the folder unchanged.
pub(super) fn tighten(_folder: &Path) {}
