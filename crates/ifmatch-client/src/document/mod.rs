//! Typed documents: read, replace, and change without losing updates.

mod raw;
mod stamp;
mod watch;

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock, task};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use self::raw::{
    DocumentSnapshot, LoadedDocument, RawDocument, RetryPace, Waited, WriteOutcome, contended,
};
pub(crate) use self::watch::LONG_POLL;
use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::grant::Grant;
use crate::version::Version;

/// A JSON document of type `T`.
///
/// A JSON object gets an extra member, `$ifmatch`, with random numbers that identify the last writes, and the largest
/// fencing token; any other value is wrapped in an object. Other readers should ignore the member.
///
/// Clones share the last version read, so reading an unchanged document transfers no content. Their updates wait for
/// each other instead of conflicting.
///
/// ```
/// use ifmatch_client::{Client, Memory};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let guests = Client::new(Memory::default()).json::<Vec<String>>("guests.json");
/// guests.update(|guests| guests.push("Anna".to_owned())).await?;
/// assert_eq!(guests.get().await?.unwrap().value, ["Anna"]);
/// # Ok::<(), ifmatch_client::Error>(())
/// # }).unwrap();
/// ```
pub struct Document<T> {
    raw: RawDocument,
    /// The last version read or written.
    last: Arc<Mutex<Option<DocumentSnapshot>>>,
    /// Held during an update.
    turn: Arc<tokio::sync::Mutex<()>>,
    of: PhantomData<fn() -> T>,
}

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<T> {
    /// The value.
    pub value: T,
    /// The version, for [`Document::replace`].
    pub version: Version,
}

/// Error of [`Document::try_update`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError<E> {
    /// The closure returned an error. Nothing was written.
    #[error("the update was aborted: {0}")]
    Aborted(E),
    /// The document couldn't be read or written.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Client {
    /// Returns the JSON document at a key.
    pub fn json<T>(&self, key: impl Into<Arc<str>>) -> Document<T> {
        Document::new(self.clone(), key.into())
    }
}

impl<T> Document<T> {
    pub(crate) fn new(client: Client, key: Arc<str>) -> Self {
        Self {
            raw: RawDocument { client, key },
            last: Arc::default(),
            turn: Arc::default(),
            of: PhantomData,
        }
    }

    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.raw.key
    }

    fn last(&self) -> Option<DocumentSnapshot> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn remember(&self, snapshot: Option<&DocumentSnapshot>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = snapshot.cloned();
    }

    /// Reads the current snapshot. The content is transferred only if it has changed.
    async fn current(&self, until: Timestamp) -> Result<Option<DocumentSnapshot>, Error> {
        let last = self.last();
        let known = last.as_ref().and_then(|last| last.version.as_ref());
        let loaded = self.raw.read_until(known, until).await?;
        Ok(self.adopt(loaded, last))
    }

    /// Remembers what a read has found, and returns it. `last` is what an unchanged document still has.
    fn adopt(
        &self,
        loaded: LoadedDocument,
        last: Option<DocumentSnapshot>,
    ) -> Option<DocumentSnapshot> {
        let current = match loaded {
            LoadedDocument::Absent => None,
            LoadedDocument::Unchanged(_) => return last,
            LoadedDocument::Found(snapshot, _) => Some(snapshot),
        };
        self.remember(current.as_ref());
        current
    }
}

impl<T: DeserializeOwned + Serialize> Document<T> {
    /// Returns the current value, or `None` if there is no document.
    ///
    /// # Errors
    /// `Unknown` if the server doesn't respond. `Refused` if the server rejects the request or sends no strong tag, or
    /// if the content isn't a `T`.
    pub async fn get(&self) -> Result<Option<Versioned<T>>, Error> {
        self.current(self.raw.client.until())
            .await?
            .map(|snapshot| self.versioned(&snapshot))
            .transpose()
    }

    /// Creates the document.
    ///
    /// # Errors
    /// `Conflict` if it exists.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let note = Client::new(Memory::default()).json::<u8>("note");
    /// note.create(1).await?;
    /// assert!(note.create(2).await.is_err());
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn create(&self, value: T) -> Result<Versioned<T>, Error> {
        self.put(None, value).await
    }

    /// Replaces this version, for example the one that a form was opened with.
    ///
    /// # Errors
    /// `Conflict` if the document has another version, or none.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let note = Client::new(Memory::default()).json::<u8>("note");
    /// let first = note.create(1).await?.version;
    /// note.replace(&first, 2).await?;
    /// assert!(note.replace(&first, 3).await.is_err());
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn replace(&self, version: &Version, value: T) -> Result<Versioned<T>, Error> {
        let current = self.current(self.raw.client.until()).await?;
        let is = |snapshot: &DocumentSnapshot| snapshot.version.as_ref() == Some(version);
        match current {
            Some(snapshot) if is(&snapshot) => self.put(Some(&snapshot), value).await,
            other => {
                let current = other.and_then(|snapshot| snapshot.version);
                Err(Error::new(
                    ErrorKind::Conflict { current },
                    format!("{} has changed since {version}", self.key()),
                ))
            }
        }
    }

    /// Changes the document, or creates it from the default value. Returns the value that was written.
    ///
    /// After a conflict, the closure runs again on the new value, so it must have no other effect.
    ///
    /// # Errors
    /// `Contended` if every attempt within the time limit lost to another writer. `Unknown` if the document doesn't
    /// show whether the update took effect.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let hits = Client::new(Memory::default()).json::<u64>("hits");
    /// hits.update(|count| *count += 1).await?;
    /// assert_eq!(hits.update(|count| *count += 1).await?, 2);
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn update(&self, change: impl FnMut(&mut T)) -> Result<T, Error>
    where
        T: Default,
    {
        unaborted(self.change(None, always(change)).await)
    }

    /// Changes the document like [`update`](Self::update), unless the closure returns an error.
    ///
    /// # Errors
    /// Same as [`update`](Self::update), or the closure's own.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory, UpdateError};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let stock = Client::new(Memory::default()).json::<u32>("stock");
    /// let sell = |stock: &mut u32| stock.checked_sub(1).map(|less| *stock = less).ok_or("sold out");
    /// assert!(matches!(stock.try_update(sell).await, Err(UpdateError::Aborted("sold out"))));
    /// # });
    /// ```
    pub async fn try_update<E>(
        &self,
        change: impl FnMut(&mut T) -> Result<(), E>,
    ) -> Result<T, UpdateError<E>>
    where
        T: Default,
    {
        self.change(None, change).await
    }

    /// Changes the document like [`update`](Self::update), for the holder of a lock. The document keeps the fencing
    /// token: once a later holder has written, earlier holders' writes are rejected.
    ///
    /// # Errors
    /// Same as [`update`](Self::update); `Lost` if the lock is lost or a later holder has written.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let client = Client::new(Memory::default());
    /// let bill = client.json::<u64>("bill");
    /// let held = client.lock("locks/bill").acquire().await?;
    /// bill.update_fenced(&held, |sum| *sum += 10).await?;
    /// held.release().await?;
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn update_fenced(&self, held: &Grant, change: impl FnMut(&mut T)) -> Result<T, Error>
    where
        T: Default,
    {
        unaborted(self.change(Some(held), always(change)).await)
    }

    async fn change<E>(
        &self,
        held: Option<&Grant>,
        mut change: impl FnMut(&mut T) -> Result<(), E>,
    ) -> Result<T, UpdateError<E>>
    where
        T: Default,
    {
        let mut pace = RetryPace::until(self.raw.client.until());
        let clock = self.raw.client.clock();
        let turn = task::timeout(clock, clock.now().until(pace.until), self.turn.lock()).await;
        let _turn = turn.map_err(|_| contended(self.key()))?;
        let mut base = self.current(pace.until).await?;
        loop {
            let fence = held
                .map(|held| self.fence(held, base.as_ref()))
                .transpose()?;
            let mut value = base
                .as_ref()
                .map(|base| self.value(base))
                .transpose()?
                .unwrap_or_default();
            change(&mut value).map_err(UpdateError::Aborted)?;
            match self
                .raw
                .write(base.as_ref(), self.encode(&value)?, fence, &mut pace)
                .await?
            {
                WriteOutcome::Done(snapshot) => {
                    self.remember(Some(&snapshot));
                    return Ok(value);
                }
                WriteOutcome::Superseded => return Ok(value),
                WriteOutcome::Conflict(..) if self.raw.client.clock().now() >= pace.until => {
                    return Err(contended(self.key()).into());
                }
                WriteOutcome::Conflict(_, Some(fresh)) => base = self.adopt(fresh, None),
                WriteOutcome::Conflict(_, None) => base = self.current(pace.until).await?,
            }
        }
    }

    /// Returns the fencing token of a holder who may still write.
    fn fence(&self, held: &Grant, base: Option<&DocumentSnapshot>) -> Result<u64, Error> {
        if held.is_lost() {
            return Err(Error::lost());
        }
        let largest = base
            .and_then(|base| base.stamp.as_ref())
            .and_then(|stamp| stamp.fence);
        if largest.is_some_and(|largest| largest > held.fence()) {
            return Err(Error::new(
                ErrorKind::Lost,
                format!("a later holder of the lock has written {}", self.key()),
            ));
        }
        Ok(held.fence())
    }

    async fn put(&self, base: Option<&DocumentSnapshot>, value: T) -> Result<Versioned<T>, Error> {
        let mut pace = RetryPace::until(self.raw.client.until());
        match self
            .raw
            .write(base, self.encode(&value)?, None, &mut pace)
            .await?
        {
            WriteOutcome::Done(snapshot) => {
                self.remember(Some(&snapshot));
                self.versioned(&snapshot)
            }
            WriteOutcome::Superseded => Err(Error::unknown(format!(
                "{} was written, and has changed since: read it again",
                self.key()
            ))),
            WriteOutcome::Conflict(conflict, _) => Err(conflict),
        }
    }

    fn versioned(&self, snapshot: &DocumentSnapshot) -> Result<Versioned<T>, Error> {
        let Some(version) = snapshot.version.clone() else {
            return Err(self.raw.no_strong_tag());
        };
        Ok(Versioned {
            value: self.value(snapshot)?,
            version,
        })
    }

    fn value(&self, snapshot: &DocumentSnapshot) -> Result<T, Error> {
        let wrong = |error| {
            Error::refused(format!(
                "{} is not of the expected type: {error}",
                self.key()
            ))
        };
        serde_json::from_value(snapshot.value.clone()).map_err(wrong)
    }

    fn encode(&self, value: &T) -> Result<serde_json::Value, Error> {
        serde_json::to_value(value)
            .map_err(|error| Error::refused(format!("{} cannot be JSON: {error}", self.key())))
    }
}

/// Returns a change that never aborts.
fn always<T>(mut change: impl FnMut(&mut T)) -> impl FnMut(&mut T) -> Result<(), Infallible> {
    move |value| {
        change(value);
        Ok(())
    }
}

/// Returns the result of a change that never aborts.
fn unaborted<T>(result: Result<T, UpdateError<Infallible>>) -> Result<T, Error> {
    result.map_err(|error| match error {
        UpdateError::Failed(error) => error,
        UpdateError::Aborted(never) => match never {},
    })
}

impl<T> Clone for Document<T> {
    fn clone(&self) -> Self {
        Self {
            raw: self.raw.clone(),
            last: Arc::clone(&self.last),
            turn: Arc::clone(&self.turn),
            of: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Document<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("key", &self.raw.key)
            .finish_non_exhaustive()
    }
}
