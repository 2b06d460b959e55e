//! Checks the write protocol over every interleaving, and the model checker itself by breaking the protocol.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking, and print the size of the model"
)]

use ifmatch_core::command::Authority;
use ifmatch_sim::actor::Task::{self, Create, Edit, Overwrite, Read};
use ifmatch_sim::model::{Protocol, Sabotage};
use stateright::{Checker, Model};

fn protocol(tasks: &[Task], bytes: Option<u8>) -> Protocol {
    Protocol {
        tasks: tasks.to_vec(),
        bytes,
        authority: Authority::Register,
        crashes: 1,
        ticks: 1,
        permit: 1,
        sabotage: Sabotage::Nothing,
    }
}

/// The initial content of the resource.
const OTHER: Option<u8> = Some(99);

fn holds(protocol: &Protocol) {
    holds_for(&[Authority::Register, Authority::Resource], protocol);
}

fn holds_for(authorities: &[Authority], protocol: &Protocol) {
    for authority in authorities {
        let model = Protocol { authority: *authority, ..protocol.clone() };
        let checker = model.checker().threads(2).spawn_bfs().join();
        println!("{:?} {authority:?}: {} states", protocol.tasks, checker.unique_state_count());
        checker.assert_properties();
    }
}

/// Disables a check, and expects the model checker to find the fault that it prevents.
fn breaks(sabotage: Sabotage, property: &'static str, model: Protocol) {
    let checker = Protocol { sabotage, ..model }.checker().spawn_bfs().join();
    let path = checker.discovery(property);
    assert!(path.is_some(), "with {sabotage:?}, {property:?} must fail");
}

#[test]
fn three_editors_and_a_crash_lose_no_update() {
    holds(&protocol(&[Edit, Edit, Edit], OTHER));
}

#[test]
fn three_creators_and_a_crash_create_once() {
    holds(&protocol(&[Create, Create, Create], None));
}

#[test]
fn an_editor_a_creator_an_overwriter_and_a_reader_do_not_conflict() {
    let all = protocol(&[Edit, Create, Overwrite, Read], OTHER);
    holds_for(&[Authority::Register], &all);
    holds_for(&[Authority::Resource], &protocol(&[Edit, Overwrite, Read], OTHER));
}

#[test]
fn two_editors_and_a_reader_never_see_a_tag_on_other_bytes() {
    holds(&protocol(&[Edit, Edit, Read], OTHER));
}

#[test]
fn late_ticks_change_nothing() {
    holds(&Protocol { ticks: 3, ..protocol(&[Edit, Overwrite], OTHER) });
}

#[test]
fn blind_swaps_lose_updates() {
    breaks(Sabotage::SwapBlindly, "no lost update", protocol(&[Edit, Edit], OTHER));
}

#[test]
fn blind_swaps_create_twice() {
    breaks(Sabotage::SwapBlindly, "at most one creator", protocol(&[Create, Create], None));
}

#[test]
fn ignored_permits_lose_updates() {
    breaks(Sabotage::IgnorePermits, "no lost update", protocol(&[Edit, Edit], OTHER));
}

#[test]
fn late_observations_give_a_tag_to_other_bytes() {
    breaks(Sabotage::ObserveLate, "no tag on other bytes", protocol(&[Overwrite, Read], OTHER));
}

#[test]
fn a_service_that_is_not_cancelled_loses_updates() {
    breaks(Sabotage::NeverCancel, "no lost update", protocol(&[Edit, Edit], OTHER));
}

#[test]
fn assuming_that_an_unanswered_write_failed_gives_a_tag_to_other_bytes() {
    breaks(Sabotage::AssumeNotDone, "no tag on other bytes", protocol(&[Edit, Read], OTHER));
}

#[test]
fn old_probes_lose_updates() {
    let authority = Authority::Resource;
    let model = Protocol { authority, ..protocol(&[Edit, Edit], OTHER) };
    breaks(Sabotage::TrustOldProbes, "no lost update", model);
}
