//! Hashing a stream of bytes.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{ContentHash, TagFormat};

/// Computes a [`ContentHash`] incrementally.
///
/// ```
/// use ifmatch_core::digest::{ContentHash, Hasher};
///
/// let mut hasher = Hasher::default();
/// hasher.update(b"hel");
/// hasher.update(b"lo");
/// assert_eq!(hasher.finish(), ContentHash::of(b"hello"));
/// ```
#[derive(Clone)]
pub struct Hasher {
    format: TagFormat,
    state: State,
}

impl Hasher {
    /// Starts a hash for tags of this format.
    ///
    /// ```
    /// # use ifmatch_core::digest::{Hasher, TagFormat};
    /// let hash = Hasher::new(TagFormat::Sha256Truncated).finish();
    /// assert_eq!(hash.format(), TagFormat::Sha256Truncated);
    /// ```
    pub fn new(format: TagFormat) -> Self {
        Self { format, state: State::new(format) }
    }

    /// Adds the next bytes.
    ///
    /// ```
    /// # use ifmatch_core::digest::{ContentHash, Hasher};
    /// let mut hasher = Hasher::default();
    /// hasher.update(b"");
    /// hasher.update(b"x");
    /// assert_eq!(hasher.finish(), ContentHash::of(b"x"));
    /// ```
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Sha256(state) => state.update(bytes),
            #[cfg(feature = "blake3")]
            State::Blake3(state) => {
                state.update(bytes);
            }
        }
    }

    /// Returns the hash of all bytes.
    ///
    /// ```
    /// # use ifmatch_core::digest::{ContentHash, Hasher};
    /// assert_eq!(Hasher::default().finish(), ContentHash::of(b""));
    /// ```
    pub fn finish(self) -> ContentHash {
        let bytes = match self.state {
            State::Sha256(state) => state.finalize().into(),
            #[cfg(feature = "blake3")]
            State::Blake3(state) => state.finalize().into(),
        };
        ContentHash { format: self.format, bytes }
    }
}

impl Default for Hasher {
    fn default() -> Self {
        Self::new(TagFormat::default())
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").field("format", &self.format).finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum State {
    Sha256(Sha256),
    #[cfg(feature = "blake3")]
    Blake3(Box<blake3::Hasher>),
}

impl State {
    fn new(format: TagFormat) -> Self {
        match format {
            TagFormat::Sha256 | TagFormat::Sha256Truncated => Self::Sha256(Sha256::new()),
            #[cfg(feature = "blake3")]
            TagFormat::Blake3 => Self::Blake3(Box::default()),
        }
    }
}
