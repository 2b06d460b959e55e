//! Checks snapshots and deletions over every interleaving, and the model checker itself by breaking the protocol.

use ifmatch_sim::snapshots::{SnapshotModel, SnapshotSabotage};

use crate::common::holds;

const LOST: &str = "no blob is deleted under an acknowledged snapshot";

fn model(snapshots: usize, deletions: usize) -> SnapshotModel {
    SnapshotModel {
        snapshots,
        deletions,
        writes: 2,
        removals: 1,
        sabotage: SnapshotSabotage::Nothing,
    }
}

fn breaks(sabotage: SnapshotSabotage) {
    crate::common::breaks(
        SnapshotModel {
            sabotage,
            ..model(2, 2)
        },
        LOST,
    );
}

#[test]
fn a_deletion_loses_no_acknowledged_snapshot() {
    holds([model(2, 2), model(3, 1), model(1, 3)]);
}

#[test]
fn a_snapshot_must_change_the_field() {
    breaks(SnapshotSabotage::OmitChange);
}

#[test]
fn the_field_must_change_after_the_snapshot_is_written() {
    breaks(SnapshotSabotage::ChangeEarly);
}

#[test]
fn the_field_must_change_in_the_same_life() {
    breaks(SnapshotSabotage::ChangeAnyLife);
}

#[test]
fn the_field_must_be_read_before_the_look_for_snapshots() {
    breaks(SnapshotSabotage::ReadLate);
}

#[test]
fn a_deletion_needs_an_unchanged_field() {
    breaks(SnapshotSabotage::IgnoreField);
}

#[test]
fn a_write_must_keep_the_field() {
    breaks(SnapshotSabotage::ForgetField);
}

#[test]
fn the_field_must_never_have_a_value_again() {
    breaks(SnapshotSabotage::RepeatField);
}
