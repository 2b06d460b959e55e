//! Errors of opening and using a database.

use std::fmt;
use std::io;

use ifmatch_register::{RegisterError, RegisterErrorKind};
use redb::DatabaseError;

use crate::damage::DamagedPage;

/// A database couldn't be opened.
#[derive(Debug)]
pub struct OpenError {
    kind: OpenErrorKind,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// The reason why a database couldn't be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenErrorKind {
    /// Another process has the database open: stop it, or choose another file.
    InUse,
    /// The file or its folder is missing or not writable.
    Denied,
    /// The disk is full.
    Full,
    /// The file is damaged, or not a database that this release can read.
    Damaged,
    /// The newest commit is damaged, and the last acknowledged swap may be missing with it.
    LostCommit,
    /// Another error of the system.
    Other,
}

impl OpenError {
    pub(crate) fn other(source: io::Error) -> Self {
        Self {
            kind: OpenErrorKind::Other,
            source: source.into(),
        }
    }

    /// The database was removed while it was being opened.
    pub(crate) fn removed() -> Self {
        io::Error::from(io::ErrorKind::NotFound).into()
    }

    /// Copying only the records would lose tables added by a newer release.
    pub(crate) fn unknown_tables() -> Self {
        let source =
            "the database has tables unknown to this release. Use the release that wrote it".into();
        Self {
            kind: OpenErrorKind::Damaged,
            source,
        }
    }

    /// The newest commit can't be read, and it was most likely acknowledged.
    pub(crate) fn newest_commit_damaged() -> Self {
        Self {
            kind: OpenErrorKind::LostCommit,
            source: "the last acknowledged write may be missing".into(),
        }
    }

    /// A page can't be read.
    pub(crate) fn damaged(source: DamagedPage) -> Self {
        Self {
            kind: OpenErrorKind::Damaged,
            source: source.into(),
        }
    }

    /// Returns the reason.
    pub fn kind(&self) -> OpenErrorKind {
        self.kind
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.kind {
            OpenErrorKind::InUse => {
                "another process has the database open. Stop it, or choose another file"
            }
            OpenErrorKind::Denied => {
                "the database file or its folder isn't writable. Correct its permissions"
            }
            OpenErrorKind::Full => "the disk is full. Free some space",
            OpenErrorKind::Damaged => {
                "the file is damaged, or not a database that this release can read. Restore a backup"
            }
            OpenErrorKind::LostCommit => {
                "the newest commit in the file is damaged. Restore a backup"
            }
            OpenErrorKind::Other => "can't open the database",
        };
        write!(f, "{advice} ({})", self.source)
    }
}

impl std::error::Error for OpenError {
    /// The message contains the cause, so the chain continues after it.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.source()
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self {
            kind: kind_of(&error),
            source: error.into(),
        }
    }
}

impl From<DatabaseError> for OpenError {
    fn from(error: DatabaseError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<redb::Error> for OpenError {
    fn from(error: redb::Error) -> Self {
        let kind = match &error {
            redb::Error::DatabaseAlreadyOpen => OpenErrorKind::InUse,
            redb::Error::Io(error) => kind_of(error),
            redb::Error::Corrupted(_)
            | redb::Error::UpgradeRequired(_)
            | redb::Error::RepairAborted => OpenErrorKind::Damaged,
            _ => OpenErrorKind::Other,
        };
        Self {
            kind,
            source: error.into(),
        }
    }
}

fn kind_of(error: &io::Error) -> OpenErrorKind {
    match error.kind() {
        io::ErrorKind::ResourceBusy => OpenErrorKind::InUse,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OpenErrorKind::Full,
        io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::PermissionDenied => OpenErrorKind::Denied,
        io::ErrorKind::InvalidData => OpenErrorKind::Damaged,
        _ => OpenErrorKind::Other,
    }
}

/// A failure before anything was committed.
pub(crate) fn unavailable(error: impl Into<redb::Error>) -> RegisterError {
    unavailable_now(error.into())
}

/// Like [`unavailable`], for any cause.
pub(crate) fn unavailable_now(
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> RegisterError {
    RegisterError::new(RegisterErrorKind::Unavailable, error)
}
