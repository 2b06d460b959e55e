//! A copy-on-write overlay: reads fall through to the storage below, writes stay in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// Size of the pages that are kept in memory, in bytes.
const PAGE: u64 = 4096;

/// A read-only storage and the writes made over it.
#[derive(Debug)]
pub(crate) struct StorageOverlay {
    below: Box<dyn StorageBackend>,
    above: Mutex<Above>,
}

/// The writes, by page, and the length that they leave.
#[derive(Debug)]
struct Above {
    len: u64,
    /// Length up to which unwritten pages are read from the storage below.
    shown: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl StorageOverlay {
    pub(crate) fn new(below: Box<dyn StorageBackend>) -> io::Result<Self> {
        let len = below.len()?;
        Ok(Self {
            below,
            above: Mutex::new(Above {
                len,
                shown: len,
                pages: BTreeMap::new(),
            }),
        })
    }

    fn above(&self) -> MutexGuard<'_, Above> {
        self.above.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what was written, and the storage below elsewhere.
    fn read_from(&self, above: &Above, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(out.len() as u64);
        if end > above.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let shown = size(end.min(above.shown).saturating_sub(offset))?;
        out[shown..].fill(0);
        if shown > 0 {
            self.below.read(offset, &mut out[..shown])?;
        }
        for (number, page) in above.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let start = number * PAGE;
            let (from, to) = (start.max(offset), (start + PAGE).min(end));
            let part = &page[size(from - start)?..size(to - start)?];
            out[size(from - offset)?..size(to - offset)?].copy_from_slice(part);
        }
        Ok(())
    }
}

impl StorageBackend for StorageOverlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.above().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_from(&self.above(), offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut above = self.above();
        above.len = len;
        above.shown = above.shown.min(len);
        let cut = above.pages.split_off(&(len / PAGE));
        if let Some(mut page) = cut
            .into_iter()
            .next()
            .filter(|(number, _)| number * PAGE < len)
        {
            page.1[size(len % PAGE)?..].fill(0);
            above.pages.insert(page.0, page.1);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut above = self.above();
        let end = offset.saturating_add(data.len() as u64);
        if end > above.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for number in offset / PAGE..end.div_ceil(PAGE) {
            let start = number * PAGE;
            if !above.pages.contains_key(&number) {
                let mut page = vec![0; size(PAGE)?];
                let whole = size(PAGE.min(above.len - start))?;
                self.read_from(&above, start, &mut page[..whole])?;
                above.pages.insert(number, page);
            }
            let (from, to) = (start.max(offset), (start + PAGE).min(end));
            let part = &data[size(from - offset)?..size(to - offset)?];
            if let Some(page) = above.pages.get_mut(&number) {
                page[size(from - start)?..size(to - start)?].copy_from_slice(part);
            }
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.below.close()
    }
}

/// Converts a number of bytes.
fn size(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    /// Deterministic pseudo-random numbers.
    struct Draws(u64);

    impl Draws {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }
    }

    fn bytes(storage: &dyn StorageBackend) -> Vec<u8> {
        let mut all = vec![0; usize::try_from(storage.len().expect("a length")).expect("short")];
        storage.read(0, &mut all).expect("readable");
        all
    }

    #[test]
    fn an_overlay_behaves_like_a_storage_and_leaves_the_one_below_alone() {
        let mut draws = Draws(7);
        for _ in 0..50 {
            let (below, model) = (InMemoryBackend::new(), InMemoryBackend::new());
            for storage in [&below, &model] {
                storage.set_len(5 * PAGE + 100).expect("room");
                storage
                    .write(0, &vec![9; size(5 * PAGE + 100).expect("short")])
                    .expect("room");
            }
            let before = bytes(&below);
            let overlay = StorageOverlay::new(Box::new(below)).expect("a length");
            for step in 0..40 {
                let len = model.len().expect("a length");
                if draws.below(4) == 0 {
                    let len = draws.below(8 * PAGE);
                    overlay.set_len(len).expect("room");
                    model.set_len(len).expect("room");
                } else if len > 0 {
                    let from = draws.below(len);
                    let data = vec![step; size(draws.below(len - from) + 1).expect("short")];
                    overlay.write(from, &data).expect("room");
                    model.write(from, &data).expect("room");
                }
                assert_eq!(bytes(&overlay), bytes(&model));
            }
            assert_eq!(bytes(&*overlay.below), before);
        }
    }
}
