//! The seam to servers and stores: read, write on a condition, delete and list.

mod answer;
#[cfg(feature = "azure")]
mod azure;
mod http;
mod memory;
#[cfg(feature = "object-store")]
mod objects;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

#[cfg(feature = "azure")]
pub use self::azure::Azure;
pub use self::http::{Http, HttpError};
pub use self::memory::Memory;
#[cfg(feature = "object-store")]
pub use self::objects::Objects;
use crate::error::Error;
use crate::version::Version;

/// A server or store with versions and conditional writes.
///
/// An implementation makes one attempt per call, and never retries on its own.
///
/// | the request | the error's kind |
/// |---|---|
/// | was rejected because its condition is false | `Conflict` |
/// | may or may not have taken effect, or may succeed later | `Unknown` |
/// | can never succeed as it is, and had no effect | `Refused` |
pub trait Backend: Send + Sync + 'static {
    /// Reads a key. Returns [`Read::Unchanged`] if `known` is the current version.
    ///
    /// With `wait`, a backend that can wait for a change does so before it returns [`Read::Unchanged`], for at most
    /// this long.
    fn get<'a>(
        &'a self,
        key: &'a str,
        known: Option<&'a Version>,
        wait: Option<Duration>,
    ) -> BoxFuture<'a, Result<Read, Error>>;

    /// Writes a key atomically if the condition holds. Returns the new version, or `None` if the server doesn't send
    /// it.
    fn put<'a>(
        &'a self,
        key: &'a str,
        put: &'a Put,
    ) -> BoxFuture<'a, Result<Option<Version>, Error>>;

    /// Deletes this version of a key.
    ///
    /// A store without conditional deletion compares the version right before it deletes, so callers delete only keys
    /// that no client writes any more.
    fn delete<'a>(&'a self, key: &'a str, version: &'a Version)
    -> BoxFuture<'a, Result<(), Error>>;

    /// Checks that the server honours conditions on writes, by writing the key's current bytes under false conditions.
    /// Returns `Refused` if the server accepts such a write, and `Conflict` if the key has been deleted since.
    ///
    /// A client calls this once, before it relies on conditions. By default, the backend is trusted.
    fn probe<'a>(
        &'a self,
        key: &'a str,
        body: &'a Bytes,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let _ = (key, body, version);
        std::future::ready(Ok(())).boxed()
    }

    /// Deletes a key, whatever its version. A client calls this only after a creation that it can't rely on, because
    /// the server sends no version or ignores conditions. By default, the key stays.
    fn discard<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        std::future::ready(Err(Error::refused(format!(
            "{key} cannot be deleted without a version"
        ))))
        .boxed()
    }

    /// Returns the keys with this prefix, in order.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Error>>;
}

/// The error for a listing that would never end.
const REPEATED_PAGE: &str =
    "the server repeats a page of its listing: it names that page as the next one";

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The key doesn't exist.
    Absent,
    /// The known version is still current.
    Unchanged {
        /// `true` if the backend has waited for a change.
        waited: bool,
    },
    /// The content.
    Found(Found),
}

/// The content of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The bytes.
    pub body: Bytes,
    /// The version, or `None` if the server sends no tag, or a weak one, which a write can't rely on.
    pub version: Option<Version>,
    /// When this version was written, by the clock that dates all the server's versions, if it sends dates.
    pub modified: Option<SystemTime>,
    /// `true` if the backend has waited for a change, or would have.
    pub waited: bool,
}

/// A conditional write.
#[derive(Clone, Debug)]
pub struct Put {
    /// The new content.
    pub body: Bytes,
    /// The condition.
    pub when: When,
    /// A random id, the same in each attempt. A server that remembers it gives a retry the first response.
    pub id: String,
    /// The fencing token of the lock that the writer holds, for servers that check it.
    pub fence: Option<u64>,
}

/// The condition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// The key doesn't exist.
    Absent,
    /// The key has this version.
    Is(Version),
}
