//! Evicted responses on their way to the disk: a bounded queue, and the thread that writes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;

use crate::request::key::CacheKey;
use crate::state::CacheState;
use crate::store::entry::CacheEntry;

/// Maximum number of entries in the queue.
const MOST: usize = 1_024;
/// Number of entries after which the index is synced although more are waiting.
const BATCH: usize = 256;

/// An evicted entry.
type EvictedEntry = (CacheKey, Arc<CacheEntry>);

/// The sending end of the queue. Entries beyond its bounds are dropped.
#[derive(Clone, Debug)]
pub(crate) struct SpillSender {
    sender: SyncSender<EvictedEntry>,
    queued: Arc<AtomicU64>,
    /// Maximum number of bytes in the queue.
    most: u64,
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct SpillReceiver {
    receiver: Receiver<EvictedEntry>,
    queued: Arc<AtomicU64>,
}

impl SpillSender {
    /// Creates a queue of up to this number of bytes.
    pub(super) fn with_capacity(most: u64) -> (Self, SpillReceiver) {
        let (sender, receiver) = sync_channel(MOST);
        let queued = Arc::<AtomicU64>::default();
        (
            Self {
                sender,
                queued: Arc::clone(&queued),
                most,
            },
            SpillReceiver { receiver, queued },
        )
    }

    /// Returns the number of bytes in the queue, and of the entry being written.
    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Acquire)
    }

    /// Adds an entry if there is room. Never waits.
    pub(super) fn send(&self, key: &CacheKey, entry: &Arc<CacheEntry>) {
        let add = |queued: u64| Some(queued + entry.size).filter(|queued| *queued <= self.most);
        let fits = self
            .queued
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
            .is_ok();
        if fits
            && self
                .sender
                .try_send((key.clone(), Arc::clone(entry)))
                .is_err()
        {
            self.queued.fetch_sub(entry.size, Ordering::AcqRel);
        }
    }
}

impl SpillReceiver {
    /// Starts the thread, which ends with the cache.
    pub(crate) fn start(self, state: &Arc<CacheState>) {
        let state = Arc::downgrade(state);
        // Without a thread, evicted responses are lost, as without a disk.
        drop(
            thread::Builder::new()
                .name("cache-spill".to_owned())
                .spawn(move || self.run(&state)),
        );
    }

    fn run(&self, state: &Weak<CacheState>) {
        let mut pending = 0;
        while let Ok((key, entry)) = self.receiver.recv() {
            let mut next = Some((key, entry));
            while let (Some((key, entry)), Some(state)) = (next.take(), state.upgrade()) {
                state.table.spill(&key, &entry);
                self.queued.fetch_sub(entry.size, Ordering::AcqRel);
                pending += 1;
                next = self.receiver.try_recv().ok();
                if next.is_none() || pending >= BATCH {
                    state.table.sync();
                    pending = 0;
                }
            }
        }
    }
}
