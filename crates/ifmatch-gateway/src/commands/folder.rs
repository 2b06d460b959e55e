//! Checks of folders named by flags.

use std::path::Path;

use crate::error::Error;

/// Rejects a path that is a file or a dangling link, or passes through one, since no permission would help.
///
/// # Errors
/// Names the flag and the file, and suggests a fix.
pub(crate) fn check(flag: &str, path: &Path) -> Result<(), Error> {
    if let Some(link) = path.ancestors().find(|above| above.is_symlink() && !above.exists()) {
        let (path, link) = (path.display(), link.display());
        return Err(Error::usage(format!(
            "cannot use {flag} {path}: {link} is a link to something that is missing; create its target or remove the link"
        )));
    }
    let found = path.ancestors().find(|above| above.exists());
    let Some(file) = found.filter(|found| !found.is_dir()) else { return Ok(()) };
    let (path, file) = (path.display(), file.display());
    Err(Error::usage(format!(
        "cannot use {flag} {path}: {file} is a file; use the path of a folder, which is created if it is missing"
    )))
}
