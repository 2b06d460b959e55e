//! Histories of one resource: what each operation replaced and what it saw, and whether there is one order that explains all.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What clients did, in the order of a clock that all share.
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

/// What an operation did. Versions are named by their tags.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Replaced a version, or nothing, by a version, or by nothing.
    Replaced(Option<String>, Option<String>),
    /// Saw a version, or nothing.
    Saw(Option<String>),
}

impl History {
    /// The next moment.
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Records an operation that began at this moment and has just ended.
    pub(crate) fn record(&self, start: u64, what: What) {
        let event = Event { start, end: self.now(), what };
        self.events.lock().expect("nobody panics here").push(event);
    }

    /// Checks that there is one order of all operations that agrees with what each saw and with real time.
    ///
    /// Versions are never used twice, so that the replacements make one chain of states from `first` to `last`; each state
    /// has a place in it. A read must have the place of a state that was current at some moment between its
    /// beginning and its end.
    pub(crate) fn check(self, first: &str, last: Option<&str>) {
        let events = self.events.into_inner().expect("nobody panics here");
        let changes = chain(&events, first, last);
        // Where each version stands, and each absence between two of them.
        let mut places: HashMap<String, usize> = HashMap::from([(first.to_owned(), 0)]);
        let mut gaps = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            match &change.what {
                What::Replaced(_, Some(tag)) => drop(places.insert(tag.clone(), at + 1)),
                _ => gaps.push(at + 1),
            }
        }
        // A change took place between its beginning and its end; so later ones of the chain cannot have ended before.
        for pair in changes.windows(2) {
            assert!(pair[0].start < pair[1].end, "a change was overtaken by its own successor: {pair:?}");
        }
        for event in &events {
            let What::Saw(seen) = &event.what else { continue };
            // All states whose end had been acknowledged before it began are over; none that began after its end is seen.
            let over = changes.iter().rposition(|change| change.end < event.start).map_or(0, |at| at + 1);
            let begun = changes.iter().rposition(|change| change.start < event.end).map_or(0, |at| at + 1);
            if let Some(tag) = seen {
                let place = *places.get(tag).unwrap_or_else(|| panic!("a read saw {tag}, which nobody wrote"));
                assert!(place >= over, "a read saw {tag} at place {place} after {over} was acknowledged");
                assert!(place <= begun, "a read saw {tag} at place {place} before it was written ({begun})");
            } else {
                let possible = gaps.iter().any(|place| (over..=begun).contains(place));
                assert!(possible, "a read saw nothing between places {over} and {begun}: {gaps:?}");
            }
        }
    }
}

/// The changes in the order in which each replaced the version that the one before had made.
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
    // Who deletes a version has seen it: deletions begin in the order of the lives that they end.
    lives.sort_by_key(|life| life.last().filter(|event| made(event).is_none()).map_or(u64::MAX, |event| event.start));
    for life in lives {
        assert!(chain.last().is_some_and(|event| made(event).is_none()), "created where something was: {life:?}");
        chain.extend(life);
    }
    assert_eq!(chain.len(), total, "every change has its place: {by_version:?}");
    assert_eq!(chain.last().map_or(Some(first), |event| made(event)), last, "the chain ends with what is there");
    chain
}

/// The changes from a creation to the deletion, or to the end.
fn life<'a>(by_version: &mut HashMap<&str, &'a Event>, creation: Option<&'a Event>, tag: &str) -> Vec<&'a Event> {
    let mut life: Vec<&Event> = creation.into_iter().collect();
    let mut current = by_version.remove(tag);
    while let Some(event) = current {
        life.push(event);
        current = made(event).and_then(|tag| by_version.remove(tag));
    }
    life
}

/// The version that a change made.
fn made(event: &Event) -> Option<&str> {
    match &event.what {
        What::Replaced(_, to) | What::Saw(to) => to.as_deref(),
    }
}
