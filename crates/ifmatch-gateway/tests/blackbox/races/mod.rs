//! Races: one of several exclusive operations succeeds, and readers see only written versions.

mod history;
mod leases;
pub(crate) mod winners;

use std::panic::resume_unwind;
use std::thread::scope;

use crate::site::Site;
use crate::suite::Suite;

/// Number of clients in a race for one success.
pub(crate) const RACERS: usize = 20;

pub(crate) fn add(suite: &mut Suite) {
    // First: one of these waits for a lease to expire.
    leases::add(suite);
    winners::add(suite);
    winners::add_counter(suite);
    history::add(suite);
}

/// Runs racers concurrently, each in its own thread, and returns their results.
pub(crate) fn race<T: Send>(racers: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let gate = std::sync::Barrier::new(racers);
    scope(|scope| {
        let racer = |number: usize| {
            let (gate, run) = (&gate, &run);
            scope.spawn(move || {
                gate.wait();
                run(number)
            })
        };
        let threads: Vec<_> = (0..racers).map(racer).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// Returns the path of a blob that doesn't exist.
fn path(site: &Site) -> String {
    format!("/{}/blob", site.name())
}
