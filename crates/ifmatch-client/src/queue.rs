//! A queue of jobs, each a document that a worker leases for a limited time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::lock::{self, Challenge, LockRecord, MIN_TTL, Observation};
use ifmatch_runtime::{Clock, nonce};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend::Version;
use crate::client::Client;
use crate::document::{Loaded, Pace, Raw, Snapshot, Written};
use crate::error::{Error, ErrorKind};

/// A queue of jobs.
///
/// A worker that takes a job hides it from the others for a time. If the worker neither finishes nor abandons it,
/// another one may take it. A job is thus done *at least* once: [`Job::fence`] distinguishes a late worker from the
/// next one.
///
/// Taking a job reads the jobs before it, which suits queues of up to a few thousand jobs.
///
/// ```
/// use std::time::Duration;
/// use ifmatch_client::{Client, Memory};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let queue = Client::new(Memory::default()).queue("jobs");
/// queue.push(&"resize 1.jpg").await?;
/// let job = queue.take(Duration::from_secs(60)).await?.unwrap();
/// assert_eq!(job.payload::<String>()?, "resize 1.jpg");
/// assert!(queue.take(Duration::from_secs(60)).await?.is_none());
/// job.done().await?;
/// # Ok::<(), ifmatch_client::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Queue {
    client: Client,
    folder: Arc<str>,
    /// The versions of taken jobs, and since when they have been seen.
    seen: Arc<Mutex<HashMap<String, Observation<Version>>>>,
}

/// A job that this worker has taken.
#[derive(Debug)]
pub struct Job {
    raw: Raw,
    snapshot: Snapshot,
    record: Record,
    deadline: Timestamp,
}

/// The content of a job's document.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    payload: Value,
    attempts: u32,
    done: bool,
    lock: LockRecord,
}

impl Queue {
    pub(crate) fn new(client: Client, folder: Arc<str>) -> Self {
        Self { client, folder, seen: Arc::default() }
    }

    /// Adds a job, and returns its key. Jobs are taken in the order of their creation, to within the difference between
    /// the creators' clocks.
    ///
    /// # Errors
    /// `Unknown` if it is unknown whether the job was added.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let key = Client::new(Memory::default()).queue("jobs").push(&"job 1").await?;
    /// assert!(key.starts_with("jobs/"));
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn push(&self, payload: &impl Serialize) -> Result<String, Error> {
        let invalid = |error: serde_json::Error| Error::refused(format!("the job cannot be JSON: {error}"));
        let payload = serde_json::to_value(payload).map_err(invalid)?;
        let random = nonce().map_err(|error| Error::refused(error.to_string()))?;
        let now = self.client.clock().wall();
        let key = format!("{}/{:020}-{random:016x}", self.folder, now.micros());
        let lock = LockRecord::taken(None, "", MIN_TTL, now).released();
        let record = Record { payload, attempts: 0, done: false, lock };
        let raw = Raw { client: self.client.clone(), key: key.clone().into() };
        match raw.write(None, json(&record)?, None, &mut Pace::until(self.client.until())).await? {
            Written::Done(_) | Written::Superseded => Ok(key),
            Written::Conflict(conflict, _) => Err(conflict),
        }
    }

    /// Takes the first job that no other worker has, and hides it from the others for `visibility`, at least 3 seconds.
    /// Returns `None` if there is none.
    ///
    /// # Errors
    /// `Unknown` if the server does not answer; a job that was taken nevertheless is available again after `visibility`.
    /// `Refused` if it rejects the requests, or if the folder has other documents and no job to take.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let queue = Client::new(Memory::default()).queue("jobs");
    /// assert!(queue.take(Duration::from_secs(60)).await?.is_none());
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn take(&self, visibility: Duration) -> Result<Option<Job>, Error> {
        if visibility < MIN_TTL {
            return Err(Error::refused(format!("a job must be hidden for at least {MIN_TTL:?}")));
        }
        let keys = self.client.list(&format!("{}/", self.folder)).await?;
        self.forget_others(&keys);
        let mut refused = None;
        for key in keys {
            match self.try_take(key, visibility).await {
                Ok(Some(job)) => return Ok(Some(job)),
                Ok(None) => {}
                // A document that is no job must not hold up the others.
                Err(error) if *error.kind() == ErrorKind::Refused => refused = refused.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    async fn try_take(&self, key: String, visibility: Duration) -> Result<Option<Job>, Error> {
        let raw = Raw { client: self.client.clone(), key: key.clone().into() };
        let Loaded::Found(snapshot, _) = raw.read_until(None, self.client.until()).await? else { return Ok(None) };
        let record = record(&snapshot)?;
        let version = snapshot.version.clone().ok_or_else(|| raw.no_strong_tag())?;
        if record.done {
            // Its worker has crashed before it could delete the job. If this fails, the next one tries.
            let _ = self.client.delete(&key, &version).await;
            return Ok(None);
        }
        let now = self.client.clock().now();
        if self.challenge(key, &record.lock, version, now) != Challenge::TakeOver {
            return Ok(None);
        }
        let clock = self.client.clock();
        let lock = LockRecord::taken(Some(&record.lock), "", visibility, clock.wall());
        let record = Record { lock, attempts: record.attempts.saturating_add(1), ..record };
        let deadline = lock::deadline(clock.now(), visibility);
        let mut pace = Pace::until(self.client.until().min(deadline));
        match raw.write(Some(&snapshot), json(&record)?, None, &mut pace).await? {
            Written::Done(snapshot) => Ok(Some(Job { raw, snapshot, record, deadline })),
            Written::Superseded | Written::Conflict(..) => Ok(None),
        }
    }

    fn challenge(&self, key: String, record: &LockRecord, version: Version, now: Timestamp) -> Challenge {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entry(key).or_default().challenge(record, version, now)
    }

    fn forget_others(&self, keys: &[String]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|key, _| keys.binary_search(key).is_ok());
    }
}

impl Job {
    /// Returns the job's content.
    ///
    /// # Errors
    /// `Refused` if it is not a `T`.
    ///
    /// ```
    /// # use ifmatch_client::{Job, Error};
    /// fn name(job: &Job) -> Result<String, Error> {
    ///     job.payload()
    /// }
    /// ```
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let wrong = |error| Error::refused(format!("the job {} is not of the expected type: {error}", self.key()));
        serde_json::from_value(self.record.payload.clone()).map_err(wrong)
    }

    /// Returns the job's key.
    ///
    /// ```
    /// # use ifmatch_client::Job;
    /// fn log(job: &Job) -> String {
    ///     format!("working on {}", job.key())
    /// }
    /// ```
    pub fn key(&self) -> &str {
        &self.raw.key
    }

    /// Returns how often the job was taken, this time included.
    ///
    /// ```
    /// # use ifmatch_client::Job;
    /// fn is_poisonous(job: &Job) -> bool {
    ///     job.attempts() > 5
    /// }
    /// ```
    pub fn attempts(&self) -> u32 {
        self.record.attempts
    }

    /// Returns the fencing token: larger for each worker that takes the job.
    ///
    /// ```
    /// # use ifmatch_client::Job;
    /// fn token(job: &Job) -> u64 {
    ///     job.fence()
    /// }
    /// ```
    pub fn fence(&self) -> u64 {
        self.record.lock.fence
    }

    /// Returns the time until another worker may take the job, less a margin.
    ///
    /// ```
    /// # use ifmatch_client::Job;
    /// fn must_stop(job: &Job) -> bool {
    ///     job.remaining().is_zero()
    /// }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.raw.client.clock().now().until(self.deadline)
    }

    /// Removes the job from the queue.
    ///
    /// # Errors
    /// `Lost` if another worker has taken it since. `Unknown` if it is unknown whether the job was removed.
    ///
    /// ```no_run
    /// # async fn finish(job: ifmatch_client::Job) -> Result<(), ifmatch_client::Error> {
    /// job.done().await
    /// # }
    /// ```
    pub async fn done(mut self) -> Result<(), Error> {
        self.record.done = true;
        let written = match self.write().await {
            // Only jobs that are done are deleted, so this one is.
            Err(error) if error.is_unknown() && self.is_deleted().await => return Ok(()),
            written => written?,
        };
        // From here on, no client writes the job. If it cannot be deleted, the next worker tries.
        if let Some(version) = written.version {
            let _ = self.raw.client.delete(&self.raw.key, &version).await;
        }
        Ok(())
    }

    /// Returns the job to the queue, where another worker can take it at once.
    ///
    /// # Errors
    /// As [`done`](Self::done).
    ///
    /// ```no_run
    /// # async fn give_up(job: ifmatch_client::Job) -> Result<(), ifmatch_client::Error> {
    /// job.abandon().await
    /// # }
    /// ```
    pub async fn abandon(mut self) -> Result<(), Error> {
        self.record.lock = self.record.lock.released();
        self.write().await.map(drop)
    }

    async fn is_deleted(&self) -> bool {
        matches!(self.raw.read_until(None, self.raw.client.until()).await, Ok(Loaded::Absent))
    }

    async fn write(&self) -> Result<Snapshot, Error> {
        let mut pace = Pace::until(self.raw.client.until());
        match self.raw.write(Some(&self.snapshot), json(&self.record)?, None, &mut pace).await? {
            Written::Done(snapshot) => Ok(snapshot),
            // Others write only jobs that were given back.
            Written::Superseded if !self.record.done => Ok(self.snapshot.clone()),
            Written::Superseded | Written::Conflict(..) => {
                Err(Error::new(ErrorKind::Lost, format!("another worker has taken the job {}", self.key())))
            }
        }
    }
}

fn record(snapshot: &Snapshot) -> Result<Record, Error> {
    let wrong = |error| Error::refused(format!("the content is not a job's: {error}"));
    serde_json::from_value(snapshot.value.clone()).map_err(wrong)
}

fn json(record: &Record) -> Result<Value, Error> {
    serde_json::to_value(record).map_err(|error| Error::refused(error.to_string()))
}
