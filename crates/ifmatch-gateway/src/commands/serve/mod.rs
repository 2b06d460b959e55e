//! `ifmatch serve`: opens the store and starts the listeners.
//!
//! Flags become behaviour here. Those of the store take effect in [`storage`], those of a protocol in `open_services`, those of a
//! listener in `start_listeners`. Tokens, metrics and traces are in the [`AppState`], and limits in the [`Server`].

mod banner;
mod storage;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ifmatch_azure::{AzureDialect, is_signed};
use ifmatch_azure_tables::TableService;
use ifmatch_blob::BlobService;
use ifmatch_blob::waits::Waits;
use ifmatch_cache::CacheLayer;
use ifmatch_core::policy::RequirePreconditions;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::{Config, Storage};
use ifmatch_gateway_service::gateway::Gateway;
use ifmatch_gateway_service::leases;
use ifmatch_gateway_service::metrics::Metrics;
use ifmatch_gateway_service::metrics::leases::{LeaseMetrics, MeteredStore};
use ifmatch_gateway_service::state::{AppState, ServedBlobs};
use ifmatch_http_server::Server;
use ifmatch_runtime::{Clock, SystemClock};
use ifmatch_s3::{RequestId, S3Service, is_presigned};
use tower::util::MapRequest;
use tower_layer::Layer;

use super::listen::{self, InheritedSockets, Listeners, ReservedAddress};
use super::reload::ReloadableParts;
use super::runtime::{GatewayEnd, ServerSignals, serve_until_stopped};
use super::tls::ReplaceableTls;
use super::{cache, runtime};
use banner::ServedAddresses;
pub(crate) use storage::folder_error;

/// Interval between runs of the garbage collection.
const GARBAGE_INTERVAL: Duration = Duration::from_hours(24);

/// Reads the configuration again.
type LoadConfig<'a> = dyn Fn() -> Result<Config, Error> + 'a;

/// Serves blobs until a signal stops it. SIGHUP reloads the certificate and the tokens.
///
/// # Errors
/// Fails if the server can't start, or had to cut off requests in flight.
pub(crate) fn run(load: &LoadConfig<'_>) -> Result<(), Error> {
    let config = load()?;
    runtime::run(&config.server, serve(&config, load))
}

async fn serve(config: &Config, load: &LoadConfig<'_>) -> Result<GatewayEnd, Error> {
    let mut signals = ServerSignals::listen()?;
    let reserved = ReservedAddresses::bind(config)?;
    let metrics = Metrics::global()?;
    let opened = signals.unless_stopped(open_services(config)).await?;
    let Some((services, blobs)) = opened else {
        return Ok(GatewayEnd::Graceful);
    };
    let scheme = config.server.scheme();
    let cache = config
        .cache
        .as_ref()
        .map(|cache| cache::before_blobs(cache, scheme))
        .transpose()?;
    let handle = cache.as_ref().map(CacheLayer::handle);
    let state = Arc::new(AppState::of_blobs(&config.server, metrics, blobs, handle)?);
    let tls = ReplaceableTls::open(&config.server.tls, &state)?;
    let acceptor = tls.as_ref().map(ReplaceableTls::acceptor).transpose()?;
    let observer = Arc::<AppState>::clone(&state);
    let mut server = Server::new(config.server.limits, observer).tls(acceptor);
    let addresses = start_listeners(&mut server, config, reserved, services, cache, &state)?;
    banner::print(config, &addresses);
    let running = ReloadableParts {
        started: &config.server,
        tls: tls.as_ref(),
        state: &state,
    };
    let reload = || reload(&running, config, load);
    Ok(serve_until_stopped(server, &state, &config.server, signals, reload).await)
}

/// The addresses, bound before the store is opened.
struct ReservedAddresses {
    site: Listeners,
    tables: Option<ReservedAddress>,
    s3: Option<ReservedAddress>,
}

impl ReservedAddresses {
    fn bind(config: &Config) -> Result<Self, Error> {
        let mut inherited = InheritedSockets::from_env()?;
        let site = Listeners::bind(&config.server, &mut inherited)?;
        let mut optional =
            |listener, flag, what| ReservedAddress::optional(listener, flag, what, &mut inherited);
        let tables = optional(config.listen_tables, listen::TABLES, "tables")?;
        let s3 = optional(config.listen_s3, listen::S3, "S3")?;
        inherited.finish()?;
        Ok(Self { site, tables, s3 })
    }
}

/// The services over one store.
struct Services {
    blobs: BlobService,
    tables: TableService,
    s3: S3Service,
}

/// Opens the store, and makes the services over it, and what the endpoints show of it. Starts their garbage collection.
async fn open_services(config: &Config) -> Result<(Services, ServedBlobs), Error> {
    let lease_metrics = Arc::new(LeaseMetrics::new());
    let opened = storage::open(config).await?;
    let store = MeteredStore::new(opened.store, Arc::clone(&lease_metrics));
    if matches!(config.storage, Storage::Folder(_)) {
        lease_metrics.begin_backfill();
        tokio::spawn(backfill(lease_metrics, store.clone()));
    }
    let blobs = BlobService::new(Arc::new(store.clone()))
        .dialect(AzureDialect::new(config.accounts.clone()))
        .max_body(config.server.settings.max_body_size.bytes())
        .waits(Waits::new(config.max_waits))
        .require_preconditions(require_preconditions(config));
    let context = blobs.context();
    let tables = TableService::new(Arc::new(store.clone()))
        .accounts(config.accounts.clone())
        .documents(context.documents.clone());
    let s3 = S3Service::new(context.clone(), config.accounts.clone())
        .encrypted_at_rest(config.server.settings.encrypted_at_rest);
    tokio::spawn(collect_garbage(blobs.clone(), tables.clone(), s3.clone()));
    let others = config
        .accounts
        .iter()
        .filter(|account| !config.accounts.is_default(account));
    let served = ServedBlobs {
        store,
        location: banner::location(&config.storage),
        data: config.storage.folder(),
        register: opened.register,
        folder: opened.folder,
        accepts_published_key: config.accepts_published_key(),
        withheld: others
            .map(|account| config.accounts.prefix(account))
            .collect(),
        waits: Arc::clone(&context.waits),
        documents: context.documents.clone(),
    };
    Ok((Services { blobs, tables, s3 }, served))
}

/// Puts a gateway in front of each service, and serves it on its address.
fn start_listeners(
    server: &mut Server,
    config: &Config,
    reserved: ReservedAddresses,
    services: Services,
    cache: Option<CacheLayer>,
    state: &Arc<AppState>,
) -> Result<ServedAddresses, Error> {
    let Services { blobs, tables, s3 } = services;
    let cors = config.cors.clone();
    let site = if let Some(cache) = cache {
        let cached = MapRequest::new(cache.layer(blobs), cache::without_token as fn(_) -> _);
        let gateway = Gateway::new(Arc::clone(state), cached, is_signed).allowing(cors);
        reserved.site.serve(server, gateway)?
    } else {
        let gateway = Gateway::new(Arc::clone(state), blobs, is_signed).allowing(cors);
        reserved.site.serve(server, gateway)?
    };
    let mut addresses = ServedAddresses {
        site,
        tables: None,
        s3: None,
    };
    let has_admin = config.server.settings.admin_listen.is_some();
    if let Some(reserved) = reserved.tables {
        let (listeners, address) = reserved.listen()?;
        // All requests to tables are signed.
        let tables = Gateway::new(Arc::clone(state), tables, |_, _| true);
        server.serve(listeners, Arc::new(tables.leaving_endpoints(has_admin)));
        addresses.tables = Some(address);
    }
    if let Some(reserved) = reserved.s3 {
        let (listeners, address) = reserved.listen()?;
        // The service rejects requests that aren't signed, unless everyone may read.
        let access = Arc::clone(state);
        let s3 = s3
            .hosts(&config.server.settings.s3_host)
            .public_read(move || access.access.load().is_public_read());
        let s3 = Gateway::new(Arc::clone(state), s3, |_, _| true).presigned(is_presigned);
        let s3 = s3.allowing(config.cors.clone());
        let s3 = s3.naming(|extensions, id| drop(extensions.insert(RequestId(id.clone()))));
        server.serve(listeners, Arc::new(s3.leaving_endpoints(has_admin)));
        addresses.s3 = Some(address);
    }
    Ok(addresses)
}

/// Exchanges the certificate and the tokens for the current configuration's. Changes nothing if that is invalid.
fn reload(
    running: &ReloadableParts<'_>,
    started: &Config,
    load: &LoadConfig<'_>,
) -> Result<(), Error> {
    let config = load()?;
    if config.listen_tables.address != started.listen_tables.address {
        return Err(Error::usage(
            "SIGHUP can't change --listen-tables. Restart to change it.",
        ));
    }
    if config.listen_s3.address != started.listen_s3.address {
        return Err(Error::usage(
            "SIGHUP can't change --listen-s3. Restart to change it.",
        ));
    }
    let credentials = running.read(&config.server)?;
    if !config.has_accounts_of(started) {
        return Err(Error::usage(
            "SIGHUP can't change accounts, or add the first token while the development account is on. Restart to change them.",
        ));
    }
    credentials.apply();
    Ok(())
}

/// Adds the leases from before the start to the metrics.
async fn backfill(metrics: Arc<LeaseMetrics>, blobs: MeteredStore) {
    if let Err(error) =
        leases::listing::for_each(&blobs, |entry| metrics.add(entry, SystemClock.now())).await
    {
        tracing::warn!(%error, "the metrics do not include all leases");
    }
    metrics.end_backfill();
}

/// Returns the methods that need a condition.
fn require_preconditions(config: &Config) -> RequirePreconditions {
    if config.server.settings.require_conditions {
        RequirePreconditions::for_methods([Method::PUT, Method::DELETE])
    } else {
        RequirePreconditions::none()
    }
}

/// Removes uncommitted blocks, unfinished uploads and entities of deleted tables now, and then daily, until the process ends.
async fn collect_garbage(blobs: BlobService, tables: TableService, objects: S3Service) {
    loop {
        report(
            "uncommitted blocks",
            ifmatch_azure::collect_garbage(blobs.context()).await,
        );
        report("entities of deleted tables", tables.collect().await);
        report("unfinished uploads", objects.collect().await);
        tokio::time::sleep(GARBAGE_INTERVAL).await;
    }
}

/// Logs how much was removed of something.
fn report<N: Default + PartialEq + Display>(what: &str, removed: Result<N, impl Display>) {
    match removed {
        Ok(count) if count == N::default() => {}
        Ok(count) => tracing::info!(%count, "removed {what}"),
        Err(error) => tracing::warn!(%error, "cannot remove {what}"),
    }
}
