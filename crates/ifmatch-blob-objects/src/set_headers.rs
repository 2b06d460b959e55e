//! Changes of header fields: the object is rewritten with its own content, on the condition that it is unchanged.

use std::sync::Arc;

use ifmatch_blob::body::BlobBody;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    HeaderChange, LateChecksum, Md5Use, MissingContainer, Put, Reading, SetHeaders, StoreError,
    StoreErrorKind, Upload, Written,
};
use ifmatch_core::precondition::Precondition;

use crate::failure::contended;
use crate::store_state::StoreState;
use crate::upload::PART;
use crate::write::WriteBasis;

/// Maximum number of attempts for an object that others are writing.
const ATTEMPTS: usize = 16;

impl StoreState {
    /// Changes header fields. Memory use doesn't depend on the object's size.
    pub(super) async fn set_headers(
        self: &Arc<Self>,
        blob: &BlobPath,
        set: SetHeaders,
    ) -> Result<Written, StoreError> {
        let keeps_fields = self.capability.metadata;
        let why = "the store keeps no header fields with a blob";
        let no_fields = || StoreError::new(StoreErrorKind::Unsupported, why);
        // Without them, no blob is of the type that a seal needs.
        if !keeps_fields && !matches!(set.change, HeaderChange::Seal(_)) {
            return Err(no_fields());
        }
        if set.change.keeps_version() {
            // The object would be a new one, with another tag.
            let why = "in front of an object store, a blob's tags and tier do not change, and no snapshots are taken";
            return Err(StoreError::new(StoreErrorKind::Unsupported, why));
        }
        let mut unread = None;
        for _ in 0..ATTEMPTS {
            let Some(mut opened) = self.read(blob, Reading::RANGES).await? else {
                return Err(self.absent(&blob.container).await);
            };
            let info = opened.info;
            let tags = &info.headers.tags;
            if set
                .if_tags
                .as_ref()
                .is_some_and(|tagged| !tagged.holds(tags))
            {
                let failed = StoreErrorKind::PreconditionFailed {
                    precondition: Precondition::IfMatch,
                    current: info.tag,
                };
                return Err(failed.into());
            }
            set.change.check(&info.headers, info.length, info.created)?;
            if !keeps_fields {
                return Err(no_fields());
            }
            // A longer body takes too long for a permit.
            let is_short = self.backing.takes_uploads && info.length <= PART as u64;
            let kept = info.hash.filter(|_| is_short);
            let body = match kept {
                Some(_) => Upload::new(BlobBody::empty()),
                None => match opened.source.read(None).await {
                    Ok(body) => Upload::new(body),
                    Err(error) if *error.kind() == StoreErrorKind::Unavailable => continue,
                    Err(error) => return Err(error),
                },
            };
            let put = Put {
                preconditions: set.preconditions.clone(),
                lease: set.lease,
                container: MissingContainer::Refuse,
                headers: set.change.of(&info.headers),
                md5: Md5Use::AsGiven,
                late_checksum: LateChecksum::default(),
                body,
                source: None,
                length: Some(info.length),
                digest: info.hash,
                request: set.request.clone(),
                keeps_type: false,
                keeps_tags: false,
                limit: u64::MAX,
            };
            let basis = WriteBasis {
                tag: info.tag,
                kept,
            };
            match Box::pin(self.put_based(blob, put, basis)).await {
                Err(error) if matches!(error.kind(), StoreErrorKind::InFlight { .. }) => {}
                // The object may have been written while it was read.
                Err(error) if error.is_of_source() => unread = Some(error),
                result => return result,
            }
        }
        Err(unread.unwrap_or_else(contended))
    }
}
