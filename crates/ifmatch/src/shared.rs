//! The state that all services of one layer share.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{Either, select};
use ifmatch_core::command::Authority;
use ifmatch_core::date::Timestamp;
use ifmatch_register::{Driver, DriverError, Key};
use ifmatch_runtime::KeyedQueue;

use crate::config::Config;
use crate::memory::Memory;
use crate::write::Unguarded;

pub(crate) struct Shared {
    pub(crate) driver: Driver,
    pub(crate) memory: Memory,
    /// Lets one writer of this process at a time probe a resource and request the permit. Two probing at once would
    /// make each other's probes stale.
    pub(crate) probing: KeyedQueue<Key>,
    pub(crate) unguarded: Unguarded,
    pub(crate) config: Config,
}

impl Shared {
    /// Returns the time that deadlines are compared with.
    pub(crate) fn now(&self) -> Timestamp {
        self.driver.now()
    }

    /// Returns the time of day, for comparison with the dates of responses.
    pub(crate) fn wall(&self) -> Timestamp {
        self.driver.clock().wall()
    }

    /// Runs a register operation on behalf of a read. Returns `None` if it fails or exceeds the patience.
    pub(crate) async fn for_read<T>(&self, operation: impl Future<Output = Result<T, DriverError>>) -> Option<T> {
        match select(pin!(operation), pin!(self.driver.clock().sleep(self.config.patience))).await {
            Either::Left((result, _)) => result.ok(),
            Either::Right(_) => None,
        }
    }

    pub(crate) fn is_authoritative(&self) -> bool {
        self.config.authority == Authority::Register
    }
}
