//! System calls that durability relies on, and the reserved disk space. If a body used all of the space, the index couldn't even
//! record a deletion, and space could never be freed.

use std::fs::File;
use std::path::Path;
use std::{fmt, io};

use fs4::statvfs;
use ifmatch_runtime::folders;

/// A store's disk. All functions block.
///
/// A failed sync is final: a later one may succeed although the pages of the first were lost. So data is never
/// synced twice. After a failure it is removed and rewritten under another name.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// Returns the space on the disk of a folder.
    fn space(&self, folder: &Path) -> io::Result<Space>;

    /// Makes a file's content durable.
    fn sync_file(&self, file: &File) -> io::Result<()>;

    /// Opens a folder before changes to its entries.
    fn open_folder<'a>(&self, path: &'a Path) -> io::Result<OpenFolder<'a>> {
        Ok(OpenFolder {
            path,
            file: folders::open(path)?,
        })
    }

    /// Makes a folder's entries durable, or reports any failure since the folder was opened.
    fn sync_folder(&self, folder: &OpenFolder<'_>) -> io::Result<()>;
}

/// Disk space, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) free: u64,
    pub(super) total: u64,
}

/// A folder opened for changes to its entries.
#[derive(Debug)]
pub(super) struct OpenFolder<'a> {
    pub(super) path: &'a Path,
    pub(super) file: File,
}

/// The disk of the operating system.
#[derive(Debug)]
pub(super) struct System;

impl Disk for System {
    fn space(&self, folder: &Path) -> io::Result<Space> {
        let stats = statvfs(folder)?;
        Ok(Space {
            free: stats.available_space(),
            total: stats.total_space(),
        })
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_folder(&self, folder: &OpenFolder<'_>) -> io::Result<()> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", folder.path.display()))
        };
        folder.file.sync_all().map_err(named)
    }
}

/// Reserved space in bytes, on a disk that is large enough.
const RESERVE: u64 = 16 * 1024 * 1024;
/// The reserved space takes at most one part in this many of the disk.
const RESERVED_PART: u64 = 16;

/// Rejects a write that would use the reserved disk space. The system answers this without disk access.
pub(super) fn check_free_space(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    match disk.space(folder) {
        Ok(Space { free, total }) if free < RESERVE.min(total / RESERVED_PART) => {
            Err(io::ErrorKind::StorageFull.into())
        }
        // If the free space is unknown, the write itself fails once the disk is full.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use bytes::Bytes;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use ifmatch_core::lease::{LeaseAction, LeaseDuration, LeaseId};
    use ifmatch_core::precondition::Preconditions;
    use ifmatch_register::{Driver, MemoryRegister};

    use super::*;
    use crate::IndexedStore;
    use ifmatch_blob::headers::BlobHeaders;
    use ifmatch_blob::name::BlobPath;
    use ifmatch_blob::store::{
        AppendBlock, BlobStore, BoxError, ContentChange, Delete, LeaseRequest, Put, Reading,
        StoreError, StoreErrorKind, Update, Upload, Written,
    };

    const MIB: u64 = 1024 * 1024;

    /// Unknown space.
    const UNKNOWN: u64 = u64::MAX;

    /// A disk with the given amount of space.
    #[derive(Debug)]
    struct Measured {
        free: AtomicU64,
        total: u64,
    }

    impl Measured {
        fn new(free: u64, total: u64) -> Arc<Self> {
            Arc::new(Self {
                free: free.into(),
                total,
            })
        }

        fn set(&self, free: u64) {
            self.free.store(free, Ordering::SeqCst);
        }
    }

    impl Disk for Measured {
        fn space(&self, _: &Path) -> io::Result<Space> {
            match self.free.load(Ordering::SeqCst) {
                UNKNOWN => Err(io::ErrorKind::Unsupported.into()),
                free => Ok(Space {
                    free,
                    total: self.total,
                }),
            }
        }

        fn sync_file(&self, file: &File) -> io::Result<()> {
            System.sync_file(file)
        }

        fn sync_folder(&self, folder: &OpenFolder<'_>) -> io::Result<()> {
            System.sync_folder(folder)
        }
    }

    fn blob(name: &str) -> BlobPath {
        BlobPath::parse(&format!("/c/{name}")).expect("valid")
    }

    fn bytes(length: usize) -> Put {
        Put::new(Upload::new(Full::<Bytes>::from(vec![7; length])))
    }

    /// Fills the disk in the middle of a megabyte.
    fn fatal(disk: &Arc<Measured>) -> Put {
        let disk = Arc::clone(disk);
        let pieces = (0..16).map(move |piece| {
            if piece == 8 {
                disk.set(15 * MIB);
            }
            Ok::<_, BoxError>(Frame::data(Bytes::from(vec![piece; 64 * 1024])))
        });
        Put::new(Upload::new(StreamBody::new(stream::iter(pieces))))
    }

    fn is_full<T>(result: Result<T, StoreError>) -> bool {
        result.is_err_and(|error| *error.kind() == StoreErrorKind::Full)
    }

    #[tokio::test]
    async fn a_full_disk_refuses_writes_but_not_deletions() {
        let folder = tempfile::tempdir().expect("a folder");
        let (driver, disk) = (
            Driver::new(MemoryRegister::unbounded()),
            Measured::new(100 * MIB, 1024 * MIB),
        );
        let store = IndexedStore::on_disk(folder.path(), driver, disk.clone())
            .await
            .expect("it opens");
        let put =
            async |name, put| -> Result<Written, StoreError> { store.put(&blob(name), put).await };
        put("large", bytes(100_000)).await.expect("there is room");
        put("small", bytes(100)).await.expect("there is room");
        assert!(is_full(put("large", fatal(&disk)).await));
        assert!(is_full(put("large", bytes(100_000)).await));
        assert!(is_full(put("small", bytes(100)).await));
        assert!(is_full(
            store
                .append(&blob("small"), AppendBlock::new("x".into()))
                .await
        ));
        assert!(is_full(
            store
                .update(&blob("small"), Update::new(|_| ContentChange::Keep))
                .await
        ));
        let other = blob("x").container;
        assert!(is_full(
            store.create_container(&other, BlobHeaders::default()).await
        ));
        assert_eq!(
            std::fs::read_dir(folder.path().join("tmp"))
                .expect("a folder")
                .count(),
            0
        );

        let opened = store
            .open(&blob("large"), Reading::HEAD)
            .await
            .expect("it can be read")
            .expect("it exists");
        assert_eq!(opened.info.length, 100_000);
        let action = LeaseAction::Acquire {
            id: LeaseId::from_random([1; 16]),
            duration: LeaseDuration::Infinite,
            holder: None,
        };
        let lease = LeaseRequest {
            action,
            preconditions: Preconditions::default(),
            request: None,
        };
        store.lease(&blob("small"), lease).await.expect("leased");
        store
            .delete(&blob("large"), Delete::default())
            .await
            .expect("deleted");
        for free in [16 * MIB, UNKNOWN] {
            disk.set(free);
            put("large", bytes(100_000))
                .await
                .expect("there is room again");
        }
    }

    #[test]
    fn a_small_disk_has_a_small_reserve() {
        let is_refused =
            |free, total| check_free_space(&*Measured::new(free, total), Path::new(".")).is_err();
        assert!(!is_refused(2 * MIB, 32 * MIB));
        assert!(is_refused(2 * MIB - 1, 32 * MIB));
        assert!(!is_refused(0, 0));
        assert!(
            System
                .space(Path::new("."))
                .is_ok_and(|space| space.total >= space.free && space.total > 0)
        );
    }
}
