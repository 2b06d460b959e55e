//! A disk that fails: nothing acknowledged is lost, and the register comes back with the disk.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{get, set};
use ifmatch_redb::RedbRegister;
use ifmatch_store::Driver;
use ifmatch_store::driver::DriverError;
use ifmatch_store::register::RegisterErrorKind;
use redb::StorageBackend;
use redb::backends::InMemoryBackend;

/// A disk that can be full.
#[derive(Clone, Debug)]
struct Disk {
    blocks: Arc<InMemoryBackend>,
    full: Arc<AtomicBool>,
    syncs_fail: Arc<AtomicBool>,
}

impl Disk {
    fn room(&self) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.blocks.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.blocks.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room()?;
        self.blocks.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.syncs_fail.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk did not answer"));
        }
        self.blocks.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room()?;
        self.blocks.write(offset, data)
    }
}

fn register(disk: &Disk) -> Driver<RedbRegister> {
    let disk = disk.clone();
    let register = RedbRegister::open_with(move || redb::Builder::new().create_with_backend(disk.clone()));
    Driver::new(register.unwrap()).assume_absent()
}

fn disk() -> Disk {
    Disk { blocks: Arc::new(InMemoryBackend::new()), full: Arc::default(), syncs_fail: Arc::default() }
}

fn kind(result: Result<(), DriverError>) -> RegisterErrorKind {
    match result {
        Err(DriverError::Register(error)) => error.kind(),
        other => panic!("expected a failure of the register, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_until_there_is_room_and_loses_nothing() {
    let disk = disk();
    let driver = register(&disk);
    set(&driver, "before", 1).await.unwrap();
    disk.full.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let kind = kind(set(&driver, "during", 2).await);
        assert!(matches!(kind, RegisterErrorKind::Unavailable | RegisterErrorKind::Ambiguous));
    }
    disk.full.store(false, Ordering::SeqCst);
    set(&driver, "after", 4).await.unwrap();
    assert_eq!(get(&driver, "before").await.unwrap(), Some(1));
    assert_eq!(get(&driver, "after").await.unwrap(), Some(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_is_never_reported_as_done_or_as_nothing_changed() {
    let disk = disk();
    let driver = register(&disk);
    set(&driver, "number", 1).await.unwrap();
    disk.syncs_fail.store(true, Ordering::SeqCst);
    assert_eq!(kind(set(&driver, "number", 2).await), RegisterErrorKind::Ambiguous);
    disk.syncs_fail.store(false, Ordering::SeqCst);
    let found = get(&driver, "number").await.unwrap();
    assert!(matches!(found, Some(1 | 2)), "the old number or the new one: {found:?}");
}
