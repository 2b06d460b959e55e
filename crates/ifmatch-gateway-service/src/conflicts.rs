//! The requests that lost lately: refused with 409, 412 or 428. A bounded memory for `/-/conflicts`.
//!
//! Only requests that can lose are noted when they begin, and only losers are kept. A GET that ends in 200 or 304 costs nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{ETAG, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::azure::{self, ERROR_CODE};
use ifmatch_core::lease::fields;
use ifmatch_gateway_config::text::Text;
use serde::{Deserialize, Serialize};

use crate::metrics::conditions::{self, HEADERS};
use crate::metrics::seconds;
use crate::request_id;

/// Number of conflicts kept. Each takes at most 4 KiB.
const KEPT: usize = 500;
/// Number of paths counted, and of clients. Each takes at most 1 KiB.
const COUNTED: usize = 250;
/// Maximum length of a path, in bytes.
const LONGEST_PATH: usize = 512;
/// Maximum length of another text of a request or a response, in bytes.
const LONGEST_TEXT: usize = 200;
/// Number of minutes for which conflicts are counted.
const MINUTES: usize = 10;

/// The fields that present a lease.
const LEASES: [HeaderName; 2] = [fields::ID, azure::ID];

/// The time for which conflicts are counted by path.
pub(crate) const WINDOW: Duration = Duration::from_secs(60 * MINUTES as u64);

/// A request that can lose, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct RequestAttempt {
    method: Method,
    /// The host, of a proxy, for which it is part of the name of a resource.
    host: Option<String>,
    uri: Uri,
    client: IpAddr,
    credentials: &'static str,
    user_agent: Option<HeaderValue>,
    conditions: [Option<HeaderValue>; conditions::COUNT],
}

impl RequestAttempt {
    /// Returns the attempt of a request, or `None` if the request can't lose: it reads and presents no lease, and its condition, if any,
    /// can only lead to 304.
    pub(crate) fn of<B>(
        request: &Request<B>,
        client: IpAddr,
        credentials: &'static str,
        host: impl FnOnce() -> Option<String>,
    ) -> Option<Box<Self>> {
        let headers = request.headers();
        // `If-Match` and `If-Unmodified-Since` can lead to 412.
        if request.method().is_safe()
            && !HEADERS[..2]
                .iter()
                .chain(&LEASES)
                .any(|name| headers.contains_key(name))
        {
            return None;
        }
        Some(Box::new(Self {
            method: request.method().clone(),
            host: host(),
            uri: request.uri().clone(),
            client,
            credentials,
            user_agent: headers.get(USER_AGENT).cloned(),
            conditions: HEADERS.map(|name| headers.get(name).cloned()),
        }))
    }
}

/// A request that lost, and what it lost to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Conflict {
    /// When it was refused, in seconds since 1970.
    pub(crate) time: f64,
    /// Its method.
    pub(crate) method: Text,
    /// Its path, percent-encoded; behind a proxy, with two slashes and the host before it.
    pub(crate) path: Text,
    /// The address of the client.
    pub(crate) client: IpAddr,
    /// The kind of its credentials.
    #[serde(skip)]
    pub(crate) credentials: &'static str,
    /// The program of the client.
    pub(crate) user_agent: Option<Text>,
    /// The conditions that it sent.
    pub(crate) conditions: BTreeMap<Text, Text>,
    /// The status of the response: 409, 412 or 428.
    pub(crate) status: u16,
    /// `true` if a lease of another client was the cause.
    pub(crate) by_lease: bool,
    /// The code of the error, in the Azure dialect or because of a lease.
    pub(crate) code: Option<Text>,
    /// The tag of the version that was there, if the response says it.
    pub(crate) current: Option<Text>,
}

/// The conflicts of a path in the last ten minutes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorstPath {
    /// The path, as in a conflict.
    pub(crate) path: Text,
    /// The number of its conflicts.
    pub(crate) count: u32,
    /// The number of conflicts that may be another path's. It is zero unless more than 250 paths have conflicts.
    pub(crate) uncertain: u32,
    /// The numbers of conflicts kept, by status.
    pub(crate) statuses: BTreeMap<u16, u32>,
    /// The clients of the conflicts kept, those with most conflicts first.
    pub(crate) clients: Vec<LosingClient>,
}

/// The conflicts of a client in the last ten minutes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LosingClient {
    /// Its address. Clients behind one address differ in their programs.
    pub(crate) client: IpAddr,
    /// Its program, as it names itself.
    pub(crate) user_agent: Option<Text>,
    /// The program's name and version.
    pub(crate) product: Option<Text>,
    /// The number of its conflicts.
    pub(crate) count: u32,
    /// The number of conflicts that may be another client's. It is zero unless more than 250 clients have conflicts.
    pub(crate) uncertain: u32,
}

/// What tells clients apart: the address, and the program.
type ConflictClient = (IpAddr, Option<Text>);

impl LosingClient {
    fn new((client, user_agent): ConflictClient, count: u32, uncertain: u32) -> Self {
        Self {
            client,
            product: user_agent.as_ref().map(product),
            user_agent,
            count,
            uncertain,
        }
    }
}

impl Conflict {
    /// Returns the client that lost.
    fn client(&self) -> ConflictClient {
        (self.client, self.user_agent.clone())
    }
}

/// The conflicts kept, in bounded memory.
#[derive(Debug, Default)]
pub(crate) struct ConflictLog(Mutex<ConflictMemory>);

/// What a [`ConflictLog`] remembers.
#[derive(Debug, Default)]
struct ConflictMemory {
    /// Number of conflicts since the start.
    total: u64,
    /// Oldest first.
    recent: VecDeque<Conflict>,
    paths: FrequentKeys<String>,
    clients: FrequentKeys<ConflictClient>,
}

/// The most frequent keys of the last ten minutes. A key that takes the place of another inherits its count, so a frequent key can't
/// be missed (the algorithm Space-Saving).
#[derive(Debug)]
struct FrequentKeys<K>(HashMap<K, MinuteCounts>);

/// Counts of a key by minute.
#[derive(Clone, Copy, Debug, Default)]
struct MinuteCounts {
    /// The counts of ten minutes, of which the last is `last`.
    by_minute: [u32; MINUTES],
    /// The minute of the latest count.
    last: u64,
    /// The count of the key whose place this one took.
    inherited: u32,
    /// The minute in which it took that place.
    since: u64,
}

impl ConflictLog {
    /// Keeps a request that was refused. `now` is the time of the interval clock, and `wall` the time of day.
    pub(crate) fn add(
        &self,
        attempt: RequestAttempt,
        refusal: &ConflictRefusal<'_>,
        now: Timestamp,
        wall: Timestamp,
    ) {
        let RequestAttempt {
            method,
            host,
            uri,
            client,
            credentials,
            user_agent,
            conditions,
        } = attempt;
        let host = host.map_or_else(String::new, |host| format!("//{host}"));
        let path = cut(
            format!("{host}{}", request_id::escape(uri.path())),
            LONGEST_PATH,
        );
        let sent = HEADERS
            .iter()
            .zip(&conditions)
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let conflict = Conflict {
            time: seconds(wall),
            method: Text(cut(method.to_string(), LONGEST_TEXT)),
            client,
            credentials,
            user_agent: user_agent.as_ref().map(text),
            conditions: sent
                .map(|(name, value)| (name.as_str().into(), text(value)))
                .collect(),
            status: refusal.status.as_u16(),
            by_lease: refusal.by_lease,
            code: refusal.headers.get(ERROR_CODE).map(text),
            current: refusal.headers.get(ETAG).map(text),
            path: Text(path.clone()),
        };
        let client = conflict.client();
        let mut memory = self.lock();
        memory.total += 1;
        if memory.recent.len() == KEPT {
            memory.recent.pop_front();
        }
        memory.recent.push_back(conflict);
        memory.paths.add(path, minute(now));
        memory.clients.add(client, minute(now));
    }

    /// Returns the number of conflicts since the start.
    pub(crate) fn total(&self) -> u64 {
        self.lock().total
    }

    /// Returns the latest conflicts that `wanted` selects, newest first.
    pub(crate) fn recent(&self, wanted: impl Fn(&Conflict) -> bool) -> Vec<Conflict> {
        self.lock()
            .recent
            .iter()
            .rev()
            .filter(|conflict| wanted(conflict))
            .cloned()
            .collect()
    }

    /// Returns the paths with conflicts in the last ten minutes, worst first. `kept` are the latest ones, which tell their clients.
    pub(crate) fn worst(&self, now: Timestamp, kept: &[&Conflict]) -> Vec<WorstPath> {
        let most = self.lock().paths.most(minute(now)).into_iter();
        most.map(|(path, count, uncertain)| WorstPath::of(path, (count, uncertain), kept))
            .collect()
    }

    /// Returns the clients with conflicts in the last ten minutes, worst first.
    pub(crate) fn losers(&self, now: Timestamp) -> Vec<LosingClient> {
        let most = self.lock().clients.most(minute(now)).into_iter();
        most.map(|(client, count, uncertain)| LosingClient::new(client, count, uncertain))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, ConflictMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A response that refused a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConflictRefusal<'a> {
    /// Its status.
    pub(crate) status: StatusCode,
    /// Its header fields.
    pub(crate) headers: &'a HeaderMap,
    /// `true` if a lease was the cause.
    pub(crate) by_lease: bool,
}

impl ConflictRefusal<'_> {
    /// Returns `true` for the statuses of conflicts.
    pub(crate) fn is_conflict(status: StatusCode) -> bool {
        let statuses = [
            StatusCode::CONFLICT,
            StatusCode::PRECONDITION_FAILED,
            StatusCode::PRECONDITION_REQUIRED,
        ];
        statuses.contains(&status)
    }
}

impl WorstPath {
    /// Describes a path with its counts, and the clients and statuses of those conflicts that are kept.
    fn of(path: String, (count, uncertain): (u32, u32), kept: &[&Conflict]) -> Self {
        let of_path: Vec<_> = kept
            .iter()
            .copied()
            .filter(|conflict| conflict.path.0 == path)
            .collect();
        let mut statuses = BTreeMap::new();
        for conflict in &of_path {
            *statuses.entry(conflict.status).or_default() += 1;
        }
        Self {
            path: Text(path),
            count,
            uncertain,
            statuses,
            clients: losers(&of_path),
        }
    }
}

impl Conflict {
    /// Returns `true` if it is one of the last ten minutes, at the time of day `wall`.
    pub(crate) fn is_recent(&self, wall: Timestamp) -> bool {
        self.time >= seconds(wall) - WINDOW.as_secs_f64()
    }
}

/// Returns the clients of these conflicts, those with most conflicts first.
pub(crate) fn losers(conflicts: &[&Conflict]) -> Vec<LosingClient> {
    let counted = counted(conflicts.iter().map(|conflict| conflict.client()));
    counted
        .into_iter()
        .map(|(client, count)| LosingClient::new(client, count, 0))
        .collect()
}

/// Returns the paths of these conflicts, those with most conflicts first.
pub(crate) fn paths(conflicts: &[&Conflict]) -> Vec<WorstPath> {
    let counted = counted(conflicts.iter().map(|conflict| conflict.path.0.clone()));
    counted
        .into_iter()
        .map(|(path, count)| WorstPath::of(path, (count, 0), conflicts))
        .collect()
}

/// Counts keys, the most frequent ones first.
fn counted<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<(K, u32)> {
    let mut counts = BTreeMap::<K, u32>::new();
    for key in keys {
        *counts.entry(key).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts
}

impl<K> Default for FrequentKeys<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash + Ord> FrequentKeys<K> {
    /// Counts a key at this minute.
    fn add(&mut self, key: K, now: u64) {
        let mut new = MinuteCounts::default();
        if !self.0.contains_key(&key) && self.0.len() >= COUNTED {
            let least = self
                .0
                .iter()
                .map(|(key, counts)| (counts.total(now), key))
                .min();
            if let Some((count, least)) = least.map(|(count, key)| (count, key.clone())) {
                self.0.remove(&least);
                new = MinuteCounts {
                    inherited: count,
                    since: now,
                    ..new
                };
                new.add(now, count);
            }
        }
        self.0.entry(key).or_insert(new).add(now, 1);
    }

    /// Returns the keys, the most frequent ones first, each with its count and how much of it may be another key's.
    fn most(&self, now: u64) -> Vec<(K, u32, u32)> {
        let mut most: Vec<_> = self
            .0
            .iter()
            .map(|(key, counts)| (counts.total(now), key, counts))
            .collect();
        most.retain(|(count, ..)| *count > 0);
        most.sort_unstable_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(other.1)));
        most.into_iter()
            .map(|(count, key, counts)| (key.clone(), count, counts.uncertain(now)))
            .collect()
    }
}

impl MinuteCounts {
    fn add(&mut self, now: u64, count: u32) {
        *self = self.moved(now);
        if let Some(current) = self.by_minute.last_mut() {
            *current = current.saturating_add(count);
        }
    }

    /// Returns the count of the ten minutes up to this one.
    fn total(&self, now: u64) -> u32 {
        self.moved(now)
            .by_minute
            .iter()
            .fold(0, |total, count| total.saturating_add(*count))
    }

    /// Returns how much of the total may be another key's.
    fn uncertain(&self, now: u64) -> u32 {
        if now - self.since.min(now) < MINUTES as u64 {
            self.inherited
        } else {
            0
        }
    }

    /// Returns the counts with the current minute last.
    fn moved(mut self, now: u64) -> Self {
        let passed = usize::try_from(now.saturating_sub(self.last))
            .unwrap_or(MINUTES)
            .min(MINUTES);
        self.by_minute.rotate_left(passed);
        self.by_minute[MINUTES - passed..].fill(0);
        Self {
            last: self.last.max(now),
            ..self
        }
    }
}

/// Returns the number of the current minute.
fn minute(now: Timestamp) -> u64 {
    Duration::from_micros(now.micros()).as_secs() / 60
}

/// Returns a field as text, cut if it is long.
fn text(value: &HeaderValue) -> Text {
    Text(cut(
        String::from_utf8_lossy(value.as_bytes()).into_owned(),
        LONGEST_TEXT,
    ))
}

/// The products of a browser that don't name it.
const OF_ANY_BROWSER: [&str; 4] = ["AppleWebKit", "Gecko", "Mozilla", "Version"];

/// Returns the product of a `User-Agent` that names the program (RFC 9110 §10.1.5): the first one with a version, or the
/// first one.
pub(crate) fn product(user_agent: &Text) -> Text {
    let mut depth = 0_usize;
    let outside = |part: &&str| {
        let was_outside = depth == 0 && !part.starts_with('(');
        depth = (depth + part.matches('(').count()).saturating_sub(part.matches(')').count());
        was_outside
    };
    let products: Vec<_> = user_agent
        .0
        .split_ascii_whitespace()
        .filter(outside)
        .collect();
    let names_it = |product: &&&str| {
        product
            .split_once('/')
            .is_some_and(|(name, _)| !OF_ANY_BROWSER.contains(&name))
    };
    let named = products.iter().find(names_it).or(products.first());
    named.map_or_else(|| user_agent.clone(), |product| (*product).into())
}

/// Cuts a text to this number of bytes, with a mark of the cut.
fn cut(text: String, longest: usize) -> String {
    if text.len() <= longest {
        return text;
    }
    format!("{}…", &text[..text.floor_char_boundary(longest)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn start() -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000)
    }

    fn lose(conflicts: &ConflictLog, path: &str, now: Timestamp) {
        let request = Request::put(path)
            .header("if-match", "\"old\"")
            .body(())
            .unwrap();
        let attempt = RequestAttempt::of(&request, [192, 0, 2, 1].into(), "none", || None).unwrap();
        let headers = HeaderMap::from_iter([(ETAG, HeaderValue::from_static("\"new\""))]);
        let refusal = ConflictRefusal {
            status: StatusCode::PRECONDITION_FAILED,
            headers: &headers,
            by_lease: false,
        };
        conflicts.add(*attempt, &refusal, now, now);
    }

    fn worst(conflicts: &ConflictLog, now: Timestamp) -> Vec<(String, u32, u32)> {
        let worst = conflicts.worst(now, &[]).into_iter();
        worst
            .map(|worst| (worst.path.0, worst.count, worst.uncertain))
            .collect()
    }

    #[test]
    fn a_read_that_can_only_be_answered_costs_nothing() {
        let client = [192, 0, 2, 1].into();
        let noted = |request: http::request::Builder| {
            RequestAttempt::of(&request.body(()).unwrap(), client, "none", || None).is_some()
        };
        assert!(
            !noted(Request::get("/a"))
                && !noted(Request::get("/a").header("if-none-match", "\"a\""))
        );
        assert!(!noted(Request::head("/a").header("if-modified-since", "x")));
        assert!(noted(Request::get("/a").header("if-match", "\"a\"")) && noted(Request::put("/a")));
        for lease in ["lease-id", "x-ms-lease-id"] {
            assert!(noted(Request::get("/a").header(lease, "1")), "{lease}");
        }
    }

    #[test]
    fn the_worst_paths_are_those_of_the_last_ten_minutes() {
        let conflicts = ConflictLog::default();
        let at = |minutes: u32| start().saturating_add(MINUTE * minutes);
        for _ in 0..3 {
            lose(&conflicts, "/a", at(0));
        }
        lose(&conflicts, "/b", at(5));
        lose(&conflicts, "/a", at(6));
        let both = |a, b| vec![("/a".to_owned(), a, 0), ("/b".to_owned(), b, 0)];
        assert_eq!(worst(&conflicts, at(9)), both(4, 1));
        assert_eq!(worst(&conflicts, at(10)), both(1, 1));
        assert_eq!(worst(&conflicts, at(15)), both(1, 1)[..1]);
        assert!(worst(&conflicts, at(16)).is_empty() && conflicts.total() == 5);
        let newest = &conflicts.recent(|_| true)[0];
        assert_eq!(
            (&newest.path, &newest.current),
            (&"/a".into(), &Some("\"new\"".into()))
        );
        assert_eq!(newest.conditions[&"if-match".into()], "\"old\"".into());
    }

    #[test]
    fn memory_is_bounded_and_a_frequent_path_is_found_among_many() {
        let conflicts = ConflictLog::default();
        let long = "x".repeat(10_000);
        for number in 0..10 * COUNTED {
            lose(&conflicts, &format!("/{number}/{long}"), start());
            if number % 10 == 0 {
                lose(&conflicts, "/frequent", start());
            }
        }
        let memory = conflicts.lock();
        assert_eq!((memory.recent.len(), memory.paths.0.len()), (KEPT, COUNTED));
        assert!(
            memory
                .paths
                .0
                .keys()
                .all(|path| path.len() <= LONGEST_PATH + '…'.len_utf8())
        );
        drop(memory);
        let (path, count, uncertain) = worst(&conflicts, start()).swap_remove(0);
        assert!(
            path == "/frequent" && count >= 250 && count - uncertain <= 250,
            "{path} {count} {uncertain}"
        );
    }

    #[test]
    fn eight_clients_behind_one_address_are_eight() {
        let conflicts = ConflictLog::default();
        let agents: Vec<_> = (0..8)
            .map(|number| format!("HashiCorp Terraform/1.9.{number} (+https://x.example)"))
            .collect();
        for (tries, agent) in agents.iter().enumerate() {
            for _ in 0..=tries {
                let request = Request::put("/state")
                    .header(USER_AGENT, agent)
                    .body(())
                    .unwrap();
                let attempt =
                    RequestAttempt::of(&request, [192, 0, 2, 1].into(), "none", || None).unwrap();
                let refusal = ConflictRefusal {
                    status: StatusCode::CONFLICT,
                    headers: &HeaderMap::new(),
                    by_lease: true,
                };
                conflicts.add(*attempt, &refusal, start(), start());
            }
        }
        let losers = conflicts.losers(start());
        let seen: Vec<_> = losers
            .iter()
            .map(|loser| (loser.product.clone().unwrap().0, loser.count))
            .collect();
        let expected: Vec<_> = (0..8)
            .rev()
            .map(|number| (format!("Terraform/1.9.{number}"), number + 1))
            .collect();
        assert_eq!(seen, expected);
        let kept = conflicts.recent(|_| true);
        let kept: Vec<_> = kept.iter().collect();
        assert_eq!(conflicts.worst(start(), &kept)[0].clients, losers);
        assert!(conflicts.losers(start().saturating_add(WINDOW)).is_empty());
    }

    #[test]
    fn a_client_is_known_by_its_product() {
        for (user_agent, expected) in [
            ("terraform/1.9.8", "terraform/1.9.8"),
            (
                "HashiCorp Terraform/1.9.8 (+https://www.terraform.io) go/1.22",
                "Terraform/1.9.8",
            ),
            (
                "azsdk-python-storage-blob/12.19.0 Python/3.11.2 (Linux-6.1 (x; y))",
                "azsdk-python-storage-blob/12.19.0",
            ),
            ("(a/1 (b/2) c/3) d/4", "d/4"),
            ("upload.sh", "upload.sh"),
            ("(only a comment)", "(only a comment)"),
            ("", ""),
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:109.0) Gecko/20100101 Firefox/115.0",
                "Firefox/115.0",
            ),
            (
                "Mozilla/5.0 (X11) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36",
                "Chrome/120.0",
            ),
        ] {
            assert_eq!(product(&user_agent.into()).0, expected);
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("aüb".to_owned(), 2), "a…");
        assert_eq!(cut("aüb".to_owned(), 4), "aüb");
    }
}
