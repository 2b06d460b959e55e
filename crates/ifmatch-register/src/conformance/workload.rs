//! Clients that read and swap a few keys at random, and record each operation.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ifmatch_core::command::Command;
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};

use super::history::{Action, Answer, Operation};
use super::put;
use crate::key::Key;
use crate::register::{Register, RegisterError, RegisterErrorKind, Scan, Swap};

/// Maximum number of keys that clients also list.
const LISTED: usize = 64;

/// The keys and clients of a workload. All processes that take part must agree on it.
///
/// ```
/// use ifmatch_register::MemoryRegister;
/// use ifmatch_register::conformance::history;
/// use ifmatch_register::conformance::workload::Workload;
///
/// # async fn test() {
/// let register = MemoryRegister::unbounded();
/// let workload = Workload::new("note", 3, 2);
/// let (mut first, mut second, mut time) = (workload.client(0), workload.client(1), 0);
/// let mut now = || { time += 1; time };
/// for _ in 0..100 {
///     first.step(&register, &mut now).await;
///     second.step(&register, &mut now).await;
/// }
/// let operations = [first.into_history(), second.into_history()].concat();
/// history::check(&operations).expect("a linearizable register");
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(test());
/// ```
#[derive(Clone, Debug)]
pub struct Workload {
    prefix: Arc<str>,
    /// The keys of most operations, then the rare ones.
    keys: Arc<[Key]>,
    often: usize,
    clients: u64,
}

/// Takes note of an operation.
type Journal = Box<dyn FnMut(&Operation) + Send>;

/// A client of a workload.
pub struct Client {
    workload: Workload,
    number: u64,
    /// The revision that this client last found under each key.
    known: HashMap<Key, Revision>,
    /// The last revision that this client proposed.
    proposed: u64,
    /// Number of swaps that took place.
    wins: usize,
    history: Vec<Operation>,
    journal: Option<Journal>,
}

impl Workload {
    /// Creates a workload of `clients` clients on the keys `prefix/0000`, `prefix/0001` and so on. The register must not
    /// have records under this prefix.
    ///
    /// # Panics
    /// Panics if the prefix isn't part of a valid key.
    pub fn new(prefix: &str, keys: usize, clients: usize) -> Self {
        let key = |number| Key::new(format!("{prefix}/{number:04}")).expect("a valid prefix");
        let keys: Arc<[Key]> = (0..keys).map(key).collect();
        Self {
            prefix: format!("{prefix}/").into(),
            often: keys.len(),
            keys,
            clients: clients.max(1) as u64,
        }
    }

    /// Adds keys for every second operation to select from. They aren't listed.
    ///
    /// # Panics
    /// Panics if the prefix isn't part of a valid key.
    #[must_use]
    pub fn with_rare_keys(mut self, keys: usize) -> Self {
        let prefix = self.prefix.trim_end_matches('/');
        let rare = (0..keys)
            .map(|number| Key::new(format!("{prefix}-rare/{number:06}")).expect("a valid prefix"));
        self.keys = self.keys.iter().cloned().chain(rare).collect();
        self
    }

    /// Returns the keys.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Creates a client. Each number below the number of clients may be used once, in one process.
    pub fn client(&self, number: usize) -> Client {
        Client {
            workload: self.clone(),
            number: number as u64,
            known: HashMap::new(),
            proposed: 0,
            wins: 0,
            history: Vec::new(),
            journal: None,
        }
    }

    fn random_key(&self, random: u64) -> usize {
        let rare = self.keys.len() - self.often;
        let (first, count) = if rare > 0 && random.is_multiple_of(2) {
            (self.often, rare)
        } else {
            (0, self.often)
        };
        first + usize::try_from((random >> 1) % count as u64).expect("less than a usize")
    }
}

impl Client {
    /// Carries out one operation on a random key: a swap, a load, a query for the revision that is known without
    /// waiting, or a listing of the frequent keys. Returns `false` if the register failed: pause before the next
    /// operation.
    ///
    /// `now` is a clock that all clients share. Failed operations aren't repeated.
    ///
    /// # Panics
    /// Panics if a record's content isn't what was written with its revision.
    pub async fn step(&mut self, register: &dyn Register, now: impl FnMut() -> u64) -> bool {
        let random = ifmatch_runtime::nonce().expect("the system gives random numbers");
        let key = self.workload.random_key(random >> 8);
        match random % 16 {
            0 if self.workload.often <= LISTED => self.list(register, now).await,
            0..4 => self.load(register, key, now).await,
            4 => {
                self.look(register, key, now);
                true
            }
            _ => self.swap(register, key, now).await,
        }
    }

    /// Calls `journal` with each operation instead of recording it in the history. A swap is passed twice: as an
    /// ambiguous one that ends when it starts, before it is sent, and with its response. If the process is killed, the
    /// journal thus has each swap that may have been sent.
    #[must_use]
    pub fn with_journal(mut self, journal: impl FnMut(&Operation) + Send + 'static) -> Self {
        self.journal = Some(Box::new(journal));
        self
    }

    fn record(&mut self, operation: Operation) {
        match &mut self.journal {
            Some(journal) => journal(&operation),
            None => self.history.push(operation),
        }
    }

    /// Loads all keys, as the last operation of a history. Shows acknowledged swaps that were lost since.
    ///
    /// # Panics
    /// Same as [`step`](Self::step).
    pub async fn load_all(&mut self, register: &dyn Register, mut now: impl FnMut() -> u64) {
        for key in 0..self.workload.keys.len() {
            self.load(register, key, &mut now).await;
        }
    }

    /// Returns the number of this client's swaps that were answered with [`Swap::Done`].
    pub fn wins(&self) -> usize {
        self.wins
    }

    /// Returns the recorded operations.
    pub fn into_history(self) -> Vec<Operation> {
        self.history
    }

    async fn load(
        &mut self,
        register: &dyn Register,
        key: usize,
        mut now: impl FnMut() -> u64,
    ) -> bool {
        let started = now();
        let Ok(found) = register.load(&self.workload.keys[key]).await else {
            return false;
        };
        self.saw(key, started, now(), revision(found.as_ref()));
        true
    }

    /// Asks for the revision that the register knows without waiting.
    fn look(&mut self, register: &dyn Register, key: usize, mut now: impl FnMut() -> u64) {
        let started = now();
        if let Some(found) = register.revision_at_once(&self.workload.keys[key]) {
            self.saw(key, started, now(), found);
        }
    }

    async fn list(&mut self, register: &dyn Register, mut now: impl FnMut() -> u64) -> bool {
        let prefix = Arc::clone(&self.workload.prefix);
        let scan = Scan {
            prefix: &prefix,
            after: None,
            limit: self.workload.often + 1,
        };
        let started = now();
        let Ok(page) = register.scan(&scan).await else {
            return false;
        };
        let ended = now();
        let found: HashMap<Key, Revision> = page
            .iter()
            .map(|(key, record)| (key.clone(), revision(Some(record))))
            .collect();
        for key in 0..self.workload.often {
            let found = found
                .get(&self.workload.keys[key])
                .copied()
                .unwrap_or(Revision::NONE);
            self.saw(key, started, ended, found);
        }
        true
    }

    fn saw(&mut self, key: usize, started: u64, ended: u64, found: Revision) {
        let key = self.workload.keys[key].clone();
        self.known.insert(key.clone(), found);
        self.record(Operation {
            key,
            started,
            ended,
            action: Action::Load(found),
        });
    }

    async fn swap(
        &mut self,
        register: &dyn Register,
        key: usize,
        mut now: impl FnMut() -> u64,
    ) -> bool {
        let key = self.workload.keys[key].clone();
        let expected = self.known.get(&key).copied().unwrap_or(Revision::NONE);
        let next = self.propose(expected);
        let record = record(next);
        let started = now();
        let operation = |ended, answer| {
            let action = Action::Swap {
                expected,
                next,
                answer,
            };
            Operation {
                key: key.clone(),
                started,
                ended,
                action,
            }
        };
        if let Some(journal) = &mut self.journal {
            journal(&operation(started, Answer::Ambiguous));
        }
        let swapped = register
            .compare_and_swap(&key, expected, Some(&record))
            .await;
        let ended = now();
        let answer = answer(&swapped);
        let operation = operation(ended, answer);
        match answer {
            Answer::Done => {
                self.wins += 1;
                self.known.insert(key.clone(), next);
            }
            Answer::Conflict(found) => drop(self.known.insert(key.clone(), found)),
            Answer::Ambiguous | Answer::Failed => {}
        }
        self.record(operation);
        swapped.is_ok()
    }

    /// Returns a revision after the expected one that no other client proposes, and this one never before.
    fn propose(&mut self, expected: Revision) -> Revision {
        let clients = self.workload.clients;
        let round = self.proposed.max(expected.get()) / clients + 1;
        self.proposed = round * clients + self.number;
        Revision::new(self.proposed)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("number", &self.number)
            .field("wins", &self.wins)
            .finish_non_exhaustive()
    }
}

fn answer(swapped: &Result<Swap, RegisterError>) -> Answer {
    match swapped {
        Ok(Swap::Done) => Answer::Done,
        Ok(Swap::Conflict(found)) => Answer::Conflict(revision(found.as_ref())),
        Err(error) if error.kind() == RegisterErrorKind::Ambiguous => Answer::Ambiguous,
        Err(_) => Answer::Failed,
    }
}

/// Returns a record with this revision, and with a content derived from it.
fn record(revision: Revision) -> Record {
    let none = Preconditions::default();
    let write = Command::Write(put(&revision.get().to_le_bytes(), &none));
    let now = Timestamp::from_micros(revision.get());
    Record::absent()
        .apply(&write, now)
        .next
        .expect("an unconditional write is carried out")
}

/// Returns the revision of a found record, after a check of its content.
fn revision(found: Option<&Record>) -> Revision {
    let Some(record) = found else {
        return Revision::NONE;
    };
    let version = record
        .settled(record.revision().timestamp())
        .expect("clients write versions");
    let revision = record.revision();
    assert_eq!(
        version.payload()[..],
        revision.get().to_le_bytes(),
        "a record has the content of its own revision"
    );
    revision
}
