//! Leases and writes in flight: no lease is granted while another client's write may still take effect.

use std::time::Duration;

use ifmatch_core::command::{
    Authority, Command, Doubt, LeaseOperation, Observation, Observed, Refusal,
};
use ifmatch_core::lease::{BreakPeriod, LeaseAction, LeaseDuration, LeaseFailure, LeaseUse};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Variant;

use super::world::{TTL, World, code, hashed, id};

const ID_MISMATCH: &str = "LeaseIdMismatchWithLeaseOperation";

fn holder() -> LeaseUse {
    LeaseUse::Write(Some(id("A")))
}

/// Returns the result of a probe made now.
fn seen(world: &World) -> Observed {
    let observation = Observation::Present {
        variant: Variant::only(),
        tag: None,
        last_modified: None,
    };
    let snapshot = world.record.snapshot(world.now).unwrap();
    Observed::new(snapshot, observation, Authority::Register)
}

fn acquire_after_probe(world: &mut World, holder: &str) -> Result<(), Refusal> {
    let duration = LeaseDuration::Seconds(30);
    let operation = LeaseOperation::new(
        LeaseAction::Acquire {
            id: id(holder),
            duration,
            holder: None,
        },
        &Preconditions::NONE,
        1,
    )
    .with_observed(Some(seen(world)))
    .with_authority(Authority::Register);
    world.apply(&Command::Lease(operation)).map(|_| ())
}

#[test]
fn a_permit_under_a_lease_ends_with_it() {
    let mut fixed = World::in_state("Leased(A)");
    assert_eq!(
        fixed.begin(holder()).unwrap().deadline,
        fixed.now.saturating_add(Duration::from_secs(29))
    );
    let mut breaking = World::in_state("Breaking(A)");
    assert_eq!(
        breaking.begin(holder()).unwrap().deadline,
        breaking.now.saturating_add(Duration::from_secs(19))
    );
    for (state, lease) in [
        ("Infinite(A)", holder()),
        ("Expired(A)", LeaseUse::Write(None)),
    ] {
        let mut world = World::in_state(state);
        assert_eq!(
            world.begin(lease).unwrap().deadline,
            world.now.saturating_add(TTL),
            "{state}"
        );
    }
}

#[test]
fn a_lease_starts_to_lock_only_without_a_write_in_flight() {
    for (state, action) in [
        ("Available", "acquire"),
        ("Broken(A)", "acquire"),
        ("Expired(A)", "acquire"),
        ("Expired(A)", "renew"),
    ] {
        let mut world = World::in_state(state);
        let grant = world.begin(LeaseUse::Write(None)).unwrap();
        let attempt = |world: &mut World| match action {
            "renew" => world.lease(LeaseAction::Renew(id("A"))).map(|_| ()),
            _ => world.acquire("B", 30).map(|_| ()),
        };
        assert_eq!(
            attempt(&mut world),
            Err(Refusal::InFlight {
                deadline: grant.deadline
            }),
            "{action} in {state}"
        );
        // A write without an effect leaves the lease unchanged.
        let mut aborted = world.clone();
        aborted.apply(&Command::Abort(grant.token)).unwrap();
        assert_eq!(attempt(&mut aborted), Ok(()), "{action} in {state}");
        // After a write, an expired lease can't be renewed.
        world.commit(grant.token, hashed()).unwrap();
        match action {
            "renew" => assert_eq!(code(&attempt(&mut world).unwrap_err()), ID_MISMATCH),
            _ => assert_eq!(attempt(&mut world), Ok(()), "{action} in {state}"),
        }
    }
}

/// The other client's write may have taken effect, and a renewal would suggest that nothing happened.
#[test]
fn an_expired_lease_cannot_be_renewed_after_a_write_with_an_unknown_effect() {
    let written_by_others = || {
        let mut world = World::in_state("Expired(A)");
        let grant = world.begin(LeaseUse::Write(None)).unwrap();
        (world, grant)
    };
    let renewed = |mut world: World| code(&world.lease(LeaseAction::Renew(id("A"))).unwrap_err());
    let (mut overdue, _) = written_by_others();
    overdue.pass(TTL.as_secs_f64());
    assert_eq!(renewed(overdue.clone()), ID_MISMATCH);
    assert_eq!(
        overdue.record.check_lease(holder(), overdue.now),
        Err(LeaseFailure::NotPresent)
    );
    // Neither a read nor another write changes this.
    let mut read = overdue.clone();
    read.apply(&Command::Observe(seen(&read))).unwrap();
    assert_eq!(renewed(read), ID_MISMATCH);
    let again = overdue.begin(LeaseUse::Write(None)).unwrap();
    overdue.apply(&Command::Abort(again.token)).unwrap();
    assert_eq!(renewed(overdue), ID_MISMATCH);
    for grace in [0, 5] {
        let (mut doubted, grant) = written_by_others();
        doubted
            .apply(&Command::Doubt(Doubt::new(
                grant.token,
                Duration::from_secs(grace),
            )))
            .unwrap();
        doubted.pass(5.0);
        assert_eq!(renewed(doubted), ID_MISMATCH, "a grace of {grace} s");
    }
}

#[test]
fn a_holders_write_with_an_unknown_effect_keeps_a_locking_lease() {
    let mut world = World::in_state("Infinite(A)");
    let grant = world.begin(holder()).unwrap();
    world
        .apply(&Command::Doubt(Doubt::new(grant.token, Duration::ZERO)))
        .unwrap();
    assert_eq!(world.state(), "Leased(A)");
    world.begin(holder()).unwrap();
    world.pass(TTL.as_secs_f64());
    assert_eq!(world.state(), "Leased(A)");
    world.lease(LeaseAction::Renew(id("A"))).unwrap();
}

/// The holder's write hangs, its lease ends and another client acquires it. The holder's write isn't recorded.
#[test]
fn a_late_commit_is_refused_once_a_lease_was_acquired() {
    let mut world = World::in_state("Leased(A)");
    let grant = world.begin(holder()).unwrap();
    world.pass(28.9);
    assert_eq!(
        code(&world.acquire("B", 30).unwrap_err()),
        "LeaseAlreadyPresent"
    );
    world.pass(0.1);
    assert_eq!(
        world.acquire("B", 30),
        Err(Refusal::ProbeFirst),
        "the state is unknown"
    );
    acquire_after_probe(&mut world, "B").unwrap();
    assert_eq!(world.commit(grant.token, hashed()), Err(Refusal::Stale));
    assert_eq!(world.state(), "Leased(B)");
}

#[test]
fn a_late_commit_without_a_competing_write_succeeds_and_ends_the_lease() {
    let mut world = World::in_state("Leased(A)");
    let grant = world.begin(holder()).unwrap();
    world.pass(29.0);
    world.commit(grant.token, hashed()).unwrap();
    assert_eq!(world.state(), "Available");
    assert!(world.record.settled(world.now).is_some());
}

#[test]
fn a_write_that_lost_its_lease_blocks_the_next_lease() {
    for action in [
        LeaseAction::Release(id("A")),
        LeaseAction::Break {
            period: BreakPeriod::from_seconds(0),
            token: None,
        },
    ] {
        let mut world = World::in_state("Leased(A)");
        let grant = world.begin(holder()).unwrap();
        world.lease(action).unwrap();
        let wait = Refusal::InFlight {
            deadline: grant.deadline,
        };
        assert_eq!(world.acquire("B", 30), Err(wait.clone()), "{action:?}");
        assert_eq!(world.begin(LeaseUse::Write(None)), Err(wait), "{action:?}");
        world.commit(grant.token, hashed()).unwrap();
        world.acquire("B", 30).unwrap();
    }
}

#[test]
fn the_holder_renews_during_its_write() {
    let mut world = World::in_state("Leased(A)");
    let grant = world.begin(holder()).unwrap();
    world.pass(20.0);
    world.lease(LeaseAction::Renew(id("A"))).unwrap();
    world
        .lease(LeaseAction::Change {
            id: id("A"),
            proposed: id("B"),
        })
        .unwrap();
    assert_eq!(
        world.record.permit(world.now).unwrap().deadline,
        grant.deadline,
        "the permit is unchanged"
    );
    world.commit(grant.token, hashed()).unwrap();
    assert_eq!(world.state(), "Leased(B)");
}

#[test]
fn a_writer_without_a_lease_is_refused_immediately() {
    let mut world = World::in_state("Leased(A)");
    let grant = world.begin(holder()).unwrap();
    assert_eq!(
        world.begin(LeaseUse::Write(None)),
        Err(Refusal::Lease(LeaseFailure::IdMissing))
    );
    assert_eq!(
        world.begin(LeaseUse::Write(Some(id("B")))),
        Err(Refusal::Lease(LeaseFailure::IdMismatch))
    );
    assert_eq!(
        world.begin(holder()),
        Err(Refusal::InFlight {
            deadline: grant.deadline
        })
    );
}

#[test]
fn a_read_that_began_before_a_lease_operation_is_recorded_only_after_another_load() {
    let mut world = World::in_state("Leased(A)");
    let read = seen(&world);
    world.lease(LeaseAction::Renew(id("A"))).unwrap();
    assert_eq!(world.apply(&Command::Observe(read)), Err(Refusal::Stale));
    assert!(
        world.record.settled(world.now).is_some(),
        "the version stays known"
    );
}
