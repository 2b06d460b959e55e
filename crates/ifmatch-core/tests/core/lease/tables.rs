//! Every cell of Azure's two tables, on records brought into each state by real commands.

use std::cell::RefCell;
use std::collections::BTreeSet;

use ifmatch_core::command::{Content, Outcome, Refusal};
use ifmatch_core::lease::{BreakPeriod, Lease, LeaseAction, LeaseDuration, LeaseUse};
use ifmatch_core::record::Revision;

use super::world::{World, code, hashed, id};
use crate::table::each_row;

#[test]
fn every_operation_in_every_state() {
    let cells = RefCell::new(BTreeSet::new());
    each_row("lease-operations.txt", 4, |row| {
        let [state, operation, expected, left] = &row.columns[..] else {
            unreachable!()
        };
        let mut world = World::in_state(state);
        cells
            .borrow_mut()
            .insert((state.clone(), operation.clone()));
        let before = world.record.clone();
        let validators = |world: &World| {
            let version = world.record.settled(world.now).unwrap();
            (
                version.generation(),
                version.tags().to_vec(),
                version.last_modified(),
                version.payload().clone(),
            )
        };
        match world.lease(action(operation, world.record.lease())) {
            Ok(receipt) => {
                assert_eq!(&world.state(), expected, "{}", row.place);
                let seconds = receipt
                    .seconds_left()
                    .map_or("endless".to_owned(), |seconds| seconds.to_string());
                assert_eq!(&seconds, left, "{}", row.place);
                assert_eq!(
                    receipt.lease.as_ref(),
                    world.record.lease(),
                    "{}",
                    row.place
                );
                let unchanged = World {
                    record: before,
                    ..world.clone()
                };
                assert_eq!(validators(&world), validators(&unchanged), "{}", row.place);
            }
            Err(refusal) => assert_eq!(
                (code(&refusal), left.as_str()),
                (expected.as_str(), "-"),
                "{}",
                row.place
            ),
        }
    });
    let cells = cells.into_inner();
    for state in [
        "Available",
        "Leased(A)",
        "Breaking(A)",
        "Broken(A)",
        "Expired(A)",
    ] {
        for operation in OPERATIONS {
            assert!(
                cells.contains(&(state.to_owned(), operation.to_owned())),
                "no row for {operation} in {state}"
            );
        }
    }
}

/// The token of a lease that the resource no longer has.
const ANOTHER: Revision = Revision::new(1);

const OPERATIONS: [&str; 15] = [
    "acquire -",
    "acquire B",
    "acquire A",
    "renew A",
    "renew B",
    "change A to B",
    "change B to A",
    "change B to C",
    "release A",
    "release B",
    "break in 0",
    "break in 10",
    "break",
    "break by token",
    "break by token of another",
];

/// Returns an operation on a resource that has this lease.
fn action(text: &str, lease: Option<&Lease>) -> LeaseAction {
    let words: Vec<_> = text.split(' ').collect();
    let duration = |seconds: &str| LeaseDuration::from_seconds(seconds.parse().unwrap()).unwrap();
    match words[..] {
        ["acquire", "-"] => LeaseAction::Acquire {
            id: id("R"),
            duration: duration("30"),
            holder: None,
        },
        ["acquire", holder] => LeaseAction::Acquire {
            id: id(holder),
            duration: duration("30"),
            holder: None,
        },
        ["acquire", holder, "for", seconds] => LeaseAction::Acquire {
            id: id(holder),
            duration: duration(seconds),
            holder: None,
        },
        ["renew", holder] => LeaseAction::Renew(id(holder)),
        ["change", from, "to", to] => LeaseAction::Change {
            id: id(from),
            proposed: id(to),
        },
        ["release", holder] => LeaseAction::Release(id(holder)),
        ["break", "by", "token"] => LeaseAction::Break {
            period: None,
            token: lease.map(Lease::token).or(Some(ANOTHER)),
        },
        ["break", "by", "token", "of", "another"] => LeaseAction::Break {
            period: None,
            token: Some(ANOTHER),
        },
        ["break"] => LeaseAction::Break {
            period: None,
            token: None,
        },
        ["break", "in", seconds] => LeaseAction::Break {
            period: BreakPeriod::from_seconds(seconds.parse().unwrap()),
            token: None,
        },
        _ => panic!("no such operation: {text}"),
    }
}

#[test]
fn every_use_in_every_state() {
    let cells = RefCell::new(BTreeSet::new());
    each_row("lease-uses.txt", 3, |row| {
        let [state, text, expected] = &row.columns[..] else {
            unreachable!()
        };
        cells.borrow_mut().insert((state.clone(), text.clone()));
        let (kind, given) = text.split_once(' ').unwrap();
        let given = (given != "-").then(|| id(given));
        let one_step = World::in_state(state);
        // A write and a deletion, each in one step and with a permit.
        let ends = match kind {
            "read" => vec![
                one_step
                    .record
                    .check_lease(LeaseUse::Read(given), one_step.now)
                    .map_or_else(
                        |failure| failure.blob_code().to_owned(),
                        |()| one_step.state(),
                    ),
            ],
            "write" => vec![
                end(one_step, |world| {
                    world.write(LeaseUse::Write(given)).map(|_| ())
                }),
                end(World::in_state(state), |world| {
                    let grant = world.begin(LeaseUse::Write(given))?;
                    world.commit(grant.token, hashed()).map(|_| ())
                }),
            ],
            "delete" => vec![
                end(one_step, |world| {
                    world.delete(LeaseUse::Write(given)).map(|_| ())
                }),
                end(World::in_state(state), |world| {
                    let grant = world.begin(LeaseUse::Write(given))?;
                    world.commit(grant.token, Content::Absent).map(|_| ())
                }),
            ],
            _ => panic!("no such use: {text}"),
        };
        assert!(
            ends.iter().all(|end| end == expected),
            "{ends:?}: {}",
            row.place
        );
    });
    let cells = cells.into_inner();
    for state in [
        "Available",
        "Leased(A)",
        "Breaking(A)",
        "Broken(A)",
        "Expired(A)",
    ] {
        for kind in ["write", "delete", "read"] {
            for id in ["A", "B", "-"] {
                assert!(
                    cells.contains(&(state.to_owned(), format!("{kind} {id}"))),
                    "no row for {kind} {id} in {state}"
                );
            }
        }
    }
}

/// Returns the state after a use, or the code of its refusal.
fn end(mut world: World, r#use: impl Fn(&mut World) -> Result<(), Refusal>) -> String {
    r#use(&mut world).map_or_else(|refusal| code(&refusal).to_owned(), |()| world.state())
}

/// Header fields and similar data aren't protected by the lease, and changing them keeps an expired lease.
#[test]
fn a_change_that_the_lease_does_not_protect_keeps_the_lease() {
    for state in [
        "Available",
        "Leased(A)",
        "Breaking(A)",
        "Broken(A)",
        "Expired(A)",
    ] {
        let mut world = World::in_state(state);
        assert!(matches!(
            world.write(LeaseUse::Read(None)),
            Ok(Outcome::Written(_))
        ));
        assert_eq!(world.state(), state);
    }
    let mut expired = World::in_state("Expired(A)");
    expired.write(LeaseUse::Read(None)).unwrap();
    assert!(expired.lease(LeaseAction::Renew(id("A"))).is_ok());
}

#[test]
fn an_expired_lease_cannot_be_renewed_after_a_write() {
    for state in ["Broken(A)", "Expired(A)"] {
        let mut world = World::in_state(state);
        world.write(LeaseUse::Write(None)).unwrap();
        assert_eq!(world.record.lease(), None);
        let refusal = world.lease(LeaseAction::Renew(id("A"))).unwrap_err();
        assert_eq!(code(&refusal), "LeaseIdMismatchWithLeaseOperation");
    }
}

#[test]
fn containers_have_their_own_codes() {
    let mut world = World::in_state("Leased(A)");
    let codes = |world: &mut World, given: Option<&str>| match world
        .delete(LeaseUse::Write(given.map(id)))
    {
        Err(Refusal::Lease(failure)) => failure.container_code(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        codes(&mut world, Some("B")),
        "LeaseIdMismatchWithContainerOperation"
    );
    assert_eq!(codes(&mut world, None), "LeaseIdMissing");
    let mut world = World::new();
    assert_eq!(
        codes(&mut world, Some("B")),
        "LeaseNotPresentWithContainerOperation"
    );
}
