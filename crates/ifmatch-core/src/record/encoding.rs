//! Records as bytes, for registers that store them.

use std::cmp::Ordering;

use super::Record;

/// Initial capacity, enough for nearly all records without their payload.
const USUAL_SIZE: usize = 512;

/// Encoding version that this release writes and reads.
const ENCODING_VERSION: u8 = 4;

/// The bytes aren't a record that this release can read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct DecodeError(DecodeErrorKind);

/// The reason why bytes can't be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// A newer release wrote the record, with this encoding version.
    #[error(
        "the record has encoding version {0}, this release reads up to {ENCODING_VERSION}: run a newer release"
    )]
    Newer(u8),
    /// A build from before the first release wrote the record, with this encoding version.
    #[error(
        "the record has encoding version {0}, and this release reads {ENCODING_VERSION}: copy the data with the build that wrote it"
    )]
    Older(u8),
    /// The bytes are damaged, or were never a record.
    #[error("the record is damaged: restore it from a backup, or delete it")]
    Corrupt,
}

impl DecodeError {
    /// Returns the reason.
    pub fn kind(&self) -> DecodeErrorKind {
        self.0
    }
}

impl Record {
    /// Encodes the record.
    ///
    /// ```
    /// use ifmatch_core::record::Record;
    /// let record = Record::absent();
    /// assert_eq!(Record::decode(&record.encode()), Ok(record));
    /// ```
    #[expect(
        clippy::missing_panics_doc,
        clippy::expect_used,
        reason = "serialising plain data into a growing vector cannot fail"
    )]
    pub fn encode(&self) -> Vec<u8> {
        let payload = self
            .state
            .version()
            .map_or(0, |version| version.payload.len());
        let mut encoded = Vec::with_capacity(USUAL_SIZE + payload);
        encoded.push(ENCODING_VERSION);
        postcard::to_extend(self, encoded).expect("a record always serialises")
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// Fails if the encoding version is unknown, or the bytes aren't exactly one record.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, rest) = bytes
            .split_first()
            .ok_or(DecodeError(DecodeErrorKind::Corrupt))?;
        match version.cmp(&ENCODING_VERSION) {
            Ordering::Greater => return Err(DecodeError(DecodeErrorKind::Newer(*version))),
            Ordering::Less => return Err(DecodeError(DecodeErrorKind::Older(*version))),
            Ordering::Equal => {}
        }
        let decoded = postcard::take_from_bytes::<Self>(rest).ok();
        let whole = decoded.filter(|(record, left)| left.is_empty() && record.is_consistent());
        whole
            .map(|(record, _)| record)
            .ok_or(DecodeError(DecodeErrorKind::Corrupt))
    }

    /// Returns `true` if the parts of the record are consistent, which decoding checks.
    fn is_consistent(&self) -> bool {
        self.state
            .version()
            .is_none_or(|version| version.tags.len() == version.variants.len())
    }
}
