//! Lease operations as transitions of a record.

use http::Method;

use super::{Decision, Known, unless_absent};
use crate::command::{LeaseOperation, Outcome, Refusal};
use crate::date::Timestamp;
use crate::lease::{self, Lease, LeaseAction, LeaseConflict, LeaseReceipt};
use crate::record::{Record, RememberedAnswer};

impl Record {
    /// Applies a lease operation. A lease can't start to lock while a write is in flight, which was granted to another
    /// client or to a former holder, or before the resource is known to exist.
    pub(super) fn operate(&self, operation: &LeaseOperation<'_>, now: Timestamp) -> Decision {
        let action = match self.remembered(operation, now) {
            Some(Repeated::Done(receipt)) => {
                return Ok((None, Outcome::Leased(LeaseReceipt { at: now, ..receipt })));
            }
            Some(Repeated::Again(action)) => action,
            Some(Repeated::Superseded) => {
                return Err(Refusal::LeaseConflict(LeaseConflict::IdMismatch));
            }
            None => operation.action,
        };
        let revision = self.revision.next(now);
        let observed = self.still_true(operation.observed.as_ref());
        let state = self.seen(observed, revision, now);
        let known = Known::of(&state, operation.authority, observed);
        if known.is_absent() {
            return Err(Refusal::NotFound);
        }
        // A new lease's token exceeds every token that this resource has seen.
        let token = self.revision.max(self.fence).next(now);
        let after =
            lease::apply(self.lease_at(now), action, now, token).map_err(Refusal::LeaseConflict)?;
        if lease::state(after.as_ref(), now).is_locked() && !self.lease_state(now).is_locked() {
            self.refuse_in_flight(now)?;
            known.refuse_unknown()?;
        }
        known.check(&Method::PUT, operation.preconditions)?;
        let state = if observed.is_some() {
            unless_absent(state)
        } else {
            state
        };
        let permit = self.permit.filter(|permit| permit.deadline > now);
        let fence = after.map_or(self.fence, |lease| self.fence.max(lease.token()));
        let mut next = Self {
            lease: after,
            fence,
            ..self.with(revision, operation.nonce, state, permit, now)
        };
        let receipt = LeaseReceipt {
            lease: after,
            at: now,
        };
        if is_worth_remembering(action) {
            // The response to a retry is computed from the lease, which has the label.
            let unlabelled = LeaseReceipt {
                lease: after.map(|lease| lease.held_by(None)),
                at: now,
            };
            next.remember(operation.request, now, || {
                RememberedAnswer::Leased(unlabelled)
            });
        }
        Ok((Some(next), Outcome::Leased(receipt)))
    }

    /// Returns the result of a repeated operation. The lease's time runs from the response, so the stored lease is never
    /// returned as is: the operation is run again on the lease it left. A lease acquired since then belongs to another
    /// holder and isn't changed.
    fn remembered(&self, operation: &LeaseOperation<'_>, now: Timestamp) -> Option<Repeated> {
        let Some(RememberedAnswer::Leased(receipt)) = self.answer(operation.request) else {
            return None;
        };
        let is_another = |left: &Lease| self.lease.is_none_or(|held| held.token() != left.token());
        match (operation.action, receipt.lease, &self.lease) {
            (
                LeaseAction::Acquire {
                    duration, holder, ..
                },
                Some(left),
                Some(held),
            ) if held.token() == left.token()
                && held.id() == left.id()
                && held.state(now).is_locked() =>
            {
                Some(Repeated::Again(LeaseAction::Acquire {
                    id: left.id(),
                    duration,
                    holder,
                }))
            }
            (LeaseAction::Release(_), None, _) => Some(Repeated::Done(*receipt)),
            (LeaseAction::Break { .. }, Some(left), _) if is_another(&left) => {
                Some(Repeated::Done(LeaseReceipt {
                    lease: None,
                    ..*receipt
                }))
            }
            // The id has changed again since; repeating this change would undo the later one.
            (LeaseAction::Change { proposed, .. }, Some(left), Some(held))
                if is_another(&left) || held.id() != proposed =>
            {
                Some(Repeated::Superseded)
            }
            _ => None,
        }
    }
}

/// The result of a repeated operation.
enum Repeated {
    /// Its effect still stands.
    Done(LeaseReceipt),
    /// It is applied again, to the lease that it left.
    Again(LeaseAction),
    /// A later operation has replaced its effect, which must not be restored.
    Superseded,
}

/// Returns `true` if repeating the operation isn't harmless. Renewing a lease twice is the same as renewing it once. A
/// repeat of any other operation could be refused, act on the next holder's lease or, without an id, grant another
/// lease.
fn is_worth_remembering(action: LeaseAction) -> bool {
    !matches!(action, LeaseAction::Renew(_))
}
