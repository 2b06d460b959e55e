//! Files that other users of the machine cannot read, even in a folder that is open to them: a stored response may be for those
//! who show a token.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Creates a file, or empties the one that is there.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}
