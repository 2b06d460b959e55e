//! What the metrics know of leases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ifmatch_blob::name::ContainerName;
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{Lease, LeaseAction, LeaseReceipt, LeaseState};
use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

use super::list::{Entry, Place};

const HELD: &str = "ifmatch_leases_held";
const OPERATIONS: &str = "ifmatch_lease_operations_total";

/// The leases that lock something, and counters of what became of leases.
///
/// An expiry is nobody's operation: it is counted when the book is looked through after it.
pub(crate) struct Book {
    locking: Mutex<Locking>,
    held: Gauge,
    acquired: Counter,
    renewed: Counter,
    changed: Counter,
    released: Counter,
    broken: Counter,
    expired: Counter,
    refused: Counter,
}

#[derive(Default)]
struct Locking {
    /// With the time of the operation that each came from.
    leases: BTreeMap<Place, (Lease, Timestamp)>,
    filling: Option<Filling>,
}

/// What happened since the filling began, while it goes on: what it finds there may be from before.
#[derive(Default)]
struct Filling {
    used: BTreeSet<Place>,
    deleted: BTreeSet<ContainerName>,
}

impl Book {
    /// Registers everything with the recorder at hand.
    pub(crate) fn new() -> Self {
        describe_gauge!(
            HELD,
            "Leases that lock a blob or a container now; in front of an object store, of those used since the start."
        );
        describe_counter!(
            OPERATIONS,
            "What became of leases: acquired, renewed, changed, released, broken, expired; refused: an operation, a \
             write or a read that a lease did not allow."
        );
        let operation = |outcome: &'static str| counter!(OPERATIONS, "outcome" => outcome);
        Self {
            locking: Mutex::default(),
            held: gauge!(HELD),
            acquired: operation("acquired"),
            renewed: operation("renewed"),
            changed: operation("changed"),
            released: operation("released"),
            broken: operation("broken"),
            expired: operation("expired"),
            refused: operation("refused"),
        }
    }

    /// Notes an operation that was carried out.
    ///
    /// Two that came shortly after each other may be noted in the other order: the later one stays.
    pub(crate) fn operated(&self, place: Place, action: LeaseAction, receipt: &LeaseReceipt, now: Timestamp) {
        let counter = match action {
            LeaseAction::Acquire { .. } => &self.acquired,
            LeaseAction::Renew(_) => &self.renewed,
            LeaseAction::Change { .. } => &self.changed,
            LeaseAction::Release(_) => &self.released,
            LeaseAction::Break(_) => &self.broken,
        };
        counter.increment(1);
        let mut locking = self.locking();
        if locking.leases.get(&place).is_none_or(|(_, at)| *at <= receipt.at) {
            self.remove(&mut locking, &place, now);
            if let Some(filling) = &mut locking.filling {
                filling.used.insert(place.clone());
            }
            let lease = receipt.lease.filter(|lease| lease.state(now).is_locked());
            locking.leases.extend(lease.map(|lease| (place, (lease, receipt.at))));
        }
        self.held.set(locking.count());
    }

    /// Notes that a lease did not allow something.
    pub(crate) fn refused(&self) {
        self.refused.increment(1);
    }

    /// Notes that something is deleted; with a container, all that was in it.
    pub(crate) fn deleted(&self, place: &Place, now: Timestamp) {
        let mut locking = self.locking();
        let gone = if place.blob.is_some() { vec![place.clone()] } else { locking.within(&place.container) };
        for place in &gone {
            self.remove(&mut locking, place, now);
        }
        if let Some(filling) = &mut locking.filling {
            match place.blob {
                Some(_) => drop(filling.used.insert(place.clone())),
                None => drop(filling.deleted.insert(place.container.clone())),
            }
        }
        self.held.set(locking.count());
    }

    /// Says that leases which the store has from before are about to be [added](Self::add).
    pub(crate) fn begin_filling(&self) {
        self.locking().filling = Some(Filling::default());
    }

    /// Adds a lease that was found in the store, unless something happened there since the filling began.
    pub(crate) fn add(&self, Entry { place, lease }: Entry, now: Timestamp) {
        let mut locking = self.locking();
        let is_current = locking.filling.as_ref().is_some_and(|filling| !filling.saw(&place));
        if is_current && lease.state(now).is_locked() {
            locking.leases.insert(place, (lease, Timestamp::from_micros(0)));
            self.held.set(locking.count());
        }
    }

    /// Says that all were added.
    pub(crate) fn end_filling(&self) {
        self.locking().filling = None;
    }

    /// Takes out and counts what has ended by itself.
    pub(crate) fn look_through(&self, now: Timestamp) {
        let mut locking = self.locking();
        let is_over = |lease: &Lease| !lease.state(now).is_locked();
        let over: Vec<Place> =
            locking.leases.iter().filter(|(_, (lease, _))| is_over(lease)).map(|(place, _)| place.clone()).collect();
        for place in &over {
            self.remove(&mut locking, place, now);
        }
        self.held.set(locking.count());
    }

    fn remove(&self, locking: &mut Locking, place: &Place, now: Timestamp) {
        let removed = locking.leases.remove(place);
        if removed.is_some_and(|(lease, _)| lease.state(now) == LeaseState::Expired) {
            self.expired.increment(1);
        }
    }

    fn locking(&self) -> MutexGuard<'_, Locking> {
        // Whoever panicked left whole entries behind.
        self.locking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Locking {
    /// What is leased of a container and of what is in it.
    fn within(&self, container: &ContainerName) -> Vec<Place> {
        let from = Place { container: container.clone(), blob: None };
        let places = self.leases.range(from..).map(|(place, _)| place);
        places.take_while(|place| place.container == *container).cloned().collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float, exact up to 2^53")]
    fn count(&self) -> f64 {
        self.leases.len() as f64
    }
}

impl Filling {
    fn saw(&self, place: &Place) -> bool {
        self.used.contains(place) || self.deleted.contains(&place.container)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000);
    const LATER: Timestamp = Timestamp::from_micros(2_000_000);

    fn place(text: &str) -> Place {
        Place::new(text).unwrap()
    }

    /// A lease that is held until `end`, for ever if there is none.
    fn lease(end: Option<Timestamp>) -> Lease {
        let (id, phase) = ([7; 16], json!({ "Held": end }));
        serde_json::from_value(json!({ "id": id, "duration": "Infinite", "phase": phase, "token": 1 })).unwrap()
    }

    fn acquire(book: &Book, text: &str, lease: Lease, at: Timestamp) {
        let action = LeaseAction::Acquire { id: lease.id(), duration: lease.duration() };
        book.operated(place(text), action, &LeaseReceipt { lease: Some(lease), at }, at);
    }

    fn release(book: &Book, text: &str, at: Timestamp) {
        let action = LeaseAction::Release(lease(None).id());
        book.operated(place(text), action, &LeaseReceipt { lease: None, at }, at);
    }

    fn held(book: &Book) -> Vec<String> {
        book.locking().leases.keys().map(ToString::to_string).collect()
    }

    /// One client releases, the next acquires, and the first one's thread is the slower one to say so.
    #[test]
    fn the_later_operation_stays_whichever_is_noted_first() {
        let book = Book::new();
        acquire(&book, "c/a", lease(None), LATER);
        release(&book, "c/a", NOW);
        assert_eq!(held(&book), ["c/a"]);
        release(&book, "c/a", LATER);
        assert!(held(&book).is_empty());
    }

    /// What the filling reads may be from before an operation that was noted while it read.
    #[test]
    fn the_filling_brings_nothing_back() {
        let book = Book::new();
        book.begin_filling();
        release(&book, "c/released", NOW);
        book.deleted(&place("c/deleted"), NOW);
        book.deleted(&place("gone"), NOW);
        acquire(&book, "d", lease(None), NOW);
        for found in ["c", "c/released", "c/deleted", "c/a", "gone", "gone/a", "d/a"] {
            book.add(Entry { place: place(found), lease: lease(None) }, NOW);
        }
        book.end_filling();
        book.add(Entry { place: place("late"), lease: lease(None) }, NOW);
        assert_eq!(held(&book), ["c", "c/a", "d", "d/a"]);
    }

    #[test]
    fn a_container_takes_its_own_blobs_with_it_and_no_others() {
        let book = Book::new();
        for text in ["a", "b", "b/1", "b/2", "b-c/1", "c/1"] {
            acquire(&book, text, lease(None), NOW);
        }
        book.deleted(&place("b"), NOW);
        assert_eq!(held(&book), ["a", "b-c/1", "c/1"]);
        book.deleted(&place("c/1"), NOW);
        assert_eq!(held(&book), ["a", "b-c/1"]);
    }

    #[test]
    fn what_is_over_is_taken_out_when_the_book_is_looked_through() {
        let book = Book::new();
        acquire(&book, "c/a", lease(Some(LATER)), NOW);
        acquire(&book, "c/b", lease(None), NOW);
        book.look_through(NOW);
        assert_eq!(held(&book), ["c/a", "c/b"]);
        book.look_through(LATER);
        assert_eq!(held(&book), ["c/b"]);
    }
}
