//! A custom register in one source file. It keeps each record in its own file, in a folder that processes share.
//!
//! A register implements three methods over opaque records. `tests/examples/main.rs` here runs the public conformance suite
//! on this one.
//!
//! Run it: `cargo run -p ifmatch-examples --example custom_register`

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ifmatch_core::command::{Command, Content, Outcome, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Driver, Key, Register, RegisterError, RegisterErrorKind, Scan, Swap, async_trait,
};

/// A register in a folder.
///
/// A file lock excludes other processes. A record is written to a temporary file, synced and renamed, so a crash leaves the old record or
/// the new one. After a failed sync of the folder, a load may return a record that a power failure would lose; a production register must
/// rewrite it first.
#[derive(Debug)]
pub struct FolderRegister {
    folder: PathBuf,
}

impl FolderRegister {
    /// Opens the register in a folder. Creates the folder if it doesn't exist.
    ///
    /// # Errors
    /// Fails if the folder can't be created.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(folder.join("records"))?;
        Ok(Self { folder })
    }

    /// Locks the register. Dropping the file releases the lock.
    fn lock(&self) -> io::Result<File> {
        let file = File::create(self.folder.join("lock"))?;
        file.lock()?;
        Ok(file)
    }

    /// Returns a record's path. It's a hash, since not every key is a valid file name.
    fn path(&self, key: &str) -> PathBuf {
        self.folder
            .join("records")
            .join(ContentHash::of(key.as_bytes()).hex())
    }

    /// Reads a file: the length of the key, the key, the record.
    fn read(path: &Path) -> Result<Option<(String, Record)>, RegisterError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unavailable(error)),
        };
        let damaged = || RegisterError::new(RegisterErrorKind::Unreadable, "the file is damaged");
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| damaged())?;
        let (key, record) = rest.split_at_checked(length).ok_or_else(damaged)?;
        let key = std::str::from_utf8(key).map_err(|_| damaged())?;
        Ok(Some((key.to_owned(), Record::decode(record)?)))
    }

    fn write(&self, key: &str, record: &Record) -> io::Result<()> {
        let staged = self.folder.join("staged");
        let mut file = File::create(&staged)?;
        file.write_all(
            &u32::try_from(key.len())
                .map_err(io::Error::other)?
                .to_le_bytes(),
        )?;
        file.write_all(key.as_bytes())?;
        file.write_all(&record.encode())?;
        file.sync_all()?;
        fs::rename(staged, self.path(key))
    }

    fn swap(
        &self,
        key: &str,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let _lock = self.lock().map_err(unavailable)?;
        let found = Self::read(&self.path(key))?.map(|(_, record)| record);
        if found.as_ref().map_or(Revision::NONE, Record::revision) != expected {
            return Ok(Swap::Conflict(found));
        }
        let swapped = match next {
            Some(next) => self.write(key, next),
            None => fs::remove_file(self.path(key)),
        };
        let synced = swapped.and_then(|()| File::open(self.folder.join("records"))?.sync_all());
        // The change may have been made before the error.
        synced.map_err(|error| RegisterError::new(RegisterErrorKind::Ambiguous, error))?;
        Ok(Swap::Done)
    }

    fn page(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let mut page = Vec::new();
        for entry in fs::read_dir(self.folder.join("records")).map_err(unavailable)? {
            let Some((key, record)) = Self::read(&entry.map_err(unavailable)?.path())? else {
                continue;
            };
            if key.starts_with(scan.prefix) && scan.after.is_none_or(|after| key.as_str() > after) {
                let key = Key::new(key)
                    .map_err(|error| RegisterError::new(RegisterErrorKind::Unreadable, error))?;
                page.push((key, record));
            }
        }
        page.sort_by(|(left, _), (right, _)| left.cmp(right));
        page.truncate(scan.limit);
        Ok(page)
    }
}

// These system calls block the thread. A busy service would run them with `tokio::task::spawn_blocking`.
#[async_trait]
impl Register for FolderRegister {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        Ok(Self::read(&self.path(key.as_str()))?.map(|(_, record)| record))
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.swap(key.as_str(), expected, next)
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.page(scan)
    }
}

fn unavailable(error: io::Error) -> RegisterError {
    RegisterError::new(RegisterErrorKind::Unavailable, error)
}

#[tokio::main]
#[allow(
    dead_code,
    clippy::print_stdout,
    reason = "a demonstration, which a test includes as a module"
)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder =
        std::env::temp_dir().join(format!("ifmatch-custom-register-{}", std::process::id()));
    let driver = Driver::new(FolderRegister::open(&folder)?).assume_absent();
    let key = Key::new("greeting")?;
    for body in ["hello", "good morning"] {
        let write = Write::new(
            &http::Method::PUT,
            &Preconditions::NONE,
            Content::Hashed {
                hash: ContentHash::of(body.as_bytes()),
                payload: body.into(),
            },
            ifmatch_runtime::nonce()?,
        );
        if let Outcome::Written(receipt) = driver.apply(&key, &Command::Write(write)).await?.outcome
        {
            let tag = receipt.tag.map(|tag| tag.to_string()).unwrap_or_default();
            println!(
                "{body:?} is revision {} with the tag {tag}",
                receipt.generation
            );
        }
    }
    println!(
        "the records are files in {}",
        folder.join("records").display()
    );
    fs::remove_dir_all(folder)?;
    Ok(())
}
