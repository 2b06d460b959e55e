//! A stamped JSON document without a type: one conditional write, and its fate after lost responses.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock, nonce, task};
use serde_json::Value;

use super::stamp::{self, WriteFate, WriteStamp};
use crate::backend::{Found, Put, Read, When};
use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::pause::Backoff;
use crate::version::Version;

/// Interval between looks at a document whose tag is weak. Some servers, such as Apache, call a tag weak for a second or two after a
/// write, since a file's date can't tell two writes of one second apart.
const LOOK: Duration = Duration::from_millis(250);
/// Number of these looks.
const LOOKS: u32 = 12;
/// Number of attempts without a pause, as long as the server responds to reads.
const RESENDS: u32 = 3;

/// A key with a stamped document.
#[derive(Clone, Debug)]
pub(crate) struct RawDocument {
    pub(crate) client: Client,
    pub(crate) key: Arc<str>,
}

/// A document's value at one version.
#[derive(Clone, Debug)]
pub(crate) struct DocumentSnapshot {
    pub(crate) value: Value,
    pub(crate) stamp: Option<WriteStamp>,
    pub(crate) body: Bytes,
    /// When this version was written, by the server's clock, if it sends dates.
    pub(crate) modified: Option<SystemTime>,
    /// `None` if the server sends no strong tag.
    pub(crate) version: Option<Version>,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum LoadedDocument {
    Absent,
    Unchanged(Waited),
    Found(DocumentSnapshot, Waited),
}

/// `true` if the server waits for changes.
pub(crate) type Waited = bool;

/// The end of a write.
#[derive(Debug)]
pub(crate) enum WriteOutcome {
    /// The write took effect. The snapshot is the new document.
    Done(DocumentSnapshot),
    /// The write took effect, and others have followed.
    Superseded,
    /// Another write was first. Includes the document after it, unless it couldn't be read.
    Conflict(Error, Option<LoadedDocument>),
}

/// A write and what is needed to settle its fate.
#[derive(Debug)]
struct Attempt<'a> {
    raw: &'a RawDocument,
    value: Value,
    stamp: WriteStamp,
    put: Put,
    pace: &'a mut RetryPace,
}

/// The time limit of an operation and the pauses between its attempts.
#[derive(Debug)]
pub(crate) struct RetryPace {
    /// By the interval clock.
    pub(crate) until: Timestamp,
    pub(crate) backoff: Backoff,
}

impl RetryPace {
    pub(crate) fn until(until: Timestamp) -> Self {
        Self {
            until,
            backoff: Backoff::default(),
        }
    }
}

impl RawDocument {
    /// Makes one attempt to read. Looks again for a few seconds if the tag is weak.
    pub(crate) async fn read(
        &self,
        known: Option<&Version>,
        wait: Option<Duration>,
    ) -> Result<LoadedDocument, Error> {
        let mut loaded = self.read_once(known, wait).await?;
        for _ in 0..LOOKS {
            let LoadedDocument::Found(DocumentSnapshot { version: None, .. }, _) = &loaded else {
                break;
            };
            self.client.clock().sleep(LOOK).await;
            loaded = self.read_once(known, None).await?;
        }
        Ok(loaded)
    }

    async fn read_once(
        &self,
        known: Option<&Version>,
        wait: Option<Duration>,
    ) -> Result<LoadedDocument, Error> {
        let limit = self
            .client
            .attempt_timeout()
            .saturating_add(wait.unwrap_or_default());
        let read = self.client.backend().get(&self.key, known, wait);
        let read = task::timeout(self.client.clock(), limit, read).await;
        match read
            .map_err(|_| Error::unknown(format!("{}: no response within {limit:?}", self.key)))??
        {
            Read::Absent => Ok(LoadedDocument::Absent),
            Read::Unchanged { waited } => Ok(LoadedDocument::Unchanged(waited)),
            Read::Found(found) => {
                snapshot(&found).map(|snapshot| LoadedDocument::Found(snapshot, found.waited))
            }
        }
    }

    /// Reads until there is a response or the time limit has passed.
    pub(crate) async fn read_until(
        &self,
        known: Option<&Version>,
        until: Timestamp,
    ) -> Result<LoadedDocument, Error> {
        let mut backoff = Backoff::default();
        loop {
            match self.read(known, None).await {
                Err(error)
                    if error.is_unknown()
                        && self.client.pause_after(&error, backoff.next(), until).await => {}
                read => return read,
            }
        }
    }

    /// Replaces the version of `base`, or creates the document. Sends the same request again while its outcome is unknown.
    ///
    /// The first write of a client makes sure that the server honours conditions: before it replaces a document, or after it
    /// has created one. It doesn't create what it finds.
    ///
    /// # Errors
    /// `Unknown` if the time limit has passed or the document doesn't show the outcome, `Refused` if nothing was
    /// written, or what was created has been deleted again.
    pub(crate) async fn write(
        &self,
        base: Option<&DocumentSnapshot>,
        value: Value,
        fence: Option<u64>,
        pace: &mut RetryPace,
    ) -> Result<WriteOutcome, Error> {
        let when = match base {
            // A server that ignores conditions would overwrite what is there.
            None if !self.client.is_proven() => match self.read_until(None, pace.until).await? {
                LoadedDocument::Found(DocumentSnapshot { version: None, .. }, _) => {
                    return Err(self.no_strong_tag());
                }
                found @ LoadedDocument::Found(..) => {
                    let why = format!("{} exists", self.key);
                    let conflict = Error::new(ErrorKind::Conflict { current: None }, why);
                    return Ok(WriteOutcome::Conflict(conflict, Some(found)));
                }
                LoadedDocument::Absent | LoadedDocument::Unchanged(_) => When::Absent,
            },
            None => When::Absent,
            Some(DocumentSnapshot {
                version: Some(version),
                body,
                ..
            }) => {
                match self
                    .client
                    .prove(&self.key, body, version, pace.until)
                    .await
                {
                    Ok(()) => When::Is(version.clone()),
                    Err(deleted) if deleted.is_conflict() => {
                        return Ok(WriteOutcome::Conflict(deleted, None));
                    }
                    Err(error) => return Err(error),
                }
            }
            Some(_) => return Err(self.no_strong_tag()),
        };
        let id = nonce().map_err(|error| Error::refused(error.to_string()))?;
        // 48 bits, since a document keeps the ids of its last writes.
        let id = format!("{:012x}", id >> 16);
        let stamp = WriteStamp::next(base.and_then(|base| base.stamp.as_ref()), id.clone(), fence);
        let body = stamp::encode(&value, &stamp)?;
        let until = pace.until;
        let written = Box::new(Attempt {
            raw: self,
            value,
            stamp,
            put: Put {
                body,
                when,
                id,
                fence,
            },
            pace,
        })
        .run()
        .await?;
        match (base, written) {
            (None, WriteOutcome::Done(created)) => self.check(created, until).await,
            (_, written) => Ok(written),
        }
    }

    /// Makes sure that a document that was just created can be changed by conditional writes. Otherwise deletes it.
    async fn check(
        &self,
        created: DocumentSnapshot,
        until: Timestamp,
    ) -> Result<WriteOutcome, Error> {
        let checked = match &created.version {
            Some(version) => {
                self.client
                    .prove(&self.key, &created.body, version, until)
                    .await
            }
            None => Err(self.no_strong_tag()),
        };
        let error = match checked {
            Ok(()) => return Ok(WriteOutcome::Done(created)),
            Err(deleted) if deleted.is_conflict() => return Ok(WriteOutcome::Superseded),
            Err(error) => error,
        };
        if !error.is_unknown()
            && let Err(failed) = self.client.discard(&self.key).await
        {
            return Err(Error::refused(format!(
                "{error}; what was created is left: {failed}"
            )));
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
    async fn run(mut self: Box<Self>) -> Result<WriteOutcome, Error> {
        let (mut doubt, mut resends, mut backoff) = (None, 0, Backoff::default());
        loop {
            match self.send().await {
                Ok(Some(version)) => return Ok(self.done(version)),
                Ok(None) => {
                    let read = self.raw.read_until(None, self.pace.until).await.ok();
                    return Ok(self.settle(read).unwrap_or(WriteOutcome::Superseded));
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
            let pause = if resends < RESENDS {
                Duration::ZERO
            } else {
                backoff.next()
            };
            let error = doubt.get_or_insert_with(|| Error::unknown("no response"));
            if !self
                .raw
                .client
                .pause_after(error, pause, self.pace.until)
                .await
            {
                return Err(error.clone());
            }
        }
    }

    /// Settles a conflict, which may be with this write, carried out at an earlier attempt or by a proxy's.
    fn conflict(
        self: Box<Self>,
        conflict: Error,
        read: Option<LoadedDocument>,
        doubt: Option<Error>,
    ) -> Result<WriteOutcome, Error> {
        match (self.fate(read.as_ref()), doubt) {
            (WriteFate::Untold, Some(doubt)) => Err(doubt),
            (WriteFate::NotDone, _) | (WriteFate::Untold, None) => {
                Ok(WriteOutcome::Conflict(conflict, read))
            }
            (WriteFate::Current | WriteFate::Superseded, _) => {
                Ok(self.settle(read).unwrap_or(WriteOutcome::Superseded))
            }
        }
    }

    /// Returns `true` if a read after a conflict shows the version to replace. No write has taken effect: the server was busy
    /// with another one, which may be an earlier attempt of this one.
    fn still_applies(&self, read: Option<&LoadedDocument>) -> bool {
        let (When::Is(version), Some(LoadedDocument::Found(found, _))) = (&self.put.when, read)
        else {
            return false;
        };
        found.version.as_ref() == Some(version)
    }

    /// Pauses after a conflict. Returns `false` if the time limit has passed; the write is then settled all the same.
    async fn pause(&mut self) -> bool {
        let pause = self.pace.backoff.next();
        self.raw.client.pause(pause, self.pace.until).await
    }

    async fn send(&self) -> Result<Option<Version>, Error> {
        let client = &self.raw.client;
        let limit = client
            .attempt_timeout()
            .min(client.clock().now().until(self.pace.until));
        let sent = client.backend().put(&self.raw.key, &self.put);
        match task::timeout(client.clock(), limit, sent).await {
            Ok(sent) => sent,
            Err(_) => Err(Error::unknown(format!(
                "{}: no response within {limit:?}",
                self.raw.key
            ))),
        }
    }

    /// Returns the fate of the write, given a read after it.
    fn fate(&self, read: Option<&LoadedDocument>) -> WriteFate {
        let current = match read {
            Some(LoadedDocument::Found(snapshot, _)) => snapshot.stamp.as_ref(),
            _ => None,
        };
        self.stamp.fate(current, self.put.when == When::Absent)
    }

    /// Returns the end of the write, given a read after it, or the attempt if the read doesn't show it.
    fn settle(self: Box<Self>, read: Option<LoadedDocument>) -> Result<WriteOutcome, Box<Self>> {
        match (self.fate(read.as_ref()), read) {
            // With the value that was read: a program without stamps, which has kept this one, may have changed the document.
            (WriteFate::Current, Some(LoadedDocument::Found(found, _))) => {
                Ok(WriteOutcome::Done(found))
            }
            (WriteFate::Superseded, _) => Ok(WriteOutcome::Superseded),
            (WriteFate::NotDone, read) => {
                let why = format!("{} has changed", self.raw.key);
                Ok(WriteOutcome::Conflict(
                    Error::new(ErrorKind::Conflict { current: None }, why),
                    read,
                ))
            }
            (WriteFate::Current | WriteFate::Untold, _) => Err(self),
        }
    }

    fn done(self: Box<Self>, version: Version) -> WriteOutcome {
        let Self {
            value, stamp, put, ..
        } = *self;
        WriteOutcome::Done(DocumentSnapshot {
            value,
            stamp: Some(stamp),
            body: put.body,
            modified: None,
            version: Some(version),
        })
    }
}

fn snapshot(found: &Found) -> Result<DocumentSnapshot, Error> {
    let (value, stamp) = stamp::decode(&found.body)?;
    Ok(DocumentSnapshot {
        value,
        stamp,
        body: found.body.clone(),
        modified: found.modified,
        version: found.version.clone(),
    })
}

/// Returns the error of a write that others were always ahead of.
pub(crate) fn contended(key: &str) -> Error {
    Error::new(
        ErrorKind::Contended,
        format!("{key}: other writers were faster until the time ran out"),
    )
}
