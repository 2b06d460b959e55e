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

/// Expects a fault with a disabled check, and none within as many steps with the check: it is the check that prevents it.
pub(crate) fn breaks<M>(sabotaged: M, property: &'static str, intact: M)
where
    M: Model + Debug + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    let name = format!("{sabotaged:?}");
    let is_found = || HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let found = sabotaged.checker().finish_when(is_found()).spawn_bfs().join().discovery(property);
    let Some(path) = found else { panic!("with {name}, {property:?} must fail") };
    // The states of a path include the initial one. States at the maximum depth are not examined.
    let depth = path.into_states().len() + 1;
    let checker = intact.checker().finish_when(is_found()).target_max_depth(depth).spawn_bfs().join();
    checker.assert_no_discovery(property);
}
