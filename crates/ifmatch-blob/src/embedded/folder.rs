//! The folder of bodies: `tmp/` for what is on its way in, `bodies/00` to `bodies/ff` for what is whole. All
//! functions here block.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ifmatch_core::digest::ContentHash;

use super::private;
use super::room::{Measure, Room};

/// A folder of bodies.
#[derive(Debug)]
pub(super) struct Folder {
    bodies: PathBuf,
    temporary: PathBuf,
    room: Room,
}

/// The name of a body: its hash, and a number that no other body has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BodyName {
    pub(super) hash: ContentHash,
    pub(super) nonce: u64,
}

impl Folder {
    /// Makes the folders that are missing, durably.
    pub(super) fn create(root: &Path, measure: Measure) -> io::Result<Self> {
        create_folder(root)?;
        let (bodies, temporary) = (root.join("bodies"), root.join("tmp"));
        let folder = Self { bodies, temporary, room: Room::new(root, measure) };
        for shard in folder.shards() {
            fs::create_dir_all(shard)?;
        }
        fs::create_dir_all(&folder.temporary)?;
        sync_folder(&folder.bodies)?;
        sync_folder(root)?;
        Ok(folder)
    }

    /// The room on its disk.
    pub(super) fn room(&self) -> &Room {
        &self.room
    }

    /// Where a body is that is whole.
    pub(super) fn body(&self, name: &BodyName) -> PathBuf {
        let hex = name.hash.hex();
        self.bodies.join(&hex[..2]).join(format!("{hex}-{:016x}", name.nonce))
    }

    /// Where a body is on its way in.
    pub(super) fn incoming(&self, nonce: u64) -> PathBuf {
        self.temporary.join(format!("{nonce:016x}"))
    }

    /// The folder of the bodies on their way in.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// The folders of the bodies that are whole.
    pub(super) fn shards(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (0..=u8::MAX).map(|shard| self.bodies.join(format!("{shard:02x}")))
    }
}

/// Whether a file has the name of a body on its way in.
pub(super) fn is_incoming(file_name: &str) -> bool {
    file_name.len() == 16 && file_name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The number in a body's file name; none if it is no body's name.
pub(super) fn nonce_of(file_name: &str) -> Option<u64> {
    let (hash, nonce) = file_name.split_once('-')?;
    let is_body = hash.len() == 64 && nonce.len() == 16;
    is_body.then(|| u64::from_str_radix(nonce, 16).ok()).flatten()
}

/// Whether there is no file, or an empty one.
pub(super) fn is_missing(file: &Path) -> bool {
    match fs::metadata(file) {
        Ok(found) => found.len() == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether there is any whole body in the folder of a store.
pub(super) fn has_bodies(root: &Path) -> bool {
    let shards = fs::read_dir(root.join("bodies")).into_iter().flatten().flatten();
    let mut files = shards.filter_map(|shard| fs::read_dir(shard.path()).ok()).flatten().flatten();
    files.any(|file| file.file_name().to_str().is_some_and(|name| nonce_of(name).is_some()))
}

/// Creates a folder and those above it that are missing, each durably. Other users of the machine cannot look into them;
/// one that is there stays as it is. Blocks.
///
/// # Errors
/// The system refuses.
///
/// ```
/// # let root = tempfile::tempdir()?;
/// ifmatch_blob::embedded::create_folder(&root.path().join("new/folder"))?;
/// assert!(root.path().join("new/folder").is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_folder(folder: &Path) -> io::Result<()> {
    let above = match folder.parent() {
        None => return Ok(()),
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
    };
    match private::create(folder) {
        Ok(()) => sync_folder(above),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(above)?;
            private::create(folder)?;
            sync_folder(above)
        }
        Err(_) if folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
