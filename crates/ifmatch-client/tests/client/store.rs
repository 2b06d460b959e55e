//! A store that loses responses and requests, and clocks that can be stopped, on tokio's paused time.

use std::collections::HashMap;
use std::future::pending;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ifmatch_client::{Backend, Client, Error, ErrorKind, Found, Memory, Put, Read, Version, When};
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock, async_trait};
use tokio::time::{Instant, sleep};

/// Time that each request and each response takes.
const LATENCY: Duration = Duration::from_millis(1);

/// The longest pause between a client's looks at a lock, with the latency of the store.
pub(crate) const LOOK: Duration = Duration::from_millis(1_100);

/// The fault of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The write takes effect, and its response is lost.
    Answer,
    /// The request is lost.
    Request,
    /// The store asks for another attempt later: 503 with `Retry-After`.
    Later(Duration),
    /// The store rejects the write because it is busy with another one, which may be an earlier attempt of the same: 409, as
    /// S3 and the gateway answer.
    Busy,
}

/// Returns the fault of the write with a number.
type Faults = fn(usize) -> Fault;

/// A store. Clones are the same store.
#[derive(Clone, Default)]
pub(crate) struct Store(Arc<Inner>);

#[derive(Default)]
struct Inner {
    memory: Memory,
    writes: AtomicUsize,
    faults: Mutex<Option<Faults>>,
    /// Tags are hashes of the bytes, as in S3.
    hashes: AtomicBool,
    /// Answers date the content, as `Last-Modified` does, if set.
    dates: Mutex<Option<Dates>>,
    /// There are no strong tags.
    weak: AtomicBool,
    /// Reads of keys with this prefix get no response, if set.
    unreadable: Mutex<Option<&'static str>>,
}

/// Dates by a clock of the store's own, in whole seconds, as in HTTP.
struct Dates {
    start: Instant,
    /// Dates are the next whole second's, and told once it has come, as in ifmatch.
    are_rounded_up: bool,
    /// Seconds from the start until each key was written.
    written: HashMap<String, u64>,
}

impl Dates {
    fn write(&mut self, key: &str) {
        let seconds = self.start.elapsed().as_secs() + u64::from(self.are_rounded_up);
        self.written.insert(key.to_owned(), seconds);
    }

    fn tell(&self, key: &str) -> Option<SystemTime> {
        let seconds = *self.written.get(key)?;
        (seconds <= self.start.elapsed().as_secs())
            .then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }
}

/// A client's connection to the store.
#[derive(Clone)]
pub(crate) struct Connection {
    store: Store,
    cut: Arc<AtomicBool>,
    polls: Arc<Mutex<LongPolls>>,
}

/// What becomes of reads that may wait for a change.
#[derive(Clone, Copy, Debug, Default)]
enum LongPolls {
    /// The store doesn't wait.
    #[default]
    Ignored,
    /// The store waits for the whole time.
    Granted,
    /// The connection of the first one breaks after this time.
    BreakOnce(Duration),
}

impl Store {
    /// Fails the writes for which the function returns a fault.
    pub(crate) fn fail(&self, faults: Faults) {
        *self.0.faults.lock().unwrap() = Some(faults);
    }

    /// From now on, tags are hashes of the bytes.
    pub(crate) fn use_hashes(&self) {
        self.0.hashes.store(true, Ordering::Relaxed);
    }

    /// From now on, answers date the content, by the next whole second if `are_rounded_up`.
    pub(crate) fn tell_dates(&self, are_rounded_up: bool) {
        *self.0.dates.lock().unwrap() = Some(Dates {
            start: Instant::now(),
            are_rounded_up,
            written: HashMap::new(),
        });
    }

    /// Sets the clock of the dates back.
    pub(crate) fn set_clock_back(&self, by: Duration) {
        if let Some(dates) = self.0.dates.lock().unwrap().as_mut() {
            dates.start += by;
        }
    }

    /// From now on, reads of keys with this prefix get no response. `None` ends it.
    pub(crate) fn lose_reads_of(&self, prefix: impl Into<Option<&'static str>>) {
        *self.0.unreadable.lock().unwrap() = prefix.into();
    }

    /// From now on, there are no strong tags.
    pub(crate) fn weaken_tags(&self) {
        self.0.weak.store(true, Ordering::Relaxed);
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection {
            store: self.clone(),
            cut: Arc::default(),
            polls: Arc::default(),
        }
    }

    /// Returns a client with the clock of the test.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.connect())
            .with_clock(Steady)
            .with_patience(Duration::from_hours(10))
    }

    /// Returns the number of writes that were sent.
    pub(crate) fn writes(&self) -> usize {
        self.0.writes.load(Ordering::Relaxed)
    }

    fn shown(&self, version: Version, body: &[u8]) -> Option<Version> {
        if self.0.weak.load(Ordering::Relaxed) {
            return None;
        }
        if !self.0.hashes.load(Ordering::Relaxed) {
            return Some(version);
        }
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        Some(Version::new(hasher.finish().to_string()))
    }

    /// Returns the store's own version for the one that a client names.
    async fn own(&self, key: &str, named: &Version) -> Result<Version, Error> {
        if let Read::Found(Found {
            body,
            version: Some(version),
            ..
        }) = self.0.memory.get(key, None, None).await?
            && self.shown(version.clone(), &body).as_ref() == Some(named)
        {
            return Ok(version);
        }
        Err(Error::new(ErrorKind::Conflict { current: None }, "changed"))
    }

    async fn put(&self, key: &str, put: &Put) -> Result<Option<Version>, Error> {
        let when = match &put.when {
            When::Absent => When::Absent,
            When::Is(named) => When::Is(self.own(key, named).await?),
        };
        let version = self
            .0
            .memory
            .put(
                key,
                &Put {
                    when,
                    ..put.clone()
                },
            )
            .await?;
        if let Some(dates) = &mut *self.0.dates.lock().unwrap() {
            dates.write(key);
        }
        Ok(version.and_then(|version| self.shown(version, &put.body)))
    }
}

impl Connection {
    /// From now on, no request arrives and no response.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    /// From now on, requests and answers arrive again. Those that were on their way are lost.
    pub(crate) fn heal(&self) {
        self.cut.store(false, Ordering::Relaxed);
    }

    /// From now on, the store waits for changes, but the connection of the first read that waits breaks after this time.
    pub(crate) fn break_poll_after(&self, time: Duration) {
        *self.polls.lock().unwrap() = LongPolls::BreakOnce(time);
    }

    /// Waits as the store does before it answers a read. Returns `true` if it has waited.
    async fn poll(&self, wait: Duration) -> Result<bool, Error> {
        let polls = *self.polls.lock().unwrap();
        match polls {
            LongPolls::Ignored => Ok(false),
            LongPolls::Granted => {
                sleep(wait).await;
                Ok(true)
            }
            LongPolls::BreakOnce(time) => {
                *self.polls.lock().unwrap() = LongPolls::Granted;
                sleep(time.min(wait)).await;
                Err(Error::new(ErrorKind::Unknown, "the connection was closed"))
            }
        }
    }

    async fn travel(&self) {
        sleep(LATENCY).await;
        if self.cut.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    }
}

impl Backend for Connection {
    fn get<'a>(
        &'a self,
        key: &'a str,
        known: Option<&'a Version>,
        wait: Option<Duration>,
    ) -> BoxFuture<'a, Result<Read, Error>> {
        async move {
            self.travel().await;
            let waited = match wait {
                Some(wait) => self.poll(wait).await?,
                None => false,
            };
            let unreadable = *self.store.0.unreadable.lock().unwrap();
            if unreadable.is_some_and(|prefix| key.starts_with(prefix)) {
                return Err(Error::new(ErrorKind::Unknown, "the connection was closed"));
            }
            let read = self.store.0.memory.get(key, None, None).await?;
            self.travel().await;
            let Read::Found(Found {
                body,
                version: Some(version),
                ..
            }) = read
            else {
                return Ok(Read::Absent);
            };
            let version = self.store.shown(version, &body);
            if known.is_some() && known == version.as_ref() {
                return Ok(Read::Unchanged { waited });
            }
            let modified = self
                .store
                .0
                .dates
                .lock()
                .unwrap()
                .as_ref()
                .and_then(|dates| dates.tell(key));
            Ok(Read::Found(Found {
                body,
                version,
                modified,
                waited,
            }))
        }
        .boxed()
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        put: &'a Put,
    ) -> BoxFuture<'a, Result<Option<Version>, Error>> {
        async move {
            self.travel().await;
            let number = self.store.0.writes.fetch_add(1, Ordering::Relaxed);
            let fault = self
                .store
                .0
                .faults
                .lock()
                .unwrap()
                .map_or(Fault::None, |fault| fault(number));
            let lost = || Error::new(ErrorKind::Unknown, "the connection was closed");
            match fault {
                Fault::Request => return Err(lost()),
                Fault::Later(delay) => {
                    return Err(Error::new(ErrorKind::Unknown, "503").with_retry_after(Some(delay)));
                }
                Fault::Busy => {
                    return Err(Error::new(
                        ErrorKind::Conflict { current: None },
                        "409 Conflict",
                    ));
                }
                Fault::None | Fault::Answer => {}
            }
            let written = self.store.put(key, put).await;
            self.travel().await;
            if fault == Fault::Answer {
                Err(lost())
            } else {
                written
            }
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            self.travel().await;
            let own = self.store.own(key, version).await?;
            self.store.0.memory.delete(key, &own).await?;
            self.travel().await;
            Ok(())
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        async move {
            self.travel().await;
            let keys = self.store.0.memory.list(prefix).await?;
            self.travel().await;
            Ok(keys)
        }
        .boxed()
    }
}

/// The clock of tokio's time, which a test can pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steady;

thread_local! {
    /// Each test has a thread and a paused time of its own.
    static ORIGIN: Instant = Instant::now();
}

#[async_trait]
impl Clock for Steady {
    fn now(&self) -> Timestamp {
        let since = ORIGIN.with(Instant::elapsed);
        Timestamp::from_micros(1_000_000_000).saturating_add(since)
    }

    async fn sleep(&self, duration: Duration) {
        sleep(duration).await;
    }
}

/// A clock that a test can stop: no time passes for its client, and no timer fires, as for a stopped process. After that
/// it is behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stoppable(Arc<Mutex<Stop>>);

#[derive(Clone, Copy, Debug, Default)]
struct Stop {
    at: Option<Timestamp>,
    behind: Duration,
}

impl Stoppable {
    pub(crate) fn stop(&self) {
        let now = self.now();
        self.0.lock().unwrap().at = Some(now);
    }

    pub(crate) fn resume(&self) {
        let mut stop = self.0.lock().unwrap();
        let Some(at) = stop.at.take() else { return };
        stop.behind = at.until(Steady.now());
    }
}

#[async_trait]
impl Clock for Stoppable {
    fn now(&self) -> Timestamp {
        let Stop { at, behind } = *self.0.lock().unwrap();
        let behind = u64::try_from(behind.as_micros()).unwrap();
        at.unwrap_or_else(|| Timestamp::from_micros(Steady.now().micros() - behind))
    }

    async fn sleep(&self, duration: Duration) {
        sleep(duration).await;
        while self.0.lock().unwrap().at.is_some() {
            sleep(Duration::from_secs(1)).await;
        }
    }
}

/// A clock with a time of day that a test can set, in either direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settable(Arc<Mutex<Timestamp>>);

impl Settable {
    pub(crate) fn set(&self, wall: Timestamp) {
        *self.0.lock().unwrap() = wall;
    }
}

#[async_trait]
impl Clock for Settable {
    fn now(&self) -> Timestamp {
        Steady.now()
    }

    fn wall(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    async fn sleep(&self, duration: Duration) {
        sleep(duration).await;
    }
}
