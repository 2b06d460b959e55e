//! The name of a resource in a register.

use std::fmt;
use std::sync::Arc;

/// The name of a resource in a register: text without NUL of 1 to [`Key::MAX_LEN`] bytes. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// The text is empty, too long, or contains NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is text without NUL of 1 to {} bytes", Key::MAX_LEN)]
pub struct InvalidKey;

impl Key {
    /// Maximum length of a key, in bytes. Every engine can index keys of this length.
    pub const MAX_LEN: usize = 2048;

    /// Creates a key.
    ///
    /// # Errors
    /// [`InvalidKey`] if the text is empty, longer than [`Key::MAX_LEN`], or contains NUL.
    ///
    /// ```
    /// use ifmatch_register::Key;
    /// assert_eq!(Key::new("photos/cat.png").unwrap().as_str(), "photos/cat.png");
    /// assert!(Key::new("").is_err());
    /// ```
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, InvalidKey> {
        let text = text.into();
        let valid = !text.is_empty() && text.len() <= Self::MAX_LEN && !text.contains('\0');
        if valid { Ok(Self(text)) } else { Err(InvalidKey) }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
