//! Checks leases over every interleaving, and the model checker itself by breaking the protocol.

use ifmatch_core::command::Authority;
use ifmatch_sim::protocol::actor::Task::{self, Break, Hold, Overwrite, Return};
use ifmatch_sim::protocol::{Protocol, Sabotage};
use stateright::{Checker, Model};

use crate::common::holds;
use crate::protocol::INITIAL;

/// Permits last longer than leases, so only the lease ends a write in time.
pub(crate) fn protocol(tasks: &[Task], ticks: u8) -> Protocol {
    Protocol {
        tasks: tasks.to_vec(),
        bytes: INITIAL,
        authority: Authority::Register,
        crashes: 1,
        ticks,
        permit: 2,
        sabotage: Sabotage::Nothing,
    }
}

fn breaks(sabotage: Sabotage, property: &'static str, model: Protocol) {
    model
        .clone()
        .checker()
        .spawn_bfs()
        .join()
        .assert_no_discovery(property);
    crate::common::breaks(Protocol { sabotage, ..model }, property);
}

#[test]
fn a_lease_that_ends_during_a_write_of_a_holder_and_a_thief() {
    holds(protocol(&[Hold, Hold], 3).under_each_authority());
}

#[test]
fn a_holder_a_thief_and_a_breaker() {
    holds(protocol(&[Hold, Hold, Break], 1).under_each_authority());
}

#[test]
fn a_holder_a_breaker_and_a_writer_without_an_id() {
    holds(protocol(&[Hold, Break, Overwrite], 1).under_each_authority());
}

#[test]
fn a_holder_that_returns_late_and_a_writer_without_an_id() {
    holds(protocol(&[Return, Overwrite], 3).under_each_authority());
}

#[test]
fn a_lease_during_a_write_in_flight_is_found() {
    breaks(
        Sabotage::LockInFlight,
        "no write against a lease",
        protocol(&[Hold, Overwrite], 1),
    );
    breaks(
        Sabotage::LockInFlight,
        "no write against a lease",
        protocol(&[Hold, Hold, Break], 0),
    );
}

#[test]
fn a_write_that_outlives_its_lease_is_found() {
    breaks(
        Sabotage::OutliveLease,
        "no write outlives its lease",
        protocol(&[Hold], 1),
    );
}

#[test]
fn writers_that_ignore_the_lease_are_found() {
    breaks(
        Sabotage::IgnoreLease,
        "no write against a lease",
        protocol(&[Hold, Overwrite], 0),
    );
}

#[test]
fn a_late_commit_under_the_next_holder_is_found() {
    breaks(
        Sabotage::KeepExpiredPermit,
        "no write recorded against a lease",
        protocol(&[Hold, Hold], 1),
    );
}

#[test]
fn a_renewal_after_a_write_with_an_unknown_effect_is_found() {
    breaks(
        Sabotage::RenewAfterDoubt,
        "who renews missed no write",
        protocol(&[Return, Overwrite], 3),
    );
}
