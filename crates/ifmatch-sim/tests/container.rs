//! Checks writers that remember a container while it is deleted over every interleaving, and the model checker itself by breaking the
//! protocol.

use std::collections::BTreeSet;

use ifmatch_sim::container::{ContainerModel, ContainerSabotage};
use stateright::{Checker, HasDiscoveries, Model};

const WRITES: &str = "no write into a deleted container is acknowledged";
const READS: &str = "no read returns the bytes of a deleted container";

fn writers(sabotage: ContainerSabotage) -> ContainerModel {
    ContainerModel { writers: 2, reads: 0, ticks: 6, lag: 1, sabotage }
}

fn reader(sabotage: ContainerSabotage) -> ContainerModel {
    ContainerModel { writers: 1, reads: 2, ticks: 7, lag: 1, sabotage }
}

#[test]
fn writes_by_memory_never_reach_a_deleted_container() {
    writers(ContainerSabotage::Nothing).checker().threads(2).spawn_bfs().join().assert_properties();
}

#[test]
fn reads_by_memory_return_no_bytes_of_a_deleted_container() {
    reader(ContainerSabotage::Nothing).checker().threads(2).spawn_bfs().join().assert_properties();
}

/// Disables a check, and expects the model checker to find the fault that it prevents.
fn breaks(model: &ContainerModel, property: &'static str) {
    let finish = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = model.clone().checker().finish_when(finish).spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "with {:?}, {property:?} must fail", model.sabotage);
}

#[test]
fn a_deletion_must_wait_for_memories() {
    breaks(&writers(ContainerSabotage::OmitWait), WRITES);
}

#[test]
fn without_a_margin_a_slow_clock_outlives_the_deletion() {
    breaks(&writers(ContainerSabotage::OmitMargin), WRITES);
}

#[test]
fn memories_must_count_from_before_the_question() {
    breaks(&writers(ContainerSabotage::CountFromAnswer), WRITES);
}

#[test]
fn memories_must_end() {
    breaks(&writers(ContainerSabotage::KeepMemory), WRITES);
}

#[test]
fn the_memory_of_a_reader_must_end() {
    breaks(&reader(ContainerSabotage::KeepMemory), READS);
}

/// A late object of the deleted container is still in the store.
#[test]
fn a_reader_must_compare_incarnations() {
    breaks(&reader(ContainerSabotage::IgnoreIncarnation), READS);
}
