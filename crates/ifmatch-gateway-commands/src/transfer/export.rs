//! `ifmatch export`: writes the blobs of a container as files into a folder.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::{StreamExt, stream};
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_core::digest::{ContentHash, Hasher};
use ifmatch_gateway_config::error::Error;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use super::location::Location;
use super::location::{PARTIAL, hash};
use super::remote::{Attempts, Entry, Remote};
use super::{ExportArgs, Fault, Outcome, Progress, collect};
use crate::http_client::origin;
use crate::platform::{self, lock_folder};
use crate::progress::Done;
use crate::runtime::block_on;

/// A source and its target.
struct Export<'a> {
    remote: Remote,
    location: Location,
    container: ContainerName,
    folder: &'a Path,
    partial: Partial,
    progress: Arc<Progress>,
}

/// The folder for files that aren't complete. It is removed at the end.
struct Partial {
    folder: PathBuf,
    files: AtomicU64,
    /// Of the folder of the export: a lock in this folder would be removed while it is held.
    _lock: File,
}

/// Writes all blobs of a container into a folder.
///
/// # Errors
/// Fails unless all blobs are in the folder.
pub fn export(args: &ExportArgs) -> Result<(), Error> {
    block_on(async {
        let location = Location::parse(&args.url)?;
        let container = location.container()?.clone();
        let remote = Remote::new(&location, &args.options.connection)?;
        let listed = remote.list(&container, &location.prefix).await?;
        let listed = listed
            .ok_or_else(|| Error::runtime(format!("no such container: {container} at {}", origin(&location.server))))?;
        let total = Done { items: listed.len() as u64, bytes: listed.iter().map(|entry| entry.size).sum() };
        let partial = Partial::create(&args.folder)?;
        let export =
            Export { remote, location, container, folder: &args.folder, partial, progress: Progress::start(None) };
        let transfers = stream::iter(listed).map(|entry| export.one(entry));
        collect(transfers, total, &export.progress, &args.options).await
    })
}

impl Export<'_> {
    async fn one(&self, entry: Entry) -> (String, Result<Outcome, Fault>) {
        let result = match self.target(&entry) {
            Ok((blob, path)) => self.fetch(&blob, &path, entry.size).await,
            Err(fault) => Err(fault),
        };
        (entry.name, result)
    }

    /// Returns the paths of a blob and of its file, which has no symbolic link below the folder.
    fn target(&self, entry: &Entry) -> Result<(BlobPath, PathBuf), Fault> {
        let invalid = || Fault::failed("the gateway listed an invalid name");
        let name = entry.name.strip_prefix(&self.location.prefix).ok_or_else(invalid)?;
        let blob = self.location.blob(&self.container, name).map_err(|_| invalid())?;
        if Path::new(name).starts_with(PARTIAL) {
            return Err(Fault::conflict(format!("{PARTIAL} is reserved for incomplete files")));
        }
        if let Some(why) = platform::unnameable(name) {
            return Err(Fault::conflict(why));
        }
        let path = self.folder.join(name);
        let below = path.ancestors().skip(1).take_while(|above| *above != self.folder);
        for above in below {
            match fs::symlink_metadata(above) {
                Ok(found) if !found.is_dir() => {
                    return Err(Fault::conflict(format!("{} is not a folder", above.display())));
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => return Err(in_file(above, &error)),
            }
        }
        Ok((blob, path))
    }

    async fn fetch(&self, blob: &BlobPath, path: &Path, size: u64) -> Result<Outcome, Fault> {
        let found = match fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => {
                return Err(Fault::conflict(format!("{} is not a regular file", path.display())));
            }
            Ok(found) if found.len() == size => Some(hash(path).await.map_err(|error| in_file(path, &error))?.0),
            _ => None,
        };
        if found.is_some() && self.remote.head(blob).await?.is_some_and(|head| head.hash == found) {
            return Ok(Outcome::Unchanged);
        }
        let mut attempts = Attempts::default();
        loop {
            let partial = self.partial.next();
            match self.download(blob, &partial).await {
                // A gateway may not know the hash, if another program has written the object.
                Ok(Some(hash)) if found == Some(hash) => {
                    drop(fs::remove_file(&partial));
                    return Ok(Outcome::Unchanged);
                }
                Ok(Some(_)) => return complete(&partial, path).map(|()| Outcome::Written),
                Ok(None) => return Ok(Outcome::Skipped("deleted during the export")),
                Err(fault) => {
                    let pause = attempts.again().filter(|_| fault.may_pass() && !fault.is_last());
                    let Some(pause) = pause else {
                        // What remains is removed at the end.
                        drop(fs::remove_file(&partial));
                        return Err(fault);
                    };
                    sleep(pause).await;
                }
            }
        }
    }

    /// Reads a blob into a file, and compares it with the hash that the gateway states. Returns the hash, or `None` if
    /// there is no blob.
    async fn download(&self, blob: &BlobPath, partial: &Path) -> Result<Option<ContentHash>, Fault> {
        let failed = |error: io::Error| in_file(partial, &error);
        let Some(mut download) = self.remote.get(blob).await? else { return Ok(None) };
        let mut file = tokio::fs::File::create(partial).await.map_err(failed)?;
        let mut hasher = Hasher::default();
        while let Some(part) = download.next().await? {
            hasher.update(&part);
            file.write_all(&part).await.map_err(failed)?;
            self.progress.add_bytes(part.len() as u64);
        }
        // The sync alone doesn't report that the last write failed.
        file.flush().await.map_err(failed)?;
        file.sync_all().await.map_err(failed)?;
        let hash = hasher.finish();
        verify(download.head.hash, hash).map(|()| Some(hash))
    }
}

impl Partial {
    /// Creates the folder, without the remains of an interrupted export.
    fn create(target: &Path) -> Result<Self, Error> {
        let folder = target.join(PARTIAL);
        let failed = |error: io::Error| Error::runtime(format!("{}: {error}", folder.display()));
        fs::create_dir_all(target).map_err(failed)?;
        let lock = lock_folder(target).map_err(|error| match error {
            TryLockError::WouldBlock => Error::in_use(format!(
                "another export uses {}. Wait for it, or choose another folder.",
                target.display()
            )),
            TryLockError::Error(error) => failed(error),
        })?;
        fs::create_dir_all(&folder).map_err(failed)?;
        if fs::symlink_metadata(&folder).map_err(failed)?.is_symlink() {
            return Err(Error::runtime(format!("{} is a symbolic link. Remove the link.", folder.display())));
        }
        for entry in fs::read_dir(&folder).map_err(failed)? {
            fs::remove_file(entry.map_err(failed)?.path()).map_err(failed)?;
        }
        Ok(Self { folder, files: AtomicU64::new(0), _lock: lock })
    }

    fn next(&self) -> PathBuf {
        self.folder.join(self.files.fetch_add(1, Relaxed).to_string())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // The next export removes what can't be removed now.
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// Compares the hash of the bytes with the one that the gateway states, if it does.
fn verify(stated: Option<ContentHash>, found: ContentHash) -> Result<(), Fault> {
    match stated {
        Some(stated) if stated != found => Err(Fault::damage("the bytes differ from what was stored")),
        _ => Ok(()),
    }
}

/// Gives a complete file its name.
fn complete(partial: &Path, path: &Path) -> Result<(), Fault> {
    let named = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::rename(partial, path));
    named.map_err(|error| match error.kind() {
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
            Fault::conflict(format!("{}: {error}", path.display()))
        }
        _ => in_file(path, &error),
    })
}

fn in_file(path: &Path, error: &io::Error) -> Fault {
    let detail = format!("{}: {error}", path.display());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::ReadOnlyFilesystem | ErrorKind::QuotaExceeded => Fault::last(detail),
        _ => Fault::failed(detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second export opens the lock while the first one holds it, locks it once the first has ended, and the third begins
    /// after that. If the first had removed the lock, the last two would write the same files.
    #[test]
    fn an_export_that_ends_lets_in_one_other() {
        let target = tempfile::tempdir().unwrap();
        let first = Partial::create(target.path()).unwrap();
        let second = File::open(target.path()).unwrap();
        assert!(second.try_lock().is_err());
        drop(first);
        second.try_lock().unwrap();
        assert!(Partial::create(target.path()).is_err());
        drop(second);
        assert!(Partial::create(target.path()).is_ok());
    }
}
