//! The encoding of records: a version byte, then postcard. Every register stores exactly these bytes.
//!
//! Version 3 is version 2 with the fencing token and the holder of the lease at the end.

use serde::de::DeserializeOwned;

use super::{DecodeError, DecodeErrorKind, ENCODING_VERSION, Record, Revision, encoding_v1};
use crate::lease::{Holder, Lease};

/// The part of a record that version 2 lacks.
type Trailer = (Revision, Option<Holder>);

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
        let holder = self.lease.as_ref().and_then(Lease::holder);
        let trailer: Trailer = (self.fence, holder);
        postcard::to_extend(&(self, trailer), encoded).expect("a record always serialises")
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
        let record = match *version {
            1 => encoding_v1::decode(rest),
            2 => exactly::<Self>(rest),
            ENCODING_VERSION => {
                exactly::<(Self, Trailer)>(rest).and_then(|(record, trailer)| record.followed_by(trailer))
            }
            _ => None,
        };
        record.filter(Self::is_consistent).ok_or(DecodeError(DecodeErrorKind::Corrupt))
    }

    /// Returns `None` if the trailer names a holder without a lease.
    fn followed_by(self, (fence, holder): Trailer) -> Option<Self> {
        if holder.is_some() && self.lease.is_none() {
            return None;
        }
        Some(Self { fence, lease: self.lease.map(|lease| lease.held_by(holder)), ..self })
    }
}

/// Decodes bytes that are exactly one value.
fn exactly<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, left)| left.is_empty()).map(|(value, _)| value)
}
