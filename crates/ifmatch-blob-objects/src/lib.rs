//! Blobs as objects of another store, under their own names: S3, Azure Blob Storage, Google Cloud Storage, R2, a folder
//! or memory, all through the crate [`object_store`].
//!
//! The blob `/photos/2026/cat.jpg` is the object `photos/2026/cat.jpg`, below the prefix if there is one. So existing
//! objects are blobs, and other programs can read what is written here.
//!
//! # Writes
//! The writers of one blob take turns, with a permit in the register. Under the permit, a write looks up the object,
//! evaluates the request's conditions, and writes on the condition that the object is unchanged, if the store has such
//! a condition ([`StoreCapabilities`]; [`ObjectBlobs::open`] tests it). So writers that share a register never lose each
//! other's updates on any store, nor other programs' updates on a store with conditions. Unconditional writes carry the
//! condition as well, so a delayed request can never replace a later version.
//!
//! Each object carries the number of its write, if the store keeps metadata. The number is part of the blob's tag, so
//! the tag changes with every write even if the store's own tag is a hash. It also shows, after an error or a retry, if
//! a write took effect. The object carries the incarnation of the blob's container, too: an object that arrives late in
//! a deleted container isn't a blob.
//!
//! # Limits
//! - `object_store` has no conditional deletion ([`BackingStore::deletes_if`] adds one), and no conditional completion of a
//!   multipart upload. The version is compared immediately before; another program can write in between.
//! - A store without metadata (a folder) loses header fields, and can't recognise the retry of a request.
//! - A change of header fields rewrites the object, which passes through this process.
//! - A container is deleted object by object. Its blobs are hidden from the start, and writes to it are refused until
//!   the end. If the process stops halfway, the next request to the container resumes the deletion.
//! - The register keeps the leases: [`ObjectBlobs::open_durable`]. With an in-memory register there are none, and empty
//!   containers and the fields of containers are forgotten when the process ends.
//! - A write under a lease is abandoned after three quarters of the lease's remaining time. The store may still carry
//!   it out in the last quarter, before anyone else writes, and later only if it carries no condition.
//!
//! ```
//! use std::sync::Arc;
//!
//! use ifmatch_blob_objects::{BackingStore, ObjectBlobs};
//! use ifmatch_register::{Register, MemoryRegister};
//! use object_store::memory::InMemory;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let backing = BackingStore::new(Arc::new(InMemory::new()));
//! let blobs = ObjectBlobs::open(backing, Arc::new(MemoryRegister::with_capacity(10_000))).await?;
//! assert!(blobs.capability().is_native());
//! # Ok::<(), ifmatch_blob_objects::OpenError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Source
//! The operations are methods of `store_state::StoreState`. Its file has what they share, and each operation's file adds an `impl`
//! block. Start there, then read `write`.
//!
//! - Writes: `write` takes the steps for a `write_job`. `receive` gets the body before the permit: whole or in parts by `upload`, or left
//!   to the platform and the store by `direct`. `permit` takes and returns the permit. Under it, `store_state` looks up the object,
//!   `container` admits the write, `attributes` makes the object's stamp, and `owner` checks a change that no condition covers.
//!   `set_headers` is a write; `delete` takes a permit as well.
//! - The other operations on blobs: `read`, `list` and `lease`. Those on containers: `container`, by the rules in `container_state`;
//!   reads use what `member_cache` remembers.
//! - `records` removes and settles the register's records apart from writes, and `recent_records` remembers some of them. `unrecorded`
//!   replaces a register that processes share.
//! - The store: `backing` is the object store, and the location of the blobs in it. `url` opens it by a URL, and `probe` tests its
//!   conditions.
//! - `failure` converts its errors. `object_register` is a register on an object store, which nothing here uses.

// docs.rs shows the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use ifmatch_register::{Driver, Key, Register};

use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{
    AppendBlock, Appended, BlobEntry, BlobStore, ContainerEntry, ContainerInfo, Delete,
    LeaseRequest, Leased, ListQuery, Opened, Page, Peek, Put, Reading, SetHeaders, StoreError,
    Turns, Update, Updated, Written,
};

pub use attributes::{MetadataNaming, metadata_name};
pub use backing::{BackingStore, ConditionalDeletion, DescribedListing};
use container_state::DeletionPurpose;
pub use direct::{DirectBody, DirectUpload};
pub use failure::{OpenError, OpenErrorKind, TooSoon};
use member_cache::MemberCache;
pub use object_register::ObjectRegister;
use owner::StoreOwner;
pub use owner::{claim_bodies, forget_store};
pub use probe::{ConditionSupport, StoreCapabilities};
use recent_records::RecentRecords;
use store_state::{KeptData, PATIENCE, StoreState};
use unrecorded::Unrecorded;
pub use upload::RunningHash;

mod attributes;
mod backing;
mod container;
mod container_state;
mod delete;
mod direct;
mod failure;
mod lease;
mod list;
mod member_cache;
mod object_register;
mod owner;
mod permit;
mod probe;
mod read;
mod receive;
mod recent_records;
mod records;
mod set_headers;
mod store_state;
mod unrecorded;
mod upload;
#[cfg(feature = "local")]
mod url;
mod write;
mod write_job;

/// A [`BlobStore`] on an object store. Cheap to clone.
#[derive(Clone)]
pub struct ObjectBlobs {
    shared: Arc<StoreState>,
}

/// Refuses a register that may lose acknowledged swaps.
fn refuse_lost_swaps(register: &dyn Register) -> Result<(), OpenError> {
    if register.engine().guarantee.may_lose_swaps() {
        let what = "the register may lose acknowledged swaps, and with them leases and deletions of containers: use one \
                    that keeps them";
        return Err(OpenError::new(OpenErrorKind::Settings, what));
    }
    Ok(())
}

impl ObjectBlobs {
    /// Opens an object store, and tests with a probe object if the store honours conditions.
    ///
    /// The register decides which process may write. An in-memory register suffices for one process. The store is
    /// marked with the register; a process that opens the store later with another register takes it over. The first
    /// process then refuses all unconditional changes.
    ///
    /// # Errors
    /// [`OpenErrorKind::Unusable`] if the store is unreachable or not writable, [`OpenErrorKind::Taken`] if it is
    /// marked with another register that survives a restart, [`OpenErrorKind::Settings`] for a [memory of
    /// containers](BackingStore::with_container_memory) on a store without metadata.
    pub async fn open(
        backing: BackingStore,
        register: Arc<dyn Register>,
    ) -> Result<Self, OpenError> {
        Self::open_with(backing, register, false).await
    }

    /// Opens an object store with a register that survives a restart and can keep leases. Give each store its
    /// own register, since the records describe the objects of one store.
    ///
    /// # Errors
    /// Same as [`ObjectBlobs::open`]; [`OpenErrorKind::Taken`] if the register has described another store before (see
    /// [`forget_store`]); [`OpenErrorKind::Settings`] if the register may lose acknowledged swaps.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use ifmatch_blob_objects::{BackingStore, ObjectBlobs};
    /// use ifmatch_redb::RedbRegister;
    /// use ifmatch_register::Register;
    /// use object_store::memory::InMemory;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let folder = tempfile::tempdir()?;
    /// let register = RedbRegister::open(folder.path().join("register.redb"))?;
    /// let backing = BackingStore::new(Arc::new(InMemory::new()));
    /// let blobs = ObjectBlobs::open_durable(backing, Arc::new(register)).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn open_durable(
        backing: BackingStore,
        register: Arc<dyn Register>,
    ) -> Result<Self, OpenError> {
        refuse_lost_swaps(&*register)?;
        Self::open_with(backing, register, true).await
    }

    async fn open_with(
        backing: BackingStore,
        register: Arc<dyn Register>,
        durable: bool,
    ) -> Result<Self, OpenError> {
        let capability = probe::probe(&backing).await?;
        backing.check(capability)?;
        if capability.is_native() {
            tracing::info!("store {} honours conditional writes", backing.objects);
        } else {
            tracing::warn!(
                "store {} doesn't honour conditional writes ({capability}): writers that bypass this server can cause lost \
                 updates",
                backing.objects
            );
        }
        let owner = StoreOwner::claim(&backing, capability, &register, durable).await?;
        let keeps = if durable {
            KeptData::Leases
        } else {
            KeptData::Containers
        };
        Ok(Self::with(
            backing,
            register,
            capability,
            keeps,
            Some(owner),
        ))
    }

    /// Opens a store with known capabilities, with a register as for [`ObjectBlobs::open_durable`]. Sends no request to
    /// the store. If the store ignores a condition after all, updates are lost.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use ifmatch_blob_objects::{BackingStore, StoreCapabilities, ObjectBlobs};
    /// use ifmatch_register::{Register, MemoryRegister};
    /// use object_store::memory::InMemory;
    ///
    /// let backing = BackingStore::new(Arc::new(InMemory::new())).listed_in_order();
    /// let register = Arc::new(MemoryRegister::unbounded());
    /// let blobs = ObjectBlobs::trusting(backing, register, StoreCapabilities::FULL)?;
    /// assert!(blobs.capability().is_native());
    /// # Ok::<(), ifmatch_blob_objects::OpenError>(())
    /// ```
    ///
    /// # Errors
    /// [`OpenErrorKind::Settings`] for a register that may lose acknowledged swaps, and for a
    /// [memory of containers](BackingStore::with_container_memory) on a store without metadata.
    pub fn trusting(
        backing: BackingStore,
        register: Arc<dyn Register>,
        capability: StoreCapabilities,
    ) -> Result<Self, OpenError> {
        refuse_lost_swaps(&*register)?;
        backing.check(capability)?;
        Ok(Self::with(
            backing,
            register,
            capability,
            KeptData::Leases,
            None,
        ))
    }

    /// Opens a store with known capabilities, without a register: the store's conditions alone decide between processes. Sends no
    /// request to the store.
    ///
    /// There are no leases, and every container exists: none is created, changed or deleted. Uploads in parts, which no condition
    /// covers, refuse conditions, and so do deletions, unless the store has [conditional ones](BackingStore::deletes_if).
    pub fn unrecorded(backing: BackingStore, capability: StoreCapabilities) -> Self {
        Self::with(
            backing,
            Arc::new(Unrecorded::new()),
            capability,
            KeptData::Nothing,
            None,
        )
    }

    fn with(
        backing: BackingStore,
        register: Arc<dyn Register>,
        capability: StoreCapabilities,
        keeps: KeptData,
        owner: Option<StoreOwner>,
    ) -> Self {
        // The store knows the blobs, and nothing but the register its containers.
        let is_container = |key: &Key| key.as_str().starts_with(container::KEYS);
        let driver = Driver::new(register)
            .with_patience(PATIENCE)
            .index_of(is_container);
        let member_cache = MemberCache::new(backing.container_memory);
        let recent_records = RecentRecords::new(member_cache.is_enabled());
        let shared = |me: &Weak<StoreState>| StoreState {
            backing,
            capability,
            driver,
            keeps,
            owner,
            member_cache,
            recent_records,
            turns: Turns::default(),
            me: Weak::clone(me),
        };
        Self {
            shared: Arc::new_cyclic(shared),
        }
    }

    /// Removes the records of unleased blobs and of deleted containers from a durable register, a day after their last
    /// change, and returns their number. The object store has the same information. Call this regularly; records in use
    /// stay.
    ///
    /// # Errors
    /// Fails if the register does. The next call continues.
    // An async function would be compiled once more in each crate that calls it, with all that it calls.
    pub fn forget_idle(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(self.shared.forget_idle())
    }

    /// Shortens the wait for the writes that an earlier process of this register was carrying out when it ended: to 15 seconds from
    /// now, instead of a minute. Only for writes that the store's own conditions cover, or for all of them if the store is a folder of
    /// this machine. Returns their number.
    ///
    /// Call it before the first write, and only if no other process can use the register. The work may go on during writes.
    ///
    /// # Errors
    /// Fails if the register does. The rest of the writes then keep others away for up to a minute.
    pub fn settle_earlier_writes(&self) -> BoxFuture<'static, Result<u64, StoreError>> {
        let shared = Arc::clone(&self.shared);
        let started = shared.driver.now();
        Box::pin(shared.settle_earlier_writes(started))
    }

    /// Returns the store's capabilities.
    pub fn capability(&self) -> StoreCapabilities {
        self.shared.capability
    }
}

impl fmt::Debug for ObjectBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        f.debug_struct("ObjectBlobs")
            .field("backing", &shared.backing)
            .field("capability", &shared.capability)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl BlobStore for ObjectBlobs {
    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        self.shared.read(blob, reading).await
    }

    /// Other processes may write to the store, so only the store knows.
    fn peek(&self) -> Option<&dyn Peek> {
        None
    }

    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError> {
        StoreState::put(&self.shared, blob, put).await
    }

    async fn append(&self, blob: &BlobPath, append: AppendBlock) -> Result<Appended, StoreError> {
        let StoreState { turns, driver, .. } = &*self.shared;
        Box::pin(turns.append(self, driver.clock(), blob, &append)).await
    }

    async fn update(&self, blob: &BlobPath, update: Update) -> Result<Updated, StoreError> {
        let StoreState { turns, driver, .. } = &*self.shared;
        Box::pin(turns.update(self, driver.clock(), blob, &update)).await
    }

    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError> {
        Box::pin(StoreState::delete(&self.shared, blob, delete)).await
    }

    async fn list(
        &self,
        container: &ContainerName,
        query: &ListQuery,
    ) -> Result<Option<Page<BlobEntry>>, StoreError> {
        self.shared.list(container, query).await
    }

    async fn set_headers(&self, blob: &BlobPath, set: SetHeaders) -> Result<Written, StoreError> {
        self.shared.set_headers(blob, set).await
    }

    async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError> {
        Box::pin(StoreState::lease(&self.shared, blob, request)).await
    }

    async fn create_container(
        &self,
        container: &ContainerName,
        headers: BlobHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        self.shared.create_container(container, &headers).await
    }

    async fn container(
        &self,
        container: &ContainerName,
    ) -> Result<Option<ContainerInfo>, StoreError> {
        self.shared.container(container).await
    }

    async fn set_container(
        &self,
        container: &ContainerName,
        set: SetHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        self.shared.set_container(container, set).await
    }

    async fn lease_container(
        &self,
        container: &ContainerName,
        request: LeaseRequest,
    ) -> Result<Leased, StoreError> {
        self.shared.lease_container(container, request).await
    }

    async fn delete_container(
        &self,
        container: &ContainerName,
        delete: Delete,
    ) -> Result<(), StoreError> {
        StoreState::delete_container(&self.shared, container, delete, DeletionPurpose::All).await
    }

    async fn delete_empty_container(
        &self,
        container: &ContainerName,
        delete: Delete,
    ) -> Result<(), StoreError> {
        StoreState::delete_container(&self.shared, container, delete, DeletionPurpose::IfEmpty)
            .await
    }

    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        self.shared.containers(query).await
    }
}
