//! Files as a store, which Windows doesn't have: it takes names that differ in case for one file, drops dots and spaces at their end,
//! and reserves others, such as `NUL`. Two blobs would share a file.

use url::Url;

use crate::backing::BackingStore;
use crate::failure::{OpenError, OpenErrorKind};

/// Refuses the URL.
pub(super) fn open(_: &Url, _: impl Fn() -> OpenError) -> Result<BackingStore, OpenError> {
    let what = "files on Windows can't be a store, since Windows takes some different names for one file. Use --data FOLDER, or a \
                store such as s3://bucket/prefix";
    Err(OpenError::new(OpenErrorKind::Url, what))
}
