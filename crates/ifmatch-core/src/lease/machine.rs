//! The lease state machine: the effect of each operation, and the check of requests against a lease.

use super::{
    BreakPeriod, Lease, LeaseAction, LeaseConflict, LeaseDuration, LeaseFailure, LeaseId, LeaseState, LeaseUse, Phase,
};
use crate::date::Timestamp;
use crate::record::Revision;

/// Returns the state of a lease, or of no lease.
pub fn state(lease: Option<&Lease>, now: Timestamp) -> LeaseState {
    lease.map_or(LeaseState::Available, |lease| lease.state(now))
}

/// Returns the lease after an operation at `now`, or `None` if it was released.
///
/// # Errors
/// If the state of the lease or the id does not permit the operation.
pub(crate) fn apply(
    lease: Option<&Lease>,
    action: LeaseAction,
    now: Timestamp,
    revision: Revision,
) -> Result<Option<Lease>, LeaseConflict> {
    match action {
        LeaseAction::Acquire { id, duration } => acquire(lease, id, duration, now, revision).map(Some),
        LeaseAction::Renew(id) => renew(lease, id, now).map(Some),
        LeaseAction::Change { id, proposed } => change(lease, id, proposed, now).map(Some),
        LeaseAction::Release(id) => match lease {
            Some(lease) if lease.id == id => Ok(None),
            _ => Err(LeaseConflict::IdMismatch),
        },
        LeaseAction::Break(period) => {
            lease.map(|lease| Some(broken(lease, period, now))).ok_or(LeaseConflict::NotPresent)
        }
    }
}

fn acquire(
    lease: Option<&Lease>,
    id: LeaseId,
    duration: LeaseDuration,
    now: Timestamp,
    revision: Revision,
) -> Result<Lease, LeaseConflict> {
    let token = match lease {
        Some(held) if held.state(now) == LeaseState::Leased && held.id == id => held.token,
        Some(held) if held.state(now) == LeaseState::Breaking && held.id == id => {
            return Err(LeaseConflict::IsBreakingAndCannotBeAcquired);
        }
        Some(held) if held.state(now).is_locked() => return Err(LeaseConflict::AlreadyPresent),
        _ => revision,
    };
    Ok(Lease { id, duration, phase: Phase::Held(duration.end(now)), token })
}

fn renew(lease: Option<&Lease>, id: LeaseId, now: Timestamp) -> Result<Lease, LeaseConflict> {
    let lease = lease.filter(|lease| lease.id == id).ok_or(LeaseConflict::IdMismatch)?;
    match lease.state(now) {
        LeaseState::Breaking | LeaseState::Broken => Err(LeaseConflict::IsBrokenAndCannotBeRenewed),
        _ => Ok(Lease { phase: Phase::Held(lease.duration.end(now)), ..*lease }),
    }
}

/// Changing to the current id succeeds: it is a retry of a change that lost its answer.
fn change(lease: Option<&Lease>, id: LeaseId, proposed: LeaseId, now: Timestamp) -> Result<Lease, LeaseConflict> {
    let lease = lease.ok_or(LeaseConflict::NotPresent)?;
    match lease.state(now) {
        LeaseState::Leased if lease.id == id || lease.id == proposed => Ok(Lease { id: proposed, ..*lease }),
        LeaseState::Breaking if lease.id == id => Err(LeaseConflict::IsBreakingAndCannotBeChanged),
        LeaseState::Leased | LeaseState::Breaking => Err(LeaseConflict::IdMismatch),
        _ => Err(LeaseConflict::NotPresent),
    }
}

/// A broken lease ends after the period or at its own end, whichever is first. Without a period, a fixed lease ends at its
/// own end and an infinite one at once. A second break can only bring the end forward.
fn broken(lease: &Lease, period: Option<BreakPeriod>, now: Timestamp) -> Lease {
    let wanted = period.map(|BreakPeriod(seconds)| LeaseDuration::Seconds(seconds).end(now).unwrap_or(now));
    let end = match (lease.end(), wanted) {
        (Some(end), Some(wanted)) => end.min(wanted),
        (Some(end), None) => end,
        (None, wanted) => wanted.unwrap_or(now),
    };
    Lease { phase: Phase::Breaking(end), ..*lease }
}

/// Checks a request against the lease of its resource.
///
/// # Errors
/// If another client holds the lease, or the named lease has ended.
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
    match r#use {
        LeaseUse::Write(Some(id)) | LeaseUse::Read(Some(id)) => check_id(lease, id, now),
        LeaseUse::Write(None) if state(lease, now).is_locked() => Err(LeaseFailure::IdMissing),
        LeaseUse::Write(None) | LeaseUse::Read(None) => Ok(()),
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
