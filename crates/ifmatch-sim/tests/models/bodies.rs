//! Checks bodies in a shared bucket over every interleaving, and the model checker itself by breaking the protocol.

use ifmatch_sim::bodies::{BodyModel, BodySabotage, BodyTask};

use crate::common::holds;

use BodyTask::{Copy, Edit, Overwrite};

const NAMED: &str = "each record's body is there";
const READ: &str = "no reader is interrupted within the grace";

fn model(tasks: &[BodyTask]) -> BodyModel {
    let tasks = tasks.to_vec();
    BodyModel {
        tasks,
        sweepers: 1,
        reads: true,
        ticks: 3,
        losses: 1,
        crashes: 1,
        sabotage: BodySabotage::Nothing,
    }
}

fn breaks(sabotage: BodySabotage, property: &'static str, tasks: &[BodyTask]) {
    crate::common::breaks(
        BodyModel {
            sabotage,
            ..model(tasks)
        },
        property,
    );
}

#[test]
fn writers_a_reader_and_a_sweeper_share_a_bucket() {
    holds([
        model(&[Overwrite]),
        model(&[Edit, Overwrite]),
        model(&[Edit, Edit]),
        model(&[Overwrite, Overwrite]),
    ]);
}

#[test]
fn copies_and_two_sweepers_share_a_bucket() {
    holds([
        model(&[Copy, Overwrite]),
        BodyModel {
            sweepers: 2,
            losses: 0,
            ..model(&[Overwrite])
        },
        BodyModel {
            sweepers: 2,
            crashes: 0,
            reads: false,
            ..model(&[Overwrite])
        },
    ]);
}

#[test]
fn blind_swaps_have_two_winners() {
    breaks(
        BodySabotage::SwapBlindly,
        "one writer replaces a version",
        &[Edit, Edit],
    );
}

#[test]
fn the_body_of_an_unacknowledged_swap_must_stay() {
    breaks(BodySabotage::AssumeNotDone, NAMED, &[Overwrite]);
}

#[test]
fn a_body_must_be_stored_before_the_swap() {
    breaks(BodySabotage::AssumeStored, NAMED, &[Overwrite]);
}

#[test]
fn names_must_be_unique() {
    breaks(
        BodySabotage::ShareName,
        "a reader gets the bytes of its version",
        &[Overwrite, Overwrite],
    );
}

#[test]
fn a_copy_must_have_a_body_of_its_own() {
    breaks(BodySabotage::ShareBody, NAMED, &[Copy, Overwrite]);
}

#[test]
fn a_slow_writer_must_not_swap() {
    breaks(BodySabotage::OmitBound, NAMED, &[Overwrite]);
}

#[test]
fn a_replaced_body_must_stay_for_its_readers() {
    breaks(BodySabotage::RemoveAtOnce, READ, &[Overwrite]);
}

#[test]
fn the_sweep_must_spare_young_bodies() {
    breaks(BodySabotage::OmitAge, NAMED, &[Overwrite]);
}

#[test]
fn the_sweep_must_list_the_bodies_before_it_reads_the_records() {
    breaks(BodySabotage::ScanFirst, NAMED, &[Overwrite]);
}

/// The process that replaced the body ended before it removed it.
#[test]
fn a_swept_body_must_stay_for_its_readers() {
    breaks(BodySabotage::SweepAtOnce, READ, &[Overwrite]);
}
