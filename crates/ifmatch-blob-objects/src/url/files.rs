//! Files as a store.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use url::Url;

use super::inside::FolderStore;
use crate::backing::BackingStore;
use crate::failure::{OpenError, OpenErrorKind};

/// The kernel stamps files with a clock that advances at least every 10 ms. Two files written within one step can have
/// the same tag if the second reuses the inode of the first.
const FILE_TICK: Duration = Duration::from_millis(20);

/// Opens the files in the folder of a URL. `invalid` is the error for a URL that names none.
pub(super) fn open(url: &Url, invalid: impl Fn() -> OpenError) -> Result<BackingStore, OpenError> {
    let folder = url.to_file_path().map_err(|()| invalid())?;
    Ok(BackingStore {
        tick: FILE_TICK,
        refusal: staged,
        ..BackingStore::new(Arc::new(files(&folder)?)).local()
    })
}

/// Opens the files in a folder, with synced writes.
fn files(folder: &std::path::Path) -> Result<FolderStore, OpenError> {
    let unusable = |what: &str| {
        let what = format!(
            "can't {what} the folder {}. Check the path and its permissions",
            folder.display()
        );
        OpenError::new(OpenErrorKind::Folder, what)
    };
    std::fs::create_dir_all(folder).map_err(|error| unusable("create").because(error))?;
    FolderStore::new(folder).map_err(|error| unusable("use").because(error))
}

/// Refuses the name of an unfinished file: only digits follow its first `#`.
pub(super) fn staged(path: &Path) -> Option<&'static str> {
    let (_, number) = path.filename()?.split_once('#')?;
    let is_staged = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_staged.then_some("the store reserves names that end in '#' and digits")
}
