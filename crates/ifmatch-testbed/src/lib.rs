//! Servers that tests start, a network that fails, and clients that write at the same time.

#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "test code reports failures by panicking"
)]

pub mod azurite;
mod certificate;
mod clients;
pub mod engine;
pub mod etcd;
mod port;
pub mod postgres;
mod processes;
mod proxy;
pub mod redis;
pub mod s3;
mod server;

use std::io::{Result, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use certificate::Certificate;
pub use clients::Clients;
pub use port::Port;
pub use proxy::{Network, Proxy};
pub use server::{Launch, Program, Server};
use tracing::subscriber::DefaultGuard;

/// Limit of each wait, far beyond what a busy machine needs.
pub const LIMIT: Duration = Duration::from_mins(5);

/// Waits for something that a test expects.
///
/// # Panics
/// After five minutes, with the name of what is missing.
pub async fn within<T>(name: &str, wait: impl Future<Output = T>) -> T {
    let Ok(done) = tokio::time::timeout(LIMIT, wait).await else {
        panic!("{name}: not within {LIMIT:?}")
    };
    done
}

/// Returns the path of libfaketime for programs with several threads, for `LD_PRELOAD`: `IFMATCH_FAKETIME`, or the path in
/// Linux distributions.
///
/// # Panics
/// Panics if it is missing, with the command that installs it.
pub fn faketime() -> PathBuf {
    if let Some(path) = std::env::var_os("IFMATCH_FAKETIME") {
        return path.into();
    }
    let folders = [
        "lib/x86_64-linux-gnu/faketime",
        "lib/aarch64-linux-gnu/faketime",
        "lib64/faketime",
        "lib/faketime",
    ];
    let found = folders.map(|folder| Path::new("/usr").join(folder).join("libfaketimeMT.so.1"));
    let found = found.into_iter().find(|path| path.exists());
    found.expect(
        "libfaketime is missing: apt-get install libfaketime, or set IFMATCH_FAKETIME to its path",
    )
}

/// The lines that this thread logs, and its tasks on a runtime of one thread.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Collects lines until the guard is dropped.
    pub fn collect() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
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
