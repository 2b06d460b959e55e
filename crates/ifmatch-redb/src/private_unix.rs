//! Files that other users of the machine cannot read, even in a shared folder.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Creates a file that does not exist yet.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file for writing, creating it if necessary.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Revokes other users' access to a file created by an earlier release. Leaves files owned by another user unchanged.
pub(crate) fn tighten(file: &File) {
    if let Ok(metadata) = file.metadata()
        && metadata.permissions().mode() & 0o077 != 0
    {
        let _ = file.set_permissions(Permissions::from_mode(0o600));
    }
}
