//! `ifmatch serve`: puts the parts together, in an order that finds trouble early.

use std::sync::Arc;

use http::Method;
use ifmatch_azure::{AzureDialect, is_signed};
use ifmatch_azure_tables::TableService;
use ifmatch_blob::BlobService;
use ifmatch_core::policy::RequirePreconditions;
use ifmatch_runtime::{Clock, SystemClock};
use tower_layer::Layer;

use crate::banner::Addresses;
use crate::config::{Config, Place};
use crate::error::Error;
use crate::gateway::{Desk, Gateway};
use crate::leases::book::Book;
use crate::leases::observed::Observed;
use crate::listen::Reserved;
use crate::metrics::Metrics;
use crate::proxy::counters;
use crate::server::{End, Server};
use crate::signals::Signals;
use crate::{banner, cache, collect, leases, listen, runtime, store};

/// Serves with `config` until a signal ends it.
///
/// # Errors
/// It could not start, or requests in flight had to be cut at the end.
pub(crate) fn run(config: &Config) -> Result<(), Error> {
    runtime::run(&config.server, serve(config))
}

async fn serve(config: &Config) -> Result<End, Error> {
    let signals = Signals::listen()?;
    let reserved = Reserved::take(config.server.listen, listen::BLOBS)?;
    let reserved_tables = config.listen_tables.map(|at| Reserved::take(at, listen::TABLES)).transpose()?;
    let metrics = Metrics::global()?;
    let book = Arc::new(Book::new());
    let blobs = Observed::new(store::open(&config.place).await?, Arc::clone(&book));
    if matches!(config.place, Place::Folder(_)) {
        book.begin_filling();
        tokio::spawn(fill(book, blobs.clone()));
    }
    let service = BlobService::new(Arc::new(blobs.clone()))
        .dialect(AzureDialect::new(config.accounts.clone()))
        .max_body(config.server.limits.body_size)
        .require_preconditions(required(config));
    let tables = TableService::new(Arc::new(blobs.clone())).accounts(config.accounts.clone());
    tokio::spawn(collect::run(service.clone(), tables.clone()));
    let desk = Desk::new(&config.server, metrics).with_blobs(blobs);
    let scheme = config.server.scheme();
    let cache = config.cache.as_ref().map(|cache| cache::before_blobs(cache, scheme)).transpose()?;
    let desk = Arc::new(match &cache {
        Some(cache) => desk.with_cache(cache.handle()),
        None => desk,
    });
    let mut server = Server::new(&config.server, Arc::clone(&desk))?;
    let (listeners, address) = reserved.listen()?;
    match cache {
        Some(cache) => {
            counters::describe();
            let service = cache::Admitted.layer(cache.layer(service));
            server.open(listeners, Gateway::new(Arc::clone(&desk), service, is_signed));
        }
        None => server.open(listeners, Gateway::new(Arc::clone(&desk), service, is_signed)),
    }
    let mut addresses = Addresses { blobs: address, tables: None };
    if let Some(reserved) = reserved_tables {
        let (listeners, address) = reserved.listen()?;
        // All that is said there is signed.
        server.open(listeners, Gateway::new(desk, tables, |_| true));
        addresses.tables = Some(address);
    }
    banner::print(config, &addresses);
    Ok(server.run(signals).await)
}

/// Enters the leases of the time before, and ends the filling. Those of the time since are entered by whoever uses them.
async fn fill(book: Arc<Book>, blobs: Observed) {
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
