//! The progress of this node through the log: it carries out the purges of others, and adds its own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use ifmatch_cache::{CacheHandle, Purge};
use ifmatch_core::date::Timestamp;
use ifmatch_core::purge_log::{Follower, Missing, wait};
use ifmatch_register::{Register, RegisterError, RegisterErrorKind};
use ifmatch_runtime::nonce;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::log::{LogSegment, PurgeLog};
use super::{PurgeOrder, run_all};

/// Number of reads of the head within the bound. A read may thus take three quarters of the bound.
const READS: u32 = 4;
/// Maximum size of a segment, in bytes.
const SEGMENT: usize = 1 << 16;
/// Maximum number of purges that wait to be appended.
const WAITING: usize = 1 << 12;
/// About the size of a purge in a segment without its texts, in bytes.
const OVERHEAD: usize = 32;

/// A node that follows the log. Cheap to clone.
#[derive(Clone)]
pub struct Following {
    progress: Arc<ReadProgress>,
    cache: CacheHandle,
    appends: mpsc::Sender<(PurgeOrder, AppendReply)>,
    bound: Duration,
}

/// Receives the end of an append.
type AppendReply = oneshot::Sender<Result<(), Arc<RegisterError>>>;

/// A purge that wasn't appended.
#[derive(Debug)]
pub(crate) struct NotAppended(String);

impl fmt::Display for NotAppended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The last complete read.
#[derive(Default)]
struct ReadProgress {
    /// Number of the last segment that was carried out.
    position: AtomicU64,
    /// Its beginning, in microseconds.
    read: AtomicU64,
}

impl Following {
    /// Reads the head, after which the cache may be used, and follows the log from then on. The cache must be new, and have no
    /// requests yet.
    ///
    /// # Errors
    /// If the register fails.
    pub async fn start(
        register: Arc<dyn Register>,
        cache: CacheHandle,
        bound: Duration,
    ) -> Result<Self, RegisterError> {
        let (log, node, began) = (PurgeLog::new(register), nonce()?, cache.now());
        let loaded = log.head().await?;
        let (appends, queue) = mpsc::channel(WAITING);
        let following = Self {
            progress: Arc::default(),
            cache: cache.clone(),
            appends,
            bound,
        };
        let mut reader = LogReader {
            log: log.clone(),
            cache,
            node,
            bound,
            follower: Follower::start(loaded.head, loaded.epoch),
            progress: Arc::clone(&following.progress),
        };
        let until = reader
            .follower
            .caught_up(loaded.head, loaded.epoch, began, bound);
        reader.trust(began, until);
        tokio::spawn(reader.run());
        tokio::spawn(append_all(log, node, queue));
        Ok(following)
    }

    /// Returns once a purge is in the log, and each node knows it or has stopped using stored responses.
    ///
    /// # Errors
    /// If the register fails. The purge may be in the log nevertheless.
    pub(crate) async fn append(&self, order: PurgeOrder) -> Result<(), NotAppended> {
        let (reply, appended) = oneshot::channel();
        self.appends
            .try_send((order, reply))
            .map_err(|_| NotAppended("too many purges wait".into()))?;
        match appended.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(NotAppended(error.to_string())),
            Err(_) => return Err(NotAppended("the proxy is about to stop".into())),
        }
        tokio::time::sleep(wait(self.bound)).await;
        Ok(())
    }

    /// Returns the number of the last segment that was carried out.
    pub(crate) fn position(&self) -> u64 {
        self.progress.position.load(SeqCst)
    }

    /// Returns the time since the beginning of the last complete read.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_micros(
            self.cache
                .now()
                .micros()
                .saturating_sub(self.progress.read.load(SeqCst)),
        )
    }

    /// Returns `true` if stored responses are validated, since the log can't be read.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.age() >= self.bound
    }
}

/// The task that reads the log.
struct LogReader {
    log: PurgeLog,
    cache: CacheHandle,
    node: u64,
    bound: Duration,
    follower: Follower,
    progress: Arc<ReadProgress>,
}

impl LogReader {
    /// Reads the log until the process ends. Logs when it can't be read, and when it can again.
    async fn run(mut self) {
        let mut is_well = true;
        loop {
            tokio::time::sleep(self.bound / READS).await;
            let read = self.read().await;
            match &read {
                Err(error) if is_well => {
                    tracing::warn!(%error, "cannot read the purge log, so stored responses are validated before use");
                }
                Ok(()) if !is_well => tracing::info!("the purge log is readable again"),
                _ => {}
            }
            is_well = read.is_ok();
        }
    }

    /// Carries out the purges of others since the last read, and renews the use of stored responses.
    async fn read(&mut self) -> Result<(), RegisterError> {
        let began = self.cache.now();
        let loaded = timeout(self.bound, self.log.head()).await;
        let loaded = loaded.map_err(|_| {
            RegisterError::new(RegisterErrorKind::Unavailable, "it does not answer")
        })??;
        let segments = match self.follower.missing(loaded.head, loaded.epoch) {
            Missing::Nothing => Some(Vec::new()),
            Missing::Segments { after } => self.log.after(after, loaded.head).await?,
            Missing::Everything => None,
        };
        if let Some(segments) = segments {
            let others = segments.iter().filter(|segment| segment.by != self.node);
            run_all(
                &others
                    .flat_map(|segment| &segment.orders)
                    .collect::<Vec<_>>(),
                &self.cache,
            );
        } else {
            tracing::warn!(
                "the purge log has a gap since this proxy last read it, so all responses are purged"
            );
            self.cache.purge(&Purge::Prefix(String::new()));
        }
        let until = self
            .follower
            .caught_up(loaded.head, loaded.epoch, began, self.bound);
        self.trust(began, until);
        Ok(())
    }

    /// Lets the cache use stored responses until a time, and records the read that began at `began`.
    fn trust(&mut self, began: Timestamp, until: Timestamp) {
        self.cache.trust_until(until);
        self.progress
            .position
            .store(self.follower.position(), SeqCst);
        self.progress.read.store(began.micros(), SeqCst);
    }
}

/// Appends purges. Purges that arrive in the meantime share the next segment.
async fn append_all(
    log: PurgeLog,
    node: u64,
    mut queue: mpsc::Receiver<(PurgeOrder, AppendReply)>,
) {
    while let Some((order, reply)) = queue.recv().await {
        let mut size = size(&order);
        let (mut orders, mut replies) = (vec![order], vec![reply]);
        while size < SEGMENT
            && let Ok((order, reply)) = queue.try_recv()
        {
            size += self::size(&order);
            orders.push(order);
            replies.push(reply);
        }
        let appended = log
            .append(&LogSegment { by: node, orders })
            .await
            .map_err(Arc::new);
        for reply in replies {
            // The client may have left.
            let _left = reply.send(appended.as_ref().map(|_| ()).map_err(Arc::clone));
        }
        if let Ok(head) = appended
            && let Err(error) = log.sweep(head).await
        {
            tracing::debug!(%error, "cannot remove old segments of the purge log yet");
        }
    }
}

/// Returns the approximate size of an order in a segment, in bytes.
fn size(order: &PurgeOrder) -> usize {
    let of = |purge: &Purge| match purge {
        Purge::Url(text) | Purge::Prefix(text) => text.len(),
        Purge::Group { origin, name } => origin.len() + name.len(),
    };
    order.purges.iter().map(|purge| OVERHEAD + of(purge)).sum()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use ifmatch_cache::CacheLayer;
    use ifmatch_register::faulty::FaultyRegister;
    use ifmatch_register::{Engine, Epoch, Key};
    use ifmatch_runtime::ManualClock;
    use tower::{ServiceExt, service_fn};
    use tower_layer::Layer;

    use super::*;

    const BOUND: Duration = Duration::from_secs(2);
    const URL: &str = "http://example.com/";

    /// An origin, a register, and the log in it.
    struct World {
        version: Arc<AtomicU64>,
        clock: ManualClock,
        register: FaultyRegister,
        log: PurgeLog,
    }

    impl World {
        fn new() -> Self {
            let register = FaultyRegister::default();
            let log = PurgeLog::new(Arc::new(register.clone()));
            Self {
                version: Arc::default(),
                clock: ManualClock::default().with_timers(),
                register,
                log,
            }
        }

        fn pass(&self, seconds: u64) {
            self.clock.advance(Duration::from_secs(seconds));
        }

        /// Starts a node, and returns its reader with a function that reads through its cache.
        async fn node(&self) -> (LogReader, impl AsyncFn() -> u64) {
            let layer = CacheLayer::builder().clock(self.clock.clone()).build();
            let version = Arc::clone(&self.version);
            let cache = layer.layer(service_fn(move |_: Request<Full<Bytes>>| {
                let body = version.load(SeqCst).to_string();
                let response = Response::builder()
                    .header("cache-control", "max-age=600")
                    .header("etag", format!("\"{body}\""));
                std::future::ready(Ok::<_, Infallible>(
                    response.body(Full::<Bytes>::from(body)).unwrap(),
                ))
            }));
            let get = async move || {
                let request = Request::get(URL).body(Full::default()).unwrap();
                let response = cache.clone().oneshot(request).await.unwrap();
                let body = response.into_body().collect().await.unwrap().to_bytes();
                std::str::from_utf8(&body).unwrap().parse().unwrap()
            };
            let loaded = self.log.head().await.unwrap();
            let reader = LogReader {
                log: self.log.clone(),
                cache: layer.handle(),
                node: nonce().unwrap(),
                bound: BOUND,
                follower: Follower::start(loaded.head, loaded.epoch),
                progress: Arc::default(),
            };
            (reader, get)
        }

        /// Changes the resource, and appends its purge.
        async fn purge(&self) {
            self.version.fetch_add(1, SeqCst);
            let order = PurgeOrder {
                purges: vec![Purge::Url(URL.to_owned())],
                soft: false,
            };
            self.log
                .append(&LogSegment {
                    by: 0,
                    orders: vec![order],
                })
                .await
                .unwrap();
        }
    }

    #[tokio::test]
    async fn a_purge_of_another_node_is_carried_out_with_the_next_read() {
        let world = World::new();
        let (mut reader, get) = world.node().await;
        reader.read().await.unwrap();
        assert_eq!(get().await, 0);
        world.purge().await;
        assert_eq!(get().await, 0, "within the bound");
        reader.read().await.unwrap();
        assert_eq!(get().await, 1);
    }

    #[tokio::test]
    async fn a_node_that_is_cut_off_validates_after_the_bound_and_catches_up() {
        let world = World::new();
        let (mut reader, get) = world.node().await;
        reader.read().await.unwrap();
        assert_eq!(get().await, 0);
        world.purge().await;
        world.register.cut(true);
        world.pass(1);
        reader.read().await.unwrap_err();
        assert_eq!(get().await, 0, "within the bound");
        world.pass(1);
        assert_eq!(get().await, 1, "validated");
        world.version.fetch_add(1, SeqCst);
        assert_eq!(get().await, 2, "validated each time");
        world.register.cut(false);
        reader.read().await.unwrap();
        world.version.fetch_add(1, SeqCst);
        assert_eq!(get().await, 3, "what was stored before the purge is gone");
        world.version.fetch_add(1, SeqCst);
        assert_eq!(get().await, 3, "stored responses are used again");
    }

    #[tokio::test]
    async fn a_gap_and_a_failover_purge_everything() {
        for is_failover in [false, true] {
            let world = World::new();
            let (mut reader, get) = world.node().await;
            reader.read().await.unwrap();
            assert_eq!(get().await, 0);
            world.version.fetch_add(1, SeqCst);
            if is_failover {
                let epoch = Epoch {
                    number: 1,
                    ..Epoch::default()
                };
                world.register.set_engine(Engine {
                    epoch,
                    ..world.register.engine()
                });
            } else {
                let log = Key::new("purge-log").unwrap();
                let head = world.register.records().load(&log).await.unwrap().unwrap();
                world
                    .register
                    .records()
                    .compare_and_swap(&log, head.revision(), None)
                    .await
                    .unwrap();
            }
            reader.read().await.unwrap();
            assert_eq!(get().await, 1, "failover: {is_failover}");
        }
    }

    #[tokio::test]
    async fn purges_that_wait_share_a_segment() {
        let world = World::new();
        let (appends, queue) = mpsc::channel(WAITING);
        let order = || PurgeOrder {
            purges: vec![Purge::Url(URL.to_owned())],
            soft: true,
        };
        let replies: Vec<_> = (0..100)
            .map(|_| {
                let (reply, appended) = oneshot::channel();
                appends.try_send((order(), reply)).unwrap();
                appended
            })
            .collect();
        drop(appends);
        append_all(world.log.clone(), 7, queue).await;
        for appended in replies {
            appended.await.unwrap().unwrap();
        }
        let head = world.log.head().await.unwrap().head;
        let segments = world.log.after(0, head).await.unwrap().unwrap();
        assert_eq!(
            segments,
            [LogSegment {
                by: 7,
                orders: vec![order(); 100]
            }]
        );
    }
}
