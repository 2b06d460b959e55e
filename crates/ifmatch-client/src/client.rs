//! The client: a backend, a clock, and time limits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock, SystemClock, task};
use tokio::sync::watch;

use crate::backend::{Backend, Http, HttpError};
use crate::error::Error;
use crate::pause::Backoff;
use crate::version::Version;

/// Default time limit of an operation, with all its attempts.
const PATIENCE: Duration = Duration::from_secs(30);
/// Default time limit of one attempt.
const ATTEMPT: Duration = Duration::from_secs(10);

/// A client for one server or store. Clones share its connections.
///
/// ```
/// use ifmatch_client::{Client, Memory};
///
/// let client = Client::new(Memory::default());
/// let document = client.json::<Vec<String>>("guests.json");
/// let lock = client.lock("locks/bill");
/// ```
#[derive(Clone)]
pub struct Client {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    /// Time limit of an operation.
    patience: Duration,
    /// Time limit of one attempt.
    attempt: Duration,
    /// `true` once the server has shown that it honours conditions.
    is_proven: Arc<AtomicBool>,
    /// Each task that acquires, renews or releases a lock has a receiver.
    background: Arc<watch::Sender<()>>,
}

impl Client {
    /// Creates a client for a backend.
    pub fn new(backend: impl Backend) -> Self {
        let clock = Arc::new(SystemClock);
        Self {
            backend: Arc::new(backend),
            clock,
            patience: PATIENCE,
            attempt: ATTEMPT,
            is_proven: Arc::default(),
            background: Arc::default(),
        }
    }

    /// Creates a client for the keys below a URL, without a token.
    ///
    /// # Errors
    /// Same as [`Http::new`].
    pub fn http(url: &str) -> Result<Self, HttpError> {
        Http::new(url).map(Self::new)
    }

    /// Sets the time limit for an operation with all its attempts. Defaults to 30 seconds. After that, the operation
    /// fails with [`Contended`](crate::ErrorKind::Contended) if other writers were always first, and with
    /// [`Unknown`](crate::ErrorKind::Unknown) if the server didn't respond.
    #[must_use]
    pub fn with_patience(mut self, limit: Duration) -> Self {
        self.patience = limit;
        self
    }

    /// Sets the time limit for one attempt. Defaults to 10 seconds.
    #[must_use]
    pub fn with_attempt_timeout(mut self, limit: Duration) -> Self {
        self.attempt = limit;
        self
    }

    /// Sets the clock. Defaults to the system's.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Returns the backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Waits until all locks of this client and its clones have been released, even those that were dropped, during
    /// acquisition or after it. A background task releases dropped locks: if the runtime ends first, the lock stays
    /// held for its time to live.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let client = Client::new(Memory::default());
    /// drop(client.lock("a").acquire().await?);
    /// client.released().await;
    /// assert!(client.lock("a").try_acquire().await?.is_some());
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn released(&self) {
        self.background.closed().await;
    }

    /// Spawns work on a lock in the background, which [`released`](Self::released) waits for.
    pub(crate) fn detach(&self, work: impl Future<Output = ()> + Send + 'static) {
        let background = self.background.subscribe();
        drop(task::detach(async move {
            work.await;
            drop(background);
        }));
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn attempt_timeout(&self) -> Duration {
        self.attempt
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Lists keys, within the time limit of an operation.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let listed = task::timeout(&self.clock, self.patience, self.backend.list(prefix)).await;
        listed.unwrap_or_else(|elapsed| {
            Err(Error::unknown(format!(
                "the listing of {prefix}: {elapsed}"
            )))
        })
    }

    /// Makes one attempt to delete a version.
    pub(crate) async fn delete(&self, key: &str, version: &Version) -> Result<(), Error> {
        let deleted =
            task::timeout(&self.clock, self.attempt, self.backend.delete(key, version)).await;
        deleted.unwrap_or_else(|elapsed| {
            Err(Error::unknown(format!("the deletion of {key}: {elapsed}")))
        })
    }

    /// Makes sure, once, that the server honours conditions, using a document that exists. Tries again until there is a
    /// response.
    pub(crate) async fn prove(
        &self,
        key: &str,
        body: &Bytes,
        version: &Version,
        until: Timestamp,
    ) -> Result<(), Error> {
        let mut backoff = Backoff::default();
        while !self.is_proven() {
            let probed = task::timeout(
                &self.clock,
                self.attempt,
                self.backend.probe(key, body, version),
            )
            .await;
            match probed.unwrap_or_else(|elapsed| Err(Error::unknown(format!("{key}: {elapsed}"))))
            {
                Ok(()) => self.is_proven.store(true, Ordering::Relaxed),
                Err(error)
                    if error.is_unknown()
                        && self.pause_after(&error, backoff.next(), until).await => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns `true` once the server has shown that it honours conditions.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven.load(Ordering::Relaxed)
    }

    /// Makes one attempt to delete what was created in vain.
    pub(crate) async fn discard(&self, key: &str) -> Result<(), Error> {
        let discarded = task::timeout(&self.clock, self.attempt, self.backend.discard(key)).await;
        discarded.unwrap_or_else(|elapsed| {
            Err(Error::unknown(format!("the deletion of {key}: {elapsed}")))
        })
    }

    /// Returns the end of an operation that starts now.
    pub(crate) fn until(&self) -> Timestamp {
        self.clock.now().saturating_add(self.patience)
    }

    /// Pauses after an error, as [`pause`](Self::pause) does, or for as long as the server asks, but for at most half of the time that
    /// is left.
    pub(crate) async fn pause_after(
        &self,
        error: &Error,
        pause: Duration,
        until: Timestamp,
    ) -> bool {
        let asked = error
            .retry_after()
            .unwrap_or_default()
            .min(self.clock.now().until(until) / 2);
        self.pause(pause.max(asked), until).await
    }

    /// Pauses before the next attempt. Returns `false` if the time would then be over.
    pub(crate) async fn pause(&self, pause: Duration, until: Timestamp) -> bool {
        if self.clock.now().saturating_add(pause) >= until {
            return false;
        }
        self.clock.sleep(pause).await;
        self.clock.now() < until
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("patience", &self.patience)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
