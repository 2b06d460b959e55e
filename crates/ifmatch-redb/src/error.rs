//! Why a database could not be opened, and what a failure of an open one means.

use std::fmt;
use std::io;

use ifmatch_store::register::{RegisterError, RegisterErrorKind};
use redb::{DatabaseError, StorageError};

/// Why a database could not be opened.
#[derive(Debug)]
pub struct OpenError {
    kind: OpenErrorKind,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// What to do about a database that could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenErrorKind {
    /// Another process has it open: stop that one, or choose another file.
    InUse,
    /// The file or its folder is missing or may not be written.
    Denied,
    /// The disk is full.
    Full,
    /// It is damaged, or no database that this release can read.
    Damaged,
    /// The system refused something else.
    Other,
}

impl OpenError {
    pub(crate) fn other(source: io::Error) -> Self {
        Self { kind: OpenErrorKind::Other, source: source.into() }
    }

    /// What to do about it.
    pub fn kind(&self) -> OpenErrorKind {
        self.kind
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.kind {
            OpenErrorKind::InUse => "another process has the database open: stop it, or choose another file",
            OpenErrorKind::Denied => "the database file or its folder cannot be written",
            OpenErrorKind::Full => "there is no room on the disk for the database",
            OpenErrorKind::Damaged => "the file is damaged, or no database that this release can read",
            OpenErrorKind::Other => "the database could not be opened",
        };
        write!(f, "{advice}: {}", self.source)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

impl From<DatabaseError> for OpenError {
    fn from(error: DatabaseError) -> Self {
        let kind = match &error {
            DatabaseError::DatabaseAlreadyOpen => OpenErrorKind::InUse,
            DatabaseError::Storage(StorageError::Io(io)) => match io.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OpenErrorKind::Full,
                io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::PermissionDenied => OpenErrorKind::Denied,
                io::ErrorKind::InvalidData => OpenErrorKind::Damaged,
                _ => OpenErrorKind::Other,
            },
            DatabaseError::Storage(StorageError::Corrupted(_))
            | DatabaseError::UpgradeRequired(_)
            | DatabaseError::RepairAborted => OpenErrorKind::Damaged,
            _ => OpenErrorKind::Other,
        };
        Self { kind, source: error.into() }
    }
}

impl From<redb::Error> for OpenError {
    fn from(error: redb::Error) -> Self {
        Self { kind: OpenErrorKind::Other, source: error.into() }
    }
}

/// A failure before anything was committed.
pub(crate) fn unavailable(error: impl Into<redb::Error>) -> RegisterError {
    RegisterError::new(RegisterErrorKind::Unavailable, error.into())
}
