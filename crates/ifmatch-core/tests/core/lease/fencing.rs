//! Fencing tokens: a write that names a smaller one than the largest seen is late.

use ifmatch_core::command::{Content, Refusal};
use ifmatch_core::lease::{LeaseAction, LeaseDuration, LeaseFailure, LeaseUse};
use ifmatch_core::record::Revision;

use super::world::{World, hashed, id};

const LATE: Result<(), Refusal> = Err(Refusal::Lease(LeaseFailure::Superseded));

fn fenced(token: u64) -> LeaseUse {
    LeaseUse::Fenced {
        id: None,
        token: Revision::new(token),
    }
}

fn write(world: &mut World, token: u64) -> Result<(), Refusal> {
    world.write(fenced(token)).map(drop)
}

/// A holder of a lease on another resource pauses; its successor writes; the holder wakes up.
#[test]
fn a_paused_holder_cannot_write_after_its_successor() {
    let mut world = World::new();
    assert_eq!(write(&mut world, 33), Ok(()));
    assert_eq!(write(&mut world, 33), Ok(()), "the same holder");
    assert_eq!(write(&mut world, 34), Ok(()));
    assert_eq!(write(&mut world, 33), LATE);
    assert_eq!(world.begin(fenced(33)).map(drop), LATE);
    assert_eq!(world.delete(fenced(33)).map(drop), LATE);
    world.delete(fenced(35)).unwrap();
    assert_eq!(write(&mut world, 34), LATE, "a deletion keeps the token");
    world.write(LeaseUse::Write(None)).unwrap();
    assert_eq!(
        (write(&mut world, 34), write(&mut world, 35)),
        (LATE, Ok(())),
        "writes without a token change none"
    );
}

/// The successor's permit was granted, so a write of the former holder must not follow, even if the permit is returned.
#[test]
fn a_granted_permit_raises_the_token() {
    let mut world = World::new();
    let grant = world.begin(fenced(34)).unwrap();
    assert_eq!(
        world.begin(fenced(33)).map(drop),
        LATE,
        "while the write is in flight"
    );
    world.commit(grant.token, hashed()).unwrap();
    assert_eq!(write(&mut world, 33), LATE);
    let grant = world.begin(fenced(36)).unwrap();
    world.commit(grant.token, Content::Unknown).unwrap();
    assert_eq!(write(&mut world, 35), LATE);
}

/// The former holder of the resource's own lease names its token, but no lease id, after the successor has released.
#[test]
fn a_new_lease_raises_the_token_of_its_resource() {
    let mut world = World::new();
    let first = world.acquire("A", 15).unwrap().lease.unwrap().token().get();
    assert_eq!(
        world
            .write(LeaseUse::Fenced {
                id: Some(id("A")),
                token: Revision::new(first)
            })
            .map(drop),
        Ok(())
    );
    world.pass(16.0);
    let second = world.acquire("B", 15).unwrap().lease.unwrap().token().get();
    assert!(second > first);
    world.lease(LeaseAction::Release(id("B"))).unwrap();
    assert_eq!(
        (write(&mut world, first), write(&mut world, second)),
        (LATE, Ok(()))
    );
}

/// A token doesn't replace the lease id, and the lease is checked first.
#[test]
fn a_token_gives_no_access_to_a_leased_resource() {
    let mut world = World::new();
    let token = world.acquire("A", 15).unwrap().lease.unwrap().token();
    let refused = |lease| Err(Refusal::Lease(lease));
    assert_eq!(
        world.write(fenced(token.get())).map(drop),
        refused(LeaseFailure::IdMissing)
    );
    let other = LeaseUse::Fenced {
        id: Some(id("B")),
        token,
    };
    assert_eq!(
        world.write(other).map(drop),
        refused(LeaseFailure::IdMismatch)
    );
    let late = LeaseUse::Fenced {
        id: Some(id("A")),
        token: Revision::new(token.get() - 1),
    };
    assert_eq!(world.write(late).map(drop), LATE);
}

/// Another source of tokens is ahead of the clock.
#[test]
fn a_new_lease_gets_a_larger_token_than_any_seen() {
    let mut world = World::new();
    let ahead = world.now.micros() + 1_000_000_000;
    write(&mut world, ahead).unwrap();
    let token = world.acquire("A", 15).unwrap().lease.unwrap().token().get();
    assert!(token > ahead);
    assert_eq!(
        world
            .lease(LeaseAction::Renew(id("A")))
            .unwrap()
            .lease
            .unwrap()
            .token()
            .get(),
        token
    );
}

#[test]
fn the_label_of_the_holder_stays_until_the_next_acquisition() {
    let mut world = World::new();
    let holder = "backup on host-7".parse().ok();
    let acquire = |name: &str, holder| LeaseAction::Acquire {
        id: id(name),
        duration: LeaseDuration::Infinite,
        holder,
    };
    let label = |world: &World| {
        world
            .record
            .lease()
            .and_then(ifmatch_core::lease::Lease::holder)
    };
    world.lease_by(acquire("A", holder), Some("first")).unwrap();
    world.lease(LeaseAction::Renew(id("A"))).unwrap();
    world
        .lease(LeaseAction::Change {
            id: id("A"),
            proposed: id("B"),
        })
        .unwrap();
    world.write(LeaseUse::Write(Some(id("B")))).unwrap();
    assert_eq!(label(&world), holder);
    world.lease(LeaseAction::Release(id("B"))).unwrap();
    world
        .lease_by(acquire("A", holder), Some("second"))
        .unwrap();
    let retried = world
        .lease_by(acquire("A", holder), Some("second"))
        .unwrap();
    assert_eq!(
        (retried.lease.unwrap().holder(), label(&world)),
        (holder, holder)
    );
    world.lease(acquire("A", None)).unwrap();
    assert_eq!(label(&world), None);
}
