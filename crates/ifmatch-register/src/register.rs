//! The contract between ifmatch and whatever keeps its records.

use std::error::Error;
use std::fmt;
use std::future::Future;

use ifmatch_core::record::{DecodeError, Record, Revision};
use ifmatch_runtime::RandomError;

use crate::key::Key;

/// A linearizable register for each key.
///
/// # What an implementation owes
/// - **Linearizable**: a load or a scan that begins after a successful swap, in any process, sees that swap or a later
///   one.
/// - **Atomic**: of several swaps that expect the same revision, one succeeds.
/// - **Durable**, unless documented otherwise: a swap answered with [`Swap::Done`] survives a crash and a loss of
///   power, and so does every result of a load or a scan. After [`RegisterErrorKind::Ambiguous`] a driver loads the
///   record to learn if its swap took place; after a failed sync, the contents of the page cache do not prove that.
/// - **Opaque**: it stores [`Record::encode`] beside [`Record::revision`], looks at neither, and reads with
///   [`Record::decode`], whose refusals it passes on.
/// - An error is honest about what happened: [`RegisterErrorKind::Unavailable`] only if the swap definitely did not take
///   place, [`RegisterErrorKind::Ambiguous`] if it may have.
/// - **Bounded**: it answers, or fails, within a time of its own choice. A register that hangs holds up every write.
/// - A future that is dropped leaves the swap done or not done, nothing in between.
///
/// # What callers may assume
/// Nothing about order between keys, and no fairness. A spurious [`Swap::Conflict`] is safe; a spurious
/// [`Swap::Done`] never is.
///
/// The suite in [`conformance`](crate::conformance) (feature `conformance`) checks all of this.
pub trait Register: Send + Sync + 'static {
    /// The current record, none if there is none.
    fn load(&self, key: &Key) -> impl Future<Output = Result<Option<Record>, RegisterError>> + Send;

    /// Returns `true` if the records end with this process, or may be evicted while they still matter. Guarantees that
    /// must outlast the process, such as leases, are then not given.
    fn forgets(&self) -> bool {
        false
    }

    /// The revision of the current record, [`Revision::NONE`] if there is none, where the register can tell it without
    /// waiting for anything. None: it takes a [`load`](Self::load).
    ///
    /// It is held to what a load is held to, and spares what has a record's content in memory the loading.
    fn revision_at_once(&self, _key: &Key) -> Option<Revision> {
        None
    }

    /// Replaces the record with `next`, or forgets it if that is none, if its revision is still `expected`
    /// ([`Revision::NONE`]: there is no record).
    fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> impl Future<Output = Result<Swap, RegisterError>> + Send;

    /// The records whose keys begin with `scan.prefix` and come after `scan.after`, in the order of the keys' bytes, at the most
    /// `scan.limit`. An empty page ends the listing.
    ///
    /// A page is as fresh as a [`load`](Self::load) of each of its keys that begins when the scan begins: it shows
    /// every earlier successful swap, including new and deleted keys. Entries that change during the scan may be seen
    /// in either state. Callers rely on this: a container is deleted once a scan has shown that it has no writes in
    /// flight.
    fn scan(&self, scan: &Scan<'_>) -> impl Future<Output = Result<Vec<(Key, Record)>, RegisterError>> + Send;
}

/// What came of a swap.
#[allow(clippy::large_enum_variant, reason = "the one with a record is looked at, and gone")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The record is the new one.
    Done,
    /// The revision was another one; this is the record now.
    Conflict(Option<Record>),
}

/// Which records to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan<'a> {
    /// What the keys begin with.
    pub prefix: &'a str,
    /// The key to continue after, from the end of the page before.
    pub after: Option<&'a str>,
    /// The most records in the page.
    pub limit: usize,
}

/// Why a register could not answer.
#[derive(Debug)]
pub struct RegisterError {
    kind: RegisterErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What a register's failure means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterErrorKind {
    /// Nothing was changed. Try again later.
    Unavailable,
    /// The swap may have taken place, or may still do so.
    Ambiguous,
    /// The stored record cannot be read: it is damaged, or a newer release wrote it.
    Unreadable,
    /// The register holds as many records as it may. Nothing was changed.
    Full,
}

impl RegisterError {
    /// An error of the given kind, with its cause.
    pub fn new(kind: RegisterErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// What the failure means.
    pub fn kind(&self) -> RegisterErrorKind {
        self.kind
    }
}

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
        Self { kind, source: None }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            RegisterErrorKind::Unavailable => "the register is unavailable, nothing was changed",
            RegisterErrorKind::Ambiguous => "the register did not say whether the change took place",
            RegisterErrorKind::Unreadable => "the register holds a record that cannot be read",
            RegisterErrorKind::Full => "the register is full, nothing was changed",
        })?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for RegisterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
