//! The label of a lease's holder.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A lease holder's name for itself, for operators: 1 to 64 visible ASCII characters, with spaces between them. It
/// grants no rights.
///
/// ```
/// use ifmatch_core::lease::Holder;
///
/// let holder: Holder = "backup on host-7, process 4711".parse()?;
/// assert_eq!(holder.as_str(), "backup on host-7, process 4711");
/// assert!("".parse::<Holder>().is_err());
/// # Ok::<(), ifmatch_core::lease::InvalidHolder>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The characters, then zeros.
    text: [u8; Self::MAX_LEN],
}

/// The text can't be the label of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a holder has 1 to {} visible ASCII characters, with spaces only between them",
    Holder::MAX_LEN
)]
pub struct InvalidHolder;

impl Holder {
    /// Maximum number of characters.
    pub const MAX_LEN: usize = 64;

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        let end = self
            .text
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(Self::MAX_LEN);
        std::str::from_utf8(&self.text[..end]).unwrap_or_default()
    }
}

impl FromStr for Holder {
    type Err = InvalidHolder;

    fn from_str(text: &str) -> Result<Self, InvalidHolder> {
        let is_visible = text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() || byte == b' ');
        if text.is_empty()
            || text.len() > Self::MAX_LEN
            || !is_visible
            || text.trim_matches(' ').len() < text.len()
        {
            return Err(InvalidHolder);
        }
        let mut padded = [0; Self::MAX_LEN];
        padded[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { text: padded })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Holder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Holder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<str>::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}
