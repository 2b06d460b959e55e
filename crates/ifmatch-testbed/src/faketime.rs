//! A process with a time of day of its own.

use std::path::{Path, PathBuf};

/// Returns the path of libfaketime for programs with several threads, for `LD_PRELOAD`: `IFMATCH_FAKETIME`, or the path in
/// Linux distributions.
///
/// # Panics
/// If it is missing, with the command that installs it.
pub fn faketime() -> PathBuf {
    if let Some(path) = std::env::var_os("IFMATCH_FAKETIME") {
        return path.into();
    }
    let folders = ["lib/x86_64-linux-gnu/faketime", "lib/aarch64-linux-gnu/faketime", "lib64/faketime", "lib/faketime"];
    let found = folders.map(|folder| Path::new("/usr").join(folder).join("libfaketimeMT.so.1"));
    let found = found.into_iter().find(|path| path.exists());
    found.expect("libfaketime is missing: apt-get install libfaketime, or set IFMATCH_FAKETIME to its path")
}
