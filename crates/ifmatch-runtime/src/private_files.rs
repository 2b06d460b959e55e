//! Files and folders that other users of the machine can't read, even below a shared folder.
//!
//! On systems other than Unix, files and folders get the access rights of the folder they are created in: restrict that one first.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a folder. Its parent must exist.
///
/// # Errors
/// Fails if the folder exists or can't be created.
pub fn create_dir(path: &Path) -> io::Result<()> {
    imp::create_dir(path)
}

/// Creates a file, or truncates an existing one, which keeps its access rights.
///
/// # Errors
/// Fails if the file can't be created or opened.
pub fn create(path: &Path) -> io::Result<File> {
    imp::private(OpenOptions::new().write(true).create(true).truncate(true)).open(path)
}

/// Creates a file that doesn't exist yet, for reading and writing.
///
/// # Errors
/// Fails if the file exists or can't be created.
pub fn create_new(path: &Path) -> io::Result<File> {
    imp::private(OpenOptions::new().read(true).write(true).create_new(true)).open(path)
}

/// Opens a file for reading and writing, and creates it if it doesn't exist.
///
/// # Errors
/// Fails if the file can't be created or opened.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    imp::private(
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false),
    )
    .open(path)
}

/// Revokes other users' access to an existing file or folder, such as one restored from a backup that keeps no permissions. Leaves
/// files and folders owned by another user unchanged.
pub fn restrict(path: &Path) {
    imp::restrict(path);
}

/// Access rights by the mode bits of Unix.
#[cfg(unix)]
mod imp {
    use std::fs::{self, DirBuilder, OpenOptions, Permissions};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
    use std::path::Path;

    /// The rights of the group and of all others.
    const OTHERS: u32 = 0o077;

    pub(super) fn create_dir(path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
        options.mode(0o600)
    }

    pub(super) fn restrict(path: &Path) {
        let Ok(metadata) = fs::metadata(path) else {
            return;
        };
        if metadata.permissions().mode() & OTHERS != 0 {
            let mode = if metadata.is_dir() { 0o700 } else { 0o600 };
            // Fails if another user owns it.
            let _ = fs::set_permissions(path, Permissions::from_mode(mode));
        }
    }
}

/// Access rights inherited from the parent folder.
#[cfg(not(unix))]
mod imp {
    use std::fs::{self, OpenOptions};
    use std::io;
    use std::path::Path;

    pub(super) fn create_dir(path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
        options
    }

    pub(super) fn restrict(_: &Path) {}
}
