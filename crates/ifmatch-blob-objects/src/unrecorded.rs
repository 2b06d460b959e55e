//! Blobs without shared records: the store's conditions decide between processes.
//!
//! Each process has a register of its own in memory, by which its writers take turns. No process knows the records of another, so
//! they must decide nothing: there are no leases, every container exists, and objects carry no incarnation.

use async_trait::async_trait;
use http::Method;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_core::command::{Command, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Engine, Key, MemoryRegister, Register, RegisterError, Scan, Swap};

use crate::container::KEYS;
use crate::container_state::ContainerPayload;

/// Number of blobs whose writers take turns in this process.
const CAPACITY: usize = 10_000;

/// The register of one process, in which every container exists.
pub(super) struct Unrecorded {
    blobs: MemoryRegister,
    container: Option<Record>,
}

impl Unrecorded {
    pub(super) fn new() -> Self {
        let payload = ContainerPayload::new(Some(Revision::NONE), &BlobHeaders::default())
            .content()
            .ok();
        let container = payload.and_then(|content| {
            let write = Write::new(&Method::PUT, &Preconditions::NONE, content, 0);
            let command = Command::Write(write.with_lease(LeaseUse::Read(None)));
            Record::absent()
                .apply(&command, Timestamp::from_micros(1))
                .next
        });
        Self {
            blobs: MemoryRegister::with_capacity(CAPACITY),
            container,
        }
    }

    fn container(&self, key: &Key) -> Option<&Record> {
        self.container
            .as_ref()
            .filter(|_| key.as_str().starts_with(KEYS))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Register for Unrecorded {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        match self.container(key) {
            Some(record) => Ok(Some(record.clone())),
            None => self.blobs.load(key).await,
        }
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        match self.container(key) {
            Some(record) => Ok(Swap::Conflict(Some(record.clone()))),
            None => self.blobs.compare_and_swap(key, expected, next).await,
        }
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.blobs.scan(scan).await
    }

    fn engine(&self) -> Engine {
        self.blobs.engine()
    }

    fn revision_at_once(&self, _: &Key) -> Option<Revision> {
        None
    }
}
