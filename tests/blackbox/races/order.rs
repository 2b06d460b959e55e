//! Linearizability of the history of one resource.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The operations of all clients, on a shared logical clock.
#[derive(Default)]
pub(crate) struct History {
    clock: AtomicU64,
    events: Mutex<Vec<Event>>,
}

/// An operation that took place between two moments.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) what: What,
}

/// The effect of an operation. Versions are named by their tags.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Replaced a version, or nothing, by a version, or by nothing.
    Replaced(Option<String>, Option<String>),
    /// Saw a version, or nothing.
    Saw(Option<String>),
}

impl History {
    /// Returns the next moment.
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Records an operation that began at this moment and has just ended.
    pub(crate) fn record(&self, start: u64, what: What) {
        let event = Event { start, end: self.now(), what };
        self.events.lock().expect("no panic").push(event);
    }

    /// Checks that one order of all operations agrees with what each saw and with real time.
    ///
    /// Versions are unique, so the changes form one chain of states from `first` to `last`. A read must have seen a
    /// state that was current at some moment between its beginning and its end.
    pub(crate) fn check(self, first: &str, last: Option<&str>) {
        let events = self.events.into_inner().expect("no panic");
        let changes = chain(&events, first, last);
        // The position of each version in the chain, and of each absence between two versions.
        let mut places: HashMap<String, usize> = HashMap::from([(first.to_owned(), 0)]);
        let mut gaps = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            match &change.what {
                What::Replaced(_, Some(tag)) => drop(places.insert(tag.clone(), at + 1)),
                _ => gaps.push(at + 1),
            }
        }
        // A change takes place between its beginning and its end, so later changes cannot have ended before it began.
        for pair in changes.windows(2) {
            assert!(pair[0].start < pair[1].end, "a change was overtaken by its own successor: {pair:?}");
        }
        for event in &events {
            let What::Saw(seen) = &event.what else { continue };
            // States that ended before the read began are over; states that began after its end are not visible yet.
            let over = changes.iter().rposition(|change| change.end < event.start).map_or(0, |at| at + 1);
            let begun = changes.iter().rposition(|change| change.start < event.end).map_or(0, |at| at + 1);
            if let Some(tag) = seen {
                let place = *places.get(tag).unwrap_or_else(|| panic!("a read saw {tag}, which was never written"));
                assert!(place >= over, "a read saw {tag} at place {place} after {over} was acknowledged");
                assert!(place <= begun, "a read saw {tag} at place {place} before it was written ({begun})");
            } else {
                let possible = gaps.iter().any(|place| (over..=begun).contains(place));
                assert!(possible, "a read saw nothing between places {over} and {begun}: {gaps:?}");
            }
        }
    }
}

/// Returns the changes in order: each replaced the version that the previous one made.
fn chain<'a>(events: &'a [Event], first: &str, last: Option<&str>) -> Vec<&'a Event> {
    let mut by_version: HashMap<&str, &Event> = HashMap::new();
    let mut creations = Vec::new();
    for event in events {
        match &event.what {
            What::Replaced(Some(from), _) => {
                if let Some(other) = by_version.insert(from, event) {
                    panic!("{from} was replaced twice: {other:?} and {event:?}");
                }
            }
            What::Replaced(None, _) => creations.push(event),
            What::Saw(_) => {}
        }
    }
    let total = by_version.len() + creations.len();
    let mut chain = life(&mut by_version, None, first);
    let mut lives: Vec<Vec<&Event>> = creations
        .into_iter()
        .map(|event| match &event.what {
            What::Replaced(_, Some(tag)) => life(&mut by_version, Some(event), tag),
            _ => panic!("a creation of nothing: {event:?}"),
        })
        .collect();
    // A deletion names the version that it deletes, so deletions are ordered by the lives that they end.
    lives.sort_by_key(|life| life.last().filter(|event| made(event).is_none()).map_or(u64::MAX, |event| event.start));
    for life in lives {
        assert!(chain.last().is_some_and(|event| made(event).is_none()), "created where something was: {life:?}");
        chain.extend(life);
    }
    assert_eq!(chain.len(), total, "every change has its place: {by_version:?}");
    assert_eq!(chain.last().map_or(Some(first), |event| made(event)), last, "the chain ends with the final state");
    chain
}

/// Returns the changes from a creation to the deletion, or to the end.
fn life<'a>(by_version: &mut HashMap<&str, &'a Event>, creation: Option<&'a Event>, tag: &str) -> Vec<&'a Event> {
    let mut life: Vec<&Event> = creation.into_iter().collect();
    let mut current = by_version.remove(tag);
    while let Some(event) = current {
        life.push(event);
        current = made(event).and_then(|tag| by_version.remove(tag));
    }
    life
}

/// Returns the version that a change made.
fn made(event: &Event) -> Option<&str> {
    match &event.what {
        What::Replaced(_, to) | What::Saw(to) => to.as_deref(),
    }
}
