//! The state of a cache, shared by all clones of its layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ifmatch_core::date::Timestamp;
use ifmatch_runtime::Clock;

use crate::body::budget::ByteBudget;
use crate::config::CacheConfig;
use crate::fetch::single_flight::Flights;
use crate::metrics::CacheCounters;
use crate::respond::recent_heads::RecentHeads;
use crate::store::table::EntryTable;

/// What all requests to a cache share.
#[derive(Debug)]
pub(crate) struct CacheState {
    pub(crate) config: CacheConfig,
    pub(crate) table: EntryTable,
    pub(crate) flights: Arc<Flights>,
    /// Memory of bodies that are still arriving.
    pub(crate) budget: ByteBudget,
    /// Memory of bodies that clients are reading, in case they are evicted.
    pub(crate) held: ByteBudget,
    pub(crate) counters: CacheCounters,
    pub(crate) recent_heads: RecentHeads,
    /// Time until which stored responses may be used without validation, by the interval clock, in microseconds.
    trusted_until: AtomicU64,
    pub(crate) clock: Arc<dyn Clock>,
}

impl CacheState {
    /// Creates the state. With a disk, starts the thread that writes evicted responses to it.
    pub(crate) fn start(clock: Arc<dyn Clock>, config: CacheConfig) -> Arc<Self> {
        let (table, spilled) =
            EntryTable::new(config.capacity, config.entry_limit, config.disk.as_ref());
        let state = Arc::new(Self {
            table,
            flights: Arc::default(),
            budget: ByteBudget::of(config.capacity / 4),
            held: ByteBudget::of(config.capacity / 8),
            counters: CacheCounters::default(),
            recent_heads: RecentHeads::default(),
            trusted_until: AtomicU64::new(u64::MAX),
            clock,
            config,
        });
        if let Some(spilled) = spilled {
            spilled.start(&state);
        }
        state
    }

    /// Returns the wall-clock time, which origins use.
    pub(crate) fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Returns the time of the interval clock, for pauses that a change of the system time must not lengthen.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Sets the time until which stored responses may be used without validation, by the interval clock.
    pub(crate) fn trust_until(&self, until: Timestamp) {
        self.trusted_until.store(until.micros(), Ordering::SeqCst);
    }

    /// Returns `true` if stored responses may be used without validation.
    pub(crate) fn is_trusted(&self) -> bool {
        let until = self.trusted_until.load(Ordering::SeqCst);
        until == u64::MAX || self.now().micros() < until
    }
}
