//! Runs the proxy: the cache before the upstreams, behind the gateway's desk.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use ifmatch_cache::Builder;
use ifmatch_proxy::{Proxy, ProxyError};
use tower_layer::Layer;
use tower_service::Service;

use super::acquainted::{Acquainted, Introduce};
use super::config::ProxyConfig;
use super::front::Front;
use super::{banner, counters, guard};
use crate::cache;
use crate::config::CacheConfig;
use crate::error::Error;
use crate::gateway::{Desk, Gateway};
use crate::listen::{self, Reserved};
use crate::metrics::Metrics;
use crate::request_body::RequestBody;
use crate::response_body::BoxError;
use crate::runtime;
use crate::server::{End, Server};
use crate::signals::Signals;

/// Forwards with `config` until a signal ends it.
///
/// # Errors
/// It could not start, or requests in flight had to be cut at the end.
pub(crate) fn run(config: &ProxyConfig) -> Result<(), Error> {
    runtime::run(&config.server, start(config))
}

async fn start(config: &ProxyConfig) -> Result<End, Error> {
    let signals = Signals::listen()?;
    let reserved = Reserved::take(config.server.listen, listen::BLOBS)?;
    let proxy = config.proxy.clone().build().map_err(|error| {
        Error::runtime(format!("no upstream can be reached over TLS, this machine has no root certificates: {error}"))
    })?;
    tokio::spawn(proxy.clone().watch_health());
    let desk = Desk::new(&config.server, Metrics::global()?).trusting_forwarded(config.trusts_forwarded);
    if config.guards_writes {
        let guarded = guard::layer(config.answer_timeout).layer(proxy.clone());
        cached(config, reserved, signals, desk, proxy, Acquainted::new(guarded)).await
    } else {
        cached(config, reserved, signals, desk, proxy.clone(), Acquainted::new(proxy)).await
    }
}

/// Puts the cache before the way to the upstreams by `proxy`, if there is one.
async fn cached<S, B>(
    config: &ProxyConfig,
    reserved: Reserved,
    signals: Signals,
    desk: Desk,
    proxy: Proxy,
    inner: S,
) -> Result<End, Error>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = ProxyError, Future: Send + 'static>
        + Introduce
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let Some(cache) = &config.cache else { return serve(config, reserved, signals, desk, proxy, inner).await };
    counters::describe();
    let layer = builder(cache, config, &proxy)?.build();
    let desk = desk.with_cache(layer.handle());
    serve(config, reserved, signals, desk, proxy, layer.layer(inner)).await
}

fn builder(cache: &CacheConfig, config: &ProxyConfig, proxy: &Proxy) -> Result<Builder, Error> {
    let builder = cache::builder(cache)?.scheme(config.server.scheme()).overwritten(proxy.overwritten());
    let builder =
        builder.unchanged_by(|error| error.downcast_ref().is_some_and(|error: &ProxyError| !error.is_in_doubt()));
    let builder = if config.sharing.guesses_lifetimes { builder } else { builder.heuristic(None) };
    Ok(if config.sharing.shares_cookies { builder.share_cookies() } else { builder })
}

async fn serve<S, B>(
    config: &ProxyConfig,
    reserved: Reserved,
    signals: Signals,
    desk: Desk,
    proxy: Proxy,
    inner: S,
) -> Result<End, Error>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = ProxyError, Future: Send + 'static>
        + Introduce
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let desk = Arc::new(desk);
    let mut server = Server::new(&config.server, Arc::clone(&desk))?;
    let (listeners, address) = reserved.listen()?;
    let front = Front::new(inner, proxy, config.server.limits.body_size);
    // Whether a request is allowed is for the upstream to say.
    server.open(listeners, Gateway::new(desk, front, |_| true).forwarding());
    banner::print(config, address);
    Ok(server.run(signals).await)
}
