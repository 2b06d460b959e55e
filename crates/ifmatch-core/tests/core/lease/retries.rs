//! Retries: a client that repeats a request after a lost response gets no false refusal, and no false confirmation.

use ifmatch_core::command::{Command, Content, Outcome, Write};
use ifmatch_core::lease::{BreakPeriod, LeaseAction, LeaseDuration, LeaseReceipt, LeaseUse};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, RequestId};

use super::world::{World, code, hashed, id};

fn acquire(holder: &str) -> LeaseAction {
    LeaseAction::Acquire {
        id: id(holder),
        duration: LeaseDuration::Seconds(30),
        holder: None,
    }
}

fn holder(receipt: &LeaseReceipt) -> ifmatch_core::lease::LeaseId {
    receipt.lease.unwrap().id()
}

/// The retry comes with another random id: S instead of R.
#[test]
fn a_repeated_acquisition_without_an_id_gets_the_first_id() {
    let mut world = World::new();
    let first = world.lease_by(acquire("R"), Some("request")).unwrap();
    world.pass(10.0);
    let again = world.lease_by(acquire("S"), Some("request")).unwrap();
    assert_eq!(
        (holder(&again), again.lease.unwrap().token()),
        (id("R"), first.lease.unwrap().token())
    );
    assert_eq!(
        again.seconds_left(),
        Some(30),
        "the client counts from its last attempt"
    );
    let other = world.lease_by(acquire("S"), Some("another request"));
    assert_eq!(code(&other.unwrap_err()), "LeaseAlreadyPresent");
    assert_eq!(
        code(&world.lease_by(acquire("S"), None).unwrap_err()),
        "LeaseAlreadyPresent"
    );
}

#[test]
fn repeating_the_acquisition_of_an_expired_lease_acquires_a_new_one() {
    let mut world = World::new();
    let first = world.lease_by(acquire("R"), Some("request")).unwrap();
    world.pass(31.0);
    let again = world.lease_by(acquire("S"), Some("request")).unwrap();
    assert_eq!(
        (holder(&again), again.seconds_left()),
        (id("S"), Some(30)),
        "the first id is lost"
    );
    assert_eq!(world.record.lease_state(world.now).name(), "leased");
    assert!(again.lease.unwrap().token() > first.lease.unwrap().token());
}

/// A lost lease must not become valid again because another client uses the same id.
#[test]
fn a_reused_request_id_restores_no_lease_after_another_client_had_it() {
    let mut world = World::new();
    world.lease_by(acquire("R"), Some("request")).unwrap();
    world.lease(LeaseAction::Release(id("R"))).unwrap();
    world.acquire("B", 30).unwrap();
    assert_eq!(
        code(&world.lease_by(acquire("S"), Some("request")).unwrap_err()),
        "LeaseAlreadyPresent"
    );
    world
        .lease(LeaseAction::Break {
            period: BreakPeriod::from_seconds(0),
            token: None,
        })
        .unwrap();
    assert_eq!(
        holder(&world.lease_by(acquire("S"), Some("request")).unwrap()),
        id("S")
    );
    assert_eq!(
        code(&world.lease(LeaseAction::Renew(id("R"))).unwrap_err()),
        "LeaseIdMismatchWithLeaseOperation"
    );
}

#[test]
fn repeating_the_acquisition_of_a_lease_held_by_another_client_is_refused() {
    let mut world = World::new();
    world.lease_by(acquire("A"), Some("request")).unwrap();
    world.pass(31.0);
    world.acquire("B", 30).unwrap();
    assert_eq!(
        code(&world.lease_by(acquire("A"), Some("request")).unwrap_err()),
        "LeaseAlreadyPresent"
    );
    assert_eq!(world.state(), "Leased(B)");
}

#[test]
fn repeating_the_acquisition_of_a_broken_lease_is_refused() {
    let mut world = World::new();
    world.lease_by(acquire("A"), Some("request")).unwrap();
    world
        .lease(LeaseAction::Break {
            period: BreakPeriod::from_seconds(20),
            token: None,
        })
        .unwrap();
    let refusal = world.lease_by(acquire("A"), Some("request")).unwrap_err();
    assert_eq!(code(&refusal), "LeaseIsBreakingAndCannotBeAcquired");
}

/// A client that reuses one request id must not get a false confirmation of a renewal.
#[test]
fn a_renewal_with_a_reused_request_id_restarts_the_duration() {
    let mut world = World::new();
    world.lease_by(acquire("A"), Some("acquire")).unwrap();
    for _ in 0..4 {
        world.pass(20.0);
        let renewed = world
            .lease_by(LeaseAction::Renew(id("A")), Some("renew"))
            .unwrap();
        assert_eq!(renewed.seconds_left(), Some(30));
        assert_eq!(world.record.lease().unwrap().remaining(world.now), Some(30));
    }
    world.pass(20.0);
    world.lease_by(acquire("A"), Some("acquire")).unwrap();
    assert_eq!(
        world.record.lease().unwrap().remaining(world.now),
        Some(30),
        "so does an acquisition"
    );
}

#[test]
fn a_repeated_release_succeeds() {
    let mut world = World::in_state("Leased(A)");
    let release = LeaseAction::Release(id("A"));
    world.lease_by(release, Some("request")).unwrap();
    assert_eq!(
        world.lease_by(release, Some("request")).unwrap().lease,
        None
    );
    assert_eq!(
        code(&world.lease_by(release, Some("other")).unwrap_err()),
        "LeaseIdMismatchWithLeaseOperation"
    );
    // Another client has acquired the lease since: its lease isn't released.
    world.acquire("B", 30).unwrap();
    assert_eq!(
        world.lease_by(release, Some("request")).unwrap().lease,
        None
    );
    assert_eq!(world.state(), "Leased(B)");
    // This also holds if the lease acquired since has the same id.
    world.lease(LeaseAction::Release(id("B"))).unwrap();
    world.acquire("A", 30).unwrap();
    assert_eq!(
        world.lease_by(release, Some("request")).unwrap().lease,
        None
    );
    assert_eq!(world.state(), "Leased(A)");
}

#[test]
fn a_repeated_change_succeeds() {
    let mut world = World::in_state("Leased(A)");
    let change = LeaseAction::Change {
        id: id("A"),
        proposed: id("B"),
    };
    world.lease_by(change, Some("request")).unwrap();
    assert_eq!(
        holder(&world.lease_by(change, Some("request")).unwrap()),
        id("B")
    );
    world
        .lease(LeaseAction::Change {
            id: id("B"),
            proposed: id("C"),
        })
        .unwrap();
    let refusal = world.lease_by(change, Some("request")).unwrap_err();
    assert_eq!(
        code(&refusal),
        "LeaseIdMismatchWithLeaseOperation",
        "the id has changed since"
    );
    assert_eq!(world.state(), "Leased(C)");
    world
        .lease(LeaseAction::Change {
            id: id("C"),
            proposed: id("A"),
        })
        .unwrap();
    assert!(
        world.lease_by(change, Some("request")).is_err(),
        "the retry would restore the id B"
    );
    assert_eq!(world.state(), "Leased(A)");
}

#[test]
fn a_repeated_break_succeeds_and_does_not_extend_the_lease() {
    let mut world = World::in_state("Infinite(A)");
    let action = LeaseAction::Break {
        period: BreakPeriod::from_seconds(20),
        token: None,
    };
    world.lease_by(action, Some("request")).unwrap();
    world.pass(15.0);
    assert_eq!(
        world
            .lease_by(action, Some("request"))
            .unwrap()
            .seconds_left(),
        Some(5)
    );
    world.pass(5.0);
    world.write(LeaseUse::Write(None)).unwrap();
    assert_eq!(world.state(), "Available");
    assert_eq!(
        world
            .lease_by(action, Some("request"))
            .unwrap()
            .seconds_left(),
        Some(0)
    );
    assert_eq!(
        code(&world.lease_by(action, Some("other")).unwrap_err()),
        "LeaseNotPresentWithLeaseOperation"
    );
    // A lease acquired since belongs to another holder: the retry doesn't break it.
    world.acquire("B", 30).unwrap();
    assert_eq!(
        world
            .lease_by(action, Some("request"))
            .unwrap()
            .seconds_left(),
        Some(0)
    );
    assert_eq!(world.state(), "Leased(B)");
    world.lease_by(action, Some("another request")).unwrap();
    assert_eq!(world.state(), "Breaking(B)");
}

/// Renewals can be repeated, so their answers needn't be remembered.
#[test]
fn renewals_are_not_remembered() {
    let mut world = World::in_state("Leased(A)");
    let request = Some(RequestId::of(&[b"write"]));
    let put = |world: &mut World| {
        let write = Write::new(&http::Method::PUT, &Preconditions::NONE, hashed(), 1)
            .with_lease(LeaseUse::Write(Some(id("A"))))
            .with_request(request);
        world.apply(&Command::Write(write)).unwrap()
    };
    assert!(matches!(put(&mut world), Outcome::Written(_)));
    for number in 0..=Record::MAX_REPLIES {
        world
            .lease_by(LeaseAction::Renew(id("A")), Some(&number.to_string()))
            .unwrap();
    }
    assert!(matches!(put(&mut world), Outcome::Replayed(_)));
    for number in 0..=Record::MAX_REPLIES {
        world
            .lease_by(acquire("A"), Some(&number.to_string()))
            .unwrap();
    }
    assert!(
        matches!(put(&mut world), Outcome::Written(_)),
        "the oldest made room"
    );
}

#[test]
fn a_request_id_of_a_write_does_not_match_a_lease_operation() {
    let mut world = World::new();
    world.lease_by(acquire("A"), Some("request")).unwrap();
    let write = Write::new(&http::Method::PUT, &Preconditions::NONE, Content::Absent, 1)
        .with_request(Some(RequestId::of(&[b"request"])));
    assert!(
        world.apply(&Command::Write(write)).is_err(),
        "a lease answer is not an answer to a write"
    );
}
