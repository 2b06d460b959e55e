//! Concurrent writers and readers of one blob: the recorded history must be linearizable.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::azure::container;
use crate::http::{Http, Reply};
use crate::races::counter::backoff;
use crate::races::order::{History, What};
use crate::races::race;
use crate::site::Site;
use crate::suite::Suite;

const READERS: usize = 4;
const WRITERS: usize = 6;
/// Number of changes per writer.
const CHANGES: usize = 12;

pub(crate) fn add(suite: &mut Suite) {
    for length in [100, 100_000] {
        suite.case(format!("history: replacements of {length} bytes"), move |site| {
            World::new(site, length, false).run();
        });
        suite.case(format!("history: replacements, deletions and creations of {length} bytes"), move |site| {
            World::new(site, length, true).run();
        });
    }
}

/// A blob with its known versions and the versions seen.
struct World<'a> {
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

impl<'a> World<'a> {
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
        let first = self.site.plain().put(&self.path, &[], self.version(number)).is(201).etag().to_owned();
        self.knows(&first, number);
        race(READERS + WRITERS, |number| if number < WRITERS { self.write(number) } else { self.read(number) });
        let last = self.site.plain().get(&self.path);
        let last = (last.status == 200).then(|| last.etag().to_owned());
        let written = self.written.into_inner().expect("no thread panics");
        for (tag, number) in self.seen.into_inner().expect("no thread panics") {
            assert_eq!(written.get(&tag), Some(&number), "the bytes under {tag} are those of another version");
        }
        self.history.check(&first, last.as_deref());
    }

    /// Every line contains the version's number, so mixtures show. Lengths differ between versions.
    fn version(&self, number: usize) -> Vec<u8> {
        format!("{number:09}\n").repeat(self.length / 10 + number % 7 + 1).into_bytes()
    }

    fn knows(&self, tag: &str, number: usize) {
        let before = self.written.lock().expect("no thread panics").insert(tag.to_owned(), number);
        assert_eq!(before, None, "{tag} was given twice");
    }

    fn write(&self, writer: usize) {
        let mut http = if writer.is_multiple_of(2) { self.site.plain() } else { self.site.azure() };
        let mut pause = 2;
        let mut made = 0;
        while made < CHANGES {
            let current = self.look(&mut http);
            if self.change(&mut http, current, self.deletes && made % 4 == 3) {
                made += 1;
                pause = 2;
            } else {
                backoff(&mut pause);
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
            202 | 204 => self.history.record(start, What::Replaced(current, None)),
            200 | 201 => {
                self.history.record(start, What::Replaced(current, Some(reply.etag().to_owned())));
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
        let mut http = if reader.is_multiple_of(2) { self.site.plain() } else { self.site.azure() };
        let mut rounds = 0;
        while self.writing.load(Ordering::Relaxed) > 0 || rounds < 3 {
            rounds += 1;
            sleep(Duration::from_millis(2));
            let tag = self.look(&mut http);
            let Some(tag) = tag.filter(|_| rounds % 2 == 0) else { continue };
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

    /// Returns the current tag.
    fn look(&self, http: &mut Http<'_>) -> Option<String> {
        loop {
            let start = self.history.now();
            let reply = http.get(&self.path);
            match reply.status.as_u16() {
                200 => {
                    self.saw(start, &reply);
                    return Some(reply.etag().to_owned());
                }
                404 => {
                    self.history.record(start, What::Saw(None));
                    return None;
                }
                503 => {}
                _ => reply.fail("200 or 404"),
            }
        }
    }

    fn saw(&self, start: u64, reply: &Reply) {
        self.history.record(start, What::Saw(Some(reply.etag().to_owned())));
        let number = reply.text().lines().next().and_then(|line| line.parse().ok()).expect("a line with a number");
        let whole = self.version(number);
        let part = if reply.status == 206 { &whole[20..80] } else { &whole[..] };
        assert!(reply.body == part, "a mixture of versions, or a part of one");
        self.seen.lock().expect("no thread panics").push((reply.etag().to_owned(), number));
    }
}
