//! [`StoreState`], which all operations share, and how they find an object. Each file has the methods of its operations.

use std::sync::Weak;
use std::time::Duration;

use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::records::of_driver;
use ifmatch_blob::store::{StoreError, StoreErrorKind, Turns};
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Driver, Key};
use ifmatch_runtime::task::detach;
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectStoreExt};

use crate::attributes::StoredVersion;
use crate::backing::BackingStore;
use crate::container_state::ContainerMembers;
use crate::failure::{self, lost};
use crate::member_cache::MemberCache;
use crate::owner::{StoreClaim, StoreOwner};
use crate::probe::StoreCapabilities;
use crate::recent_records::RecentRecords;

/// Maximum time a writer waits for its turn. Writes to a remote store are slow, and twenty writers may wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Data that the register keeps reliably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptData {
    /// Leases: the register survives a restart.
    Leases,
    /// Containers: the register belongs to the only process.
    Containers,
    /// Nothing: leases are turned off, and the store's conditions alone decide.
    Nothing,
}

/// State that all operations share.
pub(super) struct StoreState {
    pub(super) backing: BackingStore,
    pub(super) capability: StoreCapabilities,
    pub(super) driver: Driver,
    pub(super) keeps: KeptData,
    /// The register with the name in the store's mark, if the store is marked.
    pub(super) owner: Option<StoreOwner>,
    pub(super) member_cache: MemberCache,
    pub(super) recent_records: RecentRecords,
    /// Appends and updates that wait.
    pub(super) turns: Turns,
    /// Handle for background work.
    pub(super) me: Weak<Self>,
}

impl StoreState {
    /// Returns a blob's location.
    pub(super) fn location(&self, blob: &BlobPath) -> Result<Path, StoreError> {
        if !blob.name.is_plain_path() {
            let why = "in this store, names are paths, and this one has an empty segment, a slash at its end, or a backslash";
            return Err(StoreError::new(StoreErrorKind::Unsupported, why));
        }
        let path = format!("{}/{}/{}", self.backing.prefix, blob.container, blob.name);
        let path = Path::parse(path)
            .map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
        match (self.backing.refusal)(&path) {
            Some(why) => Err(StoreError::new(StoreErrorKind::Unsupported, why)),
            None => Ok(path),
        }
    }

    /// Returns a container's folder.
    pub(super) fn folder(&self, container: &ContainerName) -> Path {
        self.backing.prefix.clone().join(container.as_str())
    }

    /// Requests an object. Returns `None` if it doesn't exist.
    pub(super) async fn get(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> Result<Option<(GetResult, StoredVersion)>, StoreError> {
        self.read_answer(self.backing.objects.get_opts(location, options).await)
    }

    /// Interprets the response to a request for an object. Returns `None` if the object doesn't exist.
    pub(super) fn read_answer(
        &self,
        answer: object_store::Result<GetResult>,
    ) -> Result<Option<(GetResult, StoredVersion)>, StoreError> {
        match answer {
            Ok(result) => {
                let mut current = StoredVersion::new(&result.meta, &result.attributes);
                if !self.backing.tick.is_zero() {
                    // No two versions have the same time, see `outlast`.
                    current.info.generation =
                        u64::try_from(current.written).ok().map(Revision::new);
                }
                Ok(Some((result, current)))
            }
            Err(error) if failure::is_absence(&error) => Ok(None),
            Err(error) => Err(failure::of_read(error)),
        }
    }

    /// Returns the current state of an object, or `None` if it doesn't exist or isn't a member of its container.
    pub(super) async fn look(
        &self,
        location: &Path,
        members: ContainerMembers,
    ) -> Result<Option<StoredVersion>, StoreError> {
        let found = self
            .get(location, GetOptions::new().with_head(true))
            .await?;
        Ok(found
            .map(|(_, current)| current)
            .filter(|current| members.contain(current)))
    }

    /// Returns the record that a write of a blob starts from: one that this process remembers, or the current one. Only
    /// the current record's lease can refuse the write.
    pub(super) async fn start(
        &self,
        key: &Key,
        lease: LeaseUse,
        conditions_hold: bool,
    ) -> Result<Record, StoreError> {
        let check = |record: &Record| record.check_lease(lease, self.driver.now());
        // The lease is checked before the conditions.
        if let Some(recent) = self
            .recent_records
            .get(key)
            .filter(|recent| conditions_hold && check(recent).is_ok())
        {
            return Ok(recent);
        }
        let record = self.driver.load(key).await.map_err(of_driver)?;
        check(&record)?;
        Ok(record)
    }

    /// Returns the current state of a blob, or `None` if it doesn't exist.
    pub(super) async fn find_blob(
        &self,
        blob: &BlobPath,
        location: &Path,
    ) -> Result<Option<StoredVersion>, StoreError> {
        let members = self.container_for_write(&blob.container).await?.members();
        self.look(location, members).await
    }

    /// Returns an error if containers don't have records.
    pub(super) fn must_keep_containers(&self) -> Result<(), StoreError> {
        if self.keeps != KeptData::Nothing {
            return Ok(());
        }
        let why = "without leases, a container always exists, and can't be changed or deleted. Delete its blobs, or turn leases on";
        Err(StoreError::new(StoreErrorKind::Unsupported, why))
    }

    /// Deletes an object, and only this version of it if the store supports that.
    pub(super) async fn remove(
        &self,
        location: &Path,
        current: &StoredVersion,
    ) -> object_store::Result<()> {
        match &self.backing.deletion {
            Some(deletion) => deletion.delete_if(location, &current.version).await,
            None => self.backing.objects.delete(location).await,
        }
    }

    /// Verifies that the store still belongs to this register. Call this before every change that no condition covers.
    pub(super) async fn check_owner(&self) -> Result<(), StoreError> {
        let Some(owner) = &self.owner else {
            return Ok(());
        };
        let marked = owner.mark(&self.backing, self.capability, false).await;
        match marked.map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error))? {
            StoreClaim::Ours(_) => Ok(()),
            StoreClaim::Taken(other) => {
                tracing::error!(
                    store = %self.backing.objects,
                    register = %other.register,
                    "another gateway with its own register has taken over the store: stop one of the two"
                );
                let why = "another gateway, with a register of its own, uses the same store: stop one of the two, or give \
                           both the same register";
                Err(StoreError::new(StoreErrorKind::Unavailable, why))
            }
        }
    }
}

/// Runs the work to its end, even if the caller is dropped.
pub(super) async fn in_a_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let stopped = || Err(lost("the request was interrupted"));
    detach(work).result().await.unwrap_or_else(stopped)
}
