//! Folders that flags name.

use std::path::Path;

use crate::error::Error;

/// Refuses a path that leads to a file, or through one: no right to write would help.
///
/// # Errors
/// Names the flag and the file, and says what to give instead.
pub(crate) fn check(flag: &str, path: &Path) -> Result<(), Error> {
    let found = path.ancestors().find(|above| above.exists());
    let Some(file) = found.filter(|found| !found.is_dir()) else { return Ok(()) };
    let (path, file) = (path.display(), file.display());
    Err(Error::usage(format!(
        "{flag} {path} cannot be used: {file} is a file; give the path of a folder, which is created if it is missing"
    )))
}
