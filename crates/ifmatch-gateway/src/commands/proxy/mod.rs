//! `ifmatch proxy`: the cache in front of the upstreams.

mod client_info;
mod guard;
mod service;

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use ifmatch_cache::{Builder, CacheHandle};
use ifmatch_gateway_commands::terminal::{self, TextStyle};
use ifmatch_gateway_config::CacheConfig;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::proxy::{ProxyConfig, PurgeConfig, guarded_timeout};
use ifmatch_gateway_config::units::Span;
use ifmatch_gateway_service::gateway::{Gateway, SetContext};
use ifmatch_gateway_service::metrics::Metrics;
use ifmatch_gateway_service::metrics::upstreams::{self, UpstreamMetrics};
use ifmatch_gateway_service::purges::{Following, Peers, Purges};
use ifmatch_gateway_service::state::{AppState, ServedCache, Upstreams};
use ifmatch_http_server::{BoxError, RequestBody, Server};
use ifmatch_proxy::{Proxy, ProxyBuilder, ProxyError};
use ifmatch_register::Register;
use tower::util::MapResponse;
use tower_layer::Layer;
use tower_service::Service;

use super::listen::InheritedSockets;
use super::runtime::{GatewayEnd, ServerSignals, serve_until_stopped};
use super::tls::ReplaceableTls;
use super::{cache, listen, register, runtime};
use crate::commands::reload::ReloadableParts;
use client_info::ClientInfo;
use service::ProxyService;

/// Memory for guarded writes, in bytes. Half is for the versions of resources, unless a register keeps them, and half for the heads
/// of responses.
const GUARD_MEMORY: u64 = 64 << 20;

/// Forwards requests until a signal stops it. SIGHUP reloads the upstreams, the certificate and the tokens.
///
/// # Errors
/// Fails if the server can't start, or had to cut off requests in flight.
pub(crate) fn run(load: &LoadProxyConfig<'_>) -> Result<(), Error> {
    let config = load()?;
    runtime::run(&config.server, start(&config, load))
}

/// Checks that the proxy can be built, without a connection.
///
/// # Errors
/// Fails if an upstream uses TLS and this machine has no root certificates.
pub(crate) fn check(config: &ProxyConfig) -> Result<(), Error> {
    build(config.proxy.clone()).map(drop)
}

async fn start(config: &ProxyConfig, load: &LoadProxyConfig<'_>) -> Result<GatewayEnd, Error> {
    let mut signals = ServerSignals::listen()?;
    let mut inherited = InheritedSockets::from_env()?;
    let site = listen::Listeners::bind(&config.server, &mut inherited)?;
    inherited.finish()?;
    let metrics = Metrics::global()?;
    let proxy = open(config)?;
    tokio::spawn(proxy.clone().watch_health());
    let register = signals.unless_stopped(guard_register(config)).await?;
    let Some(register) = register else {
        return Ok(GatewayEnd::Graceful);
    };
    let site = ProxySite {
        config,
        load,
        addresses: site,
        signals,
        metrics,
    };
    if let Some(register) = register {
        let untagged = MapResponse::new(proxy.clone(), guard::without_tag);
        let guarded =
            guard::layer(register, GUARD_MEMORY / 2, &config.server.settings.proxy).layer(untagged);
        cached(site, proxy, ClientInfo::new(guarded)).await
    } else {
        cached(site, proxy.clone(), ClientInfo::new(proxy)).await
    }
}

/// Opens the register for guarded writes, if writes are guarded.
async fn guard_register(config: &ProxyConfig) -> Result<Option<Arc<dyn Register>>, Error> {
    let Some(guard) = &config.guard else {
        return Ok(None);
    };
    Ok(Some(match &guard.register {
        None => register::memory_of(GUARD_MEMORY / 2),
        Some(url) => register::open(url).await?,
    }))
}

/// The configuration of a proxy, and what it has of the system.
struct ProxySite<'a> {
    config: &'a ProxyConfig,
    load: &'a LoadProxyConfig<'a>,
    addresses: listen::Listeners,
    signals: ServerSignals,
    metrics: Metrics,
}

/// Puts the cache, if there is one, in front of `inner`, which forwards by `proxy`.
async fn cached<S, B>(mut site: ProxySite<'_>, proxy: Proxy, inner: S) -> Result<GatewayEnd, Error>
where
    S: Service<
            Request<RequestBody>,
            Response = Response<B>,
            Error = ProxyError,
            Future: Send + 'static,
        > + SetContext
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let Some(cache) = &site.config.cache else {
        return serve(site, None, proxy, inner).await;
    };
    let layer = builder(cache, site.config, &proxy)?.build();
    let connecting = purges(&site.config.purges, layer.handle());
    let Some(purges) = site.signals.unless_stopped(connecting).await? else {
        return Ok(GatewayEnd::Graceful);
    };
    let served = ServedCache {
        handle: layer.handle(),
        purges,
    };
    serve(site, Some(served), proxy, layer.layer(inner)).await
}

/// Connects the cache with the other proxies, before its first request.
async fn purges(config: &PurgeConfig, cache: CacheHandle) -> Result<Purges, Error> {
    Ok(match config {
        PurgeConfig::Alone => Purges::Alone,
        PurgeConfig::Peers(peers) => Purges::Peers(Peers::new(peers)?),
        PurgeConfig::Register { url, bound } => {
            let following = Following::start(register::open(url).await?, cache, *bound).await;
            Purges::Logged(following.map_err(|error| {
                Error::runtime(format!("can't use --purge-register {url}: {error}"))
            })?)
        }
    })
}

fn builder(cache: &CacheConfig, config: &ProxyConfig, proxy: &Proxy) -> Result<Builder, Error> {
    let builder = cache::builder(cache)?
        .scheme(config.server.scheme())
        .overwritten(proxy.overwritten());
    let builder = builder.unchanged_by(|error| {
        error
            .downcast_ref()
            .is_some_and(|error: &ProxyError| !error.is_in_doubt())
    });
    let builder =
        builder.unasked_by(|error| error.downcast_ref().is_some_and(ProxyError::is_of_request));
    let builder = builder
        .query(config.query.clone())
        .normalize_accept_encoding();
    let settings = &config.server.settings.proxy;
    let time = |span: Option<Span>| span.map(Span::duration).unwrap_or_default();
    let builder = builder
        .heuristic(config.heuristic)
        .stale_while_revalidate(time(settings.stale_while_revalidate))
        .stale_if_error(time(settings.stale_if_error));
    let builder = match settings.stale_if_unreachable {
        Some(window) => builder.stale_if_unreachable(window.duration()),
        None => builder,
    };
    let builder = if settings.ignore_client_cache_control {
        builder.ignore_request_directives()
    } else {
        builder
    };
    Ok(if settings.share_cookies {
        builder.share_cookies()
    } else {
        builder
    })
}

async fn serve<S, B>(
    site: ProxySite<'_>,
    cache: Option<ServedCache>,
    proxy: Proxy,
    inner: S,
) -> Result<GatewayEnd, Error>
where
    S: Service<
            Request<RequestBody>,
            Response = Response<B>,
            Error = ProxyError,
            Future: Send + 'static,
        > + SetContext
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let ProxySite {
        config,
        load,
        addresses,
        signals,
        metrics,
    } = site;
    let upstreams = Upstreams {
        proxy: proxy.clone(),
        trusts_forwarded: config.server.settings.proxy.trust_forwarded,
    };
    let state = Arc::new(AppState::of_proxy(
        &config.server,
        metrics,
        upstreams,
        cache,
    )?);
    let tls = ReplaceableTls::open(&config.server.tls, &state)?;
    let acceptor = tls.as_ref().map(ReplaceableTls::acceptor).transpose()?;
    let observer = Arc::<AppState>::clone(&state);
    let mut server = Server::new(config.server.limits, observer).tls(acceptor);
    let service = ProxyService::new(
        inner,
        proxy.clone(),
        config.server.settings.max_body_size.bytes(),
    );
    // The upstream decides about access.
    let gateway = Gateway::new(Arc::clone(&state), service, |_, _| true).forwarding();
    print_banner(config, &addresses.serve(&mut server, gateway)?);
    let running = ReloadableParts {
        started: &config.server,
        tls: tls.as_ref(),
        state: &state,
    };
    let reload = || reload(load, &proxy, &running, config.guard.is_some());
    Ok(serve_until_stopped(server, &state, &config.server, signals, reload).await)
}

/// Prints the banner.
fn print_banner(config: &ProxyConfig, addresses: &listen::BoundAddresses) {
    terminal::print_banner(config.server.settings.log_format, |out, style| {
        write_banner(out, style, config, addresses)
    });
}

fn write_banner(
    out: &mut dyn Write,
    style: TextStyle,
    config: &ProxyConfig,
    addresses: &listen::BoundAddresses,
) -> io::Result<()> {
    let TextStyle { dim, plain, .. } = style;
    for route in &config.routes {
        writeln!(
            out,
            "{dim}{} to{plain} {}",
            route.pattern,
            route.destination()
        )?;
    }
    if config.server.access.has_no_tokens() && !config.server.access.is_open() {
        writeln!(
            out,
            "{dim}/-/metrics and /-/cache are disabled; set --write-token-file to enable them{plain}"
        )?;
    }
    addresses.print(out, config.server.scheme())
}

/// Reads the configuration again.
type LoadProxyConfig<'a> = dyn Fn() -> Result<ProxyConfig, Error> + 'a;

/// Creates the proxy, with metrics of its upstreams.
///
/// # Errors
/// Fails if an upstream uses TLS and this machine has no root certificates.
fn open(config: &ProxyConfig) -> Result<Proxy, Error> {
    let builder = config.proxy.clone();
    let metrics = UpstreamMetrics::new(&builder.upstreams());
    build(builder.observer(Arc::new(metrics)))
}

/// Creates the proxy.
///
/// # Errors
/// Fails if an upstream uses TLS and this machine has no root certificates.
fn build(builder: ProxyBuilder) -> Result<Proxy, Error> {
    builder.build().map_err(|error| {
        Error::runtime(format!(
            "this machine has no root certificates for https upstreams. Install ca-certificates, or set --upstream-ca \
             ({error})."
        ))
    })
}

/// Replaces the upstreams, the certificate and the tokens with the current configuration's. Changes nothing if that
/// is invalid.
///
/// # Errors
/// Fails if the configuration is invalid, listens elsewhere, switches TLS on or off, or gives a route of a `guarded` proxy a time of
/// its own.
fn reload(
    load: &LoadProxyConfig<'_>,
    proxy: &Proxy,
    running: &ReloadableParts<'_>,
    guarded: bool,
) -> Result<(), Error> {
    let config = load()?;
    if guarded
        && config
            .routes
            .iter()
            .any(|route| route.answer_timeout.is_some())
    {
        return Err(guarded_timeout());
    }
    let new = open(&config)?;
    running.read(&config.server)?.apply();
    upstreams::clear(proxy);
    proxy.replace(new);
    Ok(())
}
