//! Forgetting what the object store says just as well: without that, the register would grow with each name that was ever
//! written to, those of blocks too.

use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Record;
use ifmatch_store::register::{Scan, Swap};
use ifmatch_store::{Key, Register};

use super::guard::of_register;
use super::{Shared, container, guard};
use crate::store::StoreError;

/// How long a record is kept after its last change: it gives late retries of what was done to a lease their answer.
const RETENTION: Duration = Duration::from_hours(24);
/// How many records are looked at in one step.
const STEP: usize = 1_000;

impl Shared {
    /// Forgets blobs without leases, and containers that are gone. Says how many records that were. A record that anybody
    /// has changed meanwhile stays.
    pub(super) async fn forget_idle(&self) -> Result<u64, StoreError> {
        let blobs = self.forget(guard::KEYS, |record, now| record.is_idle(now) && record.lease().is_none()).await?;
        let containers = self.forget(container::KEYS, Record::is_forgettable).await?;
        Ok(blobs + containers)
    }

    async fn forget(&self, prefix: &str, may_go: impl Fn(&Record, Timestamp) -> bool) -> Result<u64, StoreError> {
        let mut forgotten = 0;
        let mut after: Option<Key> = None;
        loop {
            let scan = Scan { prefix, after: after.as_ref().map(Key::as_str), limit: STEP };
            let records = self.driver.register().scan(&scan).await.map_err(of_register)?;
            let Some((last, _)) = records.last() else { return Ok(forgotten) };
            after = Some(last.clone());
            let now = self.driver.now();
            let is_old = |record: &Record| record.revision().timestamp().saturating_add(RETENTION) < now;
            for (key, record) in records.iter().filter(|(_, record)| is_old(record) && may_go(record, now)) {
                let swapped = self.driver.register().compare_and_swap(key, record.revision(), None).await;
                forgotten += u64::from(swapped.map_err(of_register)? == Swap::Done);
            }
        }
    }
}
