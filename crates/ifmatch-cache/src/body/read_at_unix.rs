//! Reading a file at a position, on Unix.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Fills the buffer from a position. Leaves the cursor alone, so that any number of readers can share one open file.
pub(super) fn read_exact_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<()> {
    file.read_exact_at(buffer, position)
}
