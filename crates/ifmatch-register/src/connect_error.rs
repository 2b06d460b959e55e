//! Why a register can't use the servers of its engine.

use std::error::Error;
use std::fmt;

/// A register can't use its engine's servers. The message says what to do, and contains no password.
#[derive(Debug)]
pub struct ConnectError {
    kind: ConnectErrorKind,
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The reason for a [`ConnectError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// The URL, or a file that it names, isn't valid.
    Url,
    /// No server responds.
    Unreachable,
    /// A certificate isn't valid or not trusted, or the server has no TLS.
    Certificate,
    /// The server refuses the user or the password, or the user lacks rights.
    Denied,
    /// The server would lose acknowledged swaps, or isn't the one that accepts writes.
    Unsuitable,
    /// The tables are missing, or another release made them.
    Schema,
    /// The server lacks records that this process has seen: it was emptied, restored from a backup, or is another one.
    Lost,
}

impl ConnectError {
    /// Creates an error whose text says what to do.
    pub fn new(kind: ConnectErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            source: None,
        }
    }

    /// Adds the cause, which is appended to the message.
    #[must_use]
    pub fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    /// Returns the reason.
    pub fn kind(&self) -> ConnectErrorKind {
        self.kind
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.source
            .as_ref()
            .map_or(Ok(()), |source| write!(f, " ({source})"))
    }
}

impl Error for ConnectError {
    /// The message contains the cause, so the chain continues after it.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref()?.source()
    }
}
