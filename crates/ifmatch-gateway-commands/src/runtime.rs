//! The threads of a command.

use std::future::Future;
use std::num::NonZero;
use std::thread::available_parallelism;

use ifmatch_gateway_config::error::Error;
use tokio::runtime::{Builder, Runtime};

/// Runs a command to its end, on threads of its own.
///
/// # Errors
/// The command's, or the reason why the threads can't start.
pub fn block_on<T>(command: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    runtime()?.block_on(command)
}

/// Maximum number of threads that wait for the disk. Each keeps memory for what it read last, so the 512 of tokio would let a few
/// clients take half a gigabyte. No work on them waits for other work on them, so any number of them makes progress.
const BLOCKING_THREADS: usize = 16;

/// Creates a runtime with a thread per core that this process may use, by its affinity and cgroup. A single thread needs no work
/// stealing.
///
/// # Errors
/// Fails if the system refuses to start the threads.
pub fn runtime() -> Result<Runtime, Error> {
    let is_single = available_parallelism().map_or(1, NonZero::get) == 1;
    let mut builder = if is_single {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    builder
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(|error| Error::runtime(format!("can't start the threads: {error}")))
}
