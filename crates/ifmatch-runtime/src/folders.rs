//! Folders whose entries are made durable, and files with several names.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

/// Opens a folder. [`File::sync_all`] then makes its entries durable, or reports any failure to do so since it was opened.
///
/// On Windows, this takes the right to create files in it. Windows doesn't document the sync of a folder; etcd relies on it, too.
///
/// # Errors
/// Fails if the folder doesn't exist or can't be opened.
pub fn open(path: &Path) -> io::Result<File> {
    imp::open(path)
}

/// Returns `true` if a file is known to have one name only. On Windows it never is.
pub fn has_one_name(file: &Metadata) -> bool {
    names::has_one_name(file)
}

/// Folders that are opened like files.
#[cfg(not(windows))]
mod imp {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(super) fn open(path: &Path) -> io::Result<File> {
        File::open(path)
    }
}

/// Folders on Windows.
#[cfg(windows)]
mod imp {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::windows::fs::OpenOptionsExt;
    use std::path::Path;

    /// Lets `CreateFile` open a folder.
    const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
    /// `FlushFileBuffers` requires the right to append, which of a folder is the right to create folders in it.
    const ACCESS: u32 = FILE_ADD_SUBDIRECTORY | FILE_READ_ATTRIBUTES | SYNCHRONIZE;
    const FILE_ADD_SUBDIRECTORY: u32 = 0x4;
    const FILE_READ_ATTRIBUTES: u32 = 0x80;
    const SYNCHRONIZE: u32 = 0x0010_0000;

    pub(super) fn open(path: &Path) -> io::Result<File> {
        OpenOptions::new()
            .access_mode(ACCESS)
            .custom_flags(FILE_FLAG_BACKUP_SEMANTICS)
            .open(path)
    }
}

/// Files that know how many names they have.
#[cfg(unix)]
mod names {
    use std::fs::Metadata;
    use std::os::unix::fs::MetadataExt;

    pub(super) fn has_one_name(file: &Metadata) -> bool {
        file.nlink() == 1
    }
}

/// The standard library doesn't tell the number of names elsewhere.
#[cfg(not(unix))]
mod names {
    use std::fs::Metadata;

    pub(super) fn has_one_name(_: &Metadata) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_folder_can_be_synced() {
        let folder = std::env::temp_dir();
        super::open(&folder).unwrap().sync_all().unwrap();
        assert!(super::open(&folder.join("ifmatch-no-such-folder")).is_err());
    }
}
