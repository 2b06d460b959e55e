//! A register of your own, in one file: records in a folder, one file each, shared by several processes.
//!
//! A backend is three methods over an opaque record. It passes the public conformance suite, which
//! `tests/custom_register.rs` calls in one line.
//!
//! Run it: `cargo run --example custom_register`

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ifmatch_core::command::{Command, Content, Outcome, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Driver, Key, Register, RegisterError, RegisterErrorKind, Scan, Swap};

/// A register in a folder.
///
/// Processes take turns by locking one file. A record is written to a temporary file, synced, and renamed, so that a
/// crash leaves the old record or the new one. After a failed sync of the folder, a load may return a record that is
/// lost with the power; a register for production rewrites such a record before it returns it.
#[derive(Debug)]
pub struct FolderRegister {
    folder: PathBuf,
}

impl FolderRegister {
    /// Opens the register in a folder, which is created if there is none.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(folder.join("records"))?;
        Ok(Self { folder })
    }

    /// Takes the turn of this process; dropping the file gives it back.
    fn lock(&self) -> io::Result<File> {
        let file = File::create(self.folder.join("lock"))?;
        file.lock()?;
        Ok(file)
    }

    /// Where the record of a key is. File names have limits that keys do not have: a hash has none.
    fn path(&self, key: &str) -> PathBuf {
        self.folder.join("records").join(ContentHash::of(key.as_bytes()).hex())
    }

    /// The key and the record in a file: the key's length, the key, the record.
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
        file.write_all(&u32::try_from(key.len()).map_err(io::Error::other)?.to_le_bytes())?;
        file.write_all(key.as_bytes())?;
        file.write_all(&record.encode())?;
        file.sync_all()?;
        fs::rename(staged, self.path(key))
    }

    fn swap(&self, key: &str, expected: Revision, next: Option<&Record>) -> Result<Swap, RegisterError> {
        let _turn = self.lock().map_err(unavailable)?;
        let found = Self::read(&self.path(key))?.map(|(_, record)| record);
        if found.as_ref().map_or(Revision::NONE, Record::revision) != expected {
            return Ok(Swap::Conflict(found));
        }
        let swapped = match next {
            Some(next) => self.write(key, next),
            None => fs::remove_file(self.path(key)),
        };
        let synced = swapped.and_then(|()| File::open(self.folder.join("records"))?.sync_all());
        // Whether the rename took place before the error is anyone's guess.
        synced.map_err(|error| RegisterError::new(RegisterErrorKind::Ambiguous, error))?;
        Ok(Swap::Done)
    }

    fn page(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let mut page = Vec::new();
        for entry in fs::read_dir(self.folder.join("records")).map_err(unavailable)? {
            let Some((key, record)) = Self::read(&entry.map_err(unavailable)?.path())? else { continue };
            if key.starts_with(scan.prefix) && scan.after.is_none_or(|after| key.as_str() > after) {
                let key = Key::new(key).map_err(|error| RegisterError::new(RegisterErrorKind::Unreadable, error))?;
                page.push((key, record));
            }
        }
        page.sort_by(|(left, _), (right, _)| left.cmp(right));
        page.truncate(scan.limit);
        Ok(page)
    }
}

// The system calls here block the thread, which a busy service would leave to `tokio::task::spawn_blocking`.
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
#[allow(dead_code, clippy::print_stdout, reason = "a program that shows something, and that a test includes")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("ifmatch-custom-register-{}", std::process::id()));
    let driver = Driver::new(FolderRegister::open(&folder)?).assume_absent();
    let key = Key::new("greeting")?;
    for body in ["hello", "good morning"] {
        let write = Write {
            method: &http::Method::PUT,
            preconditions: &Preconditions::default(),
            content: Content::Hashed { hash: ContentHash::of(body.as_bytes()), payload: body.into() },
            lease: LeaseUse::default(),
            based_on: None,
            request: None,
            nonce: ifmatch_runtime::nonce()?,
        };
        if let Outcome::Written(receipt) = driver.apply(&key, &Command::Write(write)).await?.outcome {
            let tag = receipt.tag.map(|tag| tag.to_string()).unwrap_or_default();
            println!("{body:?} is revision {} with the tag {tag}", receipt.generation);
        }
    }
    println!("the records are files in {}", folder.join("records").display());
    fs::remove_dir_all(folder)?;
    Ok(())
}
