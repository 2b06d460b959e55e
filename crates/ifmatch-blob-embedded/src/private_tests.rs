//! Tests that other users of the machine cannot read a store's files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::Full;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobStore, Put, Upload};

use crate::EmbeddedStore;

/// Returns the files and folders below a folder that other users can access.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if fs::metadata(&path).expect("it exists").permissions().mode() & 0o077 != 0 {
            found.push(path.clone());
        }
        if path.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

#[tokio::test]
async fn other_users_cannot_read_a_new_store() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let mode = |name: &str| fs::metadata(root.path().join(name)).expect("it exists").permissions().mode() & 0o777;
    drop(EmbeddedStore::open(root.path().join("new/data")).await.expect("it opens"));
    assert_eq!((mode("new"), mode("new/data")), (0o700, 0o700));

    fs::create_dir(root.path().join("shared")).expect("created");
    fs::set_permissions(root.path().join("shared"), Permissions::from_mode(0o750)).expect("changed");
    drop(EmbeddedStore::open(root.path().join("shared")).await.expect("it opens"));
    assert_eq!(mode("shared"), 0o750, "an existing folder keeps its permissions");
}

#[tokio::test]
async fn other_users_cannot_read_new_files_in_a_shared_folder() {
    let root = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(root.path(), Permissions::from_mode(0o755)).expect("changed");
    // As restored from a backup that keeps no permissions.
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
