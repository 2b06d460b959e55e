//! Private files and folders, which other users of the machine cannot read: tokens do not protect world-readable blobs.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Creates a folder below one that is there.
pub(super) fn create(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)
}

/// Creates a file that does not exist yet.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file for writing, creating it if necessary.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Revokes other users' access to a folder created by an earlier release. Leaves folders owned by another user
/// unchanged.
pub(super) fn tighten(folder: &Path) {
    if fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
        let _ = fs::set_permissions(folder, Permissions::from_mode(0o700));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use bytes::Bytes;
    use http_body_util::Full;

    use super::*;
    use crate::EmbeddedStore;
    use ifmatch_blob::name::BlobPath;
    use ifmatch_blob::store::{BlobStore, Put, Upload};

    /// Returns the files and folders below a folder that other users can access.
    fn open_to_others(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if fs::metadata(&path).expect("it is there").permissions().mode() & 0o077 != 0 {
                found.push(path.clone());
            }
            if path.is_dir() {
                found.extend(open_to_others(&path));
            }
        }
        found
    }

    #[tokio::test]
    async fn nobody_else_looks_into_a_new_store() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let mode = |name: &str| fs::metadata(root.path().join(name)).expect("it is there").permissions().mode() & 0o777;
        drop(EmbeddedStore::open(root.path().join("new/data")).await.expect("it opens"));
        assert_eq!((mode("new"), mode("new/data")), (0o700, 0o700));

        fs::create_dir(root.path().join("shared")).expect("created");
        fs::set_permissions(root.path().join("shared"), fs::Permissions::from_mode(0o750)).expect("changed");
        drop(EmbeddedStore::open(root.path().join("shared")).await.expect("it opens"));
        assert_eq!(mode("shared"), 0o750, "whoever made it has said who may");
    }

    #[tokio::test]
    async fn nobody_else_reads_what_is_written_into_a_folder_that_is_open_to_all() {
        let root = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).expect("changed");
        // As left behind by an earlier release.
        fs::create_dir(root.path().join("bodies")).expect("created");
        fs::set_permissions(root.path().join("bodies"), Permissions::from_mode(0o755)).expect("changed");
        fs::write(root.path().join("bodies/foreign"), "").expect("written");
        let index = root.path().join("index.redb");
        drop(EmbeddedStore::open(root.path()).await.expect("it opens"));
        fs::set_permissions(&index, Permissions::from_mode(0o644)).expect("changed");

        let store = EmbeddedStore::open(root.path()).await.expect("it opens");
        let put = Put::new(Upload::new(Full::<Bytes>::from(vec![7; 100_000])));
        store.put(&BlobPath::parse("/c/b").expect("valid"), put).await.expect("written");
        assert_eq!(open_to_others(root.path()), [root.path().join("bodies/foreign")]);
    }
}
