//! A register that keeps each record in an object, which it changes by conditional writes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Engine, Key, PeerClocks, Register, RegisterError, RegisterErrorKind, Scan, Swap, async_trait,
    object,
};
use ifmatch_runtime::{Clock, SystemClock, task};
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};

use crate::backing::BackingStore;
use crate::failure::{OpenError, OpenErrorKind};
use crate::probe;

/// Time limit of a request.
const LIMIT: Duration = Duration::from_secs(5);

/// A register on an object store, for those who have no database: a load is a GET, and a swap a GET and a conditional PUT.
///
/// Any number of processes can share it. Use it for few writes: each takes two requests, nothing is gathered, and stores limit
/// the rate of changes to one object (Google's to one a second). A removed record leaves an object of a few bytes. A listing
/// reads the names of all records, whatever its prefix.
///
/// The store's client mustn't retry a write on its own: it would meet its own success. That of
/// [`connect`](Self::connect) doesn't.
///
/// ```
/// use std::sync::Arc;
/// use ifmatch_blob_objects::{BackingStore, ObjectRegister};
/// use ifmatch_register::Driver;
/// use object_store::memory::InMemory;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let register = ObjectRegister::open(BackingStore::new(Arc::new(InMemory::new()))).await?;
/// let driver = Driver::new(register);
/// # Ok::<(), ifmatch_blob_objects::OpenError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ObjectRegister {
    backing: BackingStore,
    /// Prefix of the records' objects. No blob's name begins like this.
    prefix: Path,
    peers: Arc<PeerClocks>,
}

/// An object's content.
struct StoredRecord {
    key: Key,
    /// `None` for a removed record.
    record: Option<Record>,
    /// The version to replace.
    version: UpdateVersion,
}

impl ObjectRegister {
    /// Opens an object store, and tests with a probe object that it honours conditions.
    ///
    /// # Errors
    /// [`OpenErrorKind::Unusable`] if the store is unreachable, not writable, or doesn't honour conditions.
    pub async fn open(backing: BackingStore) -> Result<Self, OpenError> {
        let capability = probe::probe(&backing).await?;
        if !capability.is_native() {
            let what = "the store does not honour conditional writes, so it cannot hold a register: use a database";
            return Err(OpenError::new(OpenErrorKind::Unusable, what));
        }
        let prefix = backing.prefix.clone().join(probe::FOLDER).join("records");
        Ok(Self {
            backing,
            prefix,
            peers: Arc::default(),
        })
    }

    /// Opens the store of a URL, such as `s3://bucket/prefix`, with settings as for [`BackingStore::from_url`].
    ///
    /// # Errors
    /// Same as [`BackingStore::from_url`] and [`ObjectRegister::open`].
    #[cfg(feature = "local")]
    pub async fn connect(
        url: &str,
        settings: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, OpenError> {
        Self::open(BackingStore::from_url_once(url, settings)?).await
    }

    fn path(&self, key: &Key) -> Path {
        self.prefix.clone().join(object::name(key))
    }

    async fn get(&self, path: &Path) -> Result<Option<StoredRecord>, RegisterError> {
        let read = async {
            let found = match self.backing.objects.get(path).await {
                Ok(found) => found,
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let version = UpdateVersion {
                e_tag: found.meta.e_tag.clone(),
                version: found.meta.version.clone(),
            };
            Ok(Some((found.bytes().await?, version)))
        };
        let Some((bytes, version)) = within(read, RegisterErrorKind::Unavailable).await? else {
            return Ok(None);
        };
        let (key, record) = object::decode(&bytes)?;
        if let Some(ahead) = record
            .as_ref()
            .and_then(|record| self.peers.saw(&key, record, SystemClock.now()))
        {
            tracing::warn!("{ahead}");
        }
        Ok(Some(StoredRecord {
            key,
            record,
            version,
        }))
    }

    async fn keys(&self) -> Result<Vec<Key>, RegisterError> {
        let listed = async {
            self.backing
                .objects
                .list(Some(&self.prefix))
                .try_collect::<Vec<ObjectMeta>>()
                .await
        };
        let listed = within(listed, RegisterErrorKind::Unavailable).await?;
        let mut keys = Vec::with_capacity(listed.len());
        for found in listed {
            match found.location.filename().and_then(object::key) {
                Some(key) => keys.push(key),
                None => keys.extend(self.get(&found.location).await?.map(|stored| stored.key)),
            }
        }
        Ok(keys)
    }
}

#[async_trait]
impl Register for ObjectRegister {
    /// The processes that share the register have another time, if that's known: a store has none.
    fn engine(&self) -> Engine {
        Engine {
            time: self.peers.time(SystemClock.now()),
            ..Engine::default()
        }
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        Ok(self
            .get(&self.path(key))
            .await?
            .and_then(|stored| stored.record))
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let path = self.path(key);
        let (record, version) = self
            .get(&path)
            .await?
            .map_or((None, None), |stored| (stored.record, Some(stored.version)));
        if record.as_ref().map_or(Revision::NONE, Record::revision) != expected {
            return Ok(Swap::Conflict(record));
        }
        if record.is_none() && next.is_none() {
            return Ok(Swap::Done);
        }
        let mode = version.map_or(PutMode::Create, PutMode::Update);
        let content = object::encode(key, next)?.into();
        let put = self
            .backing
            .objects
            .put_opts(&path, content, PutOptions::from(mode));
        // S3 answers 404 if the object is gone, and 409 during another write.
        let put = async {
            match put.await {
                Ok(_) => Ok(true),
                Err(
                    Error::Precondition { .. }
                    | Error::AlreadyExists { .. }
                    | Error::NotFound { .. },
                ) => Ok(false),
                Err(error) => Err(error),
            }
        };
        if within(put, RegisterErrorKind::Ambiguous).await? {
            return Ok(Swap::Done);
        }
        Ok(Swap::Conflict(self.load(key).await?))
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        object::page(self, self.keys().await?, scan).await
    }
}

/// Waits for a request. Without a response, the error has this kind.
async fn within<T>(
    request: impl Future<Output = Result<T, Error>> + Send,
    unclear: RegisterErrorKind,
) -> Result<T, RegisterError> {
    match task::timeout(&SystemClock, LIMIT, request).await {
        Ok(answered) => answered.map_err(|error| RegisterError::new(unclear, error)),
        Err(elapsed) => Err(RegisterError::new(unclear, elapsed)),
    }
}
