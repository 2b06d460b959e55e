//! Reading at a position, which moves no cursor: any number of readers share one open file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Fills the buffer with the bytes from a position on.
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<()> {
    file.read_exact_at(buffer, position)
}
