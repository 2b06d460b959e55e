//! New folders that other users of the machine cannot look into: tokens would be of no use to blobs that anybody can read.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Creates a folder below one that is there.
pub(super) fn create(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use crate::embedded::EmbeddedStore;

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
}
