//! A plain caching proxy made with Pingora, as a peer in the comparison of caches: `pingora-peer LISTEN UPSTREAM`.
//!
//! One thread; responses are kept in memory as `Cache-Control` allows; concurrent requests share one request to the origin.

use std::env;
use std::error::Error as StdError;
use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use pingora::cache::cache_control::CacheControl;
use pingora::cache::eviction::lru::Manager;
use pingora::cache::filters::resp_cacheable;
use pingora::cache::lock::{CacheKeyLockImpl, CacheLock};
use pingora::cache::{CacheKey, CacheMetaDefaults, MemCache, RespCacheable};
use pingora::http::ResponseHeader;
use pingora::prelude::*;
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;

/// Capacity in bytes, as for the other caches.
const LIMIT: usize = 4 << 30;
/// Responses without explicit freshness aren't fresh.
const DEFAULTS: CacheMetaDefaults = CacheMetaDefaults::new(|_| None, 0, 0);

static STORED: LazyLock<MemCache> = LazyLock::new(MemCache::new);
static EVICTION: LazyLock<Manager<16>> = LazyLock::new(|| Manager::with_capacity(LIMIT, 8192));
static WAITERS: LazyLock<Box<CacheKeyLockImpl>> =
    LazyLock::new(|| CacheLock::new_boxed(Duration::from_secs(60)));

struct Proxy {
    upstream: String,
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(
            &self.upstream,
            false,
            String::new(),
        )))
    }

    fn request_cache_filter(&self, session: &mut Session, (): &mut ()) -> Result<()> {
        session
            .cache
            .enable(&*STORED, Some(&*EVICTION), None, Some(&**WAITERS), None);
        Ok(())
    }

    fn cache_key_callback(&self, session: &Session, (): &mut ()) -> Result<CacheKey> {
        let head = session.req_header();
        let host = head
            .headers
            .get("host")
            .map_or(&b""[..], |host| host.as_bytes());
        Ok(CacheKey::new([host, head.raw_path()].concat(), ""))
    }

    fn response_cache_filter(
        &self,
        session: &Session,
        head: &ResponseHeader,
        (): &mut (),
    ) -> Result<RespCacheable> {
        let authorized = session.req_header().headers.contains_key("authorization");
        let control = CacheControl::from_resp_headers(head);
        Ok(resp_cacheable(
            control.as_ref(),
            head.clone(),
            authorized,
            &DEFAULTS,
        ))
    }
}

fn main() -> std::result::Result<(), Box<dyn StdError>> {
    let args: Vec<_> = env::args().skip(1).collect();
    let [listen, upstream] = args.as_slice() else {
        return Err("usage: pingora-peer LISTEN UPSTREAM".into());
    };
    let conf = ServerConf {
        threads: 1,
        grace_period_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(
        &server.configuration,
        Proxy {
            upstream: upstream.clone(),
        },
    );
    service.add_tcp(listen);
    server.add_service(service);
    server.run_forever()
}
