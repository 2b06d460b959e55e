//! Block ids.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A block id, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockId(pub(crate) String);

impl BlockId {
    /// Maximum length, in bytes.
    pub(crate) const MAX_BYTES: usize = 64;

    /// Parses the base64 form. Returns `None` if it is malformed, empty or too long.
    pub(crate) fn from_base64(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        (1..=Self::MAX_BYTES).contains(&bytes.len()).then(|| Self(hex::encode(bytes)))
    }

    /// Returns the base64 form.
    pub(crate) fn to_base64(&self) -> String {
        STANDARD.encode(hex::decode(&self.0).unwrap_or_default())
    }
}
