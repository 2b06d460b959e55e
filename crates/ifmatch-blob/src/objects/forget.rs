//! Forgetting what the object store says just as well: without that, the register would grow with each name that was ever
//! written to, those of blocks too.

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Record;
use ifmatch_store::register::Swap;
use ifmatch_store::{Key, Register};

use super::guard::of_register;
use super::{Shared, container, guard};
use crate::records::{is_old, step};
use crate::store::StoreError;

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
        while let Some(records) = step(self.driver.register(), prefix, &mut after).await.map_err(of_register)? {
            let now = self.driver.now();
            for (key, record) in records.iter().filter(|(_, record)| is_old(record, now) && may_go(record, now)) {
                let swapped = self.driver.register().compare_and_swap(key, record.revision(), None).await;
                forgotten += u64::from(swapped.map_err(of_register)? == Swap::Done);
            }
        }
        Ok(forgotten)
    }
}
