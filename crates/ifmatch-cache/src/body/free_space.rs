//! The free space of the file system that has the cache folder.

use std::path::Path;

/// Space in bytes that the cache leaves free for its index and for other programs, unless the file system is small.
const RESERVE: u64 = 16 << 20;
/// The reserve is at most this fraction of the file system, a sixteenth.
const FRACTION: u64 = 16;

/// Returns the number of bytes that are missing until so many can be written and the reserve stays free. The system answers this
/// without access to the disk. If it can't, the write itself fails once the disk is full.
pub(super) fn missing(folder: &Path, bytes: u64) -> u64 {
    fs4::statvfs(folder).map_or(0, |space| {
        missing_of(space.available_space(), space.total_space(), bytes)
    })
}

fn missing_of(free: u64, total: u64, bytes: u64) -> u64 {
    bytes
        .saturating_add(RESERVE.min(total / FRACTION))
        .saturating_sub(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_stays_free() {
        let gib = 1 << 30;
        assert_eq!(missing_of(gib, 10 * gib, gib - RESERVE), 0);
        assert_eq!(missing_of(gib, 10 * gib, gib), RESERVE);
        assert_eq!(
            missing_of(1 << 20, 16 << 20, 0),
            0,
            "a small disk has a small reserve"
        );
        assert_eq!(missing_of(0, 16 << 20, 5), (1 << 20) + 5);
    }
}
