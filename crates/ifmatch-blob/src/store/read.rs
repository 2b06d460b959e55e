//! Reading a blob: its properties, and the bytes of one version.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::SeenLease;
use ifmatch_core::precondition::Validators;
use ifmatch_core::range::{Limits, RangeSpec};
use ifmatch_core::record::Revision;

use crate::body::BlobBody;
use crate::dialect::Client;
use crate::error::StoreError;
use crate::headers::BlobHeaders;
use crate::name::{BlobPath, ContainerName};

/// The parts of a blob that a caller is going to use, so a remote store gets no more requests than necessary.
///
/// ```
/// use ifmatch_blob::store::Reading;
///
/// let properties = Reading::HEAD.without_lease();
/// assert!(Reading::HEAD.lease && !properties.lease);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The bytes that will be read.
    pub extent: Extent,
    /// [`BlobInfo::lease`] will be used. Otherwise it may be missing.
    pub lease: bool,
    /// The client to which the bytes are sent, if they are. What it leaves unread counts against its share of a store's memory.
    pub client: Option<Client>,
}

/// The bytes of a blob that will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// No bytes.
    None,
    /// All bytes, most likely.
    All,
    /// This range, most likely.
    Range(RangeSpec),
    /// Some ranges, all bytes, or none.
    Ranges,
}

impl Reading {
    /// Only the properties.
    pub const HEAD: Self = Self {
        extent: Extent::None,
        lease: true,
        client: None,
    };
    /// All bytes, most likely.
    pub const WHOLE: Self = Self {
        extent: Extent::All,
        ..Self::HEAD
    };
    /// Some ranges, or all bytes, or none.
    pub const RANGES: Self = Self {
        extent: Extent::Ranges,
        ..Self::HEAD
    };

    /// Returns the bytes that a GET with this `Range` field reads, unless a condition prevents it.
    ///
    /// ```
    /// use ifmatch_blob::store::{Extent, Reading};
    /// use ifmatch_core::range::{Limits, RangeSpec};
    ///
    /// assert_eq!(Reading::of_range(b"bytes=0-9", Limits::default()).extent, Extent::Range(RangeSpec::From(0, 9)));
    /// assert_eq!(Reading::of_range(b"bytes=0-0, 9-9", Limits::default()), Reading::RANGES);
    /// assert_eq!(Reading::of_range(b"lines=1", Limits::default()), Reading::WHOLE);
    /// ```
    pub fn of_range(value: &[u8], limits: Limits) -> Self {
        match RangeSpec::parse_set(value, limits).as_deref() {
            None => Self::WHOLE,
            Some(&[spec]) => Self {
                extent: Extent::Range(spec),
                ..Self::HEAD
            },
            Some(_) => Self::RANGES,
        }
    }

    /// Returns the same without the lease.
    #[must_use]
    pub const fn without_lease(self) -> Self {
        Self {
            lease: false,
            ..self
        }
    }

    /// Returns the same for bytes that are sent to a client.
    ///
    /// ```
    /// use ifmatch_blob::dialect::Client;
    /// use ifmatch_blob::store::Reading;
    ///
    /// let client = Some(Client([192, 0, 2, 7].into()));
    /// assert_eq!(Reading::WHOLE.sent_to(client).client, client);
    /// ```
    #[must_use]
    pub const fn sent_to(self, client: Option<Client>) -> Self {
        Self { client, ..self }
    }
}

/// The properties of one version of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    /// The entity tag. A missing or weak tag never satisfies `If-Match`.
    pub tag: Option<EntityTag>,
    /// The modification date. Send it only once it [has come](HttpDate::has_come).
    pub last_modified: HttpDate,
    /// Number of bytes.
    pub length: u64,
    /// The hash of the bytes, if the store knows it.
    pub hash: Option<ContentHash>,
    /// The header fields kept with the blob.
    pub headers: BlobHeaders,
    /// The number of the write that created this version, larger than every earlier version's. `None` if the store
    /// doesn't number its writes.
    pub generation: Option<Revision>,
    /// When the blob was created, if the store knows it.
    pub created: Option<Timestamp>,
    /// The lease. Its [state](SeenLease::state) shows if it locked the blob when it was read.
    pub lease: Option<SeenLease>,
}

impl BlobInfo {
    /// Returns the validators for preconditions.
    pub fn validators(&self) -> Validators<'_> {
        Validators {
            tags: self.tag.as_slice(),
            last_modified: Some(self.last_modified),
        }
    }
}

/// One version of a blob, opened for reading.
pub struct Opened {
    /// Its properties.
    pub info: BlobInfo,
    /// Its bytes.
    pub source: Box<dyn Source>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

/// The bytes of one version of a blob.
///
/// Every read returns bytes of this version, or an error, regardless of writes and deletions.
pub trait Source: Send + 'static {
    /// Reads a range, or all bytes. A range isn't empty and lies within the blob.
    ///
    /// May be called again once the previous body is no longer read. A blob opened with [`Reading::HEAD`] returns an
    /// empty body.
    fn read(&mut self, range: Option<Range<u64>>) -> Reply<'_, BlobBody>;
}

/// The boxed future of a [`Source`].
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Answers that a store can give without waiting: see [`BlobStore::peek`](super::BlobStore::peek).
///
/// A response has the same guarantees as the asynchronous call that it saves.
pub trait Peek: Send + Sync {
    /// Returns the current version of a blob, or `None` if only [`open`](super::BlobStore::open) can tell.
    fn cached(&self, blob: &BlobPath) -> Option<Cached>;

    /// Returns `true` if an [internal](ContainerName::internal) container is empty, or `false` if only
    /// [`list`](super::BlobStore::list) can tell.
    fn is_empty(&self, container: &ContainerName) -> bool;
}

/// The current version of a blob, from memory.
#[derive(Clone, Debug)]
pub struct Cached {
    /// Its properties. The lease may be missing.
    pub info: Arc<BlobInfo>,
    /// All bytes, if they are in memory.
    pub content: Option<Bytes>,
}
