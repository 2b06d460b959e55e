//! A checksum that a client sends after the bytes.

use std::sync::{Arc, OnceLock};

use crate::headers::{BlobHeaders, FieldText};

/// A place for the checksum of a body, which its reader fills before the body ends. Clones share the place.
///
/// A store that must send the headers before the bytes keeps only a [checksum in the headers](BlobHeaders::checksum).
///
/// ```
/// use ifmatch_blob::headers::{BlobHeaders, FieldText};
/// use ifmatch_blob::store::LateChecksum;
///
/// let (checksum, mut headers) = (LateChecksum::default(), BlobHeaders::default());
/// checksum.clone().set(FieldText::new("crc32:NhCmhg==")?);
/// checksum.settle(&mut headers);
/// assert_eq!(headers.checksum.unwrap().as_str(), "crc32:NhCmhg==");
/// # Ok::<(), ifmatch_blob::headers::InvalidFieldText>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct LateChecksum(Arc<OnceLock<FieldText>>);

impl LateChecksum {
    /// Sets the checksum. Later calls have no effect.
    pub fn set(&self, checksum: FieldText) {
        self.0.get_or_init(|| checksum);
    }

    /// Stores the checksum of a completely received body in its headers.
    pub fn settle(&self, headers: &mut BlobHeaders) {
        if let Some(checksum) = self.0.get() {
            headers.checksum = Some(checksum.clone());
        }
    }
}
