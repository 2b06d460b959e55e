//! Access rights by the mode bits of Unix.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const OTHERS: u32 = 0o077;

pub(super) fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

pub(super) fn restrict(path: &Path) {
    let Ok(metadata) = fs::metadata(path) else { return };
    if metadata.permissions().mode() & OTHERS != 0 {
        let mode = if metadata.is_dir() { 0o700 } else { 0o600 };
        // Fails if another user owns it.
        let _ = fs::set_permissions(path, Permissions::from_mode(mode));
    }
}
