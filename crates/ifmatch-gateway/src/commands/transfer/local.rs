//! Files of a folder: found, hashed, and uploaded. Symbolic links are not followed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use futures_util::TryStreamExt;
use http::HeaderMap;
use ifmatch_core::digest::{ContentHash, Hasher};
use tokio::io::AsyncReadExt;
use tokio::task::spawn_blocking;
use tokio_util::io::ReaderStream;

use super::{Fault, Progress};

/// Folder in the target of an export for files that are not complete.
pub(super) const PARTIAL: &str = ".ifmatch-partial";
/// Size of the buffer for reading, in bytes.
const BUFFER: usize = 256 << 10;

/// The entries of a folder and of all folders in it.
#[derive(Default)]
pub(super) struct Tree {
    /// Files, with their paths relative to the folder.
    pub(super) files: Vec<PathBuf>,
    /// The sum of their lengths, in bytes.
    pub(super) bytes: u64,
    /// Symbolic links, sockets and the like.
    pub(super) skipped: Vec<PathBuf>,
}

/// A file to upload, as it was hashed.
pub(super) struct Upload {
    pub(super) path: PathBuf,
    pub(super) hash: ContentHash,
    pub(super) length: u64,
    /// Header fields to store with it.
    pub(super) fields: HeaderMap,
    pub(super) progress: Arc<Progress>,
}

impl Tree {
    /// Finds all files below a folder.
    ///
    /// # Errors
    /// Names the folder that cannot be read.
    pub(super) fn of(root: &Path) -> Result<Self, String> {
        let mut tree = Self::default();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let path = root.join(&folder);
            let failed = |error: io::Error| format!("{}: {error}", path.display());
            for entry in fs::read_dir(&path).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let (kind, relative) = (entry.file_type().map_err(failed)?, folder.join(entry.file_name()));
                if kind.is_dir() {
                    if relative != Path::new(PARTIAL) {
                        folders.push(relative);
                    }
                } else if kind.is_file() {
                    tree.bytes += entry.metadata().map_err(failed)?.len();
                    tree.files.push(relative);
                } else {
                    tree.skipped.push(relative);
                }
            }
        }
        tree.files.sort();
        Ok(tree)
    }
}

/// Returns the name of a file's blob, or the reason why it cannot have one.
pub(super) fn blob_name(relative: &Path) -> Result<String, String> {
    let parts = relative.components().map(|part| match part {
        Component::Normal(part) => part.to_str().ok_or_else(|| "the name of a blob must be UTF-8".to_owned()),
        _ => Err("not a path below the folder".to_owned()),
    });
    Ok(parts.collect::<Result<Vec<_>, _>>()?.join("/"))
}

/// Returns the hash and the length of a file.
pub(super) async fn hash(path: &Path) -> io::Result<(ContentHash, u64)> {
    let path = path.to_owned();
    let read = move || {
        let mut file = File::open(path)?;
        let (mut hasher, mut length, mut buffer) = (Hasher::default(), 0, vec![0; BUFFER]);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok((hasher.finish(), length)),
                read => {
                    hasher.update(&buffer[..read]);
                    length += read as u64;
                }
            }
        }
    };
    spawn_blocking(read).await.map_err(io::Error::other)?
}

impl Upload {
    /// Returns the bytes, exactly as many as were hashed.
    pub(super) async fn body(&self) -> Result<reqwest::Body, Fault> {
        let file = tokio::fs::File::open(&self.path).await;
        let file = file.map_err(|error| Fault::failed(format!("{}: {error}", self.path.display())))?;
        let progress = Arc::clone(&self.progress);
        let parts = ReaderStream::with_capacity(file.take(self.length), BUFFER);
        Ok(reqwest::Body::wrap_stream(parts.inspect_ok(move |part| progress.add_bytes(part.len() as u64))))
    }
}
