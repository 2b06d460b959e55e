//! The indexed store: bodies of more than 4 KiB as files in a folder, or as objects in a bucket, and everything else in an index.
//!
//! A blob is one record. Its payload contains the header fields, and the body itself if it has at most 4 KiB; otherwise
//! the name of the body's file. A write of a longer body stores it under a unique name, makes it durable, and then
//! swaps the record, which is the commit point. The previous body is deleted afterwards. So a crash leaves the old blob
//! or the new one, and possibly an orphaned file, which the next start collects.
//!
//! A body's name is its hash, which makes it verifiable, and a random number. Only the versions of one blob share a file, so there
//! are no reference counts: a version that differs from the previous one in its header fields keeps its file, and an append lengthens it.
//!
//! Any number of processes may share a bucket, with a register as the index: the swap decides between them too. Nothing there may
//! rely on a quiet start, so a replaced body stays for a while, and what crashes leave is swept after a day.
//!
//! A container is a record as well. The keys of its blobs contain the generation that created it, so one swap deletes
//! it with all its blobs. The unreachable records are collected afterwards.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use ifmatch_redb::RedbRegister;
use ifmatch_register::{Combiner, Driver, Register};

use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::records::of_register;
use ifmatch_blob::store::{
    AppendBlock, Appended, BlobEntry, BlobStore, Cached, ContainerEntry, ContainerInfo, Delete,
    LeaseRequest, Leased, ListQuery, Opened, Page, Peek, Put, Reading, SetHeaders, StoreError,
    Update, Updated, Written,
};

use bodies::Bodies;
pub use body_files::create_folder;
use body_files::{Folder, Root, is_missing, warn_of_foreign_files, was_in_use};
use bucket::Bucket;
pub use bucket::Objects;
use container::Gates;
use decoded::DecodedRecords;
use disk::{Disk, System};
use draft::Drafts;
pub use error::{OpenError, OpenErrorKind};
use internal_counts::InternalCounts;
use snapshot::Local;
pub use snapshot::Snapshot;
use source::{SmallBodies, UnsentBytes};
use swap::Edit;
pub use verify::{Damage, Finding, Progress, Total, Verification};

// Which modules do what:
//
// - A write: `write` looks up its container by `container`, receives the body by `upload`, and changes the record by `swap`. The
//   `background` does that even if the client leaves. The record's `payload` contains a short body, or names a long one.
// - A long body: `bodies` is the interface of its place. `folder_bodies` implements it for a folder: `spool` receives a file,
//   `body_files` knows where each file is, and `disk` makes the system calls. `bucket` implements it for a bucket.
// - An append or an update: `append` requests it, and as part of the swap, `draft` computes the content for all that wait for one key.
// - A read: `read` takes the record from the register, or from `decoded`, which remembers records; `source` reads the body.
// - A listing: `read`, from the index alone. A lease: `lease`, a swap that changes no body.
// - Garbage: `collect` removes what crashes and the deletions of containers leave.
// - A whole store: `snapshot` copies a folder in use, `verify` reads all its bodies, and `transfer` copies it into a bucket and back.
// - Shared: `key` makes the keys of records, `error` the errors, and `internal_counts` spares lookups where there are no blobs.
mod append;
mod background;
mod bodies;
mod body_files;
mod bucket;
mod collect;
mod container;
mod decoded;
mod disk;
// Linux shows the open files of a process.
#[cfg(target_os = "linux")]
#[cfg(test)]
mod disk_tests;
mod draft;
mod error;
mod folder_bodies;
mod internal_counts;
mod key;
mod lease;
mod payload;
mod read;
mod snapshot;
mod source;
mod spool;
mod swap;
mod transfer;
mod upload;
mod verify;
#[cfg(test)]
mod verify_tests;
mod write;

/// The indexed store: bodies as files in a folder or objects in a bucket, and everything else in a register. Cheap to clone.
///
/// ```
/// use ifmatch_blob_indexed::IndexedStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let store = IndexedStore::open(folder.path()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct IndexedStore {
    inner: Arc<Inner>,
    place: Place,
}

/// Where the bodies are.
#[derive(Clone)]
enum Place {
    Folder(Arc<Local>),
    Bucket(Arc<Bucket>),
}

/// State that all operations share.
struct Inner {
    driver: Driver,
    changes: Combiner<Edit, Drafts>,
    bodies: Arc<dyn Bodies>,
    decoded: DecodedRecords,
    small_bodies: SmallBodies,
    unsent: UnsentBytes,
    internal_counts: InternalCounts,
    gates: Gates,
}

impl IndexedStore {
    /// Opens or creates the store in a folder, with its index in `index.redb`.
    ///
    /// Collects the remains of a crash first.
    ///
    /// # Errors
    /// [`OpenErrorKind::InUse`] if another process has the folder open; [`OpenErrorKind::Denied`] if it isn't a
    /// writable folder; [`OpenErrorKind::Full`]; [`OpenErrorKind::Unreadable`] if it is damaged, was written by a newer
    /// release, or has been in use and has no index.
    pub async fn open(folder: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = folder.as_ref().to_owned();
        let open = move || {
            let root = Root::take(&path).map_err(|error| OpenError::folder(&path, error))?;
            let index = path.join("index.redb");
            if is_missing(&index) {
                if was_in_use(&path) {
                    return Err(OpenError::lost_index(&index));
                }
                warn_of_foreign_files(&path);
            }
            let register =
                RedbRegister::open(&index).map_err(|error| OpenError::index(&index, error))?;
            Ok((root, register))
        };
        let (root, register) = tokio::task::spawn_blocking(open)
            .await
            .map_err(OpenError::other)??;
        let register = Arc::new(register);
        Self::in_root(
            root,
            Driver::new(Arc::clone(&register)),
            Some(register),
            Arc::new(System),
        )
        .await
    }

    /// Opens the store in a folder, with a custom index.
    ///
    /// Only one process may use the folder at a time: it stays locked until the store and all its work have ended. Only
    /// the store may write to the index. Collects the remains of a crash first.
    ///
    /// # Errors
    /// Same as [`IndexedStore::open`].
    pub async fn with_driver(folder: impl AsRef<Path>, driver: Driver) -> Result<Self, OpenError> {
        Self::on_disk(folder, driver, Arc::new(System)).await
    }

    async fn on_disk(
        folder: impl AsRef<Path>,
        driver: Driver,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, OpenError> {
        let path = folder.as_ref().to_owned();
        let take = move || Root::take(&path).map_err(|error| OpenError::folder(&path, error));
        let root = tokio::task::spawn_blocking(take)
            .await
            .map_err(OpenError::other)??;
        Self::in_root(root, driver, None, disk).await
    }

    async fn in_root(
        root: Root,
        driver: Driver,
        index: Option<Arc<RedbRegister>>,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, OpenError> {
        check_guarantee(&driver)?;
        let path = root.path().to_owned();
        let create =
            move || Folder::create(root, disk).map_err(|error| OpenError::folder(&path, error));
        let folder = Arc::new(
            tokio::task::spawn_blocking(create)
                .await
                .map_err(OpenError::other)??,
        );
        let inner = Inner::new(driver, Arc::<Folder>::clone(&folder));
        inner.collect(&folder).await?;
        Ok(Self {
            inner: Arc::new(inner),
            place: Place::Folder(Arc::new(Local { folder, index })),
        })
    }

    /// Opens the store with its bodies in a bucket, and its index in a register. Any number of processes may open it, each with this
    /// bucket and this register. Call [`sweep`](Self::sweep) once a day in some of them.
    ///
    /// # Errors
    /// [`OpenErrorKind::Other`] if the register may lose acknowledged swaps.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use ifmatch_blob_indexed::{IndexedStore, Objects};
    /// use ifmatch_register::{Driver, MemoryRegister};
    /// use object_store::memory::InMemory;
    /// use object_store::path::Path;
    ///
    /// let objects = Objects::new(Arc::new(InMemory::new()), Path::from("blobs"));
    /// let store = IndexedStore::in_bucket(objects, Driver::new(MemoryRegister::unbounded()))?;
    /// # Ok::<(), ifmatch_blob_indexed::OpenError>(())
    /// ```
    pub fn in_bucket(objects: Objects, driver: Driver) -> Result<Self, OpenError> {
        check_guarantee(&driver)?;
        let driver = driver.remembering();
        let bucket = Arc::new(Bucket::new(objects, driver.clone()));
        let inner = Inner {
            internal_counts: InternalCounts::unknown(),
            gates: Gates::shared(),
            ..Inner::new(driver, Arc::<Bucket>::clone(&bucket))
        };
        Ok(Self {
            inner: Arc::new(inner),
            place: Place::Bucket(bucket),
        })
    }

    /// Removes bodies in a bucket that are older than a day and that no record names: what processes left that were killed. Returns
    /// their number. In a folder, opening the store does that.
    ///
    /// Readers and writers of all processes may go on, and so may other sweeps. Takes at least five minutes if it finds any.
    ///
    /// # Errors
    /// Fails if the bucket or the index does. The next call continues.
    pub async fn sweep(&self) -> Result<u64, OpenError> {
        match &self.place {
            Place::Folder(_) => Ok(0),
            Place::Bucket(bucket) => self.inner.sweep(bucket).await,
        }
    }

    /// Returns the store in a folder, for operations that a bucket doesn't have.
    fn local(&self) -> Result<Arc<Local>, OpenError> {
        match &self.place {
            Place::Folder(local) => Ok(Arc::clone(local)),
            Place::Bucket(_) => Err(OpenError::no_folder()),
        }
    }

    /// Forgets deletions older than a day, and collects the remains of deleted containers. The record of a deletion
    /// gives late retries their response until then. Opening the store does the same. Call this regularly while it stays
    /// open.
    ///
    /// # Errors
    /// Fails if the index does. The next call continues.
    pub async fn forget_deletions(&self) -> Result<(), StoreError> {
        self.inner.forget_deletions().await.map_err(of_register)
    }

    /// Returns the index, which accepts changes or says why it doesn't.
    pub fn index(&self) -> &dyn Register {
        self.inner.driver.register()
    }

    /// Takes a snapshot, while reads and writes go on: a folder `snapshot` in the data folder, with all blobs at one
    /// moment. It replaces the previous one, and can be copied, verified and opened like any data folder.
    ///
    /// # Errors
    /// [`OpenErrorKind::InUse`] if another snapshot is being taken; [`OpenErrorKind::Other`] if the store has a custom index.
    /// After an error, there may be no snapshot.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let store = ifmatch_blob_indexed::IndexedStore::open(folder.path()).await?;
    /// let snapshot = store.snapshot().await?;
    /// assert_eq!((snapshot.folder, snapshot.bodies), (folder.path().join("snapshot"), 0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn snapshot(&self) -> Result<Snapshot, OpenError> {
        self.local()?.snapshot(self.inner.driver.now()).await
    }

    /// Removes the snapshot, which frees the space of bodies that the store no longer has. Returns `false` if there is none.
    ///
    /// # Errors
    /// Fails if the system does.
    pub async fn remove_snapshot(&self) -> Result<bool, OpenError> {
        self.local()?.remove_snapshot().await
    }
}

/// Refuses a register that can lose a record: the body of a live blob would be removed.
fn check_guarantee(driver: &Driver) -> Result<(), OpenError> {
    if driver.register().engine().guarantee.may_lose_swaps() {
        Err(OpenError::lossy_index())
    } else {
        Ok(())
    }
}

impl Inner {
    fn new(driver: Driver, bodies: Arc<dyn Bodies>) -> Self {
        let driver = driver.assume_absent();
        Self {
            changes: Combiner::with_staging(driver.clone(), Drafts(Arc::clone(&bodies))),
            driver,
            bodies,
            decoded: DecodedRecords::new(),
            small_bodies: SmallBodies::new(),
            unsent: UnsentBytes::new(),
            internal_counts: InternalCounts::default(),
            gates: Gates::default(),
        }
    }
}

impl fmt::Debug for IndexedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexedStore")
            .field("bodies", &self.inner.bodies)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl BlobStore for IndexedStore {
    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        self.inner.open(blob, reading).await
    }

    fn peek(&self) -> Option<&dyn Peek> {
        Some(self)
    }

    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError> {
        write::put(&self.inner, blob, put).await
    }

    async fn append(&self, blob: &BlobPath, append: AppendBlock) -> Result<Appended, StoreError> {
        append::append(&self.inner, blob, append).await
    }

    async fn update(&self, blob: &BlobPath, update: Update) -> Result<Updated, StoreError> {
        append::update(&self.inner, blob, update).await
    }

    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError> {
        write::delete(&self.inner, blob, delete).await
    }

    async fn list(
        &self,
        container: &ContainerName,
        query: &ListQuery,
    ) -> Result<Option<Page<BlobEntry>>, StoreError> {
        self.inner.list(container, query).await
    }

    async fn set_headers(&self, blob: &BlobPath, set: SetHeaders) -> Result<Written, StoreError> {
        write::set_headers(&self.inner, blob, set).await
    }

    async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError> {
        self.inner.lease(blob, request).await
    }

    async fn create_container(
        &self,
        container: &ContainerName,
        headers: BlobHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        self.inner.create_container(container, headers).await
    }

    async fn container(
        &self,
        container: &ContainerName,
    ) -> Result<Option<ContainerInfo>, StoreError> {
        self.inner.container(container).await
    }

    async fn set_container(
        &self,
        container: &ContainerName,
        set: SetHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        self.inner.set_container(container, set).await
    }

    async fn lease_container(
        &self,
        container: &ContainerName,
        request: LeaseRequest,
    ) -> Result<Leased, StoreError> {
        self.inner.lease_container(container, request).await
    }

    async fn delete_container(
        &self,
        container: &ContainerName,
        delete: Delete,
    ) -> Result<(), StoreError> {
        container::delete(&self.inner, container, delete).await
    }

    async fn delete_empty_container(
        &self,
        container: &ContainerName,
        delete: Delete,
    ) -> Result<(), StoreError> {
        container::delete_empty(&self.inner, container, delete).await
    }

    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        self.inner.containers(query).await
    }
}

impl Peek for IndexedStore {
    fn cached(&self, blob: &BlobPath) -> Option<Cached> {
        self.inner.cached(blob)
    }

    fn is_empty(&self, container: &ContainerName) -> bool {
        self.inner.internal_counts.is_empty(container)
    }
}
