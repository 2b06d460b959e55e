//! Checks deletions of an empty container over every interleaving, and the model checker itself by breaking the protocol.

use ifmatch_sim::emptying::{EmptyingModel, EmptyingSabotage};

use crate::common::holds;

const LOST: &str = "no acknowledged blob is in a deleted container";

fn model(writers: usize, deletions: usize) -> EmptyingModel {
    EmptyingModel {
        writers,
        deletions,
        recreates: true,
        crashes: 1,
        sabotage: EmptyingSabotage::Nothing,
    }
}

fn breaks(sabotage: EmptyingSabotage) {
    crate::common::breaks(
        EmptyingModel {
            sabotage,
            ..model(2, 2)
        },
        LOST,
    );
}

#[test]
fn a_deletion_of_an_empty_container_loses_no_acknowledged_blob() {
    holds([
        model(2, 2),
        model(3, 2),
        EmptyingModel {
            recreates: false,
            crashes: 0,
            ..model(2, 3)
        },
    ]);
}

#[test]
fn a_deletion_must_leave_a_mark() {
    breaks(EmptyingSabotage::OmitMark);
}

#[test]
fn the_mark_must_come_before_the_look_for_blobs() {
    breaks(EmptyingSabotage::MarkLate);
}

#[test]
fn a_deletion_needs_its_mark() {
    breaks(EmptyingSabotage::IgnoreMark);
}

#[test]
fn a_deletion_that_found_no_container_deletes_none() {
    breaks(EmptyingSabotage::DeleteUnmarked);
}

#[test]
fn a_deletion_needs_its_own_mark() {
    breaks(EmptyingSabotage::TakeAnyMark);
}

#[test]
fn a_writer_must_look_at_the_container_again() {
    breaks(EmptyingSabotage::OmitLook);
}

#[test]
fn a_writer_must_look_after_its_swap() {
    breaks(EmptyingSabotage::LookEarly);
}

#[test]
fn a_writer_must_remove_the_mark() {
    breaks(EmptyingSabotage::LeaveMark);
}
