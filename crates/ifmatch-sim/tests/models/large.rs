//! The models with the most states. Smaller ones of the same kind are beside their sabotages.

use ifmatch_core::command::Authority;
use ifmatch_sim::container::ContainerSabotage;
use ifmatch_sim::protocol::Protocol;
use ifmatch_sim::protocol::actor::Task::{Break, Create, Edit, Hold, Overwrite, Read};

use crate::common::holds;
use crate::{container, leases, protocol};

#[test]
fn three_editors_and_a_crash_lose_no_update() {
    holds(protocol::protocol(&[Edit, Edit, Edit], protocol::INITIAL).under_each_authority());
}

#[test]
fn an_editor_a_creator_an_overwriter_and_a_reader_do_not_conflict() {
    holds([
        protocol::protocol(&[Edit, Create, Overwrite, Read], protocol::INITIAL),
        Protocol {
            authority: Authority::Resource,
            ..protocol::protocol(&[Edit, Overwrite, Read], protocol::INITIAL)
        },
    ]);
}

#[test]
fn a_holder_a_thief_a_breaker_and_a_writer_without_an_id() {
    holds([Protocol {
        crashes: 0,
        ..leases::protocol(&[Hold, Hold, Break, Overwrite], 1)
    }]);
}

#[test]
fn two_reads_by_memory_return_no_bytes_of_a_deleted_container() {
    holds([container::reader(ContainerSabotage::Nothing)]);
}
