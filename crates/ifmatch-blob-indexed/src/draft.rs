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

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use ifmatch_blob::store::{StoreError, StoreErrorKind};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::{ContentHash, Hasher};
use ifmatch_core::record::{Record, Version};
use ifmatch_register::Staging;

use super::bodies::{Bodies, BodyEnd, differs};
use super::body_files::BodyName;
use super::payload::{AppendedBody, Payload, Place};
use super::swap::{Edit, payload_of};
use super::upload::INLINE;

/// The content that a group of changes has reached, as far as its changes need it.
#[derive(Debug)]
pub(super) struct Draft {
    content: Reached,
    /// The number of the next new file. Each attempt of a group begins with another: the swap of an earlier one may still take place. And
    /// each version has its own: content may return, and the file of the version in between is removed by its name.
    nonce: u64,
    /// The content after the change that is being decided.
    proposed: Option<Proposed>,
}

#[derive(Debug)]
enum Reached {
    /// No change needs it, the first one doesn't take so much, or it is in a file that was not read.
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
    /// Where the blocks go, or `None` if they are all of a new body.
    end: Option<Box<dyn BodyEnd>>,
    /// The state after all blocks.
    hasher: Hasher,
    blocks: Vec<Bytes>,
}

#[derive(Debug)]
enum Proposed {
    /// The next block, which leaves the hasher in this state.
    Block(Bytes, Hasher),
    Other(Reached),
}

impl Draft {
    fn new(content: Reached, nonce: u64) -> Self {
        Self {
            content,
            nonce,
            proposed: None,
        }
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
                let name = BodyName {
                    hash: hasher.clone().finish(),
                    nonce: self.nonce,
                };
                let appending = Appending {
                    name,
                    end: None,
                    hasher: hasher.clone(),
                    blocks,
                };
                self.proposed = Some(Proposed::Other(Reached::Appending(appending.into())));
                (name, hasher)
            }
            _ => return Err(self.error()),
        };
        let state = hasher.state().unwrap_or_default();
        Ok((
            Place::Appended(AppendedBody {
                file: name,
                hasher: state,
            }),
            hasher.finish(),
        ))
    }

    /// Proposes to replace the content. Returns its place and hash.
    pub(super) fn replace(&mut self, bytes: Bytes) -> (Place, ContentHash) {
        let hash = ContentHash::of(&bytes);
        let is_small = bytes.len() <= INLINE;
        let place = if is_small {
            Place::Inline(bytes.clone())
        } else {
            Place::File(self.nonce)
        };
        let name = (!is_small).then_some(BodyName {
            hash,
            nonce: self.nonce,
        });
        self.proposed = Some(Proposed::Other(Reached::Memory(bytes, name)));
        (place, hash)
    }

    /// Proposes to delete the blob, in place of what a refused change has proposed.
    pub(super) fn delete(&mut self) {
        self.proposed = Some(Proposed::Other(Reached::Absent));
    }

    /// Accepts the proposal, which has taken effect.
    pub(super) fn accept(&mut self) {
        self.nonce = self.nonce.wrapping_add(1) & !BodyName::MARK;
        match (self.proposed.take(), &mut self.content) {
            (Some(Proposed::Block(block, hasher)), Reached::Appending(appending)) => {
                appending.blocks.push(block);
                appending.hasher = hasher;
            }
            (Some(Proposed::Other(content)), _) => self.content = content,
            _ => {}
        }
    }

    /// Follows another change, which has led from one version to another.
    pub(super) fn follow(&mut self, before: Option<&Version>, after: Option<&Version>) {
        let place = |version: &Version| Payload::of(version).map(|payload| payload.place);
        self.content = match (
            std::mem::replace(&mut self.content, Reached::Unread),
            after.map(place),
        ) {
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

/// Reads and writes the content of groups.
#[derive(Debug)]
pub(super) struct Drafts(pub(super) Arc<dyn Bodies>);

impl Staging<Edit> for Drafts {
    async fn prepare(&self, before: &Record, changes: &[&Edit], now: Timestamp) -> Draft {
        let Some(need) = changes.iter().find_map(|change| change.need()) else {
            return Draft::new(Reached::Unread, 0);
        };
        self.read(before.state(now).version(), need)
            .await
            .unwrap_or_else(|error| Draft::failed(&error))
    }

    async fn stage(&self, draft: &mut Draft) -> Result<(), Draft> {
        let (end, name, blocks) = match &mut draft.content {
            Reached::Appending(appending) if !appending.blocks.is_empty() => (
                appending.end.take(),
                appending.name,
                std::mem::take(&mut appending.blocks),
            ),
            Reached::Memory(bytes, Some(name)) => (None, *name, vec![bytes.clone()]),
            _ => return Ok(()),
        };
        let written = match end {
            Some(end) => end.write(blocks).await,
            None => self.create(name, blocks).await,
        };
        written.map_err(|error| Draft::failed(&error))
    }
}

/// How much of the content a change depends on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// The end of the content.
    End,
    /// All of it, up to this number of bytes.
    Whole(u64),
}

impl Drafts {
    async fn read(&self, version: Option<&Version>, need: Need) -> Result<Draft, StoreError> {
        let nonce = BodyName::number()?;
        let Some(payload) = version.map(payload_of).transpose()? else {
            return Ok(Draft::new(Reached::Absent, nonce));
        };
        let content = match (&payload.place, need) {
            // The change is refused, and those with another limit, or with none, form the next group.
            (_, Need::Whole(limit)) if payload.length > limit => Reached::Unread,
            (Place::Inline(bytes), _) => Reached::Memory(bytes.clone(), None),
            (_, Need::Whole(_)) => Reached::Memory(self.whole(&payload).await?, None),
            (_, Need::End) => {
                let extended = Arc::clone(&self.0).extend(payload, nonce).await?;
                let (name, end, hasher) = (extended.name, Some(extended.end), extended.hasher);
                Reached::Appending(
                    Appending {
                        name,
                        end,
                        hasher,
                        blocks: Vec::new(),
                    }
                    .into(),
                )
            }
        };
        Ok(Draft::new(content, nonce))
    }

    /// Durably stores a new body.
    async fn create(&self, name: BodyName, blocks: Vec<Bytes>) -> Result<(), StoreError> {
        let mut body = Arc::clone(&self.0).begin(Some(name))?;
        for block in blocks {
            body.write(block.into()).await?;
        }
        body.finish(None).await?.keep();
        Ok(())
    }

    async fn whole(&self, payload: &Payload) -> Result<Bytes, StoreError> {
        let body = payload.file().ok_or(StoreErrorKind::Unreadable)?;
        let source = self
            .0
            .open(body, payload.length, None, Box::new(drop))
            .await?;
        let mut source = source.ok_or(StoreErrorKind::Unavailable)?;
        let whole = source.read(None).await?.collect().await?.to_bytes();
        let mut hasher = Hasher::new(payload.hash.format());
        hasher.update(&whole);
        if hasher.finish() == payload.hash {
            Ok(whole)
        } else {
            Err(differs())
        }
    }
}
