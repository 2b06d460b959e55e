//! The threads that a command runs on, from its log to its exit code.

use std::future::Future;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::config::ServerConfig;
use crate::error::Error;
use crate::log;
use crate::server::End;

/// How long work on files that nobody waits for any more may take after the last request.
const LAST_WORK: Duration = Duration::from_secs(2);

/// Starts the log and the threads, and serves until a signal ends it.
///
/// # Errors
/// It could not start, or requests in flight had to be cut at the end.
pub(crate) fn run(config: &ServerConfig, serving: impl Future<Output = Result<End, Error>>) -> Result<(), Error> {
    log::start(&config.log)?;
    let runtime = runtime(config.threads)?;
    let end = runtime.block_on(serving);
    runtime.shutdown_timeout(LAST_WORK);
    match end? {
        End::Finished => Ok(()),
        End::Cut => Err(Error::runtime("stopped before all requests in flight were answered")),
    }
}

/// One thread has nobody to share its work with, and spares what sharing takes.
fn runtime(threads: Option<u16>) -> Result<Runtime, Error> {
    let threads = threads.map(usize::from).or_else(|| available_parallelism().ok().map(NonZero::get)).unwrap_or(1);
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().map_err(|error| Error::runtime(format!("the threads cannot be started: {error}")))
}
