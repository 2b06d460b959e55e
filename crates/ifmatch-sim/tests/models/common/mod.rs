//! Runs of the model checker.

#![allow(clippy::print_stdout, reason = "tests print the size of a model")]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

/// Checks every interleaving of each model.
pub(crate) fn holds<M>(models: impl IntoIterator<Item = M>)
where
    M: Model + Debug + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    for model in models {
        let name = format!("{model:?}");
        let checker = model.checker().threads(2).spawn_bfs().join();
        println!("{name}: {} states", checker.unique_state_count());
        checker.assert_properties();
    }
}

/// Expects a fault with a disabled check. Without the sabotage, the model must hold: it, or a larger one, is beside.
pub(crate) fn breaks<M>(sabotaged: M, property: &'static str)
where
    M: Model + Debug + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    let name = format!("{sabotaged:?}");
    let is_found = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = sabotaged.checker().finish_when(is_found).spawn_bfs().join();
    assert!(
        checker.discovery(property).is_some(),
        "with {name}, {property:?} must fail"
    );
}
