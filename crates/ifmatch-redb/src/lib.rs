//! A durable register in an embedded redb database: an acknowledged swap survives `kill -9` and power loss.
//!
//! One process at a time may open the database. Its swaps are committed in groups, so that many writers share
//! one sync of the disk. Records that were used a while ago are in memory, 16 MiB at the most beside redb's own cache.
//!
//! ```
//! use ifmatch_redb::RedbRegister;
//! use ifmatch_store::Driver;
//!
//! # let folder = tempfile::tempdir()?;
//! let register = RedbRegister::open(folder.path().join("index.redb"))?;
//! let driver = Driver::new(register);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod database;
mod error;
mod key_text;
mod recent;
mod writer;

use std::path::Path;
use std::sync::Arc;

use ifmatch_core::record::{Record, Revision};
use ifmatch_store::Key;
use ifmatch_store::register::{Register, RegisterError, RegisterErrorKind, Scan, Swap};
use redb::DatabaseError;

use database::Shared;
pub use error::{OpenError, OpenErrorKind};
use recent::Recent;
use writer::Writer;

/// The longest page that is read on its reader's thread. Longer ones take too long for that.
const SHORT_PAGE: usize = 16;

/// A register in a redb database.
#[derive(Debug)]
pub struct RedbRegister {
    writer: Writer,
    shared: Arc<Shared>,
    recent: Arc<Recent>,
}

impl RedbRegister {
    /// Opens the database at `path`, or creates it.
    ///
    /// # Errors
    /// [`OpenErrorKind::InUse`] if another process has it open; [`OpenErrorKind::Denied`] if the file or its folder
    /// may not be written; [`OpenErrorKind::Damaged`] if it is no database that this release can read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref().to_owned();
        Self::open_with(move || redb::Database::create(&path))
    }

    /// Opens the database with a builder of your own: for another cache size, or another storage backend.
    ///
    /// The opener is called again after an I/O error such as a full disk, which redb answers by closing.
    ///
    /// # Errors
    /// As for [`RedbRegister::open`].
    ///
    /// ```
    /// let register = ifmatch_redb::RedbRegister::open_with(|| {
    ///     redb::Builder::new().create_with_backend(redb::backends::InMemoryBackend::new())
    /// });
    /// assert!(register.is_ok());
    /// ```
    pub fn open_with(
        opener: impl Fn() -> Result<redb::Database, DatabaseError> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared::open(Box::new(opener))?);
        let recent = Arc::new(Recent::new());
        let writer = Writer::start(Arc::clone(&shared), Arc::clone(&recent))?;
        Ok(Self { writer, shared, recent })
    }
}

impl Register for RedbRegister {
    // Reads on the caller's thread: the pages are in redb's cache or the system's, nearly always.
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.recent.load(key, || self.shared.load(key))
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        self.recent.revision(key)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.writer.swap(key, expected, next).await
    }

    // A short page as `load`; a longer one is begun anew where it may take its time.
    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let short = self.shared.scan(&Scan { limit: scan.limit.min(SHORT_PAGE), ..*scan })?;
        if short.len() < SHORT_PAGE || short.len() == scan.limit {
            return Ok(short);
        }
        let shared = Arc::clone(&self.shared);
        let (prefix, limit) = (scan.prefix.to_owned(), scan.limit);
        let after = scan.after.map(str::to_owned);
        let page = move || shared.scan(&Scan { prefix: &prefix, after: after.as_deref(), limit });
        tokio::task::spawn_blocking(page)
            .await
            .map_err(|error| RegisterError::new(RegisterErrorKind::Unavailable, error))?
    }
}
