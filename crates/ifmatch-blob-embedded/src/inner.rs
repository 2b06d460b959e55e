//! State that all operations share.

use std::sync::Arc;

use ifmatch_redb::RedbRegister;
use ifmatch_register::Driver;

use super::body_files::Folder;
use super::decoded::DecodedRecords;
use super::gates::Gates;
use super::internal_counts::InternalCounts;
use super::small_bodies::SmallBodies;
use super::snapshot::Removals;

/// State that all operations share.
pub(super) struct Inner {
    pub(super) driver: Driver,
    /// The index in the folder, unless it is a custom one.
    pub(super) index: Option<Arc<RedbRegister>>,
    pub(super) folder: Arc<Folder>,
    pub(super) decoded: DecodedRecords,
    pub(super) small_bodies: SmallBodies,
    pub(super) internal_counts: InternalCounts,
    pub(super) removals: Removals,
    pub(super) gates: Gates,
}
