//! The room on the disk that is left free. A body that took the last of it would leave none to the index, which then could
//! carry out no deletion either: nobody could make room any more.

use std::io;
use std::path::{Path, PathBuf};

use fs4::statvfs;

/// What is left free, in bytes, but no more than this part of the disk.
const RESERVE: u64 = 16 * 1024 * 1024;
const PART: u64 = 16;

/// How much room there is on a disk, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) free: u64,
    pub(super) total: u64,
}

/// Asks the system how much room there is on the disk of a folder. Blocks.
pub(super) type Measure = fn(&Path) -> io::Result<Space>;

/// The room on the disk of a folder.
#[derive(Debug)]
pub(super) struct Room {
    folder: PathBuf,
    measure: Measure,
}

impl Room {
    pub(super) fn new(folder: &Path, measure: Measure) -> Self {
        Self { folder: folder.to_owned(), measure }
    }

    /// Refuses what would take of the room that is left free. The system knows it without a look at the disk.
    pub(super) fn check(&self) -> io::Result<()> {
        match (self.measure)(&self.folder) {
            Ok(Space { free, total }) if free < RESERVE.min(total / PART) => Err(io::ErrorKind::StorageFull.into()),
            // A disk that does not tell says so by itself when it is full.
            _ => Ok(()),
        }
    }
}

/// What the system says.
pub(super) fn of_the_system(folder: &Path) -> io::Result<Space> {
    let stats = statvfs(folder)?;
    Ok(Space { free: stats.available_space(), total: stats.total_space() })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use bytes::Bytes;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use ifmatch_core::lease::{LeaseAction, LeaseDuration, LeaseId};
    use ifmatch_core::precondition::Preconditions;
    use ifmatch_store::{Driver, MemoryRegister};

    use super::*;
    use crate::embedded::EmbeddedStore;
    use crate::headers::BlobHeaders;
    use crate::name::BlobPath;
    use crate::store::{
        BlobStore, BoxError, Delete, LeaseRequest, Put, Reading, StoreError, StoreErrorKind, Upload, Written,
    };

    const MIB: u64 = 1024 * 1024;

    static FREE: AtomicU64 = AtomicU64::new(100 * MIB);

    /// What nobody knows.
    const SILENCE: u64 = u64::MAX;

    fn measured(_: &Path) -> io::Result<Space> {
        match FREE.load(Ordering::SeqCst) {
            SILENCE => Err(io::ErrorKind::Unsupported.into()),
            free => Ok(Space { free, total: 1024 * MIB }),
        }
    }

    fn blob(name: &str) -> BlobPath {
        BlobPath::parse(&format!("/c/{name}")).expect("valid")
    }

    fn bytes(length: usize) -> Put {
        Put::new(Upload::new(Full::<Bytes>::from(vec![7; length])))
    }

    /// A megabyte, in whose middle the room ends.
    fn fatal() -> Put {
        let pieces = (0..16).map(|piece| {
            if piece == 8 {
                FREE.store(15 * MIB, Ordering::SeqCst);
            }
            Ok::<_, BoxError>(Frame::data(Bytes::from(vec![piece; 64 * 1024])))
        });
        Put::new(Upload::new(StreamBody::new(stream::iter(pieces))))
    }

    fn is_full<T>(result: Result<T, StoreError>) -> bool {
        result.is_err_and(|error| *error.kind() == StoreErrorKind::Full)
    }

    #[tokio::test]
    async fn what_makes_room_is_done_where_what_takes_it_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let driver = Driver::new(MemoryRegister::unbounded());
        let store = EmbeddedStore::on_disk(folder.path(), driver, measured).await.expect("it opens");
        let put = async |name, put| -> Result<Written, StoreError> { store.put(&blob(name), put).await };
        put("large", bytes(100_000)).await.expect("there is room");
        put("small", bytes(100)).await.expect("there is room");
        assert!(is_full(put("large", fatal()).await));
        assert!(is_full(put("large", bytes(100_000)).await));
        assert!(is_full(put("small", bytes(100)).await));
        let other = blob("x").container;
        assert!(is_full(store.create_container(&other, BlobHeaders::default()).await));
        assert_eq!(std::fs::read_dir(folder.path().join("tmp")).expect("a folder").count(), 0);

        let opened = store.open(&blob("large"), Reading::Head).await.expect("it can be read").expect("it is there");
        assert_eq!(opened.info.length, 100_000);
        let action = LeaseAction::Acquire { id: LeaseId::from_random([1; 16]), duration: LeaseDuration::Infinite };
        let lease = LeaseRequest { action, preconditions: Preconditions::default(), request: None };
        store.lease(&blob("small"), lease).await.expect("leased");
        store.delete(&blob("large"), Delete::default()).await.expect("deleted");
        for free in [16 * MIB, SILENCE] {
            FREE.store(free, Ordering::SeqCst);
            put("large", bytes(100_000)).await.expect("there is room again");
        }
    }

    #[test]
    fn of_a_small_disk_little_is_left_free() {
        let free = |measure: Measure| Room::new(Path::new("."), measure).check().is_ok();
        assert!(free(|_| Ok(Space { free: 2 * MIB, total: 32 * MIB })));
        assert!(!free(|_| Ok(Space { free: 2 * MIB - 1, total: 32 * MIB })));
        assert!(free(|_| Ok(Space { free: 0, total: 0 })));
        assert!(of_the_system(Path::new(".")).is_ok_and(|space| space.total >= space.free && space.total > 0));
    }
}
