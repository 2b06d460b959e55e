//! Leases: exclusive access with expiry, renewal and break, by Azure Blob Storage's rules.
//!
//! A lease is part of its resource's record, so that one swap checks or changes both. It expires by comparison with
//! `now`, not by a timer: an expired lease keeps its id, and can be renewed by it, until somebody else takes the lease or the
//! resource is written.

pub mod azure;
mod id;
mod machine;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use id::{InvalidLeaseId, LeaseId};
pub(crate) use machine::apply;
pub use machine::{check, state};

use crate::date::Timestamp;
use crate::record::Revision;

/// How long a lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LeaseDuration {
    /// Until it is released or broken.
    Infinite,
    /// This many seconds, 15 to 60, unless it is renewed.
    Seconds(u8),
}

impl LeaseDuration {
    fn end(self, start: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Infinite => None,
            Self::Seconds(seconds) => Some(start.saturating_add(Duration::from_secs(seconds.into()))),
        }
    }
}

/// How long a lease goes on after it was broken: 0 to 60 seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BreakPeriod(u8);

impl BreakPeriod {
    const LONGEST: Duration = Duration::from_mins(1);

    /// The period from the number on the wire. None if it is not 0 to 60.
    ///
    /// ```
    /// use ifmatch_core::lease::BreakPeriod;
    /// assert!(BreakPeriod::from_seconds(0).is_some());
    /// assert!(BreakPeriod::from_seconds(61).is_none());
    /// ```
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        u8::try_from(seconds).ok().filter(|seconds| *seconds <= 60).map(Self)
    }
}

/// What somebody wants with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// To have it.
    Acquire {
        /// The id it shall have: the one proposed, or one drawn at random.
        id: LeaseId,
        /// How long it shall last.
        duration: LeaseDuration,
    },
    /// To begin its time anew.
    Renew(LeaseId),
    /// To give it another id.
    Change {
        /// The id it has.
        id: LeaseId,
        /// The id it shall have.
        proposed: LeaseId,
    },
    /// To give it back.
    Release(LeaseId),
    /// To end it without its id.
    Break(Option<BreakPeriod>),
}

/// The state of a lease, as a resource's properties show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// There is none: it can be acquired.
    Available,
    /// It is held.
    Leased,
    /// It was broken, and still locks for a while.
    Breaking,
    /// It was broken, and locks no more.
    Broken,
    /// Its time is over.
    Expired,
}

impl LeaseState {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Leased => "leased",
            Self::Breaking => "breaking",
            Self::Broken => "broken",
            Self::Expired => "expired",
        }
    }

    /// Whether writes need the id.
    pub fn is_locked(self) -> bool {
        matches!(self, Self::Leased | Self::Breaking)
    }
}

/// The reason for which a lease operation was refused: 409.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LeaseConflict {
    /// Another holder has the lease.
    #[error("there is already a lease: wait until it ends, or break it")]
    AlreadyPresent,
    /// The lease has this id, but is being broken.
    #[error("the lease is being broken: acquire it once that is over")]
    IsBreakingAndCannotBeAcquired,
    /// The lease is being broken or was broken.
    #[error("the lease was broken and cannot be renewed: acquire a new one")]
    IsBrokenAndCannotBeRenewed,
    /// The lease is being broken.
    #[error("the lease is being broken and cannot be changed")]
    IsBreakingAndCannotBeChanged,
    /// The lease has another id.
    #[error("the lease has another id")]
    IdMismatch,
    /// There is no lease.
    #[error("there is no lease")]
    NotPresent,
}


/// The reason for which a resource cannot be used with, or without, a lease id: 412.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LeaseFailure {
    /// There is no lease.
    #[error("there is no lease: omit the lease id, or acquire a lease")]
    NotPresent,
    /// The lease has another id.
    #[error("the lease has another id")]
    IdMismatch,
    /// The resource is leased and no id was given.
    #[error("the resource is leased, and the request has no lease id")]
    IdMissing,
    /// The lease has ended.
    #[error("the lease has ended: acquire a new one, and check what has changed since")]
    Lost,
}


/// In what way a request uses a resource that may be leased, and the id that it came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseUse {
    /// It writes: a locked resource needs the id, and a lease that is over is cleared away.
    Write(Option<LeaseId>),
    /// It reads, or changes what the lease does not protect: an id that is given must be right, none is needed.
    Read(Option<LeaseId>),
}

/// A write without a lease.
impl Default for LeaseUse {
    fn default() -> Self {
        Self::Write(None)
    }
}

/// The answer to a lease operation that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseReceipt {
    /// The lease afterwards; none if it was given back.
    pub lease: Option<Lease>,
    /// When the operation was carried out.
    pub at: Timestamp,
}

impl LeaseReceipt {
    /// How many seconds the lease went on from then: 0 if it was over at once, none if it had no end.
    pub fn seconds_left(&self) -> Option<u64> {
        self.lease.map_or(Some(0), |lease| lease.remaining(self.at))
    }
}

/// A lease on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    id: LeaseId,
    duration: LeaseDuration,
    phase: Phase,
    token: Revision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Phase {
    /// Held until then; for ever if there is no end.
    Held(Option<Timestamp>),
    /// Broken, and locked until then.
    Breaking(Timestamp),
}

impl Lease {
    /// Its id.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// How long it was acquired for.
    pub fn duration(&self) -> LeaseDuration {
        self.duration
    }

    /// The fencing token: it grows with every acquisition of the resource's lease. A store that refuses
    /// lower tokens than it has seen refuses whoever lost the lease without knowing.
    pub fn token(&self) -> Revision {
        self.token
    }

    /// Its state at `now`.
    pub fn state(&self, now: Timestamp) -> LeaseState {
        match self.phase {
            Phase::Held(Some(end)) if end <= now => LeaseState::Expired,
            Phase::Held(_) => LeaseState::Leased,
            Phase::Breaking(end) if end <= now => LeaseState::Broken,
            Phase::Breaking(_) => LeaseState::Breaking,
        }
    }

    /// When it stops to lock; none if it does not by itself.
    pub fn end(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Held(end) => end,
            Phase::Breaking(end) => Some(end),
        }
    }

    /// Returns the remaining time in whole seconds, rounded up, or `None` if the lease has no end. It never exceeds the
    /// granted duration, even if a clock that is ahead granted the lease.
    pub fn remaining(&self, now: Timestamp) -> Option<u64> {
        let left = now.until(self.end()?);
        let left = self.longest().map_or(left, |longest| left.min(longest));
        Some(left.as_secs() + u64::from(left.subsec_nanos() > 0))
    }

    /// Returns the longest time that may remain in this phase, or `None` if the lease has no end.
    pub(crate) fn longest(&self) -> Option<Duration> {
        match (self.phase, self.duration) {
            (Phase::Held(_), LeaseDuration::Infinite) => None,
            (Phase::Held(_), LeaseDuration::Seconds(seconds)) => Some(Duration::from_secs(seconds.into())),
            (Phase::Breaking(_), _) => Some(BreakPeriod::LONGEST),
        }
    }

    /// Sets the end of the current phase.
    pub(crate) fn end_at(&mut self, end: Timestamp) {
        self.phase = match self.phase {
            Phase::Held(_) => Phase::Held(Some(end)),
            Phase::Breaking(_) => Phase::Breaking(end),
        };
    }
}
