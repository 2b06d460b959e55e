//! Reading a file at a position, on systems other than Unix.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Mutex, PoisonError};

/// Held while a file's cursor is moved and used.
static CURSOR: Mutex<()> = Mutex::new(());

/// Fills the buffer from a position.
pub(super) fn read_exact_at(mut file: &File, buffer: &mut [u8], position: u64) -> io::Result<()> {
    let _cursor = CURSOR.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(position))?;
    file.read_exact(buffer)
}
