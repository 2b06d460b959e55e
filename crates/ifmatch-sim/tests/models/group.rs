//! Checks groups of changes over every interleaving, and the model checker itself by breaking the protocol.

use ifmatch_sim::group::{GroupModel, GroupSabotage, GroupTask};

use crate::common::holds;

use GroupTask::{Create, Edit, Overwrite};

fn model(clients: &[(GroupTask, usize)]) -> GroupModel {
    let clients = clients.to_vec();
    let exists = clients.iter().any(|(task, _)| *task == Edit);
    let sabotage = GroupSabotage::Nothing;
    GroupModel {
        clients,
        exists,
        named: false,
        sent: false,
        losses: 1,
        crashes: 1,
        sabotage,
    }
}

/// Five clients with named changes wait at one process, one more than the responses that single changes leave.
fn queue() -> GroupModel {
    GroupModel {
        named: true,
        sent: true,
        losses: 0,
        crashes: 1,
        ..model(&[(Overwrite, 0); 5])
    }
}

fn breaks(sabotage: GroupSabotage, property: &'static str, model: GroupModel) {
    crate::common::breaks(GroupModel { sabotage, ..model }, property);
}

#[test]
fn two_processes_combine_the_changes_of_their_clients() {
    holds([
        model(&[(Create, 0), (Create, 0), (Create, 1)]),
        model(&[(Overwrite, 0), (Edit, 0), (Edit, 1)]),
        model(&[(Overwrite, 0), (Create, 0), (Overwrite, 1)]),
        model(&[(Overwrite, 0), (Overwrite, 0)]),
        GroupModel {
            losses: 2,
            crashes: 0,
            ..model(&[(Overwrite, 0), (Edit, 0), (Overwrite, 1)])
        },
    ]);
}

#[test]
fn clients_without_an_answer_send_their_named_changes_again() {
    let named = |clients| GroupModel {
        named: true,
        ..model(clients)
    };
    holds([
        named(&[(Overwrite, 0), (Create, 0), (Overwrite, 1)]),
        queue(),
    ]);
}

#[test]
fn blind_swaps_lose_updates() {
    breaks(
        GroupSabotage::SwapBlindly,
        "no lost update",
        model(&[(Create, 0), (Create, 1)]),
    );
}

#[test]
fn an_answer_before_the_swap_may_have_no_effect() {
    breaks(
        GroupSabotage::AnswerFirst,
        "no answer without its effect",
        model(&[(Overwrite, 0), (Overwrite, 1)]),
    );
}

/// The refusal depends on a change of the same group, which never takes effect.
#[test]
fn a_refusal_before_the_swap_may_have_no_reason() {
    breaks(
        GroupSabotage::RefuseFirst,
        "no refusal without its reason",
        model(&[(Overwrite, 0), (Create, 0)]),
    );
}

#[test]
fn another_order_is_not_the_order_of_arrival() {
    let property = "changes of a process take effect in order of arrival";
    breaks(
        GroupSabotage::Reorder,
        property,
        model(&[(Overwrite, 0), (Overwrite, 0)]),
    );
}

#[test]
fn a_group_that_forgets_its_answers_repeats_a_change() {
    breaks(
        GroupSabotage::ForgetAnswers,
        "no change takes effect twice",
        queue(),
    );
}

#[test]
fn assuming_that_an_unanswered_swap_failed_repeats_a_group() {
    breaks(
        GroupSabotage::AssumeNotDone,
        "no change takes effect twice",
        model(&[(Overwrite, 0), (Overwrite, 0)]),
    );
}

#[test]
fn a_group_that_was_overtaken_must_not_be_applied_again() {
    let model = model(&[(Overwrite, 0), (Overwrite, 1)]);
    breaks(
        GroupSabotage::RepeatOvertaken,
        "no change takes effect twice",
        model,
    );
}
