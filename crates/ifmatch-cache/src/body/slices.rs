//! Parts of a body that is not stored as a whole: long ones in files, short ones in memory.

use std::sync::Arc;

use ifmatch_core::range::ByteRange;

use crate::body::in_memory::PartialBody;
use crate::body::on_disk::DiskBody;
use crate::policy::content_range::ContentRange;

/// Maximum number of files.
const MAX_FILES: usize = 64;

/// Parts of a body with a known length.
#[derive(Clone, Debug)]
pub(crate) struct Slices {
    pub(crate) total: u64,
    /// Positions and files, oldest first.
    files: Vec<(u64, Arc<DiskBody>)>,
    /// The parts in memory.
    pub(crate) parts: Option<Arc<PartialBody>>,
}

impl Slices {
    pub(crate) fn new(range: ContentRange, file: Arc<DiskBody>) -> Self {
        Self { total: range.total, files: vec![(range.bytes.start(), file)], parts: None }
    }

    /// Returns the files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<DiskBody>> {
        self.files.iter().map(|(_, file)| file)
    }

    /// Returns the size in memory.
    pub(crate) fn size(&self) -> u64 {
        let parts = self.parts.as_ref().map_or(0, |parts| parts.size());
        parts + self.files().map(|file| file.size()).sum::<u64>()
    }

    /// Returns the newest file that has all these ranges, with the position of its first byte.
    pub(crate) fn holding(&self, ranges: &[ByteRange]) -> Option<(u64, &Arc<DiskBody>)> {
        let holds = |start: u64, file: &DiskBody| {
            file.is_there() && ranges.iter().all(|range| start <= range.start() && range.end() < start + file.len())
        };
        let file = self.files.iter().rev().find(|(start, file)| holds(*start, file))?;
        Some((file.0, &file.1))
    }

    /// Adds the files of `newer`, which are of the same representation. Drops files within others, and the oldest beyond
    /// the limit. Returns `None` if the totals differ.
    pub(crate) fn join(&self, newer: &Self) -> Option<Self> {
        if self.total != newer.total {
            return None;
        }
        let within = |start: u64, file: &DiskBody| {
            newer.files.iter().any(|(first, other)| *first <= start && start + file.len() <= first + other.len())
        };
        let kept = self.files.iter().filter(|(start, file)| file.is_there() && !within(*start, file));
        let mut files: Vec<_> = kept.chain(&newer.files).cloned().collect();
        files.drain(..files.len().saturating_sub(MAX_FILES));
        Some(Self { total: self.total, files, parts: newer.parts.clone().or_else(|| self.parts.clone()) })
    }

    /// Adds a part in memory. Returns `None` if the totals differ.
    pub(crate) fn with_part(&self, newer: &Arc<PartialBody>) -> Option<Self> {
        if self.total != newer.total {
            return None;
        }
        let joined = match &self.parts {
            Some(parts) => Arc::new(parts.join(newer)?),
            None => Arc::clone(newer),
        };
        Some(Self { parts: Some(joined), ..self.clone() })
    }
}
