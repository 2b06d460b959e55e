//! Leases in the model: the steps of their holders, and their faults.

use ifmatch_core::command::{Command, LeaseOperation, Outcome, Refusal};
use ifmatch_core::lease::{BreakPeriod, LeaseAction, LeaseDuration, LeaseId, LeaseUse};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};

use super::actor::{Actor, Grant, Held, Operation, Seen, Step, Task, observed};
use super::{Fault, Protocol, Sabotage, World, without_permit};

impl World {
    /// Returns the actors that believe they hold the lease and haven't lost it by a break.
    pub(crate) fn holders(&self) -> impl Iterator<Item = usize> {
        let held = self
            .actors
            .iter()
            .enumerate()
            .filter_map(|(at, actor)| Some((at, actor.held?)));
        held.filter(|(_, held)| !held.broken && held.end > self.now())
            .map(|(at, _)| at)
    }

    /// Notes the faults of a write that takes effect.
    pub(crate) fn note_effect(&mut self, at: usize, grant: Grant) {
        let others_hold = self.holders().any(|holder| holder != at);
        self.leases.note(
            Fault::BesideHolder,
            others_hold || self.others_since(at, grant),
        );
        self.leases.note(
            Fault::OutlivedLease,
            grant.lease_end.is_some_and(|end| end <= self.now()),
        );
        if let Some(held) = &mut self.actors[at].held {
            held.bytes = u8::try_from(at).ok();
        }
    }

    /// Notes the fault of a write that is recorded.
    pub(crate) fn note_record(&mut self, at: usize, grant: Grant) {
        self.leases
            .note(Fault::RecordedLate, self.others_since(at, grant));
    }

    /// Returns `true` if another actor has acquired the lease since the permit was granted.
    fn others_since(&self, at: usize, grant: Grant) -> bool {
        self.leases
            .last
            .is_some_and(|(holder, revision)| holder != at && revision > grant.token.revision)
    }
}

impl Actor {
    pub(crate) fn after_write(&self) -> Step {
        match self.task {
            Task::Hold => Step::LoadToLease(Operation::Release, None),
            _ => Step::Done,
        }
    }
}

/// Returns the lease that an actor's write names.
pub(crate) fn lease_use(actor: &Actor, at: usize, sabotage: Sabotage) -> LeaseUse {
    let held = actor.held.map(|_| id(at));
    match sabotage {
        Sabotage::IgnoreLease => LeaseUse::Read(None),
        // The id is checked, but the permit is independent of the lease.
        Sabotage::OutliveLease if held.is_some() => LeaseUse::Read(held),
        _ => LeaseUse::Write(held),
    }
}

impl Protocol {
    pub(crate) fn lease(
        &self,
        world: &mut World,
        at: usize,
        loaded: &Record,
        operation: Operation,
        seen: Option<Seen>,
    ) -> Option<Step> {
        let now = world.now();
        let command = Command::Lease(
            LeaseOperation::new(action(operation, at), &Preconditions::NONE, at as u64)
                .with_observed(seen.map(|seen| observed(seen.snapshot, seen.bytes, self.authority)))
                .with_authority(self.authority),
        );
        let overdue = loaded.permit(now).is_none();
        let believed = match self.sabotage {
            Sabotage::LockInFlight => without_permit(loaded, now),
            Sabotage::RenewAfterDoubt if overdue => {
                Some(edited(loaded, |record| record["permit"] = NONE))
            }
            _ => None,
        };
        let believed = believed.as_ref().unwrap_or(loaded);
        let transition = believed.apply(&command, now);
        let next = match self.sabotage {
            Sabotage::KeepExpiredPermit if overdue => transition.next.map(|next| {
                let kept = fields(loaded)["permit"].clone();
                edited(&next, |record| record["permit"] = kept)
            }),
            _ => transition.next,
        };
        Some(match transition.outcome {
            Outcome::Leased(_) if !self.swap(world, loaded, next) => {
                Step::LoadToLease(operation, seen)
            }
            Outcome::Leased(receipt) => {
                let lease = receipt
                    .lease
                    .map(|lease| (lease.token(), lease.end().unwrap_or(now)));
                world.leased(at, operation, lease)
            }
            Outcome::Refused(Refusal::ProbeFirst) => {
                Step::ProbeToLease(operation, believed.snapshot(now))
            }
            // Waits until another actor or the clock changes something.
            Outcome::Refused(refusal) if is_worth_waiting(&refusal, operation) => {
                if world.register == *loaded {
                    return None;
                }
                Step::LoadToLease(operation, None)
            }
            _ => Step::Done,
        })
    }
}

impl World {
    /// Returns the next step of an actor after a successful lease operation.
    fn leased(
        &mut self,
        at: usize,
        operation: Operation,
        lease: Option<(Revision, ifmatch_core::date::Timestamp)>,
    ) -> Step {
        let Some((token, end)) = lease else {
            self.actors[at].held = None;
            return Step::Done;
        };
        match operation {
            Operation::Acquire => {
                self.leases.note(
                    Fault::TokenFell,
                    self.leases.last.is_some_and(|(_, last)| token <= last),
                );
                self.leases.last = Some((at, self.register.revision()));
            }
            Operation::Renew => {
                let before = self.actors[at].held.map(|held| held.bytes);
                self.leases
                    .note(Fault::MissedWrite, before != Some(self.bytes));
                self.leases.last = Some((at, self.register.revision()));
            }
            Operation::Break => {
                for held in self
                    .actors
                    .iter_mut()
                    .filter_map(|actor| actor.held.as_mut())
                {
                    held.broken = true;
                }
                return Step::Done;
            }
            Operation::Release => return Step::Done,
        }
        self.actors[at].held = Some(Held {
            end,
            bytes: self.bytes,
            broken: false,
        });
        match (operation, self.actors[at].task) {
            (Operation::Acquire, Task::Return) => Step::LoadToLease(Operation::Renew, None),
            _ => Step::LoadToBegin(None),
        }
    }
}

/// Returns `true` for an actor that waits for the lease of another one to end. Actors that have lost the lease give up.
fn is_worth_waiting(refusal: &Refusal, operation: Operation) -> bool {
    match refusal {
        Refusal::InFlight { .. } => true,
        Refusal::LeaseConflict(_) => matches!(operation, Operation::Acquire | Operation::Break),
        _ => false,
    }
}

fn action(operation: Operation, at: usize) -> LeaseAction {
    match operation {
        Operation::Acquire => LeaseAction::Acquire {
            id: id(at),
            duration: LeaseDuration::Seconds(15),
            holder: None,
        },
        Operation::Renew => LeaseAction::Renew(id(at)),
        Operation::Release => LeaseAction::Release(id(at)),
        Operation::Break => LeaseAction::Break {
            period: BreakPeriod::from_seconds(0),
            token: None,
        },
    }
}

fn id(at: usize) -> LeaseId {
    LeaseId::from_random([u8::try_from(at).unwrap_or(u8::MAX); 16])
}

const NONE: serde_json::Value = serde_json::Value::Null;

fn fields(record: &Record) -> serde_json::Value {
    serde_json::to_value(record).unwrap_or_default()
}

/// Returns a record that no command would produce.
fn edited(record: &Record, edit: impl FnOnce(&mut serde_json::Value)) -> Record {
    let mut fields = fields(record);
    edit(&mut fields);
    serde_json::from_value(fields).unwrap_or_else(|_| record.clone())
}
