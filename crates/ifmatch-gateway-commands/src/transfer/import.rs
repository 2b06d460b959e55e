//! `ifmatch import`: stores the files of a folder, or the objects of an object store, as blobs.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use http::HeaderMap;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_gateway_config::error::Error;
use tokio::task::spawn_blocking;
use url::Url;

use super::location::Location;
use super::location::{Tree, Upload, blob_name, hash};
use super::objects::{Object, Objects};
use super::remote::{Head, Put, Remote, Replaces};
use super::{Fault, ImportArgs, Outcome, Progress, collect};
use crate::progress::Done;
use crate::runtime::block_on;

/// A source and its target.
struct Import {
    remote: Remote,
    location: Location,
    container: ContainerName,
    source: Source,
    /// The names of the blobs at the start.
    known: HashSet<String>,
    progress: Arc<Progress>,
}

/// The place of the bytes.
enum Source {
    Folder(PathBuf),
    Objects(Objects),
}

/// One entry of the source.
enum Item {
    File(PathBuf),
    Object(Object),
    /// A symbolic link, a socket and the like.
    Other(PathBuf),
}

/// Stores all files of a folder, or all objects of an object store.
///
/// # Errors
/// Fails unless all files are stored.
pub fn import(args: &ImportArgs) -> Result<(), Error> {
    block_on(async {
        let location = Location::parse(&args.url)?;
        let container = location.container()?.clone();
        let remote = Remote::new(&location, &args.options.connection)?;
        let (source, items, bytes) = Source::open(&args.source).await?;
        let listed = remote.list(&container, &location.prefix).await?.unwrap_or_default();
        let known = listed.into_iter().map(|entry| entry.name).collect();
        let import = Import { remote, location, container, source, known, progress: Progress::start(None) };
        let total = Done { items: items.len() as u64, bytes };
        let transfers = stream::iter(items).map(|item| import.one(item));
        collect(transfers, total, &import.progress, &args.options).await
    })
}

impl Source {
    /// Opens a source, and returns it with its entries and the sum of their lengths.
    async fn open(source: &Path) -> Result<(Self, Vec<Item>, u64), Error> {
        if let Some(url) = source.to_str().filter(|source| source.contains("://")) {
            // As a store, a folder that is missing would be created.
            if let Some(folder) =
                Url::parse(url).ok().filter(|url| url.scheme() == "file").and_then(|url| url.to_file_path().ok())
            {
                check_folder(&folder)?;
            }
            let objects = Objects::open(url)?;
            let (found, bytes) = objects.list().await?;
            return Ok((Self::Objects(objects), found.into_iter().map(Item::Object).collect(), bytes));
        }
        let Tree { files, skipped, bytes } = tree(source.to_owned()).await?;
        let files = files.into_iter().map(Item::File);
        Ok((Self::Folder(source.to_owned()), files.chain(skipped.into_iter().map(Item::Other)).collect(), bytes))
    }
}

fn check_folder(folder: &Path) -> Result<(), Error> {
    if folder.is_dir() { Ok(()) } else { Err(no_folder(folder)) }
}

fn no_folder(path: &Path) -> Error {
    let shown = path.display();
    Error::usage(if path.exists() {
        format!("{shown} is not a folder. Import the folder that contains it.")
    } else {
        format!("no such folder: {shown}. Check the path.")
    })
}

async fn tree(folder: PathBuf) -> Result<Tree, Error> {
    check_folder(&folder)?;
    let found = spawn_blocking(move || Tree::of(&folder)).await.map_err(|error| Error::runtime(error.to_string()))?;
    found.map_err(Error::runtime)
}

impl Import {
    async fn one(&self, item: Item) -> (String, Result<Outcome, Fault>) {
        match (item, &self.source) {
            (Item::File(relative), Source::Folder(folder)) => {
                let result = self.file(folder, &relative).await;
                (relative.display().to_string(), result)
            }
            (Item::Object(object), Source::Objects(objects)) => {
                let result = self.object(objects, &object).await;
                (object.name, result)
            }
            (Item::Other(path) | Item::File(path), _) => {
                (path.display().to_string(), Ok(Outcome::Skipped("not a regular file")))
            }
            (Item::Object(object), Source::Folder(_)) => (object.name, Ok(Outcome::Skipped("not a file"))),
        }
    }

    async fn file(&self, folder: &Path, relative: &Path) -> Result<Outcome, Fault> {
        let blob = blob_name(relative).and_then(|name| self.location.blob(&self.container, &name));
        let (blob, path) = (blob.map_err(Fault::failed)?, folder.join(relative));
        let (hash, length) = hash(&path).await.map_err(|error| Fault::failed(error.to_string()))?;
        let (fields, progress) = (HeaderMap::new(), Arc::clone(&self.progress));
        self.store(&blob, &Upload { path, hash, length, fields, progress }).await
    }

    async fn object(&self, objects: &Objects, object: &Object) -> Result<Outcome, Fault> {
        let blob = self.location.blob(&self.container, &object.name).map_err(Fault::failed)?;
        match objects.copy(object, &self.progress).await? {
            Some(copied) => self.store(&blob, &copied.file).await,
            None => Ok(Outcome::Skipped("deleted during the import")),
        }
    }

    async fn store(&self, blob: &BlobPath, file: &Upload) -> Result<Outcome, Fault> {
        let found = if self.known.contains(blob.name.as_str()) { self.remote.head(blob).await? } else { None };
        let over = match &found {
            Some(head) if self.has(blob, head, file).await? => return Ok(Outcome::Unchanged),
            Some(head) => Replaces::Version(head),
            None => Replaces::Nothing,
        };
        match self.remote.put(blob, file, &over).await? {
            Put::Done => Ok(Outcome::Written),
            Put::Refused(reason) => match self.remote.head(blob).await? {
                // The response to an earlier attempt was lost, or another import stores the same folder.
                Some(head) if self.has(blob, &head, file).await? => Ok(Outcome::Written),
                _ => Err(Fault::conflict(format!("left as it is, since another writer changed it ({reason})"))),
            },
        }
    }

    /// Returns `true` if a blob already has the bytes of a file.
    async fn has(&self, blob: &BlobPath, head: &Head, file: &Upload) -> Result<bool, Fault> {
        if head.length.is_some_and(|length| length != file.length) {
            return Ok(false);
        }
        match head.hash {
            Some(hash) => Ok(hash == file.hash),
            None => Ok(self.remote.hash(blob, &self.progress).await?.is_some_and(|(_, hash)| hash == file.hash)),
        }
    }
}
