//! Conversion of failures of the folder and the index.

use std::fmt;
use std::io;
use std::path::Path;

use ifmatch_register::{RegisterError, RegisterErrorKind};

use ifmatch_blob::store::{BoxError, StoreError, StoreErrorKind};

/// Error of an operation on a whole store. A store that can't be opened is unchanged.
#[derive(Debug)]
pub struct OpenError {
    kind: OpenErrorKind,
    text: String,
    source: Option<BoxError>,
}

/// The kind of an [`OpenError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenErrorKind {
    /// Another process has the folder open: stop it, or choose another folder.
    InUse,
    /// The folder contains no store, for operations that don't create one.
    Missing,
    /// The folder isn't writable, or isn't a folder.
    Denied,
    /// The disk is full.
    Full,
    /// The store is damaged, or was written by a newer release.
    Unreadable,
    /// Any other failure of the system.
    Other,
}

impl OpenError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> OpenErrorKind {
        self.kind
    }

    pub(super) fn folder(path: &Path, source: io::Error) -> Self {
        let kind = match source.kind() {
            _ if is_full(&source) => OpenErrorKind::Full,
            io::ErrorKind::ResourceBusy => return Self::in_use(path, source),
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::AlreadyExists => OpenErrorKind::Denied,
            _ => OpenErrorKind::Other,
        };
        let text = format!("can't use the data folder {}", path.display());
        Self {
            kind,
            text,
            source: Some(source.into()),
        }
    }

    fn in_use(path: &Path, source: io::Error) -> Self {
        let text = format!(
            "another process uses the data folder {}. Stop it, or choose another folder",
            path.display()
        );
        Self {
            kind: OpenErrorKind::InUse,
            text,
            source: Some(source.into()),
        }
    }

    pub(super) fn index(path: &Path, source: ifmatch_redb::OpenError) -> Self {
        use ifmatch_redb::OpenErrorKind as Index;
        let kind = match source.kind() {
            Index::InUse => OpenErrorKind::InUse,
            Index::Denied => OpenErrorKind::Denied,
            Index::Full => OpenErrorKind::Full,
            Index::Damaged => OpenErrorKind::Unreadable,
            Index::LostCommit => return Self::lost_commit(path),
            _ => OpenErrorKind::Other,
        };
        Self {
            kind,
            text: format!("can't open the index {}", path.display()),
            source: Some(source.into()),
        }
    }

    fn lost_commit(path: &Path) -> Self {
        let text = format!(
            "the newest commit in the index {} is damaged, so the last acknowledged write may be missing. Restore a backup, or \
             accept the loss with `ifmatch verify --accept-rollback`",
            path.display()
        );
        Self {
            kind: OpenErrorKind::Unreadable,
            text,
            source: None,
        }
    }

    /// The folder has been in use, but there is no index. With an empty one, all blobs would be gone.
    pub(super) fn lost_index(path: &Path) -> Self {
        let text = format!(
            "the index {} is missing, although the folder contains a store. Restore it from a backup, or choose another folder \
             to start empty",
            path.display()
        );
        Self {
            kind: OpenErrorKind::Unreadable,
            text,
            source: None,
        }
    }

    /// `verify` was given a path that isn't a data folder, so it can check nothing.
    pub(super) fn no_store(path: &Path) -> Self {
        let path_shown = path.display();
        let text = if path.exists() {
            format!("{path_shown} is not a data folder: it has no index.redb. Check the path")
        } else {
            format!("no such folder: {path_shown}. Check the path")
        };
        Self {
            kind: OpenErrorKind::Missing,
            text,
            source: None,
        }
    }

    /// With a register that can lose a record, the garbage collector would delete the body of a live blob.
    pub(super) fn lossy_index() -> Self {
        let text =
            "this register can't keep the index: a failover may lose acknowledged swaps, and with them blobs. Use a \
                    register that keeps them"
                .to_owned();
        Self {
            kind: OpenErrorKind::Other,
            text,
            source: None,
        }
    }

    pub(super) fn bucket(source: object_store::Error) -> Self {
        Self {
            kind: OpenErrorKind::Other,
            text: "can't use the bucket".into(),
            source: Some(source.into()),
        }
    }

    pub(super) fn not_empty() -> Self {
        let text = "the target of the copy isn't empty. Choose an empty one".to_owned();
        Self {
            kind: OpenErrorKind::Other,
            text,
            source: None,
        }
    }

    pub(super) fn no_folder() -> Self {
        let text =
            "a bucket has no snapshot of its own. Copy its blobs with `ifmatch backup`".to_owned();
        Self {
            kind: OpenErrorKind::Other,
            text,
            source: None,
        }
    }

    pub(super) fn custom_index() -> Self {
        let text =
            "a snapshot can't contain a custom index (IndexedStore::with_driver). Copy the index with its register's \
                    tools"
                .to_owned();
        Self {
            kind: OpenErrorKind::Other,
            text,
            source: None,
        }
    }

    pub(super) fn record(key: &str, source: impl Into<BoxError>) -> Self {
        let text = format!("can't read the record {key} in the index");
        Self {
            kind: OpenErrorKind::Unreadable,
            text,
            source: Some(source.into()),
        }
    }

    /// A blob wasn't copied: its body can't be read, or can't be written to the target.
    pub(super) fn uncopied(key: &str, source: StoreError) -> Self {
        let kind = match source.kind() {
            StoreErrorKind::Unreadable => OpenErrorKind::Unreadable,
            StoreErrorKind::Full => OpenErrorKind::Full,
            _ => OpenErrorKind::Other,
        };
        Self {
            kind,
            text: format!("can't copy the body of {key}"),
            source: Some(source.into()),
        }
    }

    pub(super) fn register(source: RegisterError) -> Self {
        let kind = match source.kind() {
            RegisterErrorKind::Unreadable => OpenErrorKind::Unreadable,
            RegisterErrorKind::Full => OpenErrorKind::Full,
            _ => OpenErrorKind::Other,
        };
        Self {
            kind,
            text: "can't read the index".into(),
            source: Some(source.into()),
        }
    }

    pub(super) fn other(source: impl Into<BoxError>) -> Self {
        Self {
            kind: OpenErrorKind::Other,
            text: "can't open the store".into(),
            source: Some(source.into()),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{} ({source})", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl std::error::Error for OpenError {
    /// The message contains the cause, so the chain continues after it.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref()?.source()
    }
}

/// Converts a failure of the disk before anything was committed.
pub(super) fn disk(error: io::Error) -> StoreError {
    let kind = if is_full(&error) {
        StoreErrorKind::Full
    } else {
        StoreErrorKind::Unavailable
    };
    StoreError::new(kind, error)
}

/// Converts the failure of a task that panicked or was stopped by the runtime's shutdown.
pub(super) fn lost(error: tokio::task::JoinError) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, error)
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
