//! Time: leases end by comparison with the current time, breaks bring the end forward, fencing tokens grow.

use ifmatch_core::command::Refusal;
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{BreakPeriod, LeaseAction, LeaseDuration, LeaseState, LeaseUse};

use super::world::{World, code, id};

fn break_in(world: &mut World, seconds: Option<i64>) -> Option<u64> {
    let period = seconds.map(|seconds| BreakPeriod::from_seconds(seconds).unwrap());
    world
        .lease(LeaseAction::Break {
            period,
            token: None,
        })
        .unwrap()
        .seconds_left()
}

#[test]
fn a_lease_ends_to_the_microsecond() {
    let mut world = World::new();
    world.acquire("A", 15).unwrap();
    world.pass(14.999_999);
    assert_eq!(world.state(), "Leased(A)");
    world.pass(0.000_001);
    assert_eq!(world.state(), "Expired(A)");
}

#[test]
fn a_renewal_restarts_the_duration() {
    let mut world = World::new();
    world.acquire("A", 15).unwrap();
    for _ in 0..4 {
        world.pass(10.0);
        assert_eq!(
            world
                .lease(LeaseAction::Renew(id("A")))
                .unwrap()
                .seconds_left(),
            Some(15)
        );
    }
    world.pass(15.0);
    assert_eq!(world.state(), "Expired(A)");
}

#[test]
fn a_lease_being_broken_becomes_broken() {
    let mut world = World::in_state("Breaking(A)");
    world.pass(18.9);
    assert_eq!(world.state(), "Breaking(A)");
    world.pass(0.1);
    assert_eq!(world.state(), "Broken(A)");
}

#[test]
fn an_infinite_lease_ends_only_by_a_break() {
    let mut world = World::in_state("Infinite(A)");
    world.pass(1e9);
    assert_eq!(world.state(), "Leased(A)");
    assert_eq!(break_in(&mut world, Some(60)), Some(60));
    world.pass(60.0);
    assert_eq!(world.state(), "Broken(A)");
}

#[test]
fn a_break_takes_the_lesser_of_its_period_and_the_time_left() {
    for (left, period, expected) in [
        (30, 60, 30),
        (30, 30, 30),
        (30, 29, 29),
        (60, 1, 1),
        (15, 0, 0),
    ] {
        let mut world = World::new();
        world.acquire("A", left).unwrap();
        assert_eq!(
            break_in(&mut world, Some(period)),
            Some(expected),
            "{left} s, broken in {period}"
        );
    }
}

#[test]
fn a_second_break_can_only_bring_the_end_forward() {
    let mut world = World::in_state("Infinite(A)");
    for (period, expected) in [
        (Some(50), 50),
        (Some(60), 50),
        (None, 50),
        (Some(40), 40),
        (Some(41), 40),
        (Some(0), 0),
    ] {
        assert_eq!(break_in(&mut world, period), Some(expected), "{period:?}");
    }
    assert_eq!(world.state(), "Broken(A)");
}

#[test]
fn seconds_left_are_rounded_up() {
    let mut world = World::new();
    world.acquire("A", 15).unwrap();
    world.pass(4.5);
    assert_eq!(world.record.lease().unwrap().remaining(world.now), Some(11));
    assert_eq!(break_in(&mut world, None), Some(11));
    world.pass(11.0);
    assert_eq!(world.record.lease().unwrap().remaining(world.now), Some(0));
}

#[test]
fn fencing_tokens_grow_with_every_holder_and_stay_with_one() {
    let mut world = World::new();
    let token = |world: &World| world.record.lease().unwrap().token();
    world.acquire("A", 30).unwrap();
    let mut last = token(&world);
    // The same holder keeps its token.
    world.lease(LeaseAction::Renew(id("A"))).unwrap();
    world
        .lease(LeaseAction::Change {
            id: id("A"),
            proposed: id("B"),
        })
        .unwrap();
    world.acquire("B", 60).unwrap();
    assert_eq!(token(&world), last);
    world.pass(60.0);
    assert_eq!(world.record.lease_state(world.now), LeaseState::Expired);
    world.lease(LeaseAction::Renew(id("B"))).unwrap();
    assert_eq!(token(&world), last, "there was no other holder");
    // Every other holder gets a larger token, even if the clock goes back.
    for (action, back) in [
        (LeaseAction::Release(id("B")), 0),
        (
            LeaseAction::Break {
                period: BreakPeriod::from_seconds(0),
                token: None,
            },
            0,
        ),
        (
            LeaseAction::Break {
                period: BreakPeriod::from_seconds(0),
                token: None,
            },
            100,
        ),
    ] {
        world.lease(action).unwrap();
        world.now = Timestamp::from_micros(world.now.micros() - back * 1_000_000);
        if world.record.lease_state(world.now).is_locked() {
            // By a clock that went back, the lease isn't broken yet.
            world.pass(100.0);
        }
        world.acquire("C", 30).unwrap();
        assert!(token(&world) > last, "{action:?}");
        last = token(&world);
    }
    world.pass(30.0);
    world.acquire("C", 30).unwrap();
    assert!(
        token(&world) > last,
        "acquiring an expired lease by its old id creates a new lease"
    );
}

#[test]
fn durations_and_periods_are_within_bounds() {
    let durations: Vec<_> = (-5..70)
        .filter(|seconds| LeaseDuration::from_seconds(*seconds).is_some())
        .collect();
    assert_eq!(
        durations,
        [-1].into_iter().chain(15..=60).collect::<Vec<_>>()
    );
    let periods: Vec<_> = (-5..70)
        .filter(|seconds| BreakPeriod::from_seconds(*seconds).is_some())
        .collect();
    assert_eq!(periods, (0..=60).collect::<Vec<_>>());
    for out_of_range in [i64::MIN, 256 + 20, i64::MAX] {
        assert_eq!(LeaseDuration::from_seconds(out_of_range), None);
        assert_eq!(BreakPeriod::from_seconds(out_of_range), None);
    }
}

#[test]
fn a_recreated_resource_has_no_lease() {
    let mut world = World::in_state("Infinite(A)");
    world.delete(LeaseUse::Write(Some(id("A")))).unwrap();
    assert_eq!(world.state(), "Available");
    assert_eq!(world.acquire("B", 15), Err(Refusal::NotFound));
    world.write(LeaseUse::Write(None)).unwrap();
    assert_eq!(
        code(&world.lease(LeaseAction::Renew(id("A"))).unwrap_err()),
        "LeaseIdMismatchWithLeaseOperation"
    );
    world.acquire("B", 15).unwrap();
}
