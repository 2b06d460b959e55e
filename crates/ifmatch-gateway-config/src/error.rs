//! The error of a command: a message and an exit code.

/// Error of a command.
///
/// Its message states the problem and its solution, in one or a few lines.
///
/// ```
/// use ifmatch_gateway_config::error::{Error, ErrorKind};
///
/// let error = Error::usage("--listen is not an address");
/// assert_eq!(error.kind(), ErrorKind::Usage);
/// assert_eq!(error.exit_code(), 2);
/// assert_eq!(error.to_string(), "--listen is not an address");
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// Kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The flags, the environment or the configuration file are invalid.
    Usage,
    /// An error of the environment, such as a port in use or a folder that can't be written.
    Runtime,
    /// Stored data is damaged.
    Damaged,
    /// Another writer's changes were left as they are.
    Conflict,
    /// Another process uses the data.
    InUse,
    /// A signal ended the command before it was done.
    Interrupted,
}

impl Error {
    /// Creates an error in the settings.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Usage, message: message.into() }
    }

    /// Creates an error of the environment.
    pub fn runtime(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Runtime, message: message.into() }
    }

    /// Creates an error for damaged data.
    pub fn damaged(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Damaged, message: message.into() }
    }

    /// Creates an error for changes of another writer that were left as they are.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Conflict, message: message.into() }
    }

    /// Creates an error for data that another process uses.
    pub fn in_use(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::InUse, message: message.into() }
    }

    /// Creates an error for a command that a signal has ended.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Interrupted, message: message.into() }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the exit code: 2 for invalid settings, 3 for damaged data or conflicts, 11 for data in use, 130 after a signal, and 1
    /// otherwise.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::Usage => 2,
            ErrorKind::Runtime => 1,
            ErrorKind::Damaged | ErrorKind::Conflict => 3,
            ErrorKind::InUse => 11,
            ErrorKind::Interrupted => 130,
        }
    }
}
