//! Durable register in an embedded redb database: an acknowledged swap survives `kill -9` and power loss.
//!
//! After a failed write or sync, the page cache can't be trusted. The register then copies its records into a new
//! file, which replaces the old one. It does the same with a file that wasn't closed cleanly.
//!
//! One process at a time may open the database. Swaps are committed in groups, so concurrent writers share one disk
//! sync. Besides redb's own cache, up to 16 MiB of recently used records are kept in memory.
//!
//! ```
//! use ifmatch_redb::RedbRegister;
//! use ifmatch_register::Driver;
//!
//! # let folder = tempfile::tempdir()?;
//! let register = RedbRegister::open(folder.path().join("index.redb"))?;
//! let driver = Driver::new(register);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod copy;
mod damage;
mod database;
mod error;
mod files;
mod overlay;
mod record_cache;
mod schema;
mod writer;

use std::path::Path;
use std::sync::Arc;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Scan, Swap, async_trait};
use redb::{DatabaseError, StorageError};

use copy::{DatabaseEnd, DatabaseView, RollbackPolicy};
pub use damage::panic_is_contained;
use database::SharedDatabase;
pub use error::{OpenError, OpenErrorKind};
pub use files::DatabaseStorage;
use files::{DatabaseFiles, ReadOnly};
use record_cache::RecordCache;
use writer::WriterThread;

/// Longest page that is read on the caller's thread. Longer pages would block it for too long.
const SHORT_PAGE: usize = 16;

/// A register in a redb database.
#[derive(Debug)]
pub struct RedbRegister {
    writer: WriterThread,
    shared: Arc<SharedDatabase>,
    cache: Arc<RecordCache>,
}

/// The state of a database, as its checksums tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// All pages fit their checksums.
    Intact,
    /// A page of the newest commit is missing or damaged, and the commit isn't used. If the machine lost power, it wasn't
    /// acknowledged. Otherwise, an acknowledged swap is missing.
    RolledBack,
    /// The newest commit is damaged, and the last acknowledged swap may be missing with it.
    LostCommit,
    /// A page differs from its checksum.
    Damaged,
}

impl RedbRegister {
    /// Opens the database at `path`, or creates it. Other users of the machine can't read the file.
    ///
    /// A database that wasn't closed cleanly is first copied into a new file, which replaces it. This temporarily
    /// doubles the disk space used. A file with the suffix `.lock` is kept next to the database.
    ///
    /// # Errors
    /// [`OpenErrorKind::InUse`] if another process has the database open; [`OpenErrorKind::Denied`] if the file or its
    /// folder isn't writable; [`OpenErrorKind::Full`] if there isn't enough space for the copy;
    /// [`OpenErrorKind::Damaged`] if the file isn't a database that this release can read; [`OpenErrorKind::LostCommit`] if its
    /// newest commit is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_in(DatabaseFiles::lock(path.as_ref())?)
    }

    /// Opens the database at `path` as [`RedbRegister::open`] does, even if its newest commit is damaged: it continues from the
    /// commit before it. The last acknowledged swap may be lost.
    ///
    /// # Errors
    /// Same as [`RedbRegister::open`].
    pub fn open_rolled_back(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::start(SharedDatabase::open(
            Box::new(DatabaseFiles::lock(path.as_ref())?),
            RollbackPolicy::Accept,
        )?)
    }

    /// Opens the database at `path` for reading, as it was found: what [`RedbRegister::open`] repairs is repaired in memory only. Swaps
    /// are refused.
    ///
    /// # Errors
    /// Same as [`RedbRegister::open`], and [`OpenErrorKind::Denied`] if there is no database.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::start(SharedDatabase::viewing(Box::new(ReadOnly(
            DatabaseFiles::lock(path.as_ref())?,
        )))?)
    }

    /// Compares all pages of the database at `path` with their checksums. Changes nothing.
    ///
    /// Reading doesn't compare them: a flipped bit can change or hide a record. A copy of a damaged page has a checksum that fits.
    ///
    /// # Errors
    /// Same as [`RedbRegister::open`], and [`OpenErrorKind::Denied`] if there is no database.
    pub fn integrity(path: impl AsRef<Path>) -> Result<Integrity, OpenError> {
        let files = DatabaseFiles::lock(path.as_ref())?;
        let has_failed = files.has_failed()?;
        let found = files.open()?.ok_or_else(OpenError::removed)?;
        let mut view = match DatabaseView::open(found, RollbackPolicy::Accept) {
            Err(error) if error.kind() == OpenErrorKind::Damaged => return Ok(Integrity::Damaged),
            view => view?,
        };
        match view.database.check_integrity() {
            None | Some(Err(DatabaseError::Storage(StorageError::Corrupted(_))) | Ok(false)) => {
                Ok(Integrity::Damaged)
            }
            Some(Err(error)) => Err(error.into()),
            Some(Ok(true)) => Ok(match view.end {
                // The commit was refused, so nothing is missing.
                _ if has_failed => Integrity::Intact,
                DatabaseEnd::Closed | DatabaseEnd::Open => Integrity::Intact,
                DatabaseEnd::RolledBack => Integrity::RolledBack,
                DatabaseEnd::LostCommit => Integrity::LostCommit,
            }),
        }
    }

    /// Opens the database in a custom storage, or creates it.
    ///
    /// # Errors
    /// Same as [`RedbRegister::open`].
    pub fn open_in(storage: impl DatabaseStorage) -> Result<Self, OpenError> {
        Self::start(SharedDatabase::open(
            Box::new(storage),
            RollbackPolicy::Refuse,
        )?)
    }

    /// Uses a database that is already open, for example one in memory.
    ///
    /// Such a database can't be replaced: after a failure the register permanently returns
    /// [`RegisterErrorKind::Unavailable`]. After a failed write or sync, don't reopen the storage this way until the
    /// machine has been restarted: the page cache may show data that isn't on the disk. [`RedbRegister::open`] and
    /// [`RedbRegister::open_in`] handle this case.
    ///
    /// # Errors
    /// Same as [`RedbRegister::open`].
    ///
    /// ```
    /// let register = ifmatch_redb::RedbRegister::open_with(|| {
    ///     redb::Builder::new().create_with_backend(redb::backends::InMemoryBackend::new())
    /// });
    /// assert!(register.is_ok());
    /// ```
    pub fn open_with(
        opener: impl FnOnce() -> Result<redb::Database, DatabaseError>,
    ) -> Result<Self, OpenError> {
        Self::start(SharedDatabase::around(opener()?)?)
    }

    /// Copies the records of one moment into a new database at `path`, while loads and swaps go on. On return, the copy is
    /// durable, apart from its name in the folder. Blocks.
    ///
    /// # Errors
    /// Fails if the file exists or can't be written, or if the database has failed and wasn't replaced yet.
    ///
    /// ```
    /// use ifmatch_redb::RedbRegister;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let register = RedbRegister::open(folder.path().join("index.redb"))?;
    /// register.copy_to(folder.path().join("copy.redb"))?;
    /// let copy = RedbRegister::open(folder.path().join("copy.redb"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn copy_to(&self, path: impl AsRef<Path>) -> Result<(), OpenError> {
        self.shared.copy_to(path.as_ref())
    }

    /// Starts the writer of a database.
    fn start(shared: SharedDatabase) -> Result<Self, OpenError> {
        let (shared, cache) = (Arc::new(shared), Arc::new(RecordCache::new()));
        let writer = WriterThread::start(Arc::clone(&shared), Arc::clone(&cache))?;
        Ok(Self {
            writer,
            shared,
            cache,
        })
    }

    /// Reads a page of a scan.
    fn page(
        &self,
        scan: &Scan<'_>,
    ) -> impl Future<Output = Result<Vec<(Key, Record)>, RegisterError>> + Send + use<> {
        let short = self.shared.scan(&Scan {
            limit: scan.limit.min(SHORT_PAGE),
            ..*scan
        });
        let is_whole = short.as_ref().map_or(true, |page| {
            page.len() < SHORT_PAGE || page.len() == scan.limit
        });
        let shared = Arc::clone(&self.shared);
        let (prefix, limit) = (scan.prefix.to_owned(), scan.limit);
        let after = scan.after.map(str::to_owned);
        async move {
            if is_whole {
                return short;
            }
            let page = move || {
                shared.scan(&Scan {
                    prefix: &prefix,
                    after: after.as_deref(),
                    limit,
                })
            };
            tokio::task::spawn_blocking(page)
                .await
                .map_err(|error| RegisterError::new(RegisterErrorKind::Unavailable, error))?
        }
    }
}

#[async_trait]
impl Register for RedbRegister {
    // Reads on the caller's thread: the pages are nearly always in redb's cache or the page cache.
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        match self.cache.load(key, || self.shared.load(key)) {
            Err(_) if self.shared.is_in_doubt(key) => self.writer.read(key).await,
            found => found,
        }
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        self.cache.revision(key)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.writer.swap(key, expected, next).await
    }

    // Reads short pages like `load`, and longer ones on a blocking thread.
    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let page = self.page(scan).await;
        match self
            .shared
            .doubtful_below(scan.prefix)
            .filter(|_| page.is_err())
        {
            Some(key) => {
                self.writer.read(&key).await?;
                self.page(scan).await
            }
            None => page,
        }
    }
}
