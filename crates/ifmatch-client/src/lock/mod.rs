//! A lock by compare-and-swap, with renewal, a signal of its loss, and fencing.

mod held;

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lock::{self, Challenge, LockRecord, MIN_TTL, Observation};
use ifmatch_runtime::{Clock, jittered, nonce, task};
use tokio::sync::oneshot;

pub use self::held::Held;
use crate::client::Client;
use crate::document::{
    Document, DocumentSnapshot, LONG_POLL, LoadedDocument, RawDocument, RetryPace, Waited,
    WriteOutcome,
};
use crate::error::Error;
use crate::grant::Grant;
use crate::pause::{Backoff, sleep_until};
use crate::version::Version;

/// Default time to live.
const TTL: Duration = Duration::from_secs(30);
/// Interval between looks at a lock that is held, if the server doesn't wait: a tenth of the time to live, within these.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// A lock at one key. The server needs nothing but strong entity tags.
///
/// The holder renews it every third of its time to live. Another client takes over after it has seen the same version
/// for a full time to live on its own clock. Clocks needn't show the same time, but their rates must agree within a
/// tenth. When a suspended machine wakes up, its holder finds the lock lost.
///
/// A lock alone can't stop a request that's already in flight. Use [`Grant::fence`] wherever the work writes, for
/// example with [`Document::update_fenced`](crate::Document::update_fenced).
///
/// ```
/// use std::time::Duration;
/// use ifmatch_client::{Client, Memory};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let client = Client::new(Memory::default());
/// let lock = client.lock("locks/bill").ttl(Duration::from_secs(15)).holder("host 1");
/// let bills = client.json::<u32>("bills");
/// let count = lock.with(|held| async move { bills.update_fenced(&held, |count| *count += 1).await }).await??;
/// assert_eq!(count, 1);
/// # Ok::<(), ifmatch_client::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    raw: RawDocument,
    ttl: Duration,
    holder: Arc<str>,
    seen: Arc<Mutex<SeenLock>>,
}

/// The state of the lock at its last read.
#[derive(Debug, Default)]
struct SeenLock {
    snapshot: Option<DocumentSnapshot>,
    observation: Observation<Version>,
}

/// The next step of a client that wants the lock.
enum Next {
    /// Replace the record, which is free or has ended. `None` creates it.
    Take(Option<DocumentSnapshot>),
    /// Another client holds the lock by this version, until this time unless it is renewed or released.
    Wait(Version, Timestamp, Waited),
}

impl Next {
    /// Returns the version of the record, or `None` if there is none.
    fn version(&self) -> Option<&Version> {
        match self {
            Self::Take(base) => base.as_ref()?.version.as_ref(),
            Self::Wait(version, ..) => Some(version),
        }
    }
}

/// The end of a wait for the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    Never,
    /// This time.
    At(Timestamp),
    /// The first sign of the holder: it renews or releases the lock.
    SignOfLife,
}

impl Limit {
    fn time(self) -> Option<Timestamp> {
        if let Self::At(time) = self {
            Some(time)
        } else {
            None
        }
    }
}

impl Client {
    /// Returns the lock at a key.
    pub fn lock(&self, key: impl Into<Arc<str>>) -> Lock {
        Lock::new(self.clone(), key.into())
    }
}

impl Lock {
    fn new(client: Client, key: Arc<str>) -> Self {
        let holder = format!("process {}", std::process::id()).into();
        Self {
            raw: RawDocument { client, key },
            ttl: TTL,
            holder,
            seen: Arc::default(),
        }
    }

    /// Sets the time to live, at least 3 seconds. Defaults to 30 seconds. A crashed holder blocks others for this long.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the label that others see. Defaults to the process id.
    #[must_use]
    pub fn holder(mut self, label: impl Into<Arc<str>>) -> Self {
        self.holder = label.into();
        self
    }

    /// Acquires the lock, runs the work, and releases the lock. Waits indefinitely while others hold it.
    ///
    /// Drops the work if the lock is lost.
    ///
    /// # Errors
    /// `Lost` if the lock was lost before the work ended, or the errors of [`acquire`](Self::acquire).
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let lock = Client::new(Memory::default()).lock("a");
    /// assert_eq!(lock.with(|held| async move { held.is_lost() }).await?, false);
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn with<T, F: Future<Output = T>>(
        &self,
        work: impl FnOnce(Grant) -> F,
    ) -> Result<T, Error> {
        let held = self.acquire().await?;
        let done = held.during(work(held.grant().clone())).await;
        // The lock ends by itself if this fails.
        let _ = held.release().await;
        done
    }

    /// Acquires the lock. Waits indefinitely while others hold it, or the server doesn't respond.
    ///
    /// If the future is dropped but the lock is acquired anyway, the lock is released.
    ///
    /// # Errors
    /// `Refused` if the server rejects the requests, or if the time to live is too short.
    pub async fn acquire(&self) -> Result<Held, Error> {
        self.acquire_until(Limit::Never)
            .await?
            .ok_or_else(|| Error::unknown("the wait has no end"))
    }

    /// Acquires the lock, or gives up after this long.
    ///
    /// # Errors
    /// Same as [`acquire`](Self::acquire); `Unknown` if the server doesn't respond within `limit` plus the client's
    /// [patience](Client::with_patience). A lock that is acquired after that is released.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let lock = Client::new(Memory::default()).lock("a");
    /// assert!(lock.acquire_within(Duration::from_secs(1)).await?.is_some());
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire_within(&self, limit: Duration) -> Result<Option<Held>, Error> {
        self.acquire_until(Limit::At(
            self.raw.client.clock().now().saturating_add(limit),
        ))
        .await
    }

    /// Acquires the lock if it is free. A crashed holder's lock counts as free once this object has seen it unchanged
    /// for its full time to live.
    ///
    /// # Errors
    /// Same as [`acquire_within`](Self::acquire_within).
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let client = Client::new(Memory::default());
    /// let held = client.lock("a").try_acquire().await?;
    /// assert!(client.lock("a").try_acquire().await?.is_none());
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Held>, Error> {
        self.acquire_within(Duration::ZERO).await
    }

    /// Acquires the lock if it is free or its holder has crashed, for work that one of several machines should do once.
    ///
    /// Returns `None` as soon as a holder renews or releases the lock, which takes at most a third of the holder's time
    /// to live. A holder that does neither for its full time to live has crashed. Hold the lock until all machines have
    /// started the work: one that starts after the release acquires it, too.
    ///
    /// # Errors
    /// `Unknown` if the server doesn't respond, or the errors of [`acquire`](Self::acquire).
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let client = Client::new(Memory::default());
    /// if let Some(held) = client.lock("report").acquire_unless_held().await? {
    ///     // Make the report.
    ///     held.release().await?;
    /// }
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire_unless_held(&self) -> Result<Option<Held>, Error> {
        self.acquire_until(Limit::SignOfLife).await
    }

    /// Returns the document with the lock's record.
    pub(crate) fn record(&self) -> Document<LockRecord> {
        Document::new(self.raw.client.clone(), Arc::clone(&self.raw.key))
    }

    /// Acquires in a task of its own, so a request in flight isn't abandoned with its outcome.
    async fn acquire_until(&self, limit: Limit) -> Result<Option<Held>, Error> {
        if self.ttl < MIN_TTL {
            return Err(Error::refused(format!(
                "a lock's time to live must be at least {MIN_TTL:?}"
            )));
        }
        let (mut tell, told) = oneshot::channel();
        let lock = self.clone();
        self.raw.client.detach(async move {
            let acquired = lock.wait(limit, &mut tell).await;
            // If the caller is gone, the lock is dropped here, which releases it.
            drop(tell.send(acquired));
        });
        let ended = |_| Error::unknown("the runtime has ended");
        let Some(until) = limit.time() else {
            return told.await.map_err(ended)?;
        };
        let (clock, patience) = (self.raw.client.clock(), self.raw.client.patience());
        match task::until(clock, until.saturating_add(patience), told).await {
            Ok(told) => told.map_err(ended)?,
            Err(_) => Err(Error::unknown(format!(
                "{}: no response in time",
                self.raw.key
            ))),
        }
    }

    /// Looks at the lock until it can be taken, the limit is reached, or the caller is gone.
    async fn wait<T: Send>(
        &self,
        limit: Limit,
        caller: &mut oneshot::Sender<T>,
    ) -> Result<Option<Held>, Error> {
        let clock = self.raw.client.clock();
        let until = limit.time();
        let mut backoff = Backoff::default();
        let (mut poll, mut first) = (None, None);
        loop {
            // Only the look that follows has this much time: after an error or a lost race, less is left.
            let next = match select(pin!(self.look(poll.take())), pin!(caller.closed())).await {
                Either::Left((next, _)) => next,
                Either::Right(_) => return Ok(None),
            };
            if limit == Limit::SignOfLife
                && let Ok(next) = &next
            {
                let version = next.version().cloned();
                if *first.get_or_insert_with(|| version.clone()) != version {
                    return Ok(None);
                }
            }
            // A write isn't abandoned, even if the caller is gone.
            let result = match next {
                Ok(Next::Take(base)) => self.take(base).await,
                Ok(Next::Wait(_, end, waited)) => {
                    let interval = (self.ttl / 10).clamp(INTERVALS.0, INTERVALS.1);
                    let pause = if waited {
                        Duration::ZERO
                    } else {
                        jittered(interval)
                    };
                    let latest = until.map_or(end, |until| until.min(end));
                    poll = Some(LONG_POLL.min(clock.now().saturating_add(pause).until(latest)));
                    backoff = Backoff::default();
                    Err((end.min(clock.now().saturating_add(pause)), None))
                }
                Err(error) => Err((clock.now().saturating_add(backoff.next()), Some(error))),
            };
            let (wake, failed) = match result {
                Ok(held) => return Ok(Some(held)),
                Err((_, Some(error))) if limit == Limit::SignOfLife || !error.is_unknown() => {
                    return Err(error);
                }
                Err(later) => later,
            };
            if until.is_some_and(|until| until <= clock.now()) {
                return failed.map_or(Ok(None), Err);
            }
            let wake = until.map_or(wake, |until| wake.min(until));
            if let Either::Right(_) =
                select(pin!(sleep_until(clock, wake)), pin!(caller.closed())).await
            {
                return Ok(None);
            }
        }
    }

    /// Reads the record. With `poll`, the server may wait for a change for this time.
    async fn look(&self, poll: Option<Duration>) -> Result<Next, Error> {
        let known = self.seen().snapshot.clone();
        let version = known.as_ref().and_then(|known| known.version.as_ref());
        let (snapshot, waited) = match self.raw.read(version, poll).await? {
            LoadedDocument::Absent => return Ok(Next::Take(None)),
            LoadedDocument::Unchanged(waited) => (known, waited),
            LoadedDocument::Found(snapshot, waited) => (Some(snapshot), waited),
        };
        // After the read, so the holder has sent this version before.
        let now = self.raw.client.clock().now();
        let Some(snapshot) = snapshot else {
            return Ok(Next::Take(None));
        };
        let version = snapshot
            .version
            .clone()
            .ok_or_else(|| self.raw.no_strong_tag())?;
        let record = record(&snapshot)?;
        let mut seen = self.seen();
        seen.snapshot = Some(snapshot.clone());
        Ok(
            match seen.observation.challenge(&record, version.clone(), now) {
                Challenge::TakeOver => Next::Take(Some(snapshot)),
                Challenge::Wait { until } => Next::Wait(version, until, waited),
            },
        )
    }

    /// Replaces the record. Otherwise returns the time of the next look, and the error, unless a rival was first.
    async fn take(
        &self,
        base: Option<DocumentSnapshot>,
    ) -> Result<Held, (Timestamp, Option<Error>)> {
        let clock = self.raw.client.clock();
        let failed = |error: Error| (clock.now(), Some(error));
        let previous = base.as_ref().map(record).transpose().map_err(failed)?;
        let record = LockRecord::taken(previous.as_ref(), &self.holder, self.ttl, clock.wall());
        let id = nonce().map_err(|error| failed(Error::refused(error.to_string())))?;
        let sent = clock.now();
        let mut pace = RetryPace::until(lock::deadline(sent, self.ttl));
        match self
            .raw
            .write(
                base.as_ref(),
                json(&record).map_err(failed)?,
                None,
                &mut pace,
            )
            .await
            .map_err(failed)?
        {
            WriteOutcome::Done(snapshot) => Ok(Held::new(
                self.raw.clone(),
                snapshot,
                record,
                format!("{id:016x}"),
                sent,
            )),
            WriteOutcome::Superseded | WriteOutcome::Conflict(..) => Err((clock.now(), None)),
        }
    }

    fn seen(&self) -> MutexGuard<'_, SeenLock> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record(snapshot: &DocumentSnapshot) -> Result<LockRecord, Error> {
    let wrong = |error| Error::refused(format!("the content is not a lock's: {error}"));
    serde_json::from_value(snapshot.value.clone()).map_err(wrong)
}

fn json(record: &LockRecord) -> Result<serde_json::Value, Error> {
    serde_json::to_value(record).map_err(|error| Error::refused(error.to_string()))
}
