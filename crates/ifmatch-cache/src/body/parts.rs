//! Parts of a body that isn't stored as a whole: long ones in files, short ones in memory.

use std::sync::Arc;

use ifmatch_core::range::ByteRange;

use crate::body::in_memory::{MemoryBody, PartialBody};
use crate::body::on_disk::DiskBody;
use crate::policy::content_range::ContentRange;

/// Maximum number of files.
const MAX_FILES: usize = 64;

/// Parts of a body with a known length.
#[derive(Clone, Debug)]
pub(crate) struct BodyParts {
    pub(crate) total: u64,
    /// Positions and files, oldest first.
    files: Vec<(u64, Arc<DiskBody>)>,
    pub(crate) in_memory: Option<PartialBody>,
}

impl BodyParts {
    /// Creates a part in a file.
    pub(crate) fn on_disk(range: ContentRange, file: Arc<DiskBody>) -> Self {
        Self {
            total: range.total,
            files: vec![(range.bytes.start(), file)],
            in_memory: None,
        }
    }

    /// Creates a part in memory.
    pub(crate) fn in_memory(part: PartialBody) -> Self {
        Self {
            total: part.total,
            files: Vec::new(),
            in_memory: Some(part),
        }
    }

    /// Returns the files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<DiskBody>> {
        self.files.iter().map(|(_, file)| file)
    }

    /// Returns the size in memory.
    pub(crate) fn size(&self) -> u64 {
        let in_memory = self.in_memory.as_ref().map_or(0, PartialBody::size);
        in_memory + self.files().map(|file| file.size()).sum::<u64>()
    }

    /// Returns the newest file that has all these ranges, with the position of its first byte.
    pub(crate) fn holding(&self, ranges: &[ByteRange]) -> Option<(u64, &Arc<DiskBody>)> {
        let holds = |start: u64, file: &DiskBody| {
            file.is_there()
                && ranges
                    .iter()
                    .all(|range| start <= range.start() && range.end() < start + file.len())
        };
        let file = self
            .files
            .iter()
            .rev()
            .find(|(start, file)| holds(*start, file))?;
        Some((file.0, &file.1))
    }

    /// Returns the missing range if there is exactly one, and the rest is in memory.
    pub(crate) fn missing(&self) -> Option<ByteRange> {
        self.in_memory
            .as_ref()
            .filter(|_| self.files.is_empty())?
            .missing()
    }

    /// Returns the whole body once it is complete in memory.
    pub(crate) fn whole(&self) -> Option<Arc<MemoryBody>> {
        self.in_memory
            .as_ref()
            .filter(|_| self.files.is_empty())?
            .whole()
    }

    /// Joins both; `newer` is one part of the same representation. Drops files within others, and the oldest beyond the
    /// limit. Returns `None` if the totals differ.
    pub(crate) fn join(&self, newer: &Self) -> Option<Self> {
        if self.total != newer.total {
            return None;
        }
        let within = |start: u64, file: &DiskBody| {
            newer
                .files
                .iter()
                .any(|(first, other)| *first <= start && start + file.len() <= first + other.len())
        };
        let kept = self
            .files
            .iter()
            .filter(|(start, file)| file.is_there() && !within(*start, file));
        let mut files: Vec<_> = kept.chain(&newer.files).cloned().collect();
        files.drain(..files.len().saturating_sub(MAX_FILES));
        let in_memory = match (&self.in_memory, &newer.in_memory) {
            (Some(older), Some(newer)) => Some(older.join(newer)?),
            (older, newer) => newer.as_ref().or(older.as_ref()).cloned(),
        };
        Some(Self {
            total: self.total,
            files,
            in_memory,
        })
    }
}
