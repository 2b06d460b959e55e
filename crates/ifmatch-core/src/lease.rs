//! Leases: exclusive access with expiry, renewal and break, by Azure Blob Storage's rules.
//!
//! A lease is part of its resource's record, so one swap checks or changes both. It expires by comparison with
//! `now`, not by a timer: an expired lease keeps its id, and can be renewed with it, until another client acquires the
//! lease or the resource is written.

pub mod azure;
pub mod fields;
mod holder;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid};

pub use holder::{Holder, InvalidHolder};

use crate::date::Timestamp;
use crate::revision::Revision;

/// A lease's duration.
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
            Self::Seconds(seconds) => {
                Some(start.saturating_add(Duration::from_secs(seconds.into())))
            }
        }
    }
}

/// The time for which a broken lease continues to lock: 0 to 60 seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BreakPeriod(u8);

impl BreakPeriod {
    /// The longest period.
    const LONGEST: Duration = Duration::from_secs(60);

    /// Returns the period for the number on the wire, or `None` if it isn't 0 to 60.
    ///
    /// ```
    /// use ifmatch_core::lease::BreakPeriod;
    /// assert!(BreakPeriod::from_seconds(0).is_some());
    /// assert!(BreakPeriod::from_seconds(61).is_none());
    /// ```
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        u8::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds <= 60)
            .map(Self)
    }
}

/// A lease operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Acquires the lease.
    Acquire {
        /// The id of the lease, proposed by the client or random.
        id: LeaseId,
        /// The lease's duration.
        duration: LeaseDuration,
        /// The label of its holder.
        holder: Option<Holder>,
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
    Break {
        /// The time for which it continues to lock, if one was given.
        period: Option<BreakPeriod>,
        /// The token of the lease to break, if a later lease must not be broken instead.
        token: Option<Revision>,
    },
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

/// The reason why a lease operation was refused: 409.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LeaseConflict {
    /// Another holder has the lease.
    #[error("already leased. Wait until the lease ends, or break it")]
    AlreadyPresent,
    /// The lease has this id, but is being broken.
    #[error("the lease is breaking. Acquire it after the break period")]
    IsBreakingAndCannotBeAcquired,
    /// The lease is being broken or was broken.
    #[error("the lease was broken. Acquire a new one")]
    IsBrokenAndCannotBeRenewed,
    /// The lease is being broken.
    #[error("the lease is breaking and can't be changed")]
    IsBreakingAndCannotBeChanged,
    /// The lease has another id.
    #[error("the lease has another ID")]
    IdMismatch,
    /// There is no lease.
    #[error("there is no lease")]
    NotPresent,
    /// The resource has no lease with this token.
    #[error("the lease with this token has ended. Look again before you break the current one")]
    TokenMismatch,
}

/// The reason why a resource can't be used with, or without, a lease id: 412.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LeaseFailure {
    /// There is no lease.
    #[error("there is no lease. Remove the lease ID, or acquire a lease")]
    NotPresent,
    /// The lease has another id.
    #[error("the lease has another ID")]
    IdMismatch,
    /// The resource is leased and no id was given.
    #[error("the resource is leased. Send the lease ID")]
    IdMissing,
    /// The lease has ended.
    #[error("the lease has expired. Acquire a new one, and check what has changed")]
    Lost,
    /// The request names a fencing token that is smaller than the largest one seen.
    #[error(
        "the request's lease-token is smaller than the largest seen, so a later holder has written or leased this"
    )]
    Superseded,
}

/// A request's use of a resource that may be leased, and the lease id it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseUse {
    /// A write. A locked resource needs the id. The write removes a lease that has ended.
    Write(Option<LeaseId>),
    /// A write that also names a fencing token, of a lease on this resource or on another one. The record keeps the largest
    /// token of such writes and of its own leases, and refuses smaller ones.
    Fenced {
        /// The lease id, as for [`LeaseUse::Write`].
        id: Option<LeaseId>,
        /// The fencing token.
        token: Revision,
    },
    /// A read, or a change of something that the lease doesn't protect. The id is optional, but must be correct.
    Read(Option<LeaseId>),
}

impl LeaseUse {
    /// Returns the lease id that the request names.
    pub fn id(self) -> Option<LeaseId> {
        let (Self::Write(id) | Self::Fenced { id, .. } | Self::Read(id)) = self;
        id
    }

    /// Returns the fencing token that the request names.
    pub fn token(self) -> Option<Revision> {
        match self {
            Self::Fenced { token, .. } => Some(token),
            Self::Write(_) | Self::Read(_) => None,
        }
    }

    /// Returns `true` for a write that names a lease id.
    pub fn is_holders_write(self) -> bool {
        !matches!(self, Self::Read(_)) && self.id().is_some()
    }
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
    /// The operation's time.
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
    holder: Option<Holder>,
}

/// Whether a lease was broken, and when it stops locking.
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

    /// Returns the label that the holder gave itself.
    pub fn holder(&self) -> Option<Holder> {
        self.holder
    }

    /// Returns the lease with another label.
    #[must_use]
    pub(crate) fn held_by(self, holder: Option<Holder>) -> Self {
        Self { holder, ..self }
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
            (Phase::Held(_), LeaseDuration::Seconds(seconds)) => {
                Some(Duration::from_secs(seconds.into()))
            }
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

/// A lease as read from its record, with the time of the reading by the clock that ends the lease. Processes with other
/// clocks see the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenLease {
    /// The lease.
    pub lease: Lease,
    /// When it was read.
    pub at: Timestamp,
}

impl SeenLease {
    /// Returns the state when the lease was read.
    pub fn state(&self) -> LeaseState {
        self.lease.state(self.at)
    }

    /// Checks a request against the lease of its resource, if there is one. Only the record can check a fencing token.
    ///
    /// # Errors
    /// Fails if another client held the lease when it was read, or the named lease had ended.
    pub fn check(seen: Option<&Self>, r#use: LeaseUse) -> Result<(), LeaseFailure> {
        check(
            seen.map(|seen| &seen.lease),
            r#use,
            seen.map_or_else(Timestamp::default, |seen| seen.at),
        )
    }
}

/// Returns the state of a lease, or of no lease.
pub fn state(lease: Option<&Lease>, now: Timestamp) -> LeaseState {
    lease.map_or(LeaseState::Available, |lease| lease.state(now))
}

/// Returns the lease after an operation at `now`, or `None` if it was released. A new lease gets `token`.
///
/// # Errors
/// Fails if the state of the lease or the id doesn't permit the operation.
pub(crate) fn apply(
    lease: Option<&Lease>,
    action: LeaseAction,
    now: Timestamp,
    token: Revision,
) -> Result<Option<Lease>, LeaseConflict> {
    match action {
        LeaseAction::Acquire {
            id,
            duration,
            holder,
        } => {
            let token = acquired_token(lease, id, now, token)?;
            Ok(Some(Lease {
                id,
                duration,
                phase: Phase::Held(duration.end(now)),
                token,
                holder,
            }))
        }
        LeaseAction::Renew(id) => renew(lease, id, now).map(Some),
        LeaseAction::Change { id, proposed } => change(lease, id, proposed, now).map(Some),
        LeaseAction::Release(id) => match lease {
            Some(lease) if lease.id == id => Ok(None),
            _ => Err(LeaseConflict::IdMismatch),
        },
        LeaseAction::Break {
            period,
            token: None,
        } => lease
            .map(|lease| Some(broken(lease, period, now)))
            .ok_or(LeaseConflict::NotPresent),
        LeaseAction::Break {
            period,
            token: Some(token),
        } => {
            let named = lease
                .filter(|lease| lease.token == token)
                .ok_or(LeaseConflict::TokenMismatch)?;
            Ok(Some(broken(named, period, now)))
        }
    }
}

/// Returns the token of a lease to acquire: that lease's own if the client already holds it, or a `new` one.
fn acquired_token(
    lease: Option<&Lease>,
    id: LeaseId,
    now: Timestamp,
    new: Revision,
) -> Result<Revision, LeaseConflict> {
    match lease {
        Some(held) if held.state(now) == LeaseState::Leased && held.id == id => Ok(held.token),
        Some(held) if held.state(now) == LeaseState::Breaking && held.id == id => {
            Err(LeaseConflict::IsBreakingAndCannotBeAcquired)
        }
        Some(held) if held.state(now).is_locked() => Err(LeaseConflict::AlreadyPresent),
        _ => Ok(new),
    }
}

fn renew(lease: Option<&Lease>, id: LeaseId, now: Timestamp) -> Result<Lease, LeaseConflict> {
    let lease = lease
        .filter(|lease| lease.id == id)
        .ok_or(LeaseConflict::IdMismatch)?;
    match lease.state(now) {
        LeaseState::Breaking | LeaseState::Broken => Err(LeaseConflict::IsBrokenAndCannotBeRenewed),
        _ => Ok(Lease {
            phase: Phase::Held(lease.duration.end(now)),
            ..*lease
        }),
    }
}

/// Changing to the current id succeeds: it is a retry of a change that lost its response.
fn change(
    lease: Option<&Lease>,
    id: LeaseId,
    proposed: LeaseId,
    now: Timestamp,
) -> Result<Lease, LeaseConflict> {
    let lease = lease.ok_or(LeaseConflict::NotPresent)?;
    match lease.state(now) {
        LeaseState::Leased if lease.id == id || lease.id == proposed => Ok(Lease {
            id: proposed,
            ..*lease
        }),
        LeaseState::Breaking if lease.id == id => Err(LeaseConflict::IsBreakingAndCannotBeChanged),
        LeaseState::Leased | LeaseState::Breaking => Err(LeaseConflict::IdMismatch),
        _ => Err(LeaseConflict::NotPresent),
    }
}

/// A broken lease ends after the period or at its own end, whichever is first. Without a period, a fixed lease ends at its
/// own end and an infinite one at once. A second break can only bring the end forward.
fn broken(lease: &Lease, period: Option<BreakPeriod>, now: Timestamp) -> Lease {
    let wanted =
        period.map(|BreakPeriod(seconds)| LeaseDuration::Seconds(seconds).end(now).unwrap_or(now));
    let end = match (lease.end(), wanted) {
        (Some(end), Some(wanted)) => end.min(wanted),
        (Some(end), None) => end,
        (None, wanted) => wanted.unwrap_or(now),
    };
    Lease {
        phase: Phase::Breaking(end),
        ..*lease
    }
}

/// Checks a request against the lease of its resource. Only the record can check a fencing token.
///
/// # Errors
/// Fails if another client holds the lease, or the named lease has ended.
///
/// ```
/// use ifmatch_core::date::Timestamp;
/// use ifmatch_core::lease::{LeaseFailure, LeaseUse, check};
///
/// let id = "936da01f-9abd-4d9d-80c7-02af85c822a8".parse()?;
/// let now = Timestamp::default();
/// assert_eq!(check(None, LeaseUse::Write(None), now), Ok(()));
/// assert_eq!(check(None, LeaseUse::Write(Some(id)), now), Err(LeaseFailure::NotPresent));
/// # Ok::<(), ifmatch_core::lease::InvalidLeaseId>(())
/// ```
pub fn check(lease: Option<&Lease>, r#use: LeaseUse, now: Timestamp) -> Result<(), LeaseFailure> {
    match (r#use, r#use.id()) {
        (_, Some(id)) => check_id(lease, id, now),
        (LeaseUse::Write(_) | LeaseUse::Fenced { .. }, None) if state(lease, now).is_locked() => {
            Err(LeaseFailure::IdMissing)
        }
        (_, None) => Ok(()),
    }
}

fn check_id(lease: Option<&Lease>, id: LeaseId, now: Timestamp) -> Result<(), LeaseFailure> {
    let lease = lease.ok_or(LeaseFailure::NotPresent)?;
    match lease.state(now).is_locked() {
        _ if lease.id != id => Err(LeaseFailure::IdMismatch),
        true => Ok(()),
        false => Err(LeaseFailure::Lost),
    }
}

/// The id of a lease: a UUID.
///
/// ```
/// use ifmatch_core::lease::LeaseId;
///
/// let id: LeaseId = "936DA01F-9ABD-4d9d-80C7-02AF85C822A8".parse()?;
/// assert_eq!(id.to_string(), "936da01f-9abd-4d9d-80c7-02af85c822a8");
/// # Ok::<(), ifmatch_core::lease::InvalidLeaseId>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseId([u8; 16]);

/// The text isn't a lease id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease ID isn't a GUID, such as 936da01f-9abd-4d9d-80c7-02af85c822a8")]
pub struct InvalidLeaseId;

impl LeaseId {
    /// Creates a random UUID (RFC 9562 §5.4) from random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Builder::from_random_bytes(bytes).into_uuid().into()
    }
}

impl From<Uuid> for LeaseId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid.into_bytes())
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(Uuid::from_bytes_ref(&self.0), f)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
