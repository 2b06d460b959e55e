//! A model of guarded writes and leases. It runs the real `Record::apply`.
//!
//! [`Protocol`] has a register, a resource, writers, a reader, a clock and crashes. Each step of an actor is one message to
//! the register or the resource, and steps of other actors may come between any two steps. [`Sabotage`] disables one check.

pub mod actor;
mod lease;
mod transitions;

use std::collections::BTreeSet;

use ifmatch_core::command::{Authority, Command};
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};

use self::actor::{Actor, Bytes, Task};
pub use self::transitions::Event;

/// The check that the model disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// None: the unmodified protocol.
    Nothing,
    /// The register ignores the expected revision.
    SwapBlindly,
    /// Writers ignore the permits of others.
    IgnorePermits,
    /// Reads are recorded even if the record has changed since they began.
    ObserveLate,
    /// The service isn't cancelled at the deadline.
    NeverCancel,
    /// An unacknowledged write counts as not done.
    AssumeNotDone,
    /// Writers rely on earlier reads of a resource in an unknown state instead of probing it.
    TrustOldProbes,
    /// A lease is granted while a write is in flight.
    LockInFlight,
    /// A permit can outlast its lease.
    OutliveLease,
    /// Writers need no lease.
    IgnoreLease,
    /// A lease operation keeps an expired permit.
    KeepExpiredPermit,
    /// An expired lease can be renewed although a write with an unknown effect may have changed the resource since.
    RenewAfterDoubt,
}

/// The model: its actors and its limits.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// The tasks of the actors.
    pub tasks: Vec<Task>,
    /// The initial content of the resource.
    pub bytes: Bytes,
    /// The authority on the current version.
    pub authority: Authority,
    /// Maximum number of crashes.
    pub crashes: u8,
    /// Maximum number of clock ticks. A lease lasts one tick.
    pub ticks: u8,
    /// Duration of a permit, in ticks.
    pub permit: u8,
    /// The disabled check.
    pub sabotage: Sabotage,
}

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) register: Record,
    pub(crate) bytes: Bytes,
    pub(crate) actors: Vec<Actor>,
    pub(crate) tick: u8,
    pub(crate) crashes: u8,
    /// A write has replaced a version that its actor hasn't seen.
    pub(crate) lost_update: bool,
    /// A read from memory has returned other bytes than the resource has.
    pub(crate) wrong_tag: bool,
    /// Number of creations that took effect.
    pub(crate) created: u8,
    /// Number of writes whose commit is recorded.
    pub(crate) committed: u8,
    pub(crate) leases: Leases,
}

/// A fault that must not occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fault {
    /// A write took effect while another actor held the lease, or after another actor had acquired it since the permit was
    /// granted.
    BesideHolder,
    /// A write under a lease took effect after the lease's end.
    OutlivedLease,
    /// A write was recorded after another actor had acquired the lease.
    RecordedLate,
    /// A lease was renewed although other actors had written to the resource.
    MissedWrite,
    /// A lease was acquired without a larger token than the previous one.
    TokenFell,
}

/// The granted leases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Leases {
    faults: BTreeSet<Fault>,
    /// The last actor that acquired or renewed the lease, and the revision at which it did.
    pub(crate) last: Option<(usize, Revision)>,
}

impl Leases {
    pub(crate) fn are_free_of(&self, fault: Fault) -> bool {
        !self.faults.contains(&fault)
    }

    pub(crate) fn note(&mut self, fault: Fault, happened: bool) {
        self.faults.extend(happened.then_some(fault));
    }
}

/// A tick is the shortest lease, and longer than any number of changes at one microsecond each.
pub(crate) const TICK: u64 = 15_000_000;

impl World {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(u64::from(self.tick + 1) * TICK)
    }
}

impl Protocol {
    /// Returns the model under each authority.
    #[must_use]
    pub fn under_each_authority(self) -> [Self; 2] {
        [Authority::Register, Authority::Resource].map(|authority| Self {
            authority,
            ..self.clone()
        })
    }

    /// Swaps the loaded record for the next one, if there is one. Returns `false` if it has changed since.
    pub(crate) fn swap(&self, world: &mut World, loaded: &Record, next: Option<Record>) -> bool {
        let Some(next) = next else { return true };
        let is_done = world.register.revision() == loaded.revision()
            || self.sabotage == Sabotage::SwapBlindly;
        if is_done {
            world.register = next;
        }
        is_done
    }
}

/// Returns the record as an actor that ignores permits sees it.
pub(crate) fn without_permit(record: &Record, now: Timestamp) -> Option<Record> {
    let token = record.permit(now)?.token;
    record.apply(&Command::Abort(token), now).next
}
