//! Checks writers that remember a container while it is deleted, over every interleaving, and the model checker itself by breaking
//! the protocol.

use ifmatch_sim::container::{ContainerModel, ContainerSabotage};

use crate::common::{breaks, holds};

const WRITES: &str = "no write into a deleted container is acknowledged";
const READS: &str = "no read returns the bytes of a deleted container";

fn writers(sabotage: ContainerSabotage) -> ContainerModel {
    ContainerModel {
        writers: 2,
        reads: 0,
        ticks: 6,
        lag: 1,
        sabotage,
    }
}

pub(crate) fn reader(sabotage: ContainerSabotage) -> ContainerModel {
    ContainerModel {
        writers: 1,
        reads: 2,
        ticks: 7,
        lag: 1,
        sabotage,
    }
}

#[test]
fn writes_by_memory_never_reach_a_deleted_container() {
    holds([writers(ContainerSabotage::Nothing)]);
}

#[test]
fn a_read_by_memory_returns_no_bytes_of_a_deleted_container() {
    holds([ContainerModel {
        reads: 1,
        ..reader(ContainerSabotage::Nothing)
    }]);
}

#[test]
fn a_deletion_must_wait_for_memories() {
    breaks(writers(ContainerSabotage::OmitWait), WRITES);
}

#[test]
fn without_a_margin_a_slow_clock_outlives_the_deletion() {
    breaks(writers(ContainerSabotage::OmitMargin), WRITES);
}

#[test]
fn memories_must_count_from_before_the_question() {
    breaks(writers(ContainerSabotage::CountFromAnswer), WRITES);
}

#[test]
fn memories_must_end() {
    breaks(writers(ContainerSabotage::KeepMemory), WRITES);
}

#[test]
fn the_memory_of_a_reader_must_end() {
    breaks(reader(ContainerSabotage::KeepMemory), READS);
}

/// A late object of the deleted container is still in the store.
#[test]
fn a_reader_must_compare_incarnations() {
    breaks(reader(ContainerSabotage::IgnoreIncarnation), READS);
}
