//! `ifmatch serve`: puts the parts together, in an order that finds trouble early.

use std::time::Duration;

use http::Method;
use ifmatch_blob::BlobService;
use ifmatch_core::policy::RequirePreconditions;
use tokio::runtime::{Builder, Runtime};

use crate::config::Config;
use crate::error::Error;
use crate::gateway::Desk;
use crate::listen::Reserved;
use crate::metrics::Metrics;
use crate::server::{End, Server};
use crate::signals::Signals;
use crate::{banner, log, store};

/// How long work on files that nobody waits for any more may take after the last request.
const LAST_WORK: Duration = Duration::from_secs(2);

/// Serves with `config` until a signal ends it.
///
/// # Errors
/// It could not start, or requests in flight had to be cut at the end.
pub(crate) fn run(config: &Config) -> Result<(), Error> {
    log::start(&config.log)?;
    let runtime = runtime(config.threads)?;
    let end = runtime.block_on(serve(config));
    runtime.shutdown_timeout(LAST_WORK);
    match end? {
        End::Finished => Ok(()),
        End::Cut => Err(Error::runtime("stopped before all requests in flight were answered")),
    }
}

async fn serve(config: &Config) -> Result<End, Error> {
    let signals = Signals::listen()?;
    let reserved = Reserved::take(config.listen)?;
    let (metrics, recorder) = Metrics::new()?;
    ::metrics::set_global_recorder(recorder)
        .map_err(|error| Error::runtime(format!("metrics cannot be set up: {error}")))?;
    let service = BlobService::new(store::open(&config.place).await?)
        .max_body(config.limits.body_size)
        .require_preconditions(required(config));
    let server = Server::new(config, Desk::new(config.access.clone(), config.limits, metrics), service)?;
    let listener = reserved.listen()?;
    let address = listener.local_addr().map_err(|error| Error::runtime(format!("no address: {error}")))?;
    banner::print(config, address);
    Ok(server.run(listener, signals).await)
}

/// The methods that need a condition.
fn required(config: &Config) -> RequirePreconditions {
    if config.require_conditions {
        RequirePreconditions::for_methods([Method::PUT, Method::DELETE])
    } else {
        RequirePreconditions::none()
    }
}

fn runtime(threads: Option<u16>) -> Result<Runtime, Error> {
    let mut builder = Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(usize::from(threads));
    }
    builder.enable_all().build().map_err(|error| Error::runtime(format!("the threads cannot be started: {error}")))
}
