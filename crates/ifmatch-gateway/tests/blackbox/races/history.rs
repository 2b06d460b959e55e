//! Concurrent writers and readers of one blob: the recorded history must be linearizable.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use support::eventually;

use crate::azure::container;
use crate::http::{Http, Reply};
use crate::races::race;
use crate::races::winners::Backoff;
use crate::site::Site;
use crate::suite::Suite;

const READERS: usize = 4;
const WRITERS: usize = 6;
/// Number of changes per writer.
const CHANGES: usize = 12;

pub(crate) fn add(suite: &mut Suite) {
    for length in [100, 100_000] {
        suite.case(
            format!("history: replacements of {length} bytes"),
            move |site| {
                TrackedBlob::new(site, length, false).run();
            },
        );
        suite.case(
            format!("history: replacements, deletions and creations of {length} bytes"),
            move |site| {
                TrackedBlob::new(site, length, true).run();
            },
        );
    }
}

/// A blob with its known versions and the versions seen.
struct TrackedBlob<'a> {
    site: &'a Site,
    path: String,
    length: usize,
    deletes: bool,
    history: History,
    /// The number in the content of each version, by tag. A version is known once its writer has the response.
    written: Mutex<HashMap<String, usize>>,
    /// Tags seen by readers, with the number in the content.
    seen: Mutex<Vec<(String, usize)>>,
    numbers: AtomicUsize,
    writing: AtomicUsize,
}

impl<'a> TrackedBlob<'a> {
    fn new(site: &'a Site, length: usize, deletes: bool) -> Self {
        Self {
            site,
            path: format!("{}/blob", container(&mut site.azure(), site)),
            length,
            deletes,
            history: History::default(),
            written: Mutex::default(),
            seen: Mutex::default(),
            numbers: AtomicUsize::new(0),
            writing: AtomicUsize::new(WRITERS),
        }
    }

    fn run(self) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let first = self
            .site
            .plain()
            .put(&self.path, &[], self.version(number))
            .is(201)
            .etag()
            .to_owned();
        self.knows(&first, number);
        race(READERS + WRITERS, |number| {
            if number < WRITERS {
                self.write(number);
            } else {
                self.read(number);
            }
        });
        let last = self.site.plain().get(&self.path);
        let last = (last.status == 200).then(|| last.etag().to_owned());
        let written = self.written.into_inner().expect("no thread panics");
        for (tag, number) in self.seen.into_inner().expect("no thread panics") {
            assert_eq!(
                written.get(&tag),
                Some(&number),
                "the bytes under {tag} are those of another version"
            );
        }
        self.history.check(&first, last.as_deref());
    }

    /// Every line contains the version's number, so mixtures show. Lengths differ between versions.
    fn version(&self, number: usize) -> Vec<u8> {
        format!("{number:09}\n")
            .repeat(self.length / 10 + number % 7 + 1)
            .into_bytes()
    }

    fn knows(&self, tag: &str, number: usize) {
        let before = self
            .written
            .lock()
            .expect("no thread panics")
            .insert(tag.to_owned(), number);
        assert_eq!(before, None, "{tag} was given twice");
    }

    fn write(&self, writer: usize) {
        let mut http = if writer.is_multiple_of(2) {
            self.site.plain()
        } else {
            self.site.azure()
        };
        let mut backoff = Backoff::default();
        let mut made = 0;
        while made < CHANGES {
            let current = self.look(&mut http);
            if self.change(&mut http, current, self.deletes && made % 4 == 3) {
                made += 1;
                backoff.succeeded();
            } else {
                backoff.wait();
            }
        }
        self.writing.fetch_sub(1, Ordering::Relaxed);
    }

    /// Replaces or deletes the version seen, or creates the blob. Returns `false` if another client was faster.
    fn change(&self, http: &mut Http<'_>, current: Option<String>, delete: bool) -> bool {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let start = self.history.now();
        let reply = match &current {
            Some(tag) if delete => http.delete(&self.path, &[("if-match", tag)]),
            Some(tag) => http.upload(&self.path, &[("if-match", tag)], self.version(number)),
            None => http.upload(&self.path, &[("if-none-match", "*")], self.version(number)),
        };
        match reply.status.as_u16() {
            202 | 204 => self.history.record(start, Effect::Replaced(current, None)),
            200 | 201 => {
                self.history.record(
                    start,
                    Effect::Replaced(current, Some(reply.etag().to_owned())),
                );
                self.knows(reply.etag(), number);
            }
            404 => return false,
            _ if reply.changed_nothing() => return false,
            _ => reply.fail("a change, or a rejection"),
        }
        true
    }

    /// Reads whole versions and parts of them until the writers have ended.
    fn read(&self, reader: usize) {
        let mut http = if reader.is_multiple_of(2) {
            self.site.plain()
        } else {
            self.site.azure()
        };
        let mut rounds = 0;
        while self.writing.load(Ordering::Relaxed) > 0 || rounds < 3 {
            rounds += 1;
            sleep(Duration::from_millis(2));
            let tag = self.look(&mut http);
            let Some(tag) = tag.filter(|_| rounds % 2 == 0) else {
                continue;
            };
            // Reads the rest of a version, like a client that resumes a download.
            let start = self.history.now();
            let fields = [("range", "bytes=20-79"), ("if-match", tag.as_str())];
            let reply = http.send("GET", &self.path, &fields, "");
            if reply.status == 206 {
                assert_eq!(reply.etag(), tag);
                self.saw(start, &reply);
            } else if !matches!(reply.status.as_u16(), 404 | 412 | 503) {
                reply.fail("206, or a rejection");
            }
        }
    }

    /// Returns the current tag, or `None` if there is no blob.
    fn look(&self, http: &mut Http<'_>) -> Option<String> {
        eventually("an answer to a read", || {
            let start = self.history.now();
            let reply = http.get(&self.path);
            match reply.status.as_u16() {
                200 => {
                    self.saw(start, &reply);
                    Some(Some(reply.etag().to_owned()))
                }
                404 => {
                    self.history.record(start, Effect::Saw(None));
                    Some(None)
                }
                503 => None,
                _ => reply.fail("200 or 404"),
            }
        })
    }

    fn saw(&self, start: u64, reply: &Reply) {
        self.history
            .record(start, Effect::Saw(Some(reply.etag().to_owned())));
        let number = reply
            .text()
            .lines()
            .next()
            .and_then(|line| line.parse().ok())
            .expect("a line with a number");
        let whole = self.version(number);
        let part = if reply.status == 206 {
            &whole[20..80]
        } else {
            &whole[..]
        };
        assert!(
            reply.body == part,
            "a mixture of versions, or a part of one"
        );
        self.seen
            .lock()
            .expect("no thread panics")
            .push((reply.etag().to_owned(), number));
    }
}

/// The operations of all clients, on a shared logical clock.
#[derive(Default)]
struct History {
    clock: AtomicU64,
    events: Mutex<Vec<Event>>,
}

/// An operation that took place between two moments.
#[derive(Clone, Debug)]
struct Event {
    start: u64,
    end: u64,
    what: Effect,
}

/// The effect of an operation. Versions are named by their tags.
#[derive(Clone, Debug)]
enum Effect {
    /// Replaced a version, or nothing, by a version, or by nothing.
    Replaced(Option<String>, Option<String>),
    /// Saw a version, or nothing.
    Saw(Option<String>),
}

impl History {
    /// Returns the next moment.
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Records an operation that began at this moment and has just ended.
    fn record(&self, start: u64, what: Effect) {
        let event = Event {
            start,
            end: self.now(),
            what,
        };
        self.events.lock().expect("no panic").push(event);
    }

    /// Checks that one order of all operations agrees with what each saw and with real time.
    ///
    /// Versions are unique, so the changes form one chain of states from `first` to `last`. A read must have seen a
    /// state that was current at some moment between its beginning and its end.
    fn check(self, first: &str, last: Option<&str>) {
        let events = self.events.into_inner().expect("no panic");
        let changes = chain(&events, first, last);
        // The position of each version in the chain, and of each absence between two versions.
        let mut places: HashMap<String, usize> = HashMap::from([(first.to_owned(), 0)]);
        let mut gaps = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            match &change.what {
                Effect::Replaced(_, Some(tag)) => drop(places.insert(tag.clone(), at + 1)),
                _ => gaps.push(at + 1),
            }
        }
        // A change takes place between its beginning and its end, so later changes can't have ended before it began.
        let mut latest = 0;
        for change in &changes {
            assert!(
                latest < change.end,
                "a change ended before an earlier one of the chain began: {change:?}"
            );
            latest = latest.max(change.start);
        }
        for event in &events {
            let Effect::Saw(seen) = &event.what else {
                continue;
            };
            // States that ended before the read began are over; states that began after its end aren't visible yet.
            let over = changes
                .iter()
                .rposition(|change| change.end < event.start)
                .map_or(0, |at| at + 1);
            let begun = changes
                .iter()
                .rposition(|change| change.start < event.end)
                .map_or(0, |at| at + 1);
            if let Some(tag) = seen {
                let place = *places
                    .get(tag)
                    .unwrap_or_else(|| panic!("a read saw {tag}, which was never written"));
                assert!(
                    place >= over,
                    "a read saw {tag} at place {place} after {over} was acknowledged"
                );
                assert!(
                    place <= begun,
                    "a read saw {tag} at place {place} before it was written ({begun})"
                );
            } else {
                let possible = gaps.iter().any(|place| (over..=begun).contains(place));
                assert!(
                    possible,
                    "a read saw nothing between places {over} and {begun}: {gaps:?}"
                );
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
            Effect::Replaced(Some(from), _) => {
                if let Some(other) = by_version.insert(from, event) {
                    panic!("{from} was replaced twice: {other:?} and {event:?}");
                }
            }
            Effect::Replaced(None, _) => creations.push(event),
            Effect::Saw(_) => {}
        }
    }
    let total = by_version.len() + creations.len();
    let mut chain = life(&mut by_version, None, first);
    let mut lives: Vec<Vec<&Event>> = creations
        .into_iter()
        .map(|event| match &event.what {
            Effect::Replaced(_, Some(tag)) => life(&mut by_version, Some(event), tag),
            _ => panic!("a creation of nothing: {event:?}"),
        })
        .collect();
    // A deletion names a version that its client has seen, so the deletions began in the order of the lives that they end.
    lives.sort_by_key(|life| {
        life.last()
            .filter(|event| made(event).is_none())
            .map_or(u64::MAX, |event| event.start)
    });
    for life in lives {
        assert!(
            chain.last().is_some_and(|event| made(event).is_none()),
            "created where something was: {life:?}"
        );
        chain.extend(life);
    }
    assert_eq!(
        chain.len(),
        total,
        "every change has its place: {by_version:?}"
    );
    assert_eq!(
        chain.last().map_or(Some(first), |event| made(event)),
        last,
        "the chain ends with the final state"
    );
    chain
}

/// Returns the changes from a creation to the deletion, or to the end.
fn life<'a>(
    by_version: &mut HashMap<&str, &'a Event>,
    creation: Option<&'a Event>,
    tag: &str,
) -> Vec<&'a Event> {
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
        Effect::Replaced(_, to) | Effect::Saw(to) => to.as_deref(),
    }
}
