//! The two places of a transfer: a gateway, a container or a folder of it, by a URL; and the files of a folder, found, hashed and
//! uploaded. Symbolic links aren't followed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use futures_util::TryStreamExt;
use http::HeaderMap;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName, decode};
use ifmatch_core::digest::{ContentHash, Hasher};
use ifmatch_gateway_config::error::Error;
use tokio::io::AsyncReadExt;
use tokio::task::spawn_blocking;
use tokio_util::io::ReaderStream;
use url::Url;

use super::{Fault, Progress};
use crate::http_client::gateway_url;

/// A gateway, a container of it, or a folder of that container.
pub(crate) struct Location {
    /// The gateway's URL, without a path.
    pub(crate) server: Url,
    /// The container, or `None` for all.
    pub(crate) container: Option<ContainerName>,
    /// Empty, or the first segments of names, with a slash at the end.
    pub(crate) prefix: String,
}

impl Location {
    /// Parses a URL.
    ///
    /// # Errors
    /// Fails if it isn't a URL of a gateway, or its path isn't a valid name.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut server = gateway_url(text).map_err(|why| Error::usage(format!("{text} is not a URL: {why}")))?;
        if server.query().is_some() || server.fragment().is_some() {
            return Err(Error::usage(format!(
                "{text} has a query. Write the URL of a container or a folder in it, such as http://127.0.0.1:10000/docs."
            )));
        }
        let path = server.path().trim_matches('/').to_owned();
        server.set_path("");
        let (container, prefix) = path.split_once('/').unwrap_or((&path, ""));
        let invalid =
            |error: &dyn std::fmt::Display| Error::usage(format!("{text} is not the URL of a container: {error}"));
        let container = match container {
            "" => None,
            container => Some(ContainerName::new(container).map_err(|error| invalid(&error))?),
        };
        let prefix = match decode(prefix).map_err(|error| invalid(&error))? {
            prefix if prefix.is_empty() => String::new(),
            prefix => format!("{}/", BlobName::new(&prefix).map_err(|error| invalid(&error))?),
        };
        Ok(Self { server, container, prefix })
    }

    /// Returns the container, which the command needs.
    ///
    /// # Errors
    /// Fails if the URL has no path.
    pub(crate) fn container(&self) -> Result<&ContainerName, Error> {
        let missing = || Error::usage(format!("{0} names no container. Add one, such as {0}docs.", self.server));
        self.container.as_ref().ok_or_else(missing)
    }

    /// Returns the path of the blob with this name below the location.
    ///
    /// # Errors
    /// States the rule for names that it breaks.
    pub(crate) fn blob(&self, container: &ContainerName, name: &str) -> Result<BlobPath, String> {
        let name = BlobName::new(&format!("{}{name}", self.prefix)).map_err(|error| error.to_string())?;
        Ok(BlobPath { container: container.clone(), name })
    }
}

/// Folder in the target of an export for files that aren't complete.
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
    /// Names the folder that can't be read.
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

/// Returns the name of a file's blob, or the reason why it can't have one.
pub(super) fn blob_name(relative: &Path) -> Result<String, String> {
    let parts = relative.components().map(|part| match part {
        Component::Normal(part) => {
            part.to_str().ok_or_else(|| "a blob's name must be UTF-8. Rename the file.".to_owned())
        }
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

#[cfg(test)]
mod tests {
    use super::{ContainerName, Location};

    #[test]
    fn a_location_is_a_gateway_a_container_or_a_folder_of_it() {
        for (text, container, prefix) in [
            ("http://127.0.0.1:1", None, ""),
            ("https://a.example/docs/", Some("docs"), ""),
            ("https://a.example/docs/2026/a%20b", Some("docs"), "2026/a b/"),
        ] {
            let location = Location::parse(text).unwrap();
            assert_eq!(location.container.as_ref().map(ContainerName::as_str), container, "{text}");
            assert_eq!(location.prefix, prefix, "{text}");
        }
        for wrong in ["docs", "ftp://a.example/docs", "http://a.example/docs?x", "http://a.example/-/leases"] {
            assert!(Location::parse(wrong).is_err(), "{wrong}");
        }
    }
}
