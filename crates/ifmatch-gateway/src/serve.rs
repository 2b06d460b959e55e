//! `ifmatch serve`: puts the parts together, in an order that finds trouble early.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use http::Method;
use ifmatch_blob::service::TableService;
use ifmatch_blob::{AnyStore, BlobService};
use ifmatch_core::policy::RequirePreconditions;
use ifmatch_store::{Clock, SystemClock};
use tokio::runtime::{Builder, Runtime};

use crate::banner::Addresses;
use crate::config::{Config, Place};
use crate::error::Error;
use crate::gateway::{Desk, Gateway};
use crate::leases::book::Book;
use crate::leases::observed::Observed;
use crate::listen::Reserved;
use crate::metrics::Metrics;
use crate::server::{End, Server};
use crate::signals::Signals;
use crate::{access, banner, collect, leases, listen, log, store};

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
    let reserved = Reserved::take(config.listen, listen::BLOBS)?;
    let reserved_tables = config.listen_tables.map(|at| Reserved::take(at, listen::TABLES)).transpose()?;
    let (metrics, recorder) = Metrics::new()?;
    ::metrics::set_global_recorder(recorder)
        .map_err(|error| Error::runtime(format!("metrics cannot be set up: {error}")))?;
    let book = Arc::new(Book::new());
    let blobs = Observed::new(store::open(&config.place).await?, Arc::clone(&book));
    if matches!(config.place, Place::Folder(_)) {
        book.begin_filling();
        tokio::spawn(fill(book, blobs.clone()));
    }
    let service = BlobService::new(blobs.clone())
        .accounts(config.accounts.clone())
        .max_body(config.limits.body_size)
        .require_preconditions(required(config));
    let tables = TableService::new(blobs.clone()).accounts(config.accounts.clone());
    tokio::spawn(collect::run(service.clone(), tables.clone()));
    let desk = Arc::new(Desk::new(config.access.clone(), config.limits, metrics, blobs));
    let mut server = Server::new(config, Arc::clone(&desk))?;
    let (listener, address) = reserved.listen()?;
    server.open(listener, Gateway::new(Arc::clone(&desk), service, access::is_signed));
    let mut addresses = Addresses { blobs: address, tables: None };
    if let Some(reserved) = reserved_tables {
        let (listener, address) = reserved.listen()?;
        // All that is said there is signed.
        server.open(listener, Gateway::new(desk, tables, |_| true));
        addresses.tables = Some(address);
    }
    banner::print(config, &addresses);
    Ok(server.run(signals).await)
}

/// Enters the leases of the time before, and ends the filling. Those of the time since are entered by whoever uses them.
async fn fill(book: Arc<Book>, blobs: Observed<AnyStore>) {
    if let Err(error) = leases::list::each(&blobs, |entry| book.add(entry, SystemClock.now())).await {
        tracing::warn!(%error, "the metrics do not know all leases");
    }
    book.end_filling();
}

/// The methods that need a condition.
fn required(config: &Config) -> RequirePreconditions {
    if config.require_conditions {
        RequirePreconditions::for_methods([Method::PUT, Method::DELETE])
    } else {
        RequirePreconditions::none()
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
