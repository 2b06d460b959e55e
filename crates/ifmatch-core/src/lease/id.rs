//! Lease ids: GUIDs, in any of the formats that .NET writes, compared as GUIDs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The id of a lease: a GUID.
///
/// ```
/// use ifmatch_core::lease::LeaseId;
///
/// let id: LeaseId = "{936DA01F-9ABD-4d9d-80C7-02AF85C822A8}".parse()?;
/// assert_eq!(id.to_string(), "936da01f-9abd-4d9d-80c7-02af85c822a8");
/// assert_eq!(id, "936da01f9abd4d9d80c702af85c822a8".parse()?);
/// # Ok::<(), ifmatch_core::lease::InvalidLeaseId>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseId([u8; 16]);

/// The text is no GUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease id is a GUID such as 936da01f-9abd-4d9d-80c7-02af85c822a8")]
pub struct InvalidLeaseId;

impl LeaseId {
    /// An id from random bytes, marked as such (RFC 9562 §5.4).
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(bytes)
    }
}

impl FromStr for LeaseId {
    type Err = InvalidLeaseId;

    /// Reads the formats N, D, B, P and X of .NET's `Guid`.
    fn from_str(text: &str) -> Result<Self, InvalidLeaseId> {
        let inner = |open: char, close: char| text.strip_prefix(open)?.strip_suffix(close);
        let digits = match text.len() {
            32 => Some(text.to_owned()),
            36 => hyphenated(text),
            38 => inner('{', '}').or_else(|| inner('(', ')')).and_then(hyphenated),
            _ => hexadecimal(text),
        };
        let digits = digits.ok_or(InvalidLeaseId)?;
        let mut bytes = [0; 16];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| InvalidLeaseId)?;
        Ok(Self(bytes))
    }
}

/// 32 digits in groups of 8, 4, 4, 4 and 12.
fn hyphenated(text: &str) -> Option<String> {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    (lengths == [8, 4, 4, 4, 12]).then(|| groups.concat())
}

/// `{0x00000000,0x0000,0x0000,{0x00,0x00,0x00,0x00,0x00,0x00,0x00,0x00}}`, leading zeros optional.
fn hexadecimal(text: &str) -> Option<String> {
    let inner = text.strip_prefix('{')?.strip_suffix("}}")?;
    let (head, tail) = inner.split_once(",{")?;
    let number = |text: &str, width: usize| {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
        (1..=width).contains(&digits.len()).then(|| format!("{digits:0>width$}"))
    };
    let parts: Vec<&str> = head.split(',').chain(tail.split(',')).collect();
    let widths = [8, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2];
    (parts.len() == widths.len())
        .then(|| parts.iter().zip(widths).map(|(part, width)| number(part, width)).collect())
        .flatten()
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = crate::text::hexadecimal(&self.0);
        let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        f.write_str(&groups.join("-"))
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
