//! Access rights inherited from the parent folder.

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
