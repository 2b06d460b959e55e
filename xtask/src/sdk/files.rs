//! A folder of files for backups: large and empty ones, many small ones, and names of all kinds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Result;

const MIB: usize = 1 << 20;
/// Lengths on both sides of the sizes at which the clients and the service split files.
const LENGTHS: [(&str, usize); 8] = [
    ("large.bin", 24 * MIB + 12_345),
    ("blocks/one.bin", 4 * MIB),
    ("blocks/one and a byte.bin", 4 * MIB + 1),
    ("blocks/two.bin", 8 * MIB),
    ("blocks/two and a byte.bin", 8 * MIB + 1),
    ("empty", 0),
    ("one byte", 1),
    ("inline.bin", 4096),
];
/// Names that a client may encode in several ways.
const NAMES: [&str; 11] = [
    "with spaces  in it.txt",
    " leading and trailing ",
    "ünïcödé/日本語/🦀 crab.txt",
    "100% of a+b=c&d?e#f;g",
    "it's \"quoted\" [brackets] {braces} (more)",
    ".hidden/.file",
    "deep/er/and/deep/er/still/file",
    "~tilde!$@,:|<>*",
    "UPPER/lower",
    "UPPER/LOWER",
    "UPPER AND lower/with blank.txt",
];
/// Number of small files.
const SMALL: usize = 200;

/// Returns pseudo-random bytes, the same in each run.
fn bytes(seed: usize, length: usize) -> Vec<u8> {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Creates the folder with its files.
pub(super) fn create(folder: &Path) -> Result {
    for (seed, (name, length)) in LENGTHS.iter().enumerate() {
        write(folder, name, &bytes(seed, *length))?;
    }
    write(folder, "zeros.bin", &vec![0; 10 * MIB])?;
    for name in NAMES {
        write(folder, name, name.as_bytes())?;
    }
    for number in 0..SMALL {
        write(folder, &format!("small/{}/{number:03}.txt", number % 7), &bytes(1000 + number, number * 13))?;
    }
    Ok(())
}

/// Changes the folder: files are deleted, replaced, appended to, and added.
pub(super) fn change(folder: &Path) -> Result {
    for number in (0..SMALL).step_by(3) {
        fs::remove_file(folder.join(format!("small/{}/{number:03}.txt", number % 7)))?;
    }
    fs::remove_file(folder.join("blocks/two.bin"))?;
    write(folder, NAMES[0], b"replaced")?;
    write(folder, "large.bin", &bytes(77, 9 * MIB + 1))?;
    let longer = [fs::read(folder.join("inline.bin"))?, bytes(78, 5000)].concat();
    write(folder, "inline.bin", &longer)?;
    write(folder, "new/file with ünïcödé.txt", b"new")
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result {
    let path = folder.join(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::write(path, bytes)?)
}

/// Returns the files of a folder with their bytes, by name.
pub(super) fn read(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_path_buf()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder)?.to_string_lossy().into_owned(), fs::read(&path)?);
            }
        }
    }
    Ok(files)
}

/// Compares two folders byte by byte, and fails with the name of a file that differs.
pub(super) fn compare(expected: &Path, found: &Path) -> Result {
    let (expected, found) = (read(expected)?, read(found)?);
    if let Some(name) = expected.keys().find(|name| expected.get(*name) != found.get(*name)) {
        let what = if found.contains_key(name) { "was restored with other bytes" } else { "was not restored" };
        return Err(format!("`{name}` {what}").into());
    }
    match found.keys().find(|name| !expected.contains_key(*name)) {
        Some(name) => Err(format!("`{name}` was restored but not backed up").into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named() {
        let folder = std::env::temp_dir().join(format!("ifmatch-files-{}", std::process::id()));
        let (one, other) = (folder.join("one"), folder.join("other"));
        for side in [&one, &other] {
            write(side, "a/same", b"same").unwrap();
        }
        compare(&one, &other).unwrap();
        write(&other, "b", b"more").unwrap();
        let said = |expected, found| compare(expected, found).unwrap_err().to_string();
        assert_eq!(said(&one, &other), "`b` was restored but not backed up");
        assert_eq!(said(&other, &one), "`b` was not restored");
        write(&one, "b", b"less").unwrap();
        assert_eq!(said(&one, &other), "`b` was restored with other bytes");
        fs::remove_dir_all(folder).unwrap();
    }
}
