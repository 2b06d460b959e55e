//! Random sequences of lease operations, writes and time: at most one client can write at any time.

use std::time::Duration;

use ifmatch_core::command::{Command, Doubt, Grant, Outcome, Refusal};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{BreakPeriod, LeaseAction, LeaseDuration, LeaseId, LeaseUse};
use ifmatch_core::record::Revision;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::world::{World, hashed, id};

#[derive(Clone, Debug)]
enum Step {
    Lease(LeaseAction, Option<&'static str>),
    Begin(Option<LeaseId>),
    Write(Option<LeaseId>),
    Delete(Option<LeaseId>),
    /// Ends the started write with this number.
    Commit(prop::sample::Index),
    Abort(prop::sample::Index),
    Doubt(prop::sample::Index, u64),
    Pass(f64),
}

fn step() -> impl Strategy<Value = Step> {
    let id = || select(vec!["A", "B", "C"]).prop_map(id);
    let duration = select(vec![-1, 15, 30, 60])
        .prop_map(|seconds| LeaseDuration::from_seconds(seconds).unwrap());
    let period = proptest::option::of(
        (0..=60_i64).prop_map(|seconds| BreakPeriod::from_seconds(seconds).unwrap()),
    );
    let action = prop_oneof![
        3 => (id(), duration).prop_map(|(id, duration)| LeaseAction::Acquire { id, duration, holder: None }),
        2 => id().prop_map(LeaseAction::Renew),
        1 => (id(), id()).prop_map(|(id, proposed)| LeaseAction::Change { id, proposed }),
        1 => id().prop_map(LeaseAction::Release),
        1 => period.prop_map(|period| LeaseAction::Break { period, token: None }),
    ];
    let request = proptest::option::of(select(vec!["r", "s"]));
    let user = || proptest::option::of(id());
    prop_oneof![
        5 => (action, request).prop_map(|(action, request)| Step::Lease(action, request)),
        3 => user().prop_map(Step::Begin),
        1 => user().prop_map(Step::Write),
        1 => user().prop_map(Step::Delete),
        2 => any::<prop::sample::Index>().prop_map(Step::Commit),
        1 => any::<prop::sample::Index>().prop_map(Step::Abort),
        1 => (any::<prop::sample::Index>(), 0..20_u64).prop_map(|(at, grace)| Step::Doubt(at, grace)),
        3 => prop_oneof![0.0..2.0, 5.0..70.0].prop_map(Step::Pass),
    ]
}

/// The state of the writers as known to the test without the record.
#[derive(Default)]
struct Writers {
    /// The unfinished writes, and how long each may still take effect.
    begun: Vec<(Grant, Timestamp)>,
    /// The client that was granted the lease, and its end, or `None` for an infinite lease.
    told: Option<(LeaseId, Option<Timestamp>)>,
    highest_token: Revision,
}

impl Writers {
    fn may_take_effect(&self, now: Timestamp) -> bool {
        self.begun.iter().any(|(_, end)| *end > now)
    }

    fn holds(&self, now: Timestamp) -> Option<LeaseId> {
        self.told
            .filter(|(_, end)| end.is_none_or(|end| end > now))
            .map(|(id, _)| id)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn at_most_one_client_can_write(steps in vec(step(), 1..40)) {
        let mut world = World::new();
        let mut writers = Writers::default();
        for step in &steps {
            take(&mut world, &mut writers, step)?;
            one_can_write(&world, &writers)?;
        }
    }
}

/// Under a locking lease, exactly its holder can write; otherwise only clients that name no lease.
fn one_can_write(world: &World, writers: &Writers) -> Result<(), TestCaseError> {
    let now = world.now;
    let can = |user: Option<LeaseId>| world.record.check_lease(LeaseUse::Write(user), now).is_ok();
    let users = [None, Some(id("A")), Some(id("B")), Some(id("C"))];
    let able: Vec<_> = users.into_iter().filter(|user| can(*user)).collect();
    prop_assert_eq!(able.len(), 1, "{:?} can write", able);
    if let Some(holder) = writers.holds(now) {
        prop_assert_eq!(
            able[0],
            Some(holder),
            "the client with a success holds the lease"
        );
    }
    Ok(())
}

fn take(world: &mut World, writers: &mut Writers, step: &Step) -> Result<(), TestCaseError> {
    let now = world.now;
    match step {
        Step::Lease(action, request) => lease(world, writers, *action, *request)?,
        Step::Begin(user) => {
            if let Ok(grant) = world.begin(LeaseUse::Write(*user)) {
                prop_assert!(!writers.may_take_effect(now), "a second permit");
                prop_assert!(
                    writers
                        .holds(now)
                        .is_none_or(|holder| Some(holder) == *user),
                    "a permit for another"
                );
                writers.begun.push((grant.clone(), grant.deadline));
            }
        }
        Step::Write(user) | Step::Delete(user) => {
            let result = match step {
                Step::Write(_) => world.write(LeaseUse::Write(*user)),
                _ => world.delete(LeaseUse::Write(*user)),
            };
            if result.is_ok() {
                prop_assert!(
                    !writers.may_take_effect(now),
                    "a write during another permit"
                );
                prop_assert!(
                    writers
                        .holds(now)
                        .is_none_or(|holder| Some(holder) == *user),
                    "a write by another"
                );
                writers.told = writers
                    .told
                    .filter(|_| matches!(step, Step::Write(_)) && user.is_some());
            }
        }
        Step::Commit(at) => end(world, writers, *at, |world, grant| {
            world.commit(grant.token, hashed())
        })?,
        Step::Abort(at) => end(world, writers, *at, |world, grant| {
            world.apply(&Command::Abort(grant.token))
        })?,
        Step::Doubt(at, grace) => {
            let grace = Duration::from_secs(*grace);
            let end = now.saturating_add(grace);
            if !writers.begun.is_empty() {
                let at = at.index(writers.begun.len());
                let (grant, until) = &mut writers.begun[at];
                if world
                    .apply(&Command::Doubt(Doubt::new(grant.token, grace)))
                    .is_ok()
                {
                    *until = end.min(*until);
                }
            }
        }
        Step::Pass(seconds) => world.pass(*seconds),
    }
    Ok(())
}

fn lease(
    world: &mut World,
    writers: &mut Writers,
    action: LeaseAction,
    request: Option<&str>,
) -> Result<(), TestCaseError> {
    let now = world.now;
    let locked = world.record.lease_state(now).is_locked();
    // As in the shells, the identity covers the client's request id, the action and the ids.
    let request = request.map(|request| format!("{request} {action:?}"));
    let Ok(receipt) = world.lease_by(action, request.as_deref()) else {
        return Ok(());
    };
    match action {
        LeaseAction::Acquire { id, .. } | LeaseAction::Renew(id) => {
            prop_assert!(
                writers.holds(now).is_none_or(|holder| holder == id),
                "two holders"
            );
            prop_assert!(
                locked || !writers.may_take_effect(now),
                "a lease during a write in flight"
            );
            let lease = receipt.lease.unwrap();
            prop_assert!(
                lease.end().is_none_or(|end| end > now),
                "a lease that had ended when it was granted"
            );
            prop_assert!(
                lease.token() >= writers.highest_token,
                "fencing tokens grow"
            );
            prop_assert!(
                locked
                    || matches!(action, LeaseAction::Renew(_))
                    || lease.token() > writers.highest_token,
                "a new holder has a new token"
            );
            writers.highest_token = lease.token();
            writers.told = Some((id, lease.end()));
        }
        LeaseAction::Change { proposed, .. } => {
            writers.told = receipt.lease.map(|lease| (proposed, lease.end()));
        }
        LeaseAction::Release(id) => writers.told = writers.told.filter(|(holder, _)| *holder != id),
        LeaseAction::Break { .. } => writers.told = None,
    }
    Ok(())
}

/// Ends a write. A late commit succeeds only if no other command has relied on its deadline.
fn end(
    world: &mut World,
    writers: &mut Writers,
    at: prop::sample::Index,
    end: impl Fn(&mut World, &Grant) -> Result<Outcome, Refusal>,
) -> Result<(), TestCaseError> {
    if writers.begun.is_empty() {
        return Ok(());
    }
    let (grant, _) = writers.begun.remove(at.index(writers.begun.len()));
    let locked = world.record.lease_state(world.now).is_locked();
    let result = end(world, &grant);
    if result.is_ok() {
        let overtaken = writers
            .begun
            .iter()
            .any(|(other, _)| other.token.revision > grant.token.revision);
        prop_assert!(!overtaken, "a later write was begun");
        prop_assert!(
            locked
                || world.record.lease_state(world.now) != ifmatch_core::lease::LeaseState::Leased
        );
    }
    Ok(())
}
