//! New folders, on a system whose own rules say who may look into them.

use std::fs;
use std::io;
use std::path::Path;

/// Creates a folder below one that is there.
pub(super) fn create(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)
}
