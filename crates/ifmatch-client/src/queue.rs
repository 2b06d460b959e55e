//! A queue of jobs, each a document that a worker leases for a limited time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, stream};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lock::{self, Challenge, LockRecord, MIN_TTL, Observation};
use ifmatch_runtime::{Clock, jittered, nonce};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::Client;
use crate::document::{DocumentSnapshot, LoadedDocument, RawDocument, RetryPace, WriteOutcome};
use crate::error::{Error, ErrorKind};
use crate::version::Version;

/// Number of jobs that are read at a time.
const READ_AHEAD: usize = 16;
/// Interval between looks for a job.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time until a server sends the date of a version: ifmatch dates it to the next whole second, and sends no
/// date that is still to come.
const DATE_DELAY: Duration = Duration::from_millis(1_100);
/// Time until the clock that dates versions is read again after it couldn't be read.
const DATE_RETRY: Duration = Duration::from_mins(1);

/// A job queue.
///
/// A worker that takes a job hides it from the others for a while. If the worker neither finishes nor abandons it,
/// another one may take it. So a job is done *at least* once: [`Job::fence`] distinguishes a late worker from the next
/// one.
///
/// Taking a job reads the jobs before it, sixteen at a time, which suits queues of up to a few thousand jobs.
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
    /// How often a job may be taken.
    attempts: u32,
    /// The versions of taken jobs, and since when they have been seen.
    seen: Arc<Mutex<HashMap<String, Observation<Version>>>>,
    /// The last reading of the clock that dates versions.
    reading: Arc<Mutex<Option<ClockReading>>>,
}

/// A reading of the clock that dates versions, which may be neither this machine's nor the one behind the server's `Date`.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    /// `None` if the clock couldn't be read.
    date: Option<SystemTime>,
    /// A later time of the client's own clock.
    at: Timestamp,
}

/// A job that this worker has taken.
#[derive(Debug)]
pub struct Job {
    raw: RawDocument,
    snapshot: DocumentSnapshot,
    record: JobRecord,
    deadline: Timestamp,
}

/// The content of a job's document.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct JobRecord {
    payload: Value,
    attempts: u32,
    done: bool,
    lock: LockRecord,
}

impl Client {
    /// Returns the job queue in a folder.
    pub fn queue(&self, folder: impl Into<Arc<str>>) -> Queue {
        Queue::new(self.clone(), folder.into())
    }
}

impl Queue {
    fn new(client: Client, folder: Arc<str>) -> Self {
        Self {
            client,
            folder,
            attempts: u32::MAX,
            seen: Arc::default(),
            reading: Arc::default(),
        }
    }

    /// Sets how often a job may be taken. After that, an unfinished job stays in the folder, but isn't taken again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let queue = Client::new(Memory::default()).queue("jobs").max_attempts(1);
    /// queue.push(&"resize broken.jpg").await?;
    /// queue.take(Duration::from_secs(60)).await?.unwrap().abandon().await?;
    /// assert!(queue.take(Duration::from_secs(60)).await?.is_none());
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Adds a job, and returns its key. Jobs are taken in the order of their creation, to within the difference between
    /// the creators' clocks.
    ///
    /// # Errors
    /// `Unknown` if the server doesn't respond, and the job may or may not have been added. `Refused` if the server rejects
    /// the request, or if the payload can't be JSON.
    pub async fn push(&self, payload: &impl Serialize) -> Result<String, Error> {
        let invalid =
            |error: serde_json::Error| Error::refused(format!("the job cannot be JSON: {error}"));
        let payload = serde_json::to_value(payload).map_err(invalid)?;
        let random = nonce().map_err(|error| Error::refused(error.to_string()))?;
        let now = self.client.clock().wall();
        let key = format!("{}/{:020}-{random:016x}", self.folder, now.micros());
        let lock = LockRecord::taken(None, "", MIN_TTL, now).released();
        let record = JobRecord {
            payload,
            attempts: 0,
            done: false,
            lock,
        };
        let raw = RawDocument {
            client: self.client.clone(),
            key: key.clone().into(),
        };
        match raw
            .write(
                None,
                json(&record)?,
                None,
                &mut RetryPace::until(self.client.until()),
            )
            .await?
        {
            WriteOutcome::Done(_) | WriteOutcome::Superseded => Ok(key),
            WriteOutcome::Conflict(conflict, _) => Err(conflict),
        }
    }

    /// Takes the first job that no other worker has, and hides it from the others for `visibility`, at least 3 seconds.
    /// Returns `None` if there is none.
    ///
    /// A crashed worker's job is available once its time has passed by the server's dates (`Last-Modified`). If the
    /// server sends none, this queue object, or a clone, must have seen the job for that time. To read the clock behind
    /// these dates, the queue writes a document next to the folder before it takes such a job, and deletes it. If that
    /// clock is set forward, jobs are available early.
    ///
    /// # Errors
    /// `Unknown` if the server doesn't respond; if a job was taken anyway, it is available again after `visibility`.
    /// `Refused` if it rejects the requests, if the folder has other documents and no job to take, or if `visibility` is
    /// too short.
    pub async fn take(&self, visibility: Duration) -> Result<Option<Job>, Error> {
        check(visibility)?;
        let keys = self.client.list(&format!("{}/", self.folder)).await?;
        self.forget_others(&keys);
        let mut refused = None;
        let read = |key: String| async move {
            let raw = RawDocument {
                client: self.client.clone(),
                key: key.into(),
            };
            let loaded = raw.read_until(None, self.client.until()).await;
            (raw, loaded)
        };
        let mut jobs = stream::iter(keys).map(read).buffered(READ_AHEAD);
        while let Some((raw, loaded)) = jobs.next().await {
            let taken = match loaded {
                Ok(LoadedDocument::Found(snapshot, _)) => {
                    self.try_take(raw, snapshot, visibility).await
                }
                Ok(LoadedDocument::Absent | LoadedDocument::Unchanged(_)) => Ok(None),
                Err(error) => Err(error),
            };
            match taken {
                Ok(Some(job)) => return Ok(Some(job)),
                Ok(None) => {}
                // A document that isn't a job must not hold up the others.
                Err(error) if *error.kind() == ErrorKind::Refused => {
                    refused = refused.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// Takes the first job like [`take`](Self::take), but waits for one if there is none.
    ///
    /// # Errors
    /// Same as [`take`](Self::take).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn work(queue: ifmatch_client::Queue) -> Result<(), ifmatch_client::Error> {
    /// loop {
    ///     let job = queue.wait(Duration::from_secs(60)).await?;
    ///     // Do the work.
    ///     job.done().await?;
    /// }
    /// # }
    /// ```
    pub async fn wait(&self, visibility: Duration) -> Result<Job, Error> {
        loop {
            if let Some(job) = self.take(visibility).await? {
                return Ok(job);
            }
            self.client.clock().sleep(jittered(INTERVAL)).await;
        }
    }

    async fn try_take(
        &self,
        raw: RawDocument,
        snapshot: DocumentSnapshot,
        visibility: Duration,
    ) -> Result<Option<Job>, Error> {
        let record = record(&snapshot)?;
        let version = snapshot
            .version
            .clone()
            .ok_or_else(|| raw.no_strong_tag())?;
        if record.done {
            // Its worker has crashed before it could delete the job. If this fails, the next one tries.
            let _ = self.client.delete(&raw.key, &version).await;
            return Ok(None);
        }
        let clock = self.client.clock();
        let challenge = self.challenge(&raw.key, &record.lock, version.clone(), clock.now());
        if record.attempts >= self.attempts
            || (challenge != Challenge::TakeOver
                && !self.is_older(snapshot.modified, record.lock.ttl()).await)
        {
            return Ok(None);
        }
        // It was read ahead. If it is deleted by now, an unacknowledged write would leave its outcome unknown.
        match raw.read_until(Some(&version), self.client.until()).await? {
            LoadedDocument::Unchanged(_) => {}
            LoadedDocument::Found(found, _) if found.version.as_ref() == Some(&version) => {}
            LoadedDocument::Absent | LoadedDocument::Found(..) => return Ok(None),
        }
        let lock = LockRecord::taken(Some(&record.lock), "", visibility, clock.wall());
        let record = JobRecord {
            lock,
            attempts: record.attempts.saturating_add(1),
            ..record
        };
        let deadline = lock::deadline(clock.now(), visibility);
        let mut pace = RetryPace::until(self.client.until().min(deadline));
        match raw
            .write(Some(&snapshot), json(&record)?, None, &mut pace)
            .await?
        {
            WriteOutcome::Done(snapshot) => Ok(Some(Job {
                raw,
                snapshot,
                record,
                deadline,
            })),
            WriteOutcome::Superseded | WriteOutcome::Conflict(..) => Ok(None),
        }
    }

    /// Returns `true` if a version was written at least this long ago by the server's dates.
    async fn is_older(&self, modified: Option<SystemTime>, time: Duration) -> bool {
        let Some(modified) = modified else {
            return false;
        };
        let clock = self.client.clock();
        let is_older =
            |date, at: Timestamp| age(modified, date + at.until(clock.now())) >= Some(time);
        // The last reading spares another one at each poll. It doesn't suffice to take a job: since then, the server's
        // clock may have been set back, so that a new version looks old.
        let may_be_older = self.last_reading().is_none_or(|last| match last.date {
            Some(date) => is_older(date, last.at),
            None => last.at.until(clock.now()) >= DATE_RETRY,
        });
        if !may_be_older {
            return false;
        }
        let date = self.read_dates().await;
        let at = clock.now();
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(ClockReading { date, at });
        date.is_some_and(|date| is_older(date, at))
    }

    fn last_reading(&self) -> Option<ClockReading> {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the clock that dates versions. The document is a new one: dates of a document that is written often may run ahead.
    async fn read_dates(&self) -> Option<SystemTime> {
        let key = format!("{}.clock-{:016x}", self.folder, nonce().ok()?).into();
        let raw = RawDocument {
            client: self.client.clone(),
            key,
        };
        let until = self.client.until();
        let written = raw
            .write(None, Value::Null, None, &mut RetryPace::until(until))
            .await
            .ok()?;
        let mut loaded = raw.read_until(None, until).await;
        if matches!(&loaded, Ok(LoadedDocument::Found(found, _)) if found.modified.is_none()) {
            self.client.clock().sleep(DATE_DELAY).await;
            loaded = raw.read_until(None, until).await;
        }
        let (version, modified) = match (loaded, written) {
            (Ok(LoadedDocument::Found(found, _)), _) => (found.version, found.modified),
            (_, WriteOutcome::Done(written)) => (written.version, None),
            _ => (None, None),
        };
        if let Some(version) = version {
            // If this fails, a document stays that nobody reads.
            let _ = self.client.delete(&raw.key, &version).await;
        }
        modified
    }

    /// Records that a job has this version now, and decides whether it may be taken.
    fn challenge(
        &self,
        key: &str,
        record: &LockRecord,
        version: Version,
        now: Timestamp,
    ) -> Challenge {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entry(key.to_owned())
            .or_default()
            .challenge(record, version, now)
    }

    /// Forgets the jobs that aren't among these keys, which are in order.
    fn forget_others(&self, keys: &[String]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|key, _| keys.binary_search(key).is_ok());
    }
}

impl Job {
    /// Returns the job's content.
    ///
    /// # Errors
    /// `Refused` if it isn't a `T`.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let wrong = |error| {
            Error::refused(format!(
                "the job {} is not of the expected type: {error}",
                self.key()
            ))
        };
        serde_json::from_value(self.record.payload.clone()).map_err(wrong)
    }

    /// Returns the job's key.
    pub fn key(&self) -> &str {
        &self.raw.key
    }

    /// Returns how often the job was taken, including this time.
    pub fn attempts(&self) -> u32 {
        self.record.attempts
    }

    /// Returns the fencing token: larger for each worker that takes the job.
    pub fn fence(&self) -> u64 {
        self.record.lock.fence
    }

    /// Returns the time until another worker may take the job, less a margin.
    pub fn remaining(&self) -> Duration {
        self.raw.client.clock().now().until(self.deadline)
    }

    /// Hides the job from other workers for this long from now, at least 3 seconds.
    ///
    /// # Errors
    /// `Lost` if another worker has since taken the job. `Unknown` if the server doesn't respond. The job is then
    /// hidden for either the old or the new time, as after a dropped future, and can still be extended or finished.
    /// `Refused` if the server rejects the request, or if `visibility` is too short.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let queue = Client::new(Memory::default()).queue("jobs");
    /// queue.push(&"resize 1.jpg").await?;
    /// let mut job = queue.take(Duration::from_secs(10)).await?.unwrap();
    /// job.extend(Duration::from_secs(60)).await?;
    /// assert!(job.remaining() > Duration::from_secs(10));
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn extend(&mut self, visibility: Duration) -> Result<(), Error> {
        check(visibility)?;
        let sent = self.raw.client.clock().now();
        let lock = self.record.lock.lasting(visibility);
        let record = JobRecord {
            lock,
            ..self.record.clone()
        };
        self.write(&record).await?;
        (self.record, self.deadline) = (record, lock::deadline(sent, visibility));
        Ok(())
    }

    /// Removes the job from the queue.
    ///
    /// # Errors
    /// `Lost` if another worker has since taken the job. `Unknown` if the server doesn't respond in time: the job may still
    /// be there, or this worker or a later one has removed it. `Refused` if the server rejects the request.
    pub async fn done(mut self) -> Result<(), Error> {
        match self
            .write(&JobRecord {
                done: true,
                ..self.record.clone()
            })
            .await
        {
            // Only jobs that are done are deleted, and until the deadline, no other worker could do this one.
            Err(error)
                if error.is_unknown() && self.is_deleted().await && !self.remaining().is_zero() =>
            {
                return Ok(());
            }
            written => written?,
        }
        // From here on, no client writes the job. If it can't be deleted, the next worker tries.
        if let Some(version) = &self.snapshot.version {
            let _ = self.raw.client.delete(&self.raw.key, version).await;
        }
        Ok(())
    }

    /// Returns the job to the queue, where another worker can take it immediately.
    ///
    /// # Errors
    /// `Lost` if another worker has since taken the job. `Unknown` if the server doesn't respond in time: the job is then
    /// available now, or once its time has passed. `Refused` if the server rejects the request.
    pub async fn abandon(mut self) -> Result<(), Error> {
        let lock = self.record.lock.released();
        self.write(&JobRecord {
            lock,
            ..self.record.clone()
        })
        .await
    }

    async fn is_deleted(&self) -> bool {
        matches!(
            self.raw.read_until(None, self.raw.client.until()).await,
            Ok(LoadedDocument::Absent)
        )
    }

    /// Writes the job, if no other worker has taken it.
    async fn write(&mut self, record: &JobRecord) -> Result<(), Error> {
        let mut pace = RetryPace::until(self.raw.client.until());
        loop {
            match self
                .raw
                .write(Some(&self.snapshot), json(record)?, None, &mut pace)
                .await?
            {
                WriteOutcome::Done(snapshot) => {
                    self.snapshot = snapshot;
                    return Ok(());
                }
                // Others write only jobs that were given back.
                WriteOutcome::Superseded if !record.lock.held => return Ok(()),
                // An extension has taken effect without a response.
                WriteOutcome::Conflict(_, Some(LoadedDocument::Found(found, _)))
                    if self.is_extended_in(&found) =>
                {
                    self.snapshot = found;
                }
                // The conflict may be with such an extension.
                WriteOutcome::Conflict(error, None) => {
                    return Err(Error::unknown(error.to_string()));
                }
                WriteOutcome::Superseded | WriteOutcome::Conflict(..) => {
                    let why = format!("another worker has taken the job {}", self.key());
                    return Err(Error::new(ErrorKind::Lost, why));
                }
            }
        }
    }

    /// Returns `true` if a document is this job, still taken by this worker, perhaps for a different time. Each taking
    /// raises the fence, also within one process.
    fn is_extended_in(&self, found: &DocumentSnapshot) -> bool {
        record(found).is_ok_and(|found| {
            let JobRecord {
                attempts,
                done,
                lock,
                ..
            } = &self.record;
            (found.attempts, found.done, &found.lock)
                == (*attempts, *done, &lock.lasting(found.lock.ttl()))
        })
    }
}

/// Returns a lower bound of a version's age, unless it is from the future.
fn age(modified: SystemTime, now: SystemTime) -> Option<Duration> {
    // The date may be truncated to seconds.
    now.duration_since(modified + Duration::from_secs(1)).ok()
}

fn check(visibility: Duration) -> Result<(), Error> {
    if visibility < MIN_TTL {
        return Err(Error::refused(format!(
            "a job must be hidden for at least {MIN_TTL:?}"
        )));
    }
    Ok(())
}

fn record(snapshot: &DocumentSnapshot) -> Result<JobRecord, Error> {
    let wrong = |error| Error::refused(format!("the content is not a job's: {error}"));
    serde_json::from_value(snapshot.value.clone()).map_err(wrong)
}

fn json(record: &JobRecord) -> Result<Value, Error> {
    serde_json::to_value(record).map_err(|error| Error::refused(error.to_string()))
}
