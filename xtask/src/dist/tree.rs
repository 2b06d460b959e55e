//! Files of a package, and archives of them that depend on their contents only.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use crate::Result;

/// Files by path, relative and without a leading dot. Folders come before their contents.
#[derive(Default)]
pub(super) struct Tree {
    entries: BTreeMap<String, Entry>,
}

/// A file or a folder.
struct Entry {
    kind: EntryType,
    mode: u32,
    /// User and group.
    owner: u32,
    contents: Vec<u8>,
}

impl Tree {
    /// Adds a file.
    pub(super) fn file(&mut self, path: impl Into<String>, contents: impl Into<Vec<u8>>) {
        self.add(path.into(), Entry { kind: EntryType::Regular, mode: 0o644, owner: 0, contents: contents.into() });
    }

    /// Adds an executable file.
    pub(super) fn program(&mut self, path: impl Into<String>, contents: impl Into<Vec<u8>>) {
        self.add(path.into(), Entry { kind: EntryType::Regular, mode: 0o755, owner: 0, contents: contents.into() });
    }

    /// Adds a folder.
    pub(super) fn folder(&mut self, path: impl Into<String>, mode: u32, owner: u32) {
        self.add(path.into(), Entry { kind: EntryType::Directory, mode, owner, contents: Vec::new() });
    }

    /// Returns the paths and contents of all files.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let files = self.entries.iter().filter(|(_, entry)| entry.kind.is_file());
        files.map(|(path, entry)| (path.as_str(), entry.contents.as_slice()))
    }

    /// Returns a tar archive in which each path begins with `prefix`, and all files have the same time.
    pub(super) fn tar(&self, prefix: &str, time: u64) -> Result<Vec<u8>> {
        let mut archive = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(entry.kind);
            header.set_mode(entry.mode);
            header.set_uid(entry.owner.into());
            header.set_gid(entry.owner.into());
            header.set_mtime(time);
            header.set_size(entry.contents.len().try_into()?);
            let path = format!("{prefix}{path}{}", if entry.kind.is_dir() { "/" } else { "" });
            // `set_path` would remove the `./` that Debian's paths begin with.
            let name = header.as_old_mut().name.get_mut(..path.len());
            name.ok_or_else(|| format!("{path} is too long for an archive"))?.copy_from_slice(path.as_bytes());
            header.set_cksum();
            archive.append(&header, entry.contents.as_slice())?;
        }
        Ok(archive.into_inner()?)
    }

    fn add(&mut self, path: String, entry: Entry) {
        if let Some((parent, _)) = path.rsplit_once('/')
            && !self.entries.contains_key(parent)
        {
            self.folder(parent, 0o755, 0);
        }
        self.entries.insert(path, entry);
    }
}

/// Compresses bytes, without a time or a name.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut compressed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    compressed.write_all(bytes)?;
    Ok(compressed.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_each_parent_before_its_files_and_fixed_attributes() {
        let mut tree = Tree::default();
        tree.program("usr/bin/a", "program");
        tree.file("etc/a.conf", "settings");
        tree.folder("data", 0o700, 65532);
        let bytes = tree.tar("./", 7).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let found: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
                let [mode, owner] = [header.mode().unwrap(), header.uid().unwrap().try_into().unwrap()];
                format!("{path} {mode:o} {owner} {}", header.mtime().unwrap())
            })
            .collect();
        let expected = [
            "./data/ 700 65532 7",
            "./etc/ 755 0 7",
            "./etc/a.conf 644 0 7",
            "./usr/ 755 0 7",
            "./usr/bin/ 755 0 7",
            "./usr/bin/a 755 0 7",
        ];
        assert_eq!(found, expected);
        assert_eq!(bytes, tree.tar("./", 7).unwrap());
    }

    #[test]
    fn compression_depends_on_the_bytes_only() {
        assert_eq!(gzip(b"text").unwrap()[4..8], [0; 4], "the time");
    }
}
