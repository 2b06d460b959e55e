//! The error of a command: a message and an exit code.

use std::fmt;

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
    /// The settings that it is about, of which a file may have one.
    pub(crate) subjects: Vec<Subject>,
}

/// What an error in the settings is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The setting with this flag.
    Flag(String),
    /// The route with this pattern.
    Route(String),
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
    /// Another process uses the data.
    InUse,
    /// A signal ended the command before it was done.
    Interrupted,
}

impl Error {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            subjects: Vec::new(),
        }
    }

    /// Creates an error in the settings.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// Creates an error about the setting with a flag: the flag, and what is wrong with it.
    pub(crate) fn setting(flag: &str, problem: impl fmt::Display) -> Self {
        Self::usage(format!("{flag} {problem}")).about(flag)
    }

    /// States that the error is about the setting with a flag, too.
    pub(crate) fn about(mut self, flag: &str) -> Self {
        self.subjects.push(Subject::Flag(flag.to_owned()));
        self
    }

    /// States that the error is about a route.
    pub(crate) fn about_route(mut self, pattern: &str) -> Self {
        self.subjects.push(Subject::Route(pattern.to_owned()));
        self
    }

    /// Creates an error of the environment.
    pub fn runtime(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Runtime, message)
    }

    /// Creates an error for damaged data.
    pub fn damaged(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, message)
    }

    /// Creates an error for data that another process uses.
    pub fn in_use(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InUse, message)
    }

    /// Creates an error for a command that a signal has ended.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Interrupted, message)
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the exit code: 2 for invalid settings, 3 for damaged data, 11 for data in use, 130 after a signal, and 1
    /// otherwise.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::Usage => 2,
            ErrorKind::Runtime => 1,
            ErrorKind::Damaged => 3,
            ErrorKind::InUse => 11,
            ErrorKind::Interrupted => 130,
        }
    }
}
