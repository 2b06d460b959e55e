//! Receiving the body of a write: in memory, in parts that are sent to the store, or directly by the store.

use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::store::{MissingContainer, StoreError, StoreErrorKind, Upload};
use ifmatch_core::digest::ContentHash;
use object_store::{Attributes, PutMultipartOptions, PutPayload};

use crate::attributes::WriteStamp;
use crate::direct::{BodyOffer, DirectUpload};
use crate::store_state::{KeptData, StoreState};
use crate::upload::{BodySpool, DeclaredBody, Multipart};
use crate::write_job::WriteJob;

/// The complete body of a write.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    pub(super) bytes: BodyBytes,
    pub(super) hash: ContentHash,
}

/// The bytes of a write.
#[derive(Debug)]
pub(super) enum BodyBytes {
    /// Sent in one request with its condition.
    Whole(PutPayload),
    /// Those of the object that is replaced, read from it for each attempt.
    Copied,
    /// Already in the store as parts, to be combined.
    Parts(Multipart),
}

impl ReceivedBody {
    /// Returns `true` if the bytes are sent in one request with its condition.
    pub(super) fn is_conditional(&self) -> bool {
        !matches!(self.bytes, BodyBytes::Parts(_))
    }

    fn in_parts(parts: Multipart, hash: ContentHash) -> Self {
        let bytes = BodyBytes::Parts(parts);
        Self { bytes, hash }
    }
}

impl StoreState {
    /// Receives a body: a small one as a whole, a large one in parts that are sent to the store, or directly if the
    /// store can.
    pub(super) async fn receive(
        &self,
        job: &mut WriteJob,
        mut body: Upload,
        declared: &DeclaredBody,
    ) -> Result<ReceivedBody, StoreError> {
        declared.check()?;
        let mut begun = None;
        if let Some(length) = declared.long().filter(|_| self.backing.takes_uploads) {
            let direct = DirectUpload::new(body, length);
            let parts = self.begin_parts(job, Some(direct.clone())).await?;
            match direct.end() {
                BodyOffer::Arrived(hash) => {
                    let hash = declared.verify(length, hash)?;
                    return Ok(ReceivedBody::in_parts(parts, hash));
                }
                BodyOffer::Left(left) => (body, begun) = (left, Some(parts)),
                BodyOffer::Lost => {
                    let why = "the store took a body and did not report the result";
                    return Err(StoreError::new(StoreErrorKind::Unavailable, why));
                }
            }
        }
        let mut spool = BodySpool::new(body, declared, self.backing.hashing);
        let mut part = spool.part().await?;
        if part.last && begun.is_none() {
            let hash = spool.finish().await?;
            job.stamp.hash = Some(hash);
            let bytes = BodyBytes::Whole(part.payload);
            return Ok(ReceivedBody { bytes, hash });
        }
        let mut parts = match begun {
            Some(parts) => parts,
            None => self.begin_parts(job, None).await?,
        };
        loop {
            parts.send(part.payload).await?;
            if part.last {
                break;
            }
            part = spool.part().await?;
        }
        let hash = spool.finish().await?;
        parts.flush().await?;
        Ok(ReceivedBody::in_parts(parts, hash))
    }

    /// Begins a multipart upload. Completing it is unconditional, so the parts belong to the current container, which
    /// is created if necessary.
    async fn begin_parts(
        &self,
        job: &mut WriteJob,
        direct: Option<DirectUpload>,
    ) -> Result<Multipart, StoreError> {
        // It isn't known yet if the request created the blob, so a retry of it can't be answered.
        job.stamp.request = None;
        let has_incarnation = self.capability.metadata && self.keeps != KeptData::Nothing;
        if has_incarnation && job.stamp.incarnation.is_none() {
            let home = self.home(&job.blob.container, MissingContainer::Create);
            job.stamp.incarnation = Some(home.await?.incarnation);
        }
        let mut options = PutMultipartOptions {
            attributes: self.attributes(&job.headers, &job.stamp, false),
            ..PutMultipartOptions::default()
        };
        if let Some(direct) = direct {
            options.extensions.insert(direct);
        }
        Multipart::begin(&*self.backing.objects, &job.location, options).await
    }

    /// Returns the attributes of an object, none if the store keeps none.
    pub(super) fn attributes(
        &self,
        headers: &BlobHeaders,
        stamp: &WriteStamp,
        created: bool,
    ) -> Attributes {
        if self.capability.metadata {
            stamp.attributes(headers, self.backing.naming, created)
        } else {
            Attributes::default()
        }
    }
}
