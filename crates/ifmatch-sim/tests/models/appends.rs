//! Checks appends to a file over every interleaving, and the model checker itself by breaking the protocol.

use ifmatch_sim::append::{AppendModel, AppendSabotage};

use crate::common::holds;

/// Two blobs with one file.
fn model(clients: &[usize]) -> AppendModel {
    let sabotage = AppendSabotage::Nothing;
    AppendModel {
        clients: clients.to_vec(),
        failures: 1,
        losses: 1,
        crashes: 1,
        sabotage,
    }
}

fn breaks(sabotage: AppendSabotage, property: &'static str, clients: &[usize]) {
    crate::common::breaks(
        AppendModel {
            sabotage,
            ..model(clients)
        },
        property,
    );
}

const BYTES: &str = "a version has its own bytes, also after a loss of power";

#[test]
fn blobs_of_one_file_grow_apart() {
    holds([
        model(&[0, 0, 1]),
        model(&[0, 0, 0]),
        AppendModel {
            failures: 2,
            ..model(&[0, 0])
        },
        AppendModel {
            losses: 2,
            crashes: 0,
            ..model(&[0, 0, 1])
        },
    ]);
}

#[test]
fn what_a_failed_append_has_left_must_not_be_overwritten() {
    breaks(AppendSabotage::OverwriteTail, BYTES, &[0, 0, 0]);
}

#[test]
fn a_file_with_two_names_must_not_grow() {
    breaks(AppendSabotage::IgnoreNames, BYTES, &[0, 1]);
}

#[test]
fn a_block_that_is_not_on_the_disk_is_torn_after_a_loss_of_power() {
    breaks(AppendSabotage::SwapUnsynced, BYTES, &[0]);
    breaks(AppendSabotage::IgnoreSync, BYTES, &[0]);
}

#[test]
fn the_file_of_the_next_version_must_stay() {
    breaks(AppendSabotage::RemoveShared, BYTES, &[0, 0]);
}

#[test]
fn a_response_before_the_swap_may_have_no_block() {
    breaks(
        AppendSabotage::AnswerFirst,
        "an acknowledged block is there",
        &[0],
    );
}

#[test]
fn a_swap_without_a_response_may_have_appended_the_block() {
    breaks(
        AppendSabotage::AssumeNotDone,
        "no block is there twice",
        &[0],
    );
}

#[test]
fn a_reader_must_not_read_beyond_its_version() {
    breaks(
        AppendSabotage::ReadToEnd,
        "a reader gets the bytes of the version that it opened",
        &[0, 0],
    );
}
