//! The encoding of records: a version byte, then postcard. Every register stores exactly these bytes.

use super::{DecodeError, DecodeErrorKind, ENCODING_VERSION, Record};

/// Initial capacity, enough for nearly all records without their payload.
const USUAL_SIZE: usize = 512;

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
        let payload = self.state.version().map_or(0, |version| version.payload.len());
        let mut encoded = Vec::with_capacity(USUAL_SIZE + payload);
        encoded.push(ENCODING_VERSION);
        postcard::to_extend(self, encoded).expect("a record always serialises")
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// If the encoding version is unknown, or the bytes are not exactly one record.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, rest) = bytes.split_first().ok_or(DecodeError(DecodeErrorKind::Corrupt))?;
        if *version > ENCODING_VERSION {
            return Err(DecodeError(DecodeErrorKind::Newer(*version)));
        }
        let decoded = postcard::take_from_bytes::<Self>(rest).ok().filter(|_| *version == ENCODING_VERSION);
        let whole = decoded.filter(|(record, left)| left.is_empty() && record.is_consistent());
        whole.map(|(record, _)| record).ok_or(DecodeError(DecodeErrorKind::Corrupt))
    }
}
