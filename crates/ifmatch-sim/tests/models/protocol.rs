//! Checks the write protocol over every interleaving, and the model checker itself by breaking the protocol.

use ifmatch_core::command::Authority;
use ifmatch_sim::protocol::actor::Task::{self, Create, Edit, Overwrite, Read};
use ifmatch_sim::protocol::{Protocol, Sabotage};

use crate::common::holds;

pub(crate) fn protocol(tasks: &[Task], bytes: Option<u8>) -> Protocol {
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
pub(crate) const INITIAL: Option<u8> = Some(99);

fn breaks(sabotage: Sabotage, property: &'static str, model: Protocol) {
    crate::common::breaks(Protocol { sabotage, ..model }, property);
}

#[test]
fn three_creators_and_a_crash_create_once() {
    holds(protocol(&[Create, Create, Create], None).under_each_authority());
}

#[test]
fn two_editors_and_a_reader_never_see_a_tag_on_other_bytes() {
    holds(protocol(&[Edit, Edit, Read], INITIAL).under_each_authority());
}

#[test]
fn an_overwriter_and_a_reader_never_see_a_tag_on_other_bytes() {
    holds(protocol(&[Overwrite, Read], INITIAL).under_each_authority());
}

#[test]
fn more_ticks_than_a_permit_lasts_break_nothing() {
    holds(
        Protocol {
            ticks: 3,
            ..protocol(&[Edit, Overwrite], INITIAL)
        }
        .under_each_authority(),
    );
}

#[test]
fn blind_swaps_lose_updates() {
    breaks(
        Sabotage::SwapBlindly,
        "no lost update",
        protocol(&[Edit, Edit], INITIAL),
    );
}

#[test]
fn blind_swaps_create_twice() {
    breaks(
        Sabotage::SwapBlindly,
        "at most one creator",
        protocol(&[Create, Create], None),
    );
}

#[test]
fn ignored_permits_lose_updates() {
    breaks(
        Sabotage::IgnorePermits,
        "no lost update",
        protocol(&[Edit, Edit], INITIAL),
    );
}

#[test]
fn late_observations_give_a_tag_to_other_bytes() {
    breaks(
        Sabotage::ObserveLate,
        "no tag on other bytes",
        protocol(&[Overwrite, Read], INITIAL),
    );
}

#[test]
fn a_service_that_is_not_cancelled_loses_updates() {
    breaks(
        Sabotage::NeverCancel,
        "no lost update",
        protocol(&[Edit, Edit], INITIAL),
    );
}

#[test]
fn assuming_that_an_unanswered_write_failed_gives_a_tag_to_other_bytes() {
    breaks(
        Sabotage::AssumeNotDone,
        "no tag on other bytes",
        protocol(&[Edit, Read], INITIAL),
    );
}

#[test]
fn old_probes_lose_updates() {
    let authority = Authority::Resource;
    let model = Protocol {
        authority,
        ..protocol(&[Edit, Edit], INITIAL)
    };
    breaks(Sabotage::TrustOldProbes, "no lost update", model);
}
