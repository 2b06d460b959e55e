//! Content that the store computes: what the appends and updates of a group leave to the next, and how it reaches the disk.
//!
//! # Appends
//!
//! A version names its file and its length. An append writes its block behind that length, and then swaps in a record with the new
//! length. Bytes beyond the length of the current record belong to no version.
//!
//! ```text
//!   file         ├── version 1 ──┤── block ──┤
//!   1. write and sync the block, up to here ─┘     readers of version 1 read up to its length
//!   2. swap the record: version 2 has the new length
//! ```
//!
//! The group of a key is the only writer of its file. The file itself shows whether an append is safe: it must hold nothing but the
//! recorded bytes, and have no second name. Otherwise the body is first copied to a new file.
//!
//! - **A crash, a failed write or sync, or a lost response to a swap** leaves bytes beyond the recorded length. The swap may still take
//!   place, and its record would name these bytes, so they're never overwritten.
//! - **A copy of the blob, or of the whole folder, by a second name**: both would append behind the same length. Whoever appends first
//!   after that copies.
//! - **A reader of a version that was replaced** reads bytes that were recorded once, and these are never overwritten.
//! - **A deletion during an append** waits for its turn, and removes the file afterwards.
//!
//! In a bucket, an append is a copy under a new name.
//!
//! The hash continues from the state of the hasher, which is in the record. A state that doesn't fit the hash is not used: the body is
//! copied and hashed again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use ifmatch_blob::records::nonce;
use ifmatch_blob::store::{StoreError, StoreErrorKind};
use ifmatch_core::append::FileEnd;
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::{ContentHash, Hasher};
use ifmatch_core::record::{Record, Version};
use ifmatch_register::Staging;
use ifmatch_runtime::{folders, private_files};
use tokio::task::spawn_blocking;

use super::bodies::{Bodies, Incoming};
use super::body_files::{BodyName, Folder};
use super::bucket::{self, Arriving, Bucket};
use super::error::{disk, lost};
use super::payload::{AppendedBody, Payload, Place};
use super::spool::Removed;
use super::swap::{Edit, payload_of};
use super::upload::INLINE;

/// Number of bytes copied at a time.
const CHUNK: usize = 256 * 1024;
/// Length up to which a body in a bucket is kept in memory during an append.
const IN_MEMORY: u64 = 8 * 1024 * 1024;

/// The content that a group of changes has reached, as far as its changes need it.
#[derive(Debug)]
pub(super) struct Draft {
    content: Reached,
    /// The number of a new file. Each attempt of a group has its own: the swap of an earlier one may still take place.
    nonce: u64,
    /// The content after the change that is being decided.
    proposed: Option<Proposed>,
    /// When the group was begun.
    began: Timestamp,
}

#[derive(Debug)]
enum Reached {
    /// No change needs it, or it is in a file that was not read.
    Unread,
    /// The blob doesn't exist.
    Absent,
    /// All of it is in memory. A file must be written if it has a name.
    Memory(Bytes, Option<BodyName>),
    /// A file, and the blocks to append to it.
    Appending(Box<Appending>),
    /// It can't be read, or can't be written: changes that need it fail.
    Failed(StoreErrorKind, String),
}

#[derive(Debug)]
struct Appending {
    name: BodyName,
    target: Target,
    /// The state after all blocks.
    hasher: Hasher,
    blocks: Vec<Bytes>,
}

#[derive(Debug)]
enum Target {
    /// The file of the version, which ends at this position.
    InPlace(u64),
    /// A new file with a copy of the body.
    Copied(File, Removed),
    /// A new file, of the blocks alone.
    New,
    /// A new object, with a copy of the body so far.
    Sent(Box<Arriving>),
}

#[derive(Debug)]
enum Proposed {
    /// The next block, which leaves the hasher in this state.
    Block(Bytes, Hasher),
    Other(Reached),
}

impl Draft {
    fn new(content: Reached, nonce: u64) -> Self {
        Self { content, nonce, proposed: None, began: Timestamp::from_micros(0) }
    }

    fn failed(error: &StoreError) -> Self {
        Self::new(Reached::Failed(error.kind().clone(), error.to_string()), 0)
    }

    /// Returns `true` if an append can be decided.
    pub(super) fn takes_appends(&self) -> bool {
        !matches!(self.content, Reached::Unread)
    }

    /// Returns `true` if an update can be decided.
    pub(super) fn takes_updates(&self) -> bool {
        !matches!(self.content, Reached::Unread | Reached::Appending(_))
    }

    /// Returns the content in memory, or `None` if there is no version.
    pub(super) fn bytes(&self) -> Result<Option<&Bytes>, StoreError> {
        match &self.content {
            Reached::Memory(bytes, _) => Ok(Some(bytes)),
            Reached::Absent => Ok(None),
            _ => Err(self.error()),
        }
    }

    /// Proposes to append a block. Returns the place and the hash of the whole.
    pub(super) fn append(&mut self, block: &Bytes) -> Result<(Place, ContentHash), StoreError> {
        let (name, hasher) = match &self.content {
            Reached::Appending(appending) => {
                let mut hasher = appending.hasher.clone();
                hasher.update(block);
                self.proposed = Some(Proposed::Block(block.clone(), hasher.clone()));
                (appending.name, hasher)
            }
            Reached::Memory(bytes, _) if bytes.len() + block.len() <= INLINE => {
                let whole = Bytes::from([&bytes[..], block].concat());
                let hash = ContentHash::of(&whole);
                self.proposed = Some(Proposed::Other(Reached::Memory(whole.clone(), None)));
                return Ok((Place::Inline(whole), hash));
            }
            Reached::Memory(bytes, _) => {
                let blocks = vec![bytes.clone(), block.clone()];
                let mut hasher = Hasher::default();
                for block in &blocks {
                    hasher.update(block);
                }
                let name = BodyName { hash: hasher.clone().finish(), nonce: self.nonce };
                let appending = Appending { name, target: Target::New, hasher: hasher.clone(), blocks };
                self.proposed = Some(Proposed::Other(Reached::Appending(appending.into())));
                (name, hasher)
            }
            _ => return Err(self.error()),
        };
        let state = hasher.state().unwrap_or_default();
        Ok((Place::Appended(AppendedBody { file: name, hasher: state }), hasher.finish()))
    }

    /// Proposes to replace the content. Returns its place and hash.
    pub(super) fn replace(&mut self, bytes: Bytes) -> (Place, ContentHash) {
        let hash = ContentHash::of(&bytes);
        let is_small = bytes.len() <= INLINE;
        let place = if is_small { Place::Inline(bytes.clone()) } else { Place::File(self.nonce) };
        let name = (!is_small).then_some(BodyName { hash, nonce: self.nonce });
        self.proposed = Some(Proposed::Other(Reached::Memory(bytes, name)));
        (place, hash)
    }

    /// The proposal has taken effect.
    pub(super) fn accept(&mut self) {
        match (self.proposed.take(), &mut self.content) {
            (Some(Proposed::Block(block, hasher)), Reached::Appending(appending)) => {
                appending.blocks.push(block);
                appending.hasher = hasher;
            }
            (Some(Proposed::Other(content)), _) => self.content = content,
            _ => {}
        }
    }

    /// Another change has led to this version.
    pub(super) fn follow(&mut self, before: Option<&Version>, after: Option<&Version>) {
        let place = |version: &Version| Payload::of(version).map(|payload| payload.place);
        self.content = match (std::mem::replace(&mut self.content, Reached::Unread), after.map(place)) {
            (stays @ (Reached::Unread | Reached::Failed(..)), _) => stays,
            (_, None) => Reached::Absent,
            (kept, Some(after)) if before.map(place) == Some(after.clone()) => kept,
            (_, Some(Ok(Place::Inline(bytes)))) => Reached::Memory(bytes, None),
            (_, Some(_)) => Reached::Unread,
        };
    }

    fn error(&self) -> StoreError {
        match &self.content {
            Reached::Failed(kind, why) => StoreError::new(kind.clone(), why.clone()),
            _ => StoreError::new(StoreErrorKind::Unavailable, "the content wasn't read"),
        }
    }
}

/// Reads and writes the content of groups, in a folder or in a bucket.
#[derive(Debug)]
pub(super) enum Drafts {
    Folder(Arc<Folder>),
    Bucket(Arc<Bucket>),
}

impl Staging<Edit> for Drafts {
    async fn prepare(&self, before: &Record, changes: &[&Edit], now: Timestamp) -> Draft {
        let Some(need) = changes.iter().find_map(|change| change.need()) else { return Draft::new(Reached::Unread, 0) };
        let draft = self.read(before.state(now).version(), need).await.unwrap_or_else(|error| Draft::failed(&error));
        Draft { began: now, ..draft }
    }

    async fn stage(&self, draft: &mut Draft) -> Result<(), Draft> {
        let (target, name, blocks) = match &mut draft.content {
            Reached::Appending(appending) if !appending.blocks.is_empty() => {
                let target = std::mem::replace(&mut appending.target, Target::New);
                (target, appending.name, std::mem::take(&mut appending.blocks))
            }
            Reached::Memory(bytes, Some(name)) => (Target::New, *name, vec![bytes.clone()]),
            _ => return Ok(()),
        };
        let written = match self {
            Self::Folder(folder) => {
                let folder = Arc::clone(folder);
                let written = spawn_blocking(move || target.write(&folder, &name, &blocks)).await;
                written.map_err(lost).and_then(|written| written.map_err(disk))
            }
            Self::Bucket(bucket) => put(bucket, target, name, &blocks, draft.began).await,
        };
        written.map_err(|error| Draft::failed(&error))
    }
}

/// What a change needs to be decided.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// The end of the content.
    End,
    /// All of it, up to this number of bytes.
    Whole(u64),
}

impl Drafts {
    async fn read(&self, version: Option<&Version>, need: Need) -> Result<Draft, StoreError> {
        let nonce = nonce()?;
        let Some(payload) = version.map(payload_of).transpose()? else { return Ok(Draft::new(Reached::Absent, nonce)) };
        if let Need::Whole(limit) = need
            && payload.length > limit
        {
            return Err(StoreErrorKind::TooLarge { limit }.into());
        }
        if let Place::Inline(bytes) = payload.place {
            return Ok(Draft::new(Reached::Memory(bytes, None), nonce));
        }
        let content = match self {
            Self::Folder(folder) => {
                let folder = Arc::clone(folder);
                let read = move || match need {
                    Need::Whole(_) => whole(&folder, &payload).map_err(disk),
                    Need::End => end(&folder, &payload, nonce),
                };
                spawn_blocking(read).await.map_err(lost)??
            }
            Self::Bucket(bucket) => {
                let nonce = bucket::number(nonce);
                return Ok(Draft::new(get(bucket, &payload, need, nonce).await?, nonce));
            }
        };
        Ok(Draft::new(content, nonce))
    }
}

/// Returns the content of a version in a bucket. The longer ones are copied for an append.
async fn get(bucket: &Arc<Bucket>, payload: &Payload, need: Need, nonce: u64) -> Result<Reached, StoreError> {
    let Some(body) = payload.file() else { return Ok(Reached::Absent) };
    let mut source =
        bucket.open(body, payload.length, None, Box::new(drop)).await?.ok_or(StoreErrorKind::Unavailable)?;
    let mut bytes = source.read(None).await?;
    if matches!(need, Need::Whole(_)) || payload.length <= IN_MEMORY {
        let whole = bytes.collect().await?.to_bytes();
        let mut hasher = Hasher::new(payload.hash.format());
        hasher.update(&whole);
        return if hasher.finish() == payload.hash { Ok(Reached::Memory(whole, None)) } else { Err(differs()) };
    }
    let name = BodyName { hash: payload.hash, nonce };
    let (mut copy, mut hasher) = (Arc::clone(bucket).begin_as(name), Hasher::default());
    while let Some(frame) = bytes.frame().await {
        let Ok(chunk) = frame?.into_data() else { continue };
        hasher.update(&chunk);
        copy.write(chunk.into()).await?;
    }
    if hasher.clone().finish() != payload.hash {
        return Err(differs());
    }
    let target = Target::Sent(Box::new(copy));
    Ok(Reached::Appending(Appending { name, target, hasher, blocks: Vec::new() }.into()))
}

fn differs() -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, "the body differs from what was stored")
}

/// Durably stores a body in a bucket: a copy, if there is one, and the blocks.
async fn put(
    bucket: &Arc<Bucket>,
    target: Target,
    name: BodyName,
    blocks: &[Bytes],
    began: Timestamp,
) -> Result<(), StoreError> {
    let mut body = match target {
        Target::Sent(copy) => copy,
        _ => Box::new(Arc::clone(bucket).begin_as(name)),
    };
    for block in blocks {
        body.write(block.to_vec()).await?;
    }
    body.finish_as(name).await?.keep();
    if began.until(bucket.now()) > bucket::LIFETIME {
        return Err(StoreError::new(StoreErrorKind::Unavailable, "the copy of the body took too long"));
    }
    Ok(())
}

fn open(folder: &Folder, payload: &Payload) -> io::Result<(BodyName, File)> {
    let name = payload.file().ok_or(io::ErrorKind::NotFound)?;
    Ok((name, File::open(folder.body(&name))?))
}

fn whole(folder: &Folder, payload: &Payload) -> io::Result<Reached> {
    let (_, mut file) = open(folder, payload)?;
    let mut bytes = vec![0; usize::try_from(payload.length).map_err(io::Error::other)?];
    file.read_exact(&mut bytes)?;
    Ok(Reached::Memory(bytes.into(), None))
}

/// Returns the file of the version if a block can be written to its end, or else a copy.
fn end(folder: &Folder, payload: &Payload, nonce: u64) -> Result<Reached, StoreError> {
    let (name, file) = open(folder, payload).map_err(disk)?;
    let found = file.metadata().map_err(disk)?;
    let end = FileEnd { length: found.len(), has_one_name: folders::has_one_name(&found) };
    let state = match &payload.place {
        Place::Appended(body) if end.takes_append_at(payload.length) => Hasher::resume(&body.hasher),
        _ => None,
    };
    let appending = match state.filter(|state| state.clone().finish() == payload.hash) {
        Some(hasher) => Appending { name, target: Target::InPlace(payload.length), hasher, blocks: Vec::new() },
        None => copy(folder, file, payload, nonce)?,
    };
    Ok(Reached::Appending(appending.into()))
}

/// Copies the body into a new file.
fn copy(folder: &Folder, from: File, payload: &Payload, nonce: u64) -> Result<Appending, StoreError> {
    let (mut to, path) = create(folder, nonce).map_err(disk)?;
    let (mut hasher, mut buffer) = (Hasher::default(), vec![0; CHUNK]);
    let mut from = from.take(payload.length);
    loop {
        let count = from.read(&mut buffer).map_err(disk)?;
        if count == 0 {
            break;
        }
        folder.check_free_space().and_then(|()| to.write_all(&buffer[..count])).map_err(disk)?;
        hasher.update(&buffer[..count]);
    }
    if hasher.clone().finish() != payload.hash {
        return Err(differs());
    }
    let name = BodyName { hash: payload.hash, nonce };
    Ok(Appending { name, target: Target::Copied(to, path), hasher, blocks: Vec::new() })
}

fn create(folder: &Folder, nonce: u64) -> io::Result<(File, Removed)> {
    let path = folder.incoming(nonce);
    let file = private_files::create_new(&path)?;
    Ok((file, Removed::on_drop(path)))
}

impl Target {
    /// Durably writes the blocks to the end. After an error, what is at the end is unknown.
    fn write(self, folder: &Folder, name: &BodyName, blocks: &[Bytes]) -> io::Result<()> {
        folder.check_free_space()?;
        match self {
            Self::InPlace(position) => {
                let mut file = OpenOptions::new().write(true).open(folder.body(name))?;
                file.seek(SeekFrom::Start(position))?;
                write_all(&mut file, blocks)?;
                folder.sync(&file)
            }
            Self::Copied(mut file, path) => {
                write_all(&mut file, blocks)?;
                path.place(folder, &file, name)
            }
            Self::New | Self::Sent(_) => {
                let (mut file, path) = create(folder, name.nonce)?;
                write_all(&mut file, blocks)?;
                path.place(folder, &file, name)
            }
        }
    }
}

fn write_all(file: &mut File, blocks: &[Bytes]) -> io::Result<()> {
    blocks.iter().try_for_each(|block| file.write_all(block))
}
