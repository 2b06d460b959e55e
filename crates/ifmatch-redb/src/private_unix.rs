//! Files that other users of the machine cannot read, even in a folder that is open to them.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Creates a file that is not there yet.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file for writing, and creates it if need be.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Takes away the rights of others to a file of an earlier release. A file of another user stays as it is.
pub(crate) fn tighten(file: &File) {
    if let Ok(metadata) = file.metadata()
        && metadata.permissions().mode() & 0o077 != 0
    {
        let _ = file.set_permissions(Permissions::from_mode(0o600));
    }
}
