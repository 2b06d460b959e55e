//! Reading at a position, on a system where that moves the cursor of the open file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Mutex, PoisonError};

/// Held while a cursor is moved and used.
static CURSOR: Mutex<()> = Mutex::new(());

/// Fills the buffer with the bytes from a position on.
pub(crate) fn read_exact_at(mut file: &File, buffer: &mut [u8], position: u64) -> io::Result<()> {
    let _cursor = CURSOR.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(position))?;
    file.read_exact(buffer)
}
