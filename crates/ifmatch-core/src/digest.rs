//! Content hashes, for strong entity tags and `Repr-Digest`.

#[cfg(feature = "digest-fields")]
mod field;

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::digest::common::hazmat::{SerializableState, SerializedState};
use sha2::{Digest, Sha256};

use crate::tag::EntityTag;
use crate::text::hexadecimal;

#[cfg(feature = "digest-fields")]
pub use field::InvalidDigest;

/// The hash of a representation's bytes, and the format of its tag.
///
/// ```
/// use ifmatch_core::digest::ContentHash;
///
/// let hash = ContentHash::of(b"hello");
/// assert!(hash.hex().starts_with("2cf24dba5fb0a30e"));
/// assert_eq!(hash.content_tag().opaque(), hash.hex().as_bytes());
/// assert_eq!(
///     hash.repr_digest().unwrap(),
///     "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:",
/// );
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentHash {
    format: TagFormat,
    bytes: [u8; 32],
}

impl ContentHash {
    /// Computes the SHA-256 hash of `bytes`. For streams and other formats, see [`Hasher`].
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Creates a SHA-256 hash that was computed elsewhere.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self {
            format: TagFormat::Sha256,
            bytes,
        }
    }

    /// Returns all 32 bytes, even if the tag contains only half of them.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Returns the format of the tag.
    pub const fn format(&self) -> TagFormat {
        self.format
    }

    /// Returns all 32 bytes in lower-case hexadecimal.
    pub fn hex(&self) -> String {
        hexadecimal(&self.bytes)
    }

    /// Returns a strong tag that depends only on the bytes: `"<hex>"`.
    pub fn content_tag(&self) -> EntityTag {
        EntityTag::from_digits(&self.tag_hex(), "", "")
    }

    /// Returns a strong tag that changes with every write, even of the same bytes: `"<hex>-<generation>"`.
    ///
    /// ```
    /// # use ifmatch_core::digest::ContentHash;
    /// let hash = ContentHash::of(b"a");
    /// assert_ne!(hash.versioned_tag(1), hash.versioned_tag(2));
    /// assert!(hash.versioned_tag(17).to_string().ends_with("-17\""));
    /// ```
    pub fn versioned_tag(&self, generation: u64) -> EntityTag {
        EntityTag::from_digits(&self.tag_hex(), "-", &generation.to_string())
    }

    fn tag_hex(&self) -> String {
        hexadecimal(&self.bytes[..self.format.bytes_in_tag()])
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({:?} {})", self.format, self.hex())
    }
}

/// The hash function of a content tag, and the part of the hash that the tag contains.
///
/// ```
/// use ifmatch_core::digest::{Hasher, TagFormat};
///
/// let mut hasher = Hasher::new(TagFormat::Sha256Truncated);
/// hasher.update(b"hello");
/// assert_eq!(hasher.finish().content_tag().to_string(), "\"2cf24dba5fb0a30e26e83b2ac5b9e29e\"");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TagFormat {
    /// SHA-256, all 256 bits. Can be verified with any tool.
    #[default]
    Sha256,
    /// The first 128 bits of SHA-256, for short header fields.
    Sha256Truncated,
    /// BLAKE3, all 256 bits. Several times faster than SHA-256 from 64 KiB up, slower below 4 KiB.
    #[cfg(feature = "blake3")]
    Blake3,
}

impl TagFormat {
    const fn bytes_in_tag(self) -> usize {
        if matches!(self, Self::Sha256Truncated) {
            16
        } else {
            32
        }
    }
}

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
    state: HashState,
}

impl Hasher {
    /// Starts a hash for tags of this format.
    pub fn new(format: TagFormat) -> Self {
        Self {
            format,
            state: HashState::new(format),
        }
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
            HashState::Sha256(state) => state.update(bytes),
            #[cfg(feature = "blake3")]
            HashState::Blake3(state) => {
                state.update(bytes);
            }
        }
    }

    /// Returns the state after the bytes so far, from which [`Hasher::resume`] continues. `None` for BLAKE3.
    ///
    /// ```
    /// use ifmatch_core::digest::{ContentHash, Hasher};
    ///
    /// let mut hasher = Hasher::default();
    /// hasher.update(b"hel");
    /// let mut resumed = Hasher::resume(&hasher.state().unwrap()).unwrap();
    /// resumed.update(b"lo");
    /// assert_eq!(resumed.finish(), ContentHash::of(b"hello"));
    /// ```
    pub fn state(&self) -> Option<Box<[u8]>> {
        match &self.state {
            HashState::Sha256(state) => Some(state.serialize().to_vec().into()),
            #[cfg(feature = "blake3")]
            HashState::Blake3(_) => None,
        }
    }

    /// Continues from the [state](Hasher::state) of a SHA-256 hasher, or returns `None` if it isn't one. States of another
    /// release may have another meaning: compare the hash so far before the first update.
    pub fn resume(state: &[u8]) -> Option<Self> {
        let state = SerializedState::<Sha256>::try_from(state).ok()?;
        let state = HashState::Sha256(Sha256::deserialize(&state).ok()?);
        Some(Self {
            format: TagFormat::Sha256,
            state,
        })
    }

    /// Returns the hash of all bytes.
    pub fn finish(self) -> ContentHash {
        let bytes = match self.state {
            HashState::Sha256(state) => state.finalize().into(),
            #[cfg(feature = "blake3")]
            HashState::Blake3(state) => state.finalize().into(),
        };
        ContentHash {
            format: self.format,
            bytes,
        }
    }
}

impl Default for Hasher {
    fn default() -> Self {
        Self::new(TagFormat::default())
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// The state of a hash function.
#[derive(Clone)]
enum HashState {
    Sha256(Sha256),
    #[cfg(feature = "blake3")]
    Blake3(Box<blake3::Hasher>),
}

impl HashState {
    fn new(format: TagFormat) -> Self {
        match format {
            TagFormat::Sha256 | TagFormat::Sha256Truncated => Self::Sha256(Sha256::new()),
            #[cfg(feature = "blake3")]
            TagFormat::Blake3 => Self::Blake3(Box::default()),
        }
    }
}
