//! Random readers, writers and purges on several threads: requests after an acknowledged change never get the old version,
//! and bytes never appear under another version's tag.

use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::future::Future;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use ifmatch_cache::{Cache, CacheHandle, CacheLayer, Invalidation, Outcome, Purge};
use tower::{Layer, Service, ServiceExt};

use crate::support::{TestBody, clock, request};

const DOCUMENTS: usize = 4;
const CLIENTS: u64 = 16;
const ROUNDS: u64 = 1_500;
const ORIGIN: &str = "http://origin.example";

/// Documents at `/N`, each with a rendition at `/gN`, which is another resource in the document's group. A body repeats its
/// version; every other document has a tag.
#[derive(Clone, Default)]
struct Documents(Arc<[AtomicU64; DOCUMENTS]>);

/// Yields a random number of times.
async fn yield_randomly() {
    for _ in 0..random() % 4 {
        tokio::task::yield_now().await;
    }
}

fn random() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed))
}

fn one_of<T: Copy, const N: usize>(choices: [T; N]) -> T {
    choices[usize::try_from(random() % N as u64).unwrap()]
}

fn text(version: u64) -> String {
    format!("{version:06} ").repeat(200)
}

impl Service<Request<TestBody>> for Documents {
    type Response = Response<Full<bytes::Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<TestBody>) -> Self::Future {
        let documents = self.clone();
        Box::pin(async move {
            yield_randomly().await;
            Ok(documents.answer(&request).await)
        })
    }
}

impl Documents {
    async fn answer(&self, request: &Request<TestBody>) -> Response<Full<bytes::Bytes>> {
        let name = &request.uri().path()[1..];
        let at: usize = name.trim_start_matches('g').parse().unwrap();
        let is_rendition = name.starts_with('g');
        let is_safe = request.method().is_safe();
        let version = if is_safe || is_rendition {
            self.0[at].load(Ordering::SeqCst)
        } else {
            self.change(at)
        };
        yield_randomly().await;
        let mut response = Response::builder()
            .header("cache-control", "max-age=60")
            .header("vary", "accept-language");
        let tag = at.is_multiple_of(2).then(|| format!("\"{version}\""));
        let known = tag.as_ref().is_some_and(|tag| {
            request
                .headers()
                .get("if-none-match")
                .is_some_and(|known| known == tag.as_str())
        });
        let mut body = text(version);
        if let Some(tag) = tag {
            response = response.header("etag", tag);
        }
        if is_rendition {
            response = response.header("cache-groups", format!("\"{at}\""));
        } else if !is_safe {
            response = response
                .header("x-version", version)
                .header("cache-group-invalidation", format!("\"{at}\""));
        }
        match request.method().as_str() {
            "HEAD" => {
                response = response.header("content-length", body.len());
                body.clear();
            }
            "POST" => response = response.header("content-location", format!("/{name}")),
            "PUT" => body.clear(),
            _ => {}
        }
        if is_safe && known {
            response = response.status(StatusCode::NOT_MODIFIED);
            body.clear();
        }
        response.body(body.into()).unwrap()
    }

    fn change(&self, at: usize) -> u64 {
        self.0[at].fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// A client that reads and changes documents, and tracks the oldest version that any client may get.
#[derive(Clone)]
struct Client {
    cache: Cache<Documents>,
    handle: CacheHandle,
    documents: Documents,
    known: Arc<[AtomicU64; DOCUMENTS]>,
}

impl Client {
    async fn act(&self) {
        let at = usize::try_from(random()).unwrap() % DOCUMENTS;
        let uri = one_of([format!("/{at}").as_str(), format!("/g{at}").as_str()]).to_owned();
        yield_randomly().await;
        match random() % 40 {
            0..=2 => self.write("PUT", &format!("/{at}"), at).await,
            3..=5 => self.write("POST", &uri, at).await,
            6 => self.purge(at),
            7..=10 => self.look(&uri).await,
            _ => self.read(&uri, at).await,
        }
    }

    /// Changes a document, or requests a rendition with POST, which changes nothing and may be stored.
    async fn write(&self, method: &str, uri: &str, at: usize) {
        let written = self
            .cache
            .clone()
            .oneshot(request(method, uri, &[language()]))
            .await
            .unwrap();
        if let Some(version) = written.headers().get("x-version") {
            self.known[at].fetch_max(version.to_str().unwrap().parse().unwrap(), Ordering::SeqCst);
        }
        written.into_body().collect().await.unwrap();
    }

    /// Changes a document behind the cache, then purges it.
    fn purge(&self, at: usize) {
        let version = self.documents.change(at);
        match random() % 3 {
            0 => drop(self.handle.purge(&Purge::Prefix(format!("{ORIGIN}/")))),
            1 => drop(self.handle.purge(&Purge::Prefix(String::new()))),
            _ => {
                self.handle.purge(&Purge::Url(format!("{ORIGIN}/{at}")));
                self.handle.purge(&Purge::Group {
                    origin: ORIGIN.to_owned(),
                    name: at.to_string(),
                });
            }
        }
        self.known[at].fetch_max(version, Ordering::SeqCst);
    }

    /// Sends HEAD, with a pause between the lookup and the request to the origin.
    async fn look(&self, uri: &str) {
        let call = self.cache.clone().call(request(
            "HEAD",
            uri,
            &[("cache-control", "no-cache"), language()],
        ));
        yield_randomly().await;
        call.await.unwrap();
    }

    /// Sends one of several kinds of GET.
    async fn read(&self, uri: &str, at: usize) {
        let least = self.known[at].load(Ordering::SeqCst);
        let way = one_of([
            ("range", "bytes=700-799"),
            ("cache-control", "no-cache"),
            ("accept", "*/*"),
            ("accept", "*/*"),
        ]);
        let call = self
            .cache
            .clone()
            .call(request("GET", uri, &[way, language()]));
        yield_randomly().await;
        let response = call.await.unwrap();
        let tag = response
            .headers()
            .get("etag")
            .map(|tag| tag.to_str().unwrap().trim_matches('"').to_owned());
        let status = response.headers()["cache-status"]
            .to_str()
            .unwrap()
            .to_owned();
        let is_part = response.status() == StatusCode::PARTIAL_CONTENT;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let version: u64 = std::str::from_utf8(&body[..6]).unwrap().parse().unwrap();
        let whole = text(version);
        assert_eq!(
            body,
            if is_part { &whole[700..800] } else { &whole },
            "{uri}: bytes of several versions"
        );
        assert!(
            tag.is_none_or(|tag| tag == version.to_string()),
            "{uri}: another version's tag than {version}"
        );
        assert!(version >= least, "{uri}: {version} after {least}; {status}");
    }
}

fn language() -> (&'static str, &'static str) {
    ("accept-language", one_of(["de", "de", "en"]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_old_version_is_read_after_a_change() {
    let clock = clock();
    let layer = CacheLayer::builder().clock(clock.clone()).build();
    let documents = Documents::default();
    let (cache, handle) = (layer.layer(documents.clone()), layer.handle());
    let first = Client {
        cache,
        handle,
        documents,
        known: Arc::default(),
    };
    let clients = (0..CLIENTS).map(|number| {
        let (client, clock) = (first.clone(), clock.clone());
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                if number == 0 && round % 50 == 0 {
                    clock.advance(Duration::from_secs(61));
                }
                client.act().await;
            }
        })
    });
    for client in futures_util::future::join_all(clients).await {
        client.unwrap();
    }
    let metrics = first.handle.metrics();
    for (count, what) in [
        (metrics.count(Outcome::Hit), "hits"),
        (metrics.named("miss"), "misses"),
        (metrics.count(Outcome::Collapsed), "collapsed"),
        (metrics.invalidated(Invalidation::Write), "invalidated"),
        (metrics.confirmed, "confirmed"),
    ] {
        assert!(count > 0, "no {what}: {metrics:?}");
    }
}
