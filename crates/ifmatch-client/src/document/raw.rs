//! A stamped JSON document without a type: one conditional write, and its fate after lost responses.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock, nonce, task};
use serde_json::Value;

use super::stamp::{self, Fate, Stamp};
use crate::backend::{Found, Put, Read, Version, When};
use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::pause::Backoff;

/// Interval between looks at a document whose tag is weak, and their number. Some servers, such as Apache, call a tag weak for a
/// second or two after a write, since a file's date can't tell two writes of one second apart.
const LOOK: Duration = Duration::from_millis(250);
const LOOKS: u32 = 12;
/// Number of attempts without a pause, as long as the server responds to reads.
const RESENDS: u32 = 3;

/// A key with a stamped document.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) client: Client,
    pub(crate) key: Arc<str>,
}

/// A document's value at one version.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) value: Value,
    pub(crate) stamp: Option<Stamp>,
    pub(crate) body: Bytes,
    /// When this version was written, by the server's clock, if it sends dates.
    pub(crate) modified: Option<SystemTime>,
    /// `None` if the server sends no strong tag.
    pub(crate) version: Option<Version>,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Loaded {
    Absent,
    Unchanged(Waited),
    Found(Snapshot, Waited),
}

/// `true` if the server waits for changes.
pub(crate) type Waited = bool;

/// The end of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// The write took effect. The snapshot is the new document.
    Done(Snapshot),
    /// The write took effect, and others have followed.
    Superseded,
    /// Another write was first. Includes the document after it, unless it couldn't be read.
    Conflict(Error, Option<Loaded>),
}

/// A write and what is needed to settle its fate.
#[derive(Debug)]
struct Attempt<'a> {
    raw: &'a Raw,
    value: Value,
    stamp: Stamp,
    put: Put,
    pace: &'a mut Pace,
}

/// The time limit of an operation and the pauses between its attempts.
#[derive(Debug)]
pub(crate) struct Pace {
    pub(crate) until: Timestamp,
    pub(crate) backoff: Backoff,
}

impl Pace {
    pub(crate) fn until(until: Timestamp) -> Self {
        Self { until, backoff: Backoff::default() }
    }
}

impl Raw {
    /// Makes one attempt to read. Looks again for a few seconds if the tag is weak.
    pub(crate) async fn read(&self, known: Option<&Version>, wait: Option<Duration>) -> Result<Loaded, Error> {
        let mut loaded = self.read_once(known, wait).await?;
        for _ in 0..LOOKS {
            let Loaded::Found(Snapshot { version: None, .. }, _) = &loaded else { break };
            self.client.clock().sleep(LOOK).await;
            loaded = self.read_once(known, None).await?;
        }
        Ok(loaded)
    }

    async fn read_once(&self, known: Option<&Version>, wait: Option<Duration>) -> Result<Loaded, Error> {
        let limit = self.client.attempt_timeout().saturating_add(wait.unwrap_or_default());
        let read = self.client.backend().get(&self.key, known, wait);
        let read = task::timeout(self.client.clock(), limit, read).await;
        match read.map_err(|_| Error::unknown(format!("{}: no response within {limit:?}", self.key)))?? {
            Read::Absent => Ok(Loaded::Absent),
            Read::Unchanged { waited } => Ok(Loaded::Unchanged(waited)),
            Read::Found(found) => snapshot(&found).map(|snapshot| Loaded::Found(snapshot, found.waited)),
        }
    }

    /// Reads until there is a response or the time limit has passed.
    pub(crate) async fn read_until(&self, known: Option<&Version>, until: Timestamp) -> Result<Loaded, Error> {
        let mut backoff = Backoff::default();
        loop {
            match self.read(known, None).await {
                Err(error) if error.is_unknown() && self.client.pause_after(&error, backoff.next(), until).await => {}
                read => return read,
            }
        }
    }

    /// Replaces the version of `base`, or creates the document. Sends the same request again while its outcome is unknown.
    ///
    /// The first write of a client makes sure that the server honours conditions: before it replaces a document, or after it
    /// has created one.
    ///
    /// # Errors
    /// `Unknown` if the time limit has passed or the document doesn't show the outcome, `Refused` if nothing was
    /// written, or what was created has been deleted again.
    pub(crate) async fn write(
        &self,
        base: Option<&Snapshot>,
        value: Value,
        fence: Option<u64>,
        pace: &mut Pace,
    ) -> Result<Written, Error> {
        let when = match base {
            None => When::Absent,
            Some(Snapshot { version: Some(version), body, .. }) => {
                match self.client.prove(&self.key, body, version, pace.until).await {
                    Ok(()) => When::Is(version.clone()),
                    Err(deleted) if deleted.is_conflict() => return Ok(Written::Conflict(deleted, None)),
                    Err(error) => return Err(error),
                }
            }
            Some(_) => return Err(self.no_strong_tag()),
        };
        let id = nonce().map_err(|error| Error::refused(error.to_string()))?;
        let id = format!("{:012x}", id >> 16);
        let stamp = Stamp::next(base.and_then(|base| base.stamp.as_ref()), id.clone(), fence);
        let body = stamp::encode(&value, &stamp)?;
        let until = pace.until;
        let written =
            Box::new(Attempt { raw: self, value, stamp, put: Put { body, when, id, fence }, pace }).run().await?;
        match (base, written) {
            (None, Written::Done(created)) => self.check(created, until).await,
            (_, written) => Ok(written),
        }
    }

    /// Makes sure that a document that was just created can be changed by conditional writes. Otherwise deletes it.
    async fn check(&self, created: Snapshot, until: Timestamp) -> Result<Written, Error> {
        let checked = match &created.version {
            Some(version) => self.client.prove(&self.key, &created.body, version, until).await,
            None => Err(self.no_strong_tag()),
        };
        let error = match checked {
            Ok(()) => return Ok(Written::Done(created)),
            Err(deleted) if deleted.is_conflict() => return Ok(Written::Superseded),
            Err(error) => error,
        };
        if !error.is_unknown()
            && let Err(failed) = self.client.discard(&self.key).await
        {
            return Err(Error::refused(format!("{error}; what was created is left: {failed}")));
        }
        Err(error)
    }

    /// Returns the error of a document without a version that a write could name.
    pub(crate) fn no_strong_tag(&self) -> Error {
        let why = "the server sends no strong ETag, so a write could overwrite another client's";
        Error::refused(format!("{}: {why}", self.key))
    }
}

impl Attempt<'_> {
    async fn run(mut self: Box<Self>) -> Result<Written, Error> {
        let (mut doubt, mut resends, mut backoff) = (None, 0, Backoff::default());
        loop {
            match self.send().await {
                Ok(Some(version)) => return Ok(self.done(version)),
                Ok(None) => {
                    let read = self.raw.read_until(None, self.pace.until).await.ok();
                    return Ok(self.settle(read).unwrap_or(Written::Superseded));
                }
                Err(conflict) if conflict.is_conflict() => {
                    if doubt.is_none() {
                        // Others write too.
                        self.pause().await;
                    }
                    let read = self.raw.read_until(None, self.pace.until).await.ok();
                    if self.still_applies(read.as_ref()) && self.pause().await {
                        continue;
                    }
                    return self.conflict(conflict, read, doubt);
                }
                // The request may have taken effect, now or at an earlier attempt.
                Err(error) if error.is_unknown() || doubt.is_some() => {
                    // At once: the fewer writes follow, the surer the document tells.
                    let read = self.raw.read(None, None).await.ok();
                    resends += if read.is_some() { 1 } else { RESENDS };
                    let asked = error.retry_after();
                    let error = doubt.take().unwrap_or(error).with_retry_after(asked);
                    match self.settle(read) {
                        Ok(written) => return Ok(written),
                        Err(undecided) => self = undecided,
                    }
                    doubt = Some(error);
                }
                Err(error) => return Err(error),
            }
            let pause = if resends < RESENDS { Duration::ZERO } else { backoff.next() };
            let error = doubt.get_or_insert_with(|| Error::unknown("no response"));
            if !self.raw.client.pause_after(error, pause, self.pace.until).await {
                return Err(error.clone());
            }
        }
    }

    /// Settles a conflict, which may be with this write, carried out at an earlier attempt or by a proxy's.
    fn conflict(
        self: Box<Self>,
        conflict: Error,
        read: Option<Loaded>,
        doubt: Option<Error>,
    ) -> Result<Written, Error> {
        match (self.fate(read.as_ref()), doubt) {
            (Fate::Untold, Some(doubt)) => Err(doubt),
            (Fate::NotDone, _) | (Fate::Untold, None) => Ok(Written::Conflict(conflict, read)),
            (Fate::Current | Fate::Superseded, _) => Ok(self.settle(read).unwrap_or(Written::Superseded)),
        }
    }

    /// Returns `true` if a read after a conflict shows the version to replace. No write has taken effect: the server was busy
    /// with another one, which may be an earlier attempt of this one.
    fn still_applies(&self, read: Option<&Loaded>) -> bool {
        let (When::Is(version), Some(Loaded::Found(found, _))) = (&self.put.when, read) else { return false };
        found.version.as_ref() == Some(version)
    }

    /// Pauses after a conflict. Returns `false` if the time limit has passed; the write is then settled all the same.
    async fn pause(&mut self) -> bool {
        let pause = self.pace.backoff.next();
        self.raw.client.pause(pause, self.pace.until).await
    }

    async fn send(&self) -> Result<Option<Version>, Error> {
        let client = &self.raw.client;
        let limit = client.attempt_timeout().min(client.clock().now().until(self.pace.until));
        let sent = client.backend().put(&self.raw.key, &self.put);
        match task::timeout(client.clock(), limit, sent).await {
            Ok(sent) => sent,
            Err(_) => Err(Error::unknown(format!("{}: no response within {limit:?}", self.raw.key))),
        }
    }

    /// Returns the fate of the write, given a read after it.
    fn fate(&self, read: Option<&Loaded>) -> Fate {
        let current = match read {
            Some(Loaded::Found(snapshot, _)) => snapshot.stamp.as_ref(),
            _ => None,
        };
        self.stamp.fate(current, self.put.when == When::Absent)
    }

    /// Returns the end of the write, given a read after it, or the attempt if the read doesn't show it.
    fn settle(self: Box<Self>, read: Option<Loaded>) -> Result<Written, Box<Self>> {
        match (self.fate(read.as_ref()), read) {
            // With the value that was read: a program without stamps, which has kept this one, may have changed the document.
            (Fate::Current, Some(Loaded::Found(found, _))) => Ok(Written::Done(found)),
            (Fate::Superseded, _) => Ok(Written::Superseded),
            (Fate::NotDone, read) => {
                let why = format!("{} has changed", self.raw.key);
                Ok(Written::Conflict(Error::new(ErrorKind::Conflict { current: None }, why), read))
            }
            (Fate::Current | Fate::Untold, _) => Err(self),
        }
    }

    fn done(self: Box<Self>, version: Version) -> Written {
        let Self { value, stamp, put, .. } = *self;
        Written::Done(Snapshot { value, stamp: Some(stamp), body: put.body, modified: None, version: Some(version) })
    }
}

fn snapshot(found: &Found) -> Result<Snapshot, Error> {
    let (value, stamp) = stamp::decode(&found.body)?;
    Ok(Snapshot { value, stamp, body: found.body.clone(), modified: found.modified, version: found.version.clone() })
}

/// Returns the error of a write that others were always ahead of.
pub(crate) fn contended(key: &str) -> Error {
    Error::new(ErrorKind::Contended, format!("{key}: other writers were faster until the time ran out"))
}
