//! A write: its blob, its conditions, and the stamp that the object gets.

use http::Method;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{MissingContainer, StoreError, StoreErrorKind, Written};
use ifmatch_core::EntityTag;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use object_store::path::Path;

use crate::attributes::{StoredVersion, WriteStamp};
use crate::failure::contended;
use crate::permit::check;

/// A write. The fields and the stamp are complete once the body is received.
#[derive(Debug)]
pub(super) struct WriteJob {
    pub(super) blob: BlobPath,
    pub(super) location: Path,
    pub(super) preconditions: Preconditions,
    pub(super) lease: LeaseUse,
    /// Behaviour if the container doesn't exist.
    pub(super) missing: MissingContainer,
    /// The tag of the version that the write was derived from, if any.
    pub(super) based_on: Option<EntityTag>,
    pub(super) headers: BlobHeaders,
    pub(super) keeps_type: bool,
    pub(super) stamp: WriteStamp,
}

impl WriteJob {
    /// Checks the conditions, and that the version from which the write was derived still exists.
    pub(super) fn check(&self, current: Option<&StoredVersion>) -> Result<(), StoreError> {
        self.check_request(current)?;
        match &self.based_on {
            Some(tag) if current.and_then(|current| current.info.tag.as_ref()) != Some(tag) => {
                Err(contended())
            }
            _ => Ok(()),
        }
    }

    /// Checks the request's conditions, and that a write that keeps the type of a blob has that type.
    pub(super) fn check_request(&self, current: Option<&StoredVersion>) -> Result<(), StoreError> {
        check(&Method::PUT, &self.preconditions, current)?;
        let appends = self.headers.append.is_some();
        match current {
            Some(current)
                if self.keeps_type && current.info.headers.append.is_some() != appends =>
            {
                Err(StoreErrorKind::OtherType.into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the response if the current object was made by this very write, or by an earlier attempt of the same
    /// request.
    pub(super) fn answered_by(
        &self,
        current: &StoredVersion,
        hash: ContentHash,
        created: bool,
    ) -> Option<Written> {
        let same_write = self.stamp.made(current);
        let same_request = self.is_request_of(current) && current.info.hash == Some(hash);
        let created = match &current.origin {
            Some(origin) if same_request => origin.created,
            _ => created,
        };
        (same_write || same_request).then(|| Written {
            tag: current.info.tag.clone(),
            last_modified: current.info.last_modified,
            hash: Some(hash),
            md5: current.info.headers.content_md5,
            generation: current.info.generation,
            created,
            is_replay: !same_write,
        })
    }

    /// Returns `true` if this request made the object.
    pub(super) fn is_request_of(&self, current: &StoredVersion) -> bool {
        let origin = current.origin.as_ref().map(|origin| &origin.request);
        origin.is_some() && origin == self.stamp.request.as_ref()
    }

    /// Returns `true` for a write of the holder of a lease.
    pub(super) fn is_leased(&self) -> bool {
        self.lease.id().is_some() || self.lease.token().is_some()
    }
}
