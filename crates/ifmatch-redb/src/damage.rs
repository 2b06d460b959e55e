//! Damage that redb passes over in silence, or panics at.
//!
//! A commit writes its pages and the header, and then syncs once. The header has a slot for each of the last two commits. If
//! redb can't use the newer one, it continues from the older one without a word. That is right after a loss of power, which
//! may keep pages of a commit from the disk that wasn't acknowledged yet. It is wrong if a bit has flipped since: an
//! acknowledged write is gone, and a client that holds the tag before it may write over it unseen.
//!
//! - **The slot is damaged.** A slot lies within one sector, which a disk writes as a whole or not at all, so this isn't a trace of
//!   a loss of power: [`newest_commit_is_readable`] is `false`, and the database isn't opened unless that is asked for.
//! - **A page of the newest commit is damaged or missing.** Both causes look alike, so the database is opened, with a warning.
//!
//! redb panics where a page makes no sense to it. [`contained`] turns that into an error.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::{Database, StorageBackend};
use xxhash_rust::xxh3::xxh3_128;

/// First bytes of a database.
const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";
/// Bit of the byte after them: the number of the newer slot.
const NEWER_SLOT: u8 = 1;
/// Bit of the same byte: the database wasn't closed.
const NOT_CLOSED: u8 = 2;
/// Offset of the two slots, in bytes.
const SLOTS: usize = 64;
/// Length of a slot, in bytes.
const SLOT: usize = 128;
/// Length of a slot's checksum, its last bytes.
const CHECKSUM: usize = 16;
/// First byte of a slot in the format that is checked here. redb refuses others itself.
const FORMAT: u8 = 3;

/// Returns `false` if the slot of the newest commit is damaged in a database that wasn't closed. redb itself refuses a damaged
/// one that was.
pub(crate) fn newest_commit_is_readable(storage: &dyn StorageBackend) -> io::Result<bool> {
    let mut header = [0; SLOTS + 2 * SLOT];
    if storage.len()? < header.len() as u64 {
        return Ok(true);
    }
    storage.read(0, &mut header)?;
    let flags = header[MAGIC.len()];
    if !header.starts_with(MAGIC) || flags & NOT_CLOSED == 0 {
        return Ok(true);
    }
    let newer = SLOTS + SLOT * usize::from(flags & NEWER_SLOT);
    let (content, checksum) = header[newer..newer + SLOT].split_at(SLOT - CHECKSUM);
    Ok(content[0] != FORMAT || checksum == xxh3_128(content).to_le_bytes())
}

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` while this thread runs code of redb whose panics become errors: a panic hook needn't report them.
///
/// ```
/// let report = std::panic::take_hook();
/// std::panic::set_hook(Box::new(move |panic| {
///     if !ifmatch_redb::panic_is_contained() {
///         report(panic);
///     }
/// }));
/// ```
pub fn panic_is_contained() -> bool {
    CONTAINED.get()
}

/// redb has panicked at a page.
#[derive(Debug)]
pub(crate) struct DamagedPage(String);

impl fmt::Display for DamagedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a page of the index is damaged ({})", self.0)
    }
}

impl std::error::Error for DamagedPage {}

/// Runs code of redb.
///
/// # Errors
/// Returns an error if it panics.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, DamagedPage> {
    let outer = CONTAINED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(outer);
    result.map_err(|panic| DamagedPage(message(&*panic)))
}

/// Returns the text of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("redb has panicked").to_owned()
}

/// A database that is closed without a panic, even if it is damaged.
#[derive(Debug)]
pub(crate) struct ContainedDatabase(Option<Database>);

impl ContainedDatabase {
    pub(crate) fn new(database: Database) -> Self {
        Self(Some(database))
    }

    /// Runs [`Database::check_integrity`].
    pub(crate) fn check_integrity(&mut self) -> Option<Result<bool, redb::DatabaseError>> {
        let database = self.0.as_mut()?;
        contained(|| database.check_integrity()).ok()
    }
}

impl Deref for ContainedDatabase {
    type Target = Database;

    #[expect(clippy::expect_used, reason = "only `drop` takes the database")]
    fn deref(&self) -> &Database {
        self.0
            .as_ref()
            .expect("the database is there until it is dropped")
    }
}

impl Drop for ContainedDatabase {
    fn drop(&mut self) {
        if let Some(database) = self.0.take() {
            // A damaged database can't be closed cleanly, so the next start finds it as it is.
            let _ = contained(|| drop(database));
        }
    }
}
