//! Bodies as files in a folder.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ifmatch_blob::store::{Source, StoreError};
use ifmatch_core::append::FileEnd;
use ifmatch_core::digest::{ContentHash, Hasher};
use ifmatch_runtime::{folders, private_files};
use tokio::task::spawn_blocking;

use super::bodies::{Bodies, BodyEnd, ExtendedBody, Incoming, Keep, Staged, differs};
use super::body_files::{BodyName, Folder, discard};
use super::error::{disk, lost};
use super::payload::{Payload, Place};
use super::source::{self, Budget};
use super::spool::{self, Removed, Spool};

/// Number of bytes copied at a time.
const CHUNK: usize = 256 * 1024;

#[async_trait]
impl Bodies for Folder {
    fn check_space(&self) -> Result<(), StoreError> {
        self.check_free_space().map_err(disk)
    }

    fn begin(self: Arc<Self>, name: Option<BodyName>) -> Result<Box<dyn Incoming>, StoreError> {
        Ok(Box::new(match name {
            Some(name) => Spool::begin_as(self, name),
            None => Spool::begin(self, BodyName::number()?),
        }))
    }

    /// An open file stays readable after its removal.
    async fn open(
        &self,
        body: BodyName,
        length: u64,
        budget: Option<Budget>,
        keep: Keep,
    ) -> Result<Option<Box<dyn Source>>, StoreError> {
        source::open(self.body(&body), length, budget, keep).await
    }

    async fn duplicate(self: Arc<Self>, body: BodyName) -> Result<Option<Staged>, StoreError> {
        spool::link(self, body, BodyName::number()?).await
    }

    /// During a snapshot, a body is removed afterwards.
    async fn remove(&self, body: BodyName) {
        if self.removals().postpone(body) {
            return;
        }
        let path = self.body(&body);
        // If the runtime ends before, the next start collects the body.
        let _ = spawn_blocking(move || discard(&path)).await;
    }

    /// Readers have opened the file, or load the record again.
    async fn retire(self: Arc<Self>, body: BodyName) {
        self.remove(body).await;
    }

    fn abandon(self: Arc<Self>, body: BodyName) {
        discard(&self.body(&body));
    }

    async fn extend(
        self: Arc<Self>,
        version: Payload,
        nonce: u64,
    ) -> Result<ExtendedBody, StoreError> {
        spawn_blocking(move || file_to_extend(self, &version, nonce))
            .await
            .map_err(lost)?
    }

    /// Only a start collects files.
    fn lifetime(&self) -> Option<Duration> {
        None
    }
}

#[async_trait]
impl Incoming for Spool {
    async fn write(&mut self, chunk: Vec<u8>) -> Result<(), StoreError> {
        Spool::write(self, chunk).await
    }

    async fn finish(self: Box<Self>, promised: Option<ContentHash>) -> Result<Staged, StoreError> {
        Spool::finish(*self, promised).await
    }
}

/// A file to which blocks are written.
#[derive(Debug)]
struct FileToExtend {
    folder: Arc<Folder>,
    name: BodyName,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// The file of the version, which ends at this position.
    InPlace(u64),
    /// A new file with a copy of the body.
    Copied(File, Removed),
}

/// Returns the file of the version if a block can be written to its end, or else a copy.
fn file_to_extend(
    folder: Arc<Folder>,
    version: &Payload,
    nonce: u64,
) -> Result<ExtendedBody, StoreError> {
    let name = version
        .file()
        .ok_or_else(|| disk(io::ErrorKind::NotFound.into()))?;
    let file = File::open(folder.body(&name)).map_err(disk)?;
    let found = file.metadata().map_err(disk)?;
    let end = FileEnd {
        length: found.len(),
        has_one_name: folders::has_one_name(&found),
    };
    let state = match &version.place {
        Place::Appended(body) if end.takes_append_at(version.length) => {
            Hasher::resume(&body.hasher)
        }
        _ => None,
    };
    let resumed = state.filter(|state| state.clone().finish() == version.hash);
    let (name, target, hasher) = if let Some(hasher) = resumed {
        (name, Target::InPlace(version.length), hasher)
    } else {
        let (target, hasher) = copy(&folder, file, version, nonce)?;
        (
            BodyName {
                hash: version.hash,
                nonce,
            },
            target,
            hasher,
        )
    };
    Ok(ExtendedBody {
        name,
        end: Box::new(FileToExtend {
            folder,
            name,
            target,
        }),
        hasher,
    })
}

/// Copies the body into a new file.
fn copy(
    folder: &Folder,
    from: File,
    version: &Payload,
    nonce: u64,
) -> Result<(Target, Hasher), StoreError> {
    let path = folder.incoming(nonce);
    let mut to = private_files::create_new(&path).map_err(disk)?;
    let path = Removed::on_drop(path);
    let (mut hasher, mut buffer) = (Hasher::default(), vec![0; CHUNK]);
    let mut from = from.take(version.length);
    loop {
        let count = from.read(&mut buffer).map_err(disk)?;
        if count == 0 {
            break;
        }
        folder
            .check_free_space()
            .and_then(|()| to.write_all(&buffer[..count]))
            .map_err(disk)?;
        hasher.update(&buffer[..count]);
    }
    if hasher.clone().finish() == version.hash {
        Ok((Target::Copied(to, path), hasher))
    } else {
        Err(differs())
    }
}

#[async_trait]
impl BodyEnd for FileToExtend {
    async fn write(self: Box<Self>, blocks: Vec<Bytes>) -> Result<(), StoreError> {
        spawn_blocking(move || self.write_now(&blocks))
            .await
            .map_err(lost)?
            .map_err(disk)
    }
}

impl FileToExtend {
    fn write_now(self, blocks: &[Bytes]) -> io::Result<()> {
        let Self {
            folder,
            name,
            target,
        } = self;
        folder.check_free_space()?;
        let write = |mut file: &File| blocks.iter().try_for_each(|block| file.write_all(block));
        match target {
            Target::InPlace(position) => {
                let mut file = OpenOptions::new().write(true).open(folder.body(&name))?;
                file.seek(SeekFrom::Start(position))?;
                write(&file)?;
                folder.sync(&file)
            }
            Target::Copied(file, path) => {
                write(&file)?;
                path.place(&folder, &file, &name)
            }
        }
    }
}
