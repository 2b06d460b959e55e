//! Checks the lock by compare-and-swap over every interleaving, and the model checker itself by breaking the lock.

use ifmatch_sim::lock::{LockModel, LockSabotage};

use crate::common::holds;

fn model(clients: usize, ticks: u8) -> LockModel {
    LockModel {
        clients,
        ticks,
        renewals: 1,
        lag: 1,
        work: true,
        sabotage: LockSabotage::Nothing,
    }
}

fn breaks(sabotage: LockSabotage, property: &'static str, model: LockModel) {
    crate::common::breaks(LockModel { sabotage, ..model }, property);
}

#[test]
fn two_clients_with_late_messages_and_a_slow_clock_share_the_lock() {
    holds([
        model(2, 5),
        LockModel {
            renewals: 2,
            lag: 0,
            ..model(2, 4)
        },
        LockModel {
            renewals: 0,
            ..model(2, 6)
        },
    ]);
}

#[test]
fn three_clients_share_the_lock() {
    holds([LockModel {
        renewals: 0,
        lag: 0,
        work: false,
        ..model(3, 3)
    }]);
}

#[test]
fn blind_writes_give_the_lock_to_two_clients() {
    breaks(LockSabotage::PutBlindly, "one holder", model(2, 0));
}

#[test]
fn renewals_without_a_random_number_go_unseen() {
    breaks(
        LockSabotage::OmitNonce,
        "one holder",
        LockModel {
            renewals: 2,
            lag: 0,
            ..model(2, 4)
        },
    );
}

#[test]
fn impatient_challengers_share_the_lock_with_its_holder() {
    breaks(LockSabotage::TakeEarly, "one holder", model(2, 0));
}

#[test]
fn challengers_must_wait_again_for_a_new_version() {
    breaks(
        LockSabotage::KeepTimer,
        "one holder",
        LockModel {
            renewals: 2,
            lag: 0,
            ..model(2, 4)
        },
    );
}

#[test]
fn challengers_must_count_from_after_their_read() {
    breaks(
        LockSabotage::ObserveEarly,
        "one holder",
        LockModel {
            renewals: 0,
            lag: 0,
            ..model(2, 6)
        },
    );
}

#[test]
fn holders_must_count_from_before_their_request() {
    breaks(
        LockSabotage::CountFromAnswer,
        "one holder",
        LockModel {
            renewals: 0,
            lag: 0,
            ..model(2, 6)
        },
    );
}

#[test]
fn without_a_margin_a_slow_clock_makes_two_holders() {
    breaks(
        LockSabotage::OmitMargin,
        "one holder",
        LockModel {
            renewals: 0,
            ..model(2, 6)
        },
    );
}

#[test]
fn equal_tokens_fence_off_nothing() {
    breaks(
        LockSabotage::KeepFence,
        "fencing tokens grow",
        LockModel {
            renewals: 0,
            lag: 0,
            ..model(2, 4)
        },
    );
}

#[test]
fn a_resource_that_ignores_tokens_accepts_late_writes() {
    breaks(
        LockSabotage::IgnoreFence,
        "no late write",
        LockModel {
            renewals: 0,
            lag: 0,
            ..model(2, 4)
        },
    );
}

#[test]
fn assuming_that_an_unanswered_renewal_failed_loses_the_lock() {
    breaks(
        LockSabotage::AssumeNotDone,
        "no false loss",
        LockModel {
            lag: 0,
            ..model(1, 0)
        },
    );
}

#[test]
fn a_late_blind_release_frees_the_next_holder() {
    let model = LockModel {
        renewals: 0,
        lag: 0,
        ..model(2, 4)
    };
    breaks(
        LockSabotage::ReleaseBlindly,
        "a release frees its own lock",
        model,
    );
}
