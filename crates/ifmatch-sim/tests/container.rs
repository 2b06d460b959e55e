//! Checks writers that remember a container while it is deleted over every interleaving, and the model checker itself by breaking the
//! protocol.

use std::collections::BTreeSet;

use ifmatch_sim::container::{ContainerModel, ContainerSabotage};
use stateright::{Checker, HasDiscoveries, Model};

const PROPERTY: &str = "no write into a deleted container is acknowledged";

fn model(sabotage: ContainerSabotage) -> ContainerModel {
    ContainerModel { writers: 2, ticks: 6, lag: 1, sabotage }
}

#[test]
fn writes_by_memory_never_reach_a_deleted_container() {
    model(ContainerSabotage::Nothing).checker().threads(2).spawn_bfs().join().assert_properties();
}

/// Disables a check, and expects the model checker to find the fault that it prevents.
fn breaks(sabotage: ContainerSabotage) {
    let finish = HasDiscoveries::AnyOf(BTreeSet::from([PROPERTY]));
    let checker = model(sabotage).checker().finish_when(finish).spawn_bfs().join();
    assert!(checker.discovery(PROPERTY).is_some(), "with {sabotage:?}, {PROPERTY:?} must fail");
}

#[test]
fn a_deletion_must_wait_for_memories() {
    breaks(ContainerSabotage::OmitWait);
}

#[test]
fn without_a_margin_a_slow_clock_outlives_the_deletion() {
    breaks(ContainerSabotage::OmitMargin);
}

#[test]
fn memories_must_count_from_before_the_question() {
    breaks(ContainerSabotage::CountFromAnswer);
}

#[test]
fn memories_must_end() {
    breaks(ContainerSabotage::KeepMemory);
}
