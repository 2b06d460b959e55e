//! Memory of this process, and disk space of files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the resident memory of this process in bytes, as Linux reports it.
pub(crate) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kibibytes * 1024
}

/// Returns the allocated bytes of a file.
pub(crate) fn on_disk(file: &Path) -> u64 {
    fs::metadata(file).unwrap().blocks() * 512
}
