//! Checks the log of purges over every interleaving, and the model by disabling each rule.

use ifmatch_sim::purge::{NOTHING_OLDER, Purges, Sabotage};

use crate::common::holds;

/// Nodes with these clock rates.
fn purges(purges: u8, rates: &[u64], ticks: u8) -> Purges {
    Purges {
        purges,
        rates: rates.to_vec(),
        ticks,
        crashes: 0,
        failovers: 0,
        sabotage: Sabotage::Nothing,
    }
}

fn breaks(sabotage: Sabotage, model: Purges) {
    crate::common::breaks(Purges { sabotage, ..model }, NOTHING_OLDER);
}

/// One purge arrives at the first node. The other one, whose clock is one and a half percent slow, learns of it from the log.
fn one() -> Purges {
    purges(1, &[1_000, 985], 4)
}

/// A purge arrives at each node, so the log can have a gap.
fn two() -> Purges {
    purges(2, &[1_000, 985], 3)
}

/// A failover loses the only purge.
fn one_lost() -> Purges {
    Purges {
        failovers: 1,
        ..purges(1, &[1_000, 985], 3)
    }
}

#[test]
fn one_purge_and_a_slow_clock() {
    holds([one()]);
}

#[test]
fn purges_at_both_nodes_with_a_gap_in_the_log() {
    holds([two()]);
}

#[test]
fn one_purge_and_a_node_that_restarts() {
    holds([Purges {
        crashes: 1,
        ..purges(1, &[1_000, 985], 3)
    }]);
}

#[test]
fn one_purge_that_a_failover_loses() {
    holds([one_lost()]);
}

#[test]
fn each_rule_is_necessary() {
    for sabotage in [
        Sabotage::AckAtOnce,
        Sabotage::NoMargin,
        Sabotage::AckBeforeHead,
        Sabotage::TrustFromEnd,
        Sabotage::TrustBeforeApply,
        Sabotage::ServeCutOff,
        Sabotage::JoinCutOff,
        Sabotage::TrustAfterLookup,
        Sabotage::StoreInFlight,
        Sabotage::ServeBeforeStart,
    ] {
        breaks(sabotage, one());
    }
    breaks(Sabotage::IgnoreGap, two());
    breaks(Sabotage::IgnoreFailover, one_lost());
}
