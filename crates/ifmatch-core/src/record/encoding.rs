//! The one encoding of a record: a version byte, then postcard. Every register stores exactly these bytes.

use std::fmt;

use super::encoding_v1;
use crate::record::Record;

/// The encoding that this build writes.
const VERSION: u8 = 2;

/// The bytes that suffice for nearly all records, without the payload.
const USUAL_SIZE: usize = 512;

/// Why bytes are no record that this build can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(DecodeErrorKind);

/// What is wrong with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// A newer release wrote them, with this encoding version: run that release, or a newer one.
    Newer(u8),
    /// They are damaged, or were never a record.
    Corrupt,
}

impl DecodeError {
    /// What is wrong.
    pub fn kind(&self) -> DecodeErrorKind {
        self.0
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            DecodeErrorKind::Newer(version) => write!(
                f,
                "the record has encoding version {version}, this release reads up to {VERSION}: run a newer release"
            ),
            DecodeErrorKind::Corrupt => f.write_str("the record is damaged: restore it from a backup, or delete it"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Record {
    /// The bytes to store.
    ///
    /// ```
    /// use ifmatch_core::record::Record;
    /// let record = Record::absent();
    /// assert_eq!(Record::decode(&record.encode()), Ok(record));
    /// ```
    #[expect(
        clippy::missing_panics_doc,
        clippy::expect_used,
        reason = "serialising plain data into a growing vector has no way to fail"
    )]
    pub fn encode(&self) -> Vec<u8> {
        let payload = self.state.version().map_or(0, |version| version.payload.len());
        let mut encoded = Vec::with_capacity(USUAL_SIZE + payload);
        encoded.push(VERSION);
        postcard::to_extend(self, encoded).expect("a record always serialises")
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// Refuses an unknown encoding version, and bytes that are not exactly one record: never guesses.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, rest) = bytes.split_first().ok_or(DecodeError(DecodeErrorKind::Corrupt))?;
        if *version > VERSION {
            return Err(DecodeError(DecodeErrorKind::Newer(*version)));
        }
        let record = match *version {
            1 => encoding_v1::decode(rest),
            VERSION => {
                postcard::take_from_bytes(rest).ok().filter(|(_, left)| left.is_empty()).map(|(record, _)| record)
            }
            _ => None,
        };
        record.filter(Self::is_consistent).ok_or(DecodeError(DecodeErrorKind::Corrupt))
    }
}
