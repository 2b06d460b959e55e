//! The log of a test.

use std::io::{Result, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::subscriber::DefaultGuard;

/// The lines that this thread logs, and those of its tasks on a runtime of one thread.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Collects lines until the guard is dropped.
    pub fn collect() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Returns the lines since the last call.
    pub fn take(&self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut *self.bytes())).into_owned()
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
