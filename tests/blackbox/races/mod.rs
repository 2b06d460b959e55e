//! Of those who may not both win, one does, and nobody reads what nobody wrote.

pub(crate) mod counter;
mod history;
mod leases;
mod order;
mod winners;

use std::panic::resume_unwind;
use std::thread::scope;

use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    // The one that waits for a lease to end comes first.
    leases::add(suite);
    winners::add(suite);
    counter::add(suite);
    history::add(suite);
}

/// Runs so many racers at once, each in a thread of its own, and returns what they return.
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
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// A path where nothing is yet.
fn path(site: &Site) -> String {
    format!("/{}/blob", site.name())
}
