//! The object store, and the location of the blobs in it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{Attributes, ObjectMeta, ObjectStore, Result, UpdateVersion};

use crate::attributes::MetadataNaming;
use crate::upload::{Hashing, RunningHash};

/// A store that lists objects with their attributes, in the byte order of their names.
pub trait DescribedListing: fmt::Debug + Send + Sync {
    /// Lists the objects whose names follow `after` and begin with `prefix`, which may end within a segment.
    fn list_described(
        &self,
        prefix: &str,
        after: Option<&Path>,
    ) -> BoxStream<'static, Result<(ObjectMeta, Attributes)>>;
}

/// A store that deletes an object on the condition that it is unchanged.
#[async_trait]
pub trait ConditionalDeletion: fmt::Debug + Send + Sync {
    /// Deletes an object if it is still this version.
    ///
    /// # Errors
    /// [`object_store::Error::Precondition`] if it is another version.
    async fn delete_if(&self, location: &Path, version: &UpdateVersion) -> Result<()>;
}

/// An object store and its particulars. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BackingStore {
    pub(super) objects: Arc<dyn ObjectStore>,
    /// Prefix of all names.
    pub(super) prefix: Path,
    /// `true` if listings are in the order of the names' bytes.
    pub(super) ordered: bool,
    /// The syntax of metadata names.
    pub(super) naming: MetadataNaming,
    /// Minimum lifetime of a version before it is replaced, if the store derives tags from a clock.
    pub(super) tick: Duration,
    /// `true` if a write ends with its process: no request is on its way to a server.
    pub(super) is_local: bool,
    /// `true` if the store accepts bodies as they are.
    pub(super) takes_uploads: bool,
    /// Time for which reads may reuse the register's response about a container.
    pub(super) container_memory: Duration,
    /// Credentials that the store needs, reported instead of the store's own error about the machine's metadata
    /// service.
    pub(super) advice: Option<&'static str>,
    /// Returns why the store has no object of this path, or `None` if it may have one.
    pub(super) refusal: fn(&Path) -> Option<&'static str>,
    /// Listing of the objects with their attributes.
    pub(super) described: Option<Arc<dyn DescribedListing>>,
    /// Deletions on a condition.
    pub(super) deletion: Option<Arc<dyn ConditionalDeletion>>,
    /// Returns the number of requests that the platform still allows.
    pub(super) allowance: fn() -> usize,
    /// The platform's hash for long bodies.
    pub(super) hashing: Option<Hashing>,
}

impl BackingStore {
    /// Wraps an object store, which is assumed to list in no order.
    pub fn new(objects: Arc<dyn ObjectStore>) -> Self {
        let prefix = Path::default();
        Self {
            objects,
            prefix,
            ordered: false,
            naming: MetadataNaming::Headers,
            tick: Duration::ZERO,
            is_local: false,
            takes_uploads: false,
            container_memory: Duration::ZERO,
            advice: None,
            refusal: |_| None,
            described: None,
            deletion: None,
            allowance: || usize::MAX,
            hashing: None,
        }
    }

    /// Returns the object store.
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// Returns the prefix of all names.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Sets a prefix for the blobs.
    #[must_use]
    pub fn with_prefix(self, prefix: Path) -> Self {
        Self { prefix, ..self }
    }

    /// Declares that the store lists in the order of the names' bytes, as most do. A page of a listing then ignores
    /// everything after it.
    #[must_use]
    pub fn listed_in_order(self) -> Self {
        Self {
            ordered: true,
            ..self
        }
    }

    /// Declares that this process writes to the disk itself, as into a folder. A write then ends with the process, and never arrives
    /// later.
    #[must_use]
    pub fn local(self) -> Self {
        Self {
            is_local: true,
            ..self
        }
    }

    /// Sets the syntax of metadata names; names of header fields if not set.
    #[must_use]
    pub fn with_naming(self, naming: MetadataNaming) -> Self {
        Self { naming, ..self }
    }

    /// Declares that the store accepts the platform's bodies: see [`DirectUpload`](super::DirectUpload) and
    /// [`DirectBody`](super::DirectBody).
    #[must_use]
    pub fn takes_uploads(self) -> Self {
        Self {
            takes_uploads: true,
            ..self
        }
    }

    /// Sets how long reads may reuse the register's response about a container. By default, each read asks the register.
    ///
    /// Use this with a remote register. During this time, a read may return a blob that an unanswered write left in a
    /// container since deleted by another process. Writes rely on a response for a second, and the deletion of a container waits for
    /// that: all processes of a store must have this setting, or none.
    ///
    /// Reads then also wait less for a register that hangs: 300 ms if there was an earlier response, and otherwise two seconds.
    /// They go on without a response, and the register isn't asked again for this time.
    ///
    /// A store without metadata is then refused: its objects carry no incarnation, so a write by memory could add a blob to a
    /// deleted container.
    #[must_use]
    pub fn with_container_memory(self, lasts: Duration) -> Self {
        Self {
            container_memory: lasts,
            ..self
        }
    }

    /// Sets a listing with attributes, so a page of a listing needs no request per object.
    #[must_use]
    pub fn described_by(self, listing: Arc<dyn DescribedListing>) -> Self {
        Self {
            described: Some(listing),
            ordered: true,
            ..self
        }
    }

    /// Sets deletions on a condition, so a deletion never removes a version that another process has just written.
    #[must_use]
    pub fn deletes_if(self, deletion: Arc<dyn ConditionalDeletion>) -> Self {
        Self {
            deletion: Some(deletion),
            ..self
        }
    }

    /// Sets the request limit of a platform that bounds the requests per invocation. `allowance` returns the number of
    /// requests left. Pages of listings get shorter accordingly.
    #[must_use]
    pub fn with_allowance(self, allowance: fn() -> usize) -> Self {
        Self { allowance, ..self }
    }

    /// Sets the platform's hash for long bodies, if it is faster than this crate's. `begin` starts a hash.
    #[must_use]
    pub fn hashed_by(self, begin: fn() -> Box<dyn RunningHash>) -> Self {
        Self {
            hashing: Some(begin),
            ..self
        }
    }

    /// Wraps the object store, for example in a limit or in a test's fault injection. The [listing with
    /// attributes](Self::described_by) isn't wrapped.
    #[must_use]
    pub fn map(self, wrap: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>) -> Self {
        Self {
            objects: wrap(self.objects),
            ..self
        }
    }
}
