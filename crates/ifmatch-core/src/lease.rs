//! Leases: exclusive access with expiry, renewal and break, by Azure Blob Storage's rules.
//!
//! A lease is part of its resource's record, so that one swap checks or changes both. It expires by comparison with
//! `now`, not by a timer: an expired lease keeps its id, and can be renewed with it, until another client acquires the
//! lease or the resource is written.

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
    /// This number of seconds, unless it is renewed.
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

/// How long a broken lease continues to lock: 0 to 60 seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BreakPeriod(u8);

impl BreakPeriod {
    const LONGEST: Duration = Duration::from_mins(1);

    /// Returns the period for the number on the wire, or `None` if it is not 0 to 60.
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

/// A lease operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Acquires the lease.
    Acquire {
        /// The id of the lease, proposed by the client or random.
        id: LeaseId,
        /// The duration of the lease.
        duration: LeaseDuration,
    },
    /// Restarts the duration.
    Renew(LeaseId),
    /// Changes the id.
    Change {
        /// The current id.
        id: LeaseId,
        /// The new id.
        proposed: LeaseId,
    },
    /// Releases the lease.
    Release(LeaseId),
    /// Ends the lease without its id.
    Break(Option<BreakPeriod>),
}

/// The state of a resource's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// There is no lease.
    Available,
    /// The lease is held.
    Leased,
    /// The lease was broken and still locks the resource.
    Breaking,
    /// The lease was broken and no longer locks the resource.
    Broken,
    /// The duration has ended.
    Expired,
}

impl LeaseState {
    /// Returns the name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Leased => "leased",
            Self::Breaking => "breaking",
            Self::Broken => "broken",
            Self::Expired => "expired",
        }
    }

    /// Returns `true` if writes need the lease id.
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

/// How a request uses a resource that may be leased, and the lease id it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseUse {
    /// A write. A locked resource needs the id. The write removes a lease that has ended.
    Write(Option<LeaseId>),
    /// A read, or a change of something that the lease does not protect. The id is optional, but must be correct.
    Read(Option<LeaseId>),
}

/// A write without a lease.
impl Default for LeaseUse {
    fn default() -> Self {
        Self::Write(None)
    }
}

/// The result of a successful lease operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseReceipt {
    /// The lease after the operation, or `None` if it was released.
    pub lease: Option<Lease>,
    /// The time of the operation.
    pub at: Timestamp,
}

impl LeaseReceipt {
    /// Returns the seconds that remained at the time of the operation, or `None` if the lease had no end.
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
    /// Held until this time, or without an end.
    Held(Option<Timestamp>),
    /// Broken, and locking until this time.
    Breaking(Timestamp),
}

impl Lease {
    /// Returns the id.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// Returns the duration it was acquired for.
    pub fn duration(&self) -> LeaseDuration {
        self.duration
    }

    /// Returns the fencing token, which grows with every acquisition of the resource's lease. A store that rejects tokens
    /// lower than the highest it has seen rejects writers that lost the lease without noticing.
    pub fn token(&self) -> Revision {
        self.token
    }

    /// Returns the state at `now`.
    pub fn state(&self, now: Timestamp) -> LeaseState {
        match self.phase {
            Phase::Held(Some(end)) if end <= now => LeaseState::Expired,
            Phase::Held(_) => LeaseState::Leased,
            Phase::Breaking(end) if end <= now => LeaseState::Broken,
            Phase::Breaking(_) => LeaseState::Breaking,
        }
    }

    /// Returns when the lease stops locking, or `None` if it has no end.
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
