//! Files and folders that other users of the machine cannot read, even below a shared folder.
//!
//! On systems other than Unix, files and folders get the access rights of the folder they are created in.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(not(unix), path = "other.rs")]
mod imp;

/// Creates a folder. Its parent must exist.
///
/// # Errors
/// If the folder exists or cannot be created.
pub fn create_dir(path: &Path) -> io::Result<()> {
    imp::create_dir(path)
}

/// Creates a file, or truncates an existing one.
///
/// # Errors
/// If the file cannot be created or opened.
pub fn create(path: &Path) -> io::Result<File> {
    imp::private(OpenOptions::new().write(true).create(true).truncate(true)).open(path)
}

/// Creates a file that does not exist yet, for reading and writing.
///
/// # Errors
/// If the file exists or cannot be created.
pub fn create_new(path: &Path) -> io::Result<File> {
    imp::private(OpenOptions::new().read(true).write(true).create_new(true)).open(path)
}

/// Opens a file for reading and writing, and creates it if it does not exist.
///
/// # Errors
/// If the file cannot be created or opened.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    imp::private(OpenOptions::new().read(true).write(true).create(true).truncate(false)).open(path)
}

/// Revokes other users' access to an existing file or folder, for those created by earlier releases. Leaves files and
/// folders owned by another user unchanged.
pub fn restrict(path: &Path) {
    imp::restrict(path);
}
