//! Writes that an earlier process of this register left behind: it was killed, and its permits last for up to a minute.
//!
//! A process that has its register for itself knows that the earlier one has ended. Its last request may still be on the way to the
//! store, for as long as any request that lost its answer: [`GRACE`]. So its permits end that long after the start.
//!
//! # Interleavings
//!
//! - **The late request carries a condition.** After [`GRACE`], another writer succeeds. The request then finds another version, or one
//!   where it required none, and the store refuses it, however late it arrives. What remains is what remains of any lost answer: a
//!   version that returns (docs/known-gaps.md).
//! - **The late request carries none**: a deletion, the end of an upload in parts, or any write to a store that ignores conditions. It
//!   would replace or delete what was acknowledged since. Such permits keep their minute, as do writes under a lease.
//! - **Two processes with one register.** Each would end the permits of the other, so only a register that one process locks
//!   qualifies. A copy of its folder does not: the mark in the store tells its owner.
//! - **A write of this process** that began before its record was looked at. Its permit is younger than this process.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::command::{Command, Doubt};
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Permit, Record, Revision};

use super::permit::{self, Cover, GRACE};
use super::shared::Shared;
use ifmatch_blob::records::of_driver;
use ifmatch_blob::store::StoreError;

impl Shared {
    /// Lets the permits of an earlier process end [`GRACE`] after `started`, the start of this one. Returns their number.
    pub(super) async fn settle_earlier_writes(self: Arc<Self>, started: Timestamp) -> Result<u64, StoreError> {
        let (mut settled, mut after) = (0, None);
        while let Some(records) = self.records(permit::KEYS, &mut after).await? {
            for (key, record) in records {
                let now = self.driver.now();
                let Some(permit) = earlier(&record, started, now) else { continue };
                let left: Duration = now.until(started.saturating_add(GRACE));
                let doubt = Command::Doubt(Doubt::new(permit.token, left));
                // Refused if the permit has ended since.
                self.driver.apply(&key, &doubt).await.map_err(of_driver)?;
                settled += 1;
            }
        }
        Ok(settled)
    }
}

/// Returns the permit of a record if a process before `started` left it behind, and the store's condition covers its write.
fn earlier(record: &Record, started: Timestamp, now: Timestamp) -> Option<Permit> {
    let is_earlier = |permit: &Permit| permit.token.revision < Revision::NONE.next(started);
    record.permit(now).filter(|permit| is_earlier(permit) && permit.ttl == Cover::Store.ttl())
}
