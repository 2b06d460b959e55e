//! The storage contract.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
#[cfg(feature = "encoding")]
use ifmatch_core::record::DecodeError;
use ifmatch_core::record::{Record, Revision};
use ifmatch_runtime::RandomError;

use crate::clocks::EngineTime;
use crate::connect_error::ConnectError;
use crate::key::Key;

/// A linearizable register for each key.
///
/// [`load`](Self::load), [`compare_and_swap`](Self::compare_and_swap) and [`scan`](Self::scan) are required. If
/// processes share the engine, implement [`engine`](Self::engine) too. Use [`async_trait`](crate::async_trait), which
/// boxes the futures, so a driver can hold any register.
///
/// # Requirements
/// - **Linearizable**, as far as its [`Guarantee`] goes: a load or a scan that begins after a successful swap, in any
///   process, sees that swap or a later one.
/// - **Atomic**: if several swaps expect the same revision, one succeeds.
/// - **Durable**, as far as its [`Guarantee`] goes: a swap answered with [`Swap::Done`] survives a crash and a loss of
///   power, and so does every result of a load or a scan. After [`RegisterErrorKind::Ambiguous`] a driver loads the
///   record to learn if its swap took place; after a failed sync, the contents of the page cache don't prove that.
/// - **Opaque**: it stores [`Record::encode`] with [`Record::revision`], interprets neither, decodes with
///   [`Record::decode`], and returns errors of decoding.
/// - **Honest errors**: [`RegisterErrorKind::Unavailable`] only if the swap definitely didn't take place,
///   [`RegisterErrorKind::Ambiguous`] if it may have. A client library that resends swaps may meet its own success:
///   unless the conflict shows exactly `next`, which the driver recognises, report such a conflict as ambiguous.
/// - **Bounded**: it returns or fails within its own time limit. A hanging register blocks every write.
/// - **Cancel-safe**: dropping a future leaves the swap done or not done.
///
/// Callers mustn't assume an order between keys, or fairness. A spurious [`Swap::Conflict`] is safe; a spurious
/// [`Swap::Done`] isn't.
///
/// # In SQL
/// ```sql
/// CREATE TABLE register (key text COLLATE "C" PRIMARY KEY, revision bigint NOT NULL, record bytea NOT NULL);
///
/// SELECT record FROM register WHERE key = $1;                                        -- load
/// INSERT INTO register VALUES ($1, $3, $4) ON CONFLICT DO NOTHING;                   -- swap, expected = 0
/// UPDATE register SET revision = $3, record = $4 WHERE key = $1 AND revision = $2;   -- swap
/// DELETE FROM register WHERE key = $1 AND revision = $2;                             -- swap, no next
/// ```
/// If a row changed, return [`Swap::Done`]; otherwise [`Swap::Conflict`] with the result of a load. Load in a separate
/// statement, since the first one's snapshot may be older than the conflict. Scans need the order of the keys' bytes,
/// and the index must accept keys of [`Key::MAX_LEN`].
///
/// # Tests
/// The suite in [`conformance`](crate::conformance) (feature `conformance`) checks the contract. Test what it can't: an
/// acknowledged swap survives `kill -9` and a loss of power, even after a failed sync, and your register correctly
/// reports a full disk, or a connection lost during a swap.
#[async_trait]
pub trait Register: Send + Sync + 'static {
    /// Returns the current record, if there is one.
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError>;

    /// If the record's revision is still `expected`, replaces it with `next`, or removes it if `next` is `None`.
    /// [`Revision::NONE`] means that there is no record.
    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError>;

    /// Lists at most `scan.limit` records in the order of their keys' bytes. An empty page ends the listing.
    ///
    /// A page is as fresh as a [`load`](Self::load) of each of its keys that begins when the scan begins: it shows
    /// every earlier successful swap, including new and deleted keys. Entries that change during the scan may be seen
    /// in either state. Callers rely on this: a container is deleted once a scan has shown that it has no writes in
    /// flight.
    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError>;

    /// Describes the engine, as known from its latest response. Called for each command, so it mustn't wait. Defaults to
    /// an engine that loses nothing and keeps no time.
    fn engine(&self) -> Engine {
        Engine::default()
    }

    /// Returns the current record's revision if the register knows it without waiting, or [`Revision::NONE`] if it
    /// knows that there is no record. Returns `None`, the default, if only a [`load`](Self::load) can tell.
    ///
    /// Same guarantees as [`load`](Self::load). Lets caches revalidate without loading.
    fn revision_at_once(&self, _key: &Key) -> Option<Revision> {
        None
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<R: Register + ?Sized> Register for Arc<R> {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        R::load(self, key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        R::compare_and_swap(self, key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        R::scan(self, scan).await
    }

    fn engine(&self) -> Engine {
        R::engine(self)
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        R::revision_at_once(self, key)
    }
}

impl fmt::Debug for dyn Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Register")
    }
}

/// The engine in which a register keeps its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Engine {
    /// The lifetime of acknowledged swaps.
    pub guarantee: Guarantee,
    /// The epoch, for engines in which another server may take over without the last swaps. It is stored with the
    /// records. Once the new server has responded to a call, this is the new epoch.
    pub epoch: Epoch,
    /// `true` if another server may take over without the last swaps, in a new epoch. A record that was seen before may then be older
    /// than one that was lost, although a swap that expects it succeeds. So each command begins with a load.
    pub fails_over: bool,
    /// The engine's time, for registers that processes share. Each load takes a sample of it, so a process that was
    /// idle knows the time before it decides (see [`EngineClock`](crate::EngineClock)). `None` if the engine keeps no time:
    /// processes that share the register then compare deadlines by their own clocks.
    pub time: Option<EngineTime>,
}

/// The lifetime of acknowledged swaps.
///
/// Promises that must outlast the process, such as leases, need [`Guarantee::Linearizable`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guarantee {
    /// An acknowledged swap is never lost.
    #[default]
    Linearizable,
    /// An acknowledged swap may be lost when the engine fails over to another server: a record may return to an earlier
    /// version. Such a register can keep permits for writers whose resource is probed, but can't be the authority on the
    /// current version, nor the index of a store.
    UntilFailover,
    /// The records end with this process, or may be evicted while they still matter. No record returns to an earlier
    /// version.
    Process,
}

impl Guarantee {
    /// Returns `true` if a record may return to an earlier version.
    ///
    /// ```
    /// use ifmatch_register::Guarantee;
    /// assert!(Guarantee::UntilFailover.may_lose_swaps() && !Guarantee::Process.may_lose_swaps());
    /// ```
    pub fn may_lose_swaps(self) -> bool {
        self == Self::UntilFailover
    }
}

/// A time between two failovers that may have lost swaps.
///
/// Records up to revision `lost` may be older than an acknowledged swap. A [`Driver`](crate::Driver) of resources that can
/// be probed treats their versions as unknown, and writes later revisions from then on. An index, which can't ask any other
/// authority, uses the records that it finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// The number of such failovers of the register so far.
    pub number: u64,
    /// The latest revision that may have been lost, or [`Revision::NONE`] in the first epoch.
    pub lost: Revision,
}

/// The result of a swap.
#[allow(clippy::large_enum_variant, reason = "the value is short-lived")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The record was replaced.
    Done,
    /// The revision wasn't the expected one. Contains the current record.
    Conflict(Option<Record>),
}

/// The records to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan<'a> {
    /// The prefix of the keys.
    pub prefix: &'a str,
    /// The last key of the previous page.
    pub after: Option<&'a str>,
    /// Maximum number of records in the page.
    pub limit: usize,
}

/// A register failed.
#[derive(Debug)]
pub struct RegisterError {
    kind: RegisterErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
    /// `true` if the source says all that a reader needs.
    is_explained: bool,
}

/// What a register's failure means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterErrorKind {
    /// Nothing was changed. Try again later.
    Unavailable,
    /// The swap may have taken place, or may still do so.
    Ambiguous,
    /// The stored record can't be decoded: it's damaged, or a newer release wrote it.
    Unreadable,
    /// The register has reached its capacity. Nothing was changed.
    Full,
}

impl RegisterError {
    /// Creates an error with its cause.
    pub fn new(kind: RegisterErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind,
            source: Some(source.into()),
            is_explained: false,
        }
    }

    /// Returns the error again, for another call that failed for the same reason.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let source = self.source.as_ref().map(|source| source.to_string().into());
        Self { source, ..*self }
    }

    /// Returns the error as it applies to a load or a scan, which changes nothing: an ambiguous error becomes
    /// [`RegisterErrorKind::Unavailable`].
    #[must_use]
    pub fn of_read(self) -> Self {
        match self.kind {
            RegisterErrorKind::Ambiguous => Self {
                kind: RegisterErrorKind::Unavailable,
                ..self
            },
            _ => self,
        }
    }

    /// Returns the meaning of the failure.
    pub fn kind(&self) -> RegisterErrorKind {
        self.kind
    }

    /// Returns the message for an operator. For a failed connection, it says what is wrong with the server.
    ///
    /// ```
    /// use ifmatch_register::{ConnectError, ConnectErrorKind, RegisterError};
    ///
    /// let refused = ConnectError::new(ConnectErrorKind::Unreachable, "h:6379 refused the connection");
    /// let error = RegisterError::from(refused);
    /// assert_eq!(error.reason(), "h:6379 refused the connection");
    /// assert!(error.to_string().starts_with("the register is unavailable"));
    /// ```
    pub fn reason(&self) -> String {
        match &self.source {
            Some(source) if self.is_explained => source.to_string(),
            _ => self.to_string(),
        }
    }
}

#[cfg(feature = "encoding")]
impl From<DecodeError> for RegisterError {
    fn from(error: DecodeError) -> Self {
        Self::new(RegisterErrorKind::Unreadable, error)
    }
}

impl From<RandomError> for RegisterError {
    fn from(error: RandomError) -> Self {
        Self::new(RegisterErrorKind::Unavailable, error)
    }
}

impl From<RegisterErrorKind> for RegisterError {
    fn from(kind: RegisterErrorKind) -> Self {
        Self {
            kind,
            source: None,
            is_explained: false,
        }
    }
}

impl From<ConnectError> for RegisterError {
    /// Nothing is sent before a connection is established.
    fn from(error: ConnectError) -> Self {
        Self {
            is_explained: true,
            ..Self::new(RegisterErrorKind::Unavailable, error)
        }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            RegisterErrorKind::Unavailable => {
                "the register is unavailable, and nothing was changed"
            }
            RegisterErrorKind::Ambiguous => "the register didn't say whether the change took place",
            RegisterErrorKind::Unreadable => "the register has an unreadable record",
            RegisterErrorKind::Full => "the register is full, and nothing was changed",
        })?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for RegisterError {
    /// The message contains the cause, so the chain continues after it.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().and_then(Error::source)
    }
}
