//! The one error of the command: what a person reads, and the code the process exits with.

use std::fmt;

/// Why the gateway did not start, or had to stop.
///
/// Its text is one or a few lines that say what is wrong and what to do about it.
///
/// ```
/// use ifmatch_gateway::error::{Error, ErrorKind};
///
/// let error = Error::usage("--listen is not an address");
/// assert_eq!(error.kind(), ErrorKind::Usage);
/// assert_eq!(error.exit_code(), 2);
/// assert_eq!(error.to_string(), "--listen is not an address");
/// ```
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// What sort of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The flags, the environment or the configuration file ask for something that cannot be.
    Usage,
    /// The request was sound, the machine was not: a port that is taken, a folder that cannot be written.
    Runtime,
}

impl Error {
    /// An error in what was asked for.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Usage, message: message.into() }
    }

    /// An error met while starting or running.
    pub fn runtime(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Runtime, message: message.into() }
    }

    /// What sort of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The exit code of a process that ends with this error: 2 for usage, 1 for all else.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::Usage => 2,
            ErrorKind::Runtime => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
