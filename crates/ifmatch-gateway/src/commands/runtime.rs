//! The runtime of a server: its log, its threads and its exit code.

use std::future::Future;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::log;
use super::shutdown::End;
use crate::config::ServerConfig;
use crate::error::Error;

/// Time for pending file operations to finish after the last request.
const FILE_GRACE: Duration = Duration::from_secs(2);

/// Starts the log and the threads, and runs a server until a signal stops it.
///
/// # Errors
/// Fails if the server cannot start, or had to cut off requests in flight.
pub(crate) fn run(config: &ServerConfig, serving: impl Future<Output = Result<End, Error>>) -> Result<(), Error> {
    log::start(&config.log)?;
    let runtime = runtime()?;
    let end = runtime.block_on(serving);
    runtime.shutdown_timeout(FILE_GRACE);
    match end? {
        End::Graceful => Ok(()),
        End::Forced => Err(Error::runtime("stopped before all requests in flight were complete")),
    }
}

/// Runs a command to its end, on threads of its own.
///
/// # Errors
/// The command's, or the reason why the threads cannot start.
pub(crate) fn block_on<T>(command: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    runtime()?.block_on(command)
}

/// Creates a runtime with a thread per core that this process may use, by its affinity and cgroup. A single thread needs no work
/// stealing.
fn runtime() -> Result<Runtime, Error> {
    let is_single = available_parallelism().map_or(1, NonZero::get) == 1;
    let mut builder = if is_single { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build().map_err(|error| Error::runtime(format!("cannot start the threads: {error}")))
}
