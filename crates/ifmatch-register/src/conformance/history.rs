//! Checks recorded histories of a register: are they linearizable?
//!
//! Revisions are unique, so the successful swaps of a key form one chain. So each check is linear after a sort,
//! and a history of millions of operations is checked in seconds.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::fmt;
use std::str::FromStr;

use ifmatch_core::record::Revision;

use crate::key::Key;

/// A recorded operation on a register.
///
/// `Display` writes an operation as one line, which [`FromStr`] reads, so processes can exchange histories.
///
/// ```
/// use ifmatch_register::conformance::history::Operation;
///
/// let swap: Operation = "100 140 swap 7 9 ambiguous note".parse()?;
/// assert_eq!(swap.key.as_str(), "note");
/// assert_eq!(swap.to_string(), "100 140 swap 7 9 ambiguous note");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The key.
    pub key: Key,
    /// Time of the call, by a clock that all callers share.
    pub started: u64,
    /// Time of the response. Operations that end and start at the same time count as concurrent.
    pub ended: u64,
    /// The call and its response.
    pub action: Action,
}

/// A call with its response. [`Revision::NONE`] means that there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A load, or an entry of a scan, that found this revision. Failed loads aren't recorded.
    Load(Revision),
    /// A swap.
    Swap {
        /// The expected revision.
        expected: Revision,
        /// The revision of the proposed record.
        next: Revision,
        /// The response.
        answer: Answer,
    },
}

/// The response to a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The swap took place.
    Done,
    /// The swap didn't take place. Contains the revision that was found.
    Conflict(Revision),
    /// The swap may have taken place, or may still do so. Also stands for a caller that ended before the response.
    Ambiguous,
    /// The register reported that nothing was changed.
    Failed,
}

/// A history isn't linearizable, or can't be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    kind: ViolationKind,
    operations: Vec<Operation>,
}

/// The rule that a history violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViolationKind {
    /// Two swaps replaced the same revision, or made the same one: an update was lost.
    Fork,
    /// A revision was found, or replaced, that no swap had proposed.
    Unwritten,
    /// A swap took place although its response denied it.
    Refuted,
    /// A load began after a newer revision was acknowledged or seen, and found an older one.
    Stale,
    /// A revision was seen or replaced before the call that wrote it.
    Early,
    /// The history can't be checked: a swap's `next` isn't later than its `expected`, an operation ends before it
    /// starts, or two swaps that may have taken place propose the same revision.
    Malformed,
}

/// Checks that a history is linearizable: that one order of all operations agrees with each response and with real time.
///
/// Each key starts without a record. An ambiguous swap counts if a later operation saw its revision. A conflict counts
/// as a load of the revision that it found, since a spurious conflict is allowed.
///
/// A history must contain all swaps of its keys and no removals: the absence of a record has no revision that would
/// order it.
///
/// # Errors
/// The first violation found, with the operations that contradict each other.
///
/// ```
/// use ifmatch_register::conformance::history::{self, ViolationKind};
///
/// let lines = ["0 1 swap 0 5 done note", "2 3 swap 5 6 done note", "4 5 load 5 note"];
/// let operations = lines.map(|line| line.parse().expect("an operation"));
/// assert_eq!(history::check(&operations[..2]), Ok(()));
/// let violation = history::check(&operations).expect_err("the last load is stale");
/// assert_eq!(violation.kind(), ViolationKind::Stale);
/// ```
pub fn check(operations: &[Operation]) -> Result<(), Violation> {
    let mut keys: HashMap<&Key, Vec<&Operation>> = HashMap::new();
    for operation in operations {
        keys.entry(&operation.key).or_default().push(operation);
    }
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_unstable_by_key(|(key, _)| *key);
    keys.iter()
        .try_for_each(|(_, operations)| in_real_time(operations, &chain(operations)?))
}

impl Operation {
    /// Returns the revision that the response shows to be the current one at some time during the operation.
    fn seen(&self) -> Option<Revision> {
        match self.action {
            Action::Load(found)
            | Action::Swap {
                answer: Answer::Conflict(found),
                ..
            } => Some(found),
            Action::Swap { .. } => None,
        }
    }

    fn expected(&self) -> Revision {
        match self.action {
            Action::Swap { expected, .. } => expected,
            Action::Load(found) => found,
        }
    }

    /// Returns the time by which the operation has taken effect.
    fn effective(&self) -> u64 {
        match self.action {
            Action::Swap {
                answer: Answer::Ambiguous,
                ..
            } => u64::MAX,
            _ => self.ended,
        }
    }
}

/// Returns the successful swaps of a key, in order.
fn chain<'a>(operations: &[&'a Operation]) -> Result<Vec<&'a Operation>, Violation> {
    let proposals = proposals(operations)?;
    let mut successors: HashMap<Revision, &Operation> = HashMap::with_capacity(proposals.len());
    for operation in operations {
        let (mut seer, mut revision) = match operation.action {
            Action::Swap {
                next,
                answer: Answer::Done,
                ..
            } => (*operation, next),
            _ => match operation.seen() {
                Some(seen) => (*operation, seen),
                None => continue,
            },
        };
        // Follows the chain down to a swap that is already in it.
        while revision != Revision::NONE {
            let writer = match proposals.get(&revision) {
                None => return violation(ViolationKind::Unwritten, &[seer]),
                Some((Likelihood::Denied, writer)) => {
                    return violation(ViolationKind::Refuted, &[writer, seer]);
                }
                Some((_, writer)) => *writer,
            };
            match successors.entry(writer.expected()) {
                Entry::Vacant(entry) => entry.insert(writer),
                Entry::Occupied(entry) if std::ptr::eq(*entry.get(), writer) => break,
                Entry::Occupied(entry) => {
                    return violation(ViolationKind::Fork, &[entry.get(), writer]);
                }
            };
            (seer, revision) = (writer, writer.expected());
        }
    }
    let mut chain = Vec::with_capacity(successors.len());
    let mut last = Revision::NONE;
    while let Some(swap) = successors.get(&last) {
        chain.push(*swap);
        last = made(swap).unwrap_or(Revision::NONE);
    }
    Ok(chain)
}

/// The knowledge that a response gives about a swap.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Likelihood {
    Denied,
    Possible,
    Certain,
}

/// Returns for each proposed revision the swap that may have made it.
fn proposals<'a>(
    operations: &[&'a Operation],
) -> Result<HashMap<Revision, (Likelihood, &'a Operation)>, Violation> {
    let mut proposals: HashMap<Revision, (Likelihood, &Operation)> =
        HashMap::with_capacity(operations.len());
    for operation in operations {
        if operation.ended < operation.started {
            return violation(ViolationKind::Malformed, &[operation]);
        }
        let Action::Swap {
            expected,
            next,
            answer,
        } = operation.action
        else {
            continue;
        };
        if next <= expected {
            return violation(ViolationKind::Malformed, &[operation]);
        }
        let likelihood = match answer {
            Answer::Done => Likelihood::Certain,
            Answer::Ambiguous => Likelihood::Possible,
            Answer::Conflict(_) | Answer::Failed => Likelihood::Denied,
        };
        match (proposals.get(&next), likelihood) {
            (Some(_), Likelihood::Denied) => {}
            (None | Some((Likelihood::Denied, _)), _) => {
                proposals.insert(next, (likelihood, operation));
            }
            (Some((Likelihood::Certain, other)), Likelihood::Certain) => {
                return violation(ViolationKind::Fork, &[other, operation]);
            }
            (Some((_, other)), _) => {
                return violation(ViolationKind::Malformed, &[other, operation]);
            }
        }
    }
    Ok(proposals)
}

/// The loads that saw one revision.
#[derive(Clone, Copy, Default)]
struct Loads<'a> {
    /// The load that started last.
    last: Option<&'a Operation>,
    /// The load that ended first.
    first: Option<&'a Operation>,
}

/// Checks that each operation of a chain can take effect between its start and its end, after all earlier ones.
fn in_real_time(operations: &[&Operation], chain: &[&Operation]) -> Result<(), Violation> {
    let places = chain
        .iter()
        .zip(1..)
        .filter_map(|(swap, place)| Some((made(swap)?, place)));
    let places: HashMap<Revision, usize> = places.chain([(Revision::NONE, 0)]).collect();
    let mut loads = vec![Loads::default(); chain.len() + 1];
    for operation in operations {
        let Some(place) = operation.seen().and_then(|seen| places.get(&seen)) else {
            continue;
        };
        let Loads { last, first } = &mut loads[*place];
        *last = last
            .filter(|last| last.started >= operation.started)
            .or(Some(operation));
        *first = first
            .filter(|first| first.ended <= operation.ended)
            .or(Some(operation));
    }
    // The operation that started last, of all that must have taken effect so far.
    let mut latest: Option<&Operation> = None;
    let swaps = [None]
        .into_iter()
        .chain(chain.iter().map(|swap| Some(*swap)));
    for (swap, loads) in swaps.zip(&loads) {
        for (later, must_end) in [(swap, swap), (None, loads.first), (loads.last, None)] {
            latest = latest
                .into_iter()
                .chain(later)
                .max_by_key(|operation| operation.started);
            let (Some(latest), Some(late)) = (latest, must_end) else {
                continue;
            };
            if latest.started > late.effective() {
                let kind = if latest.seen().is_some() {
                    ViolationKind::Stale
                } else {
                    ViolationKind::Early
                };
                return violation(kind, &[late, latest]);
            }
        }
    }
    Ok(())
}

fn made(swap: &Operation) -> Option<Revision> {
    match swap.action {
        Action::Swap { next, .. } => Some(next),
        Action::Load(_) => None,
    }
}

fn violation<T>(kind: ViolationKind, operations: &[&Operation]) -> Result<T, Violation> {
    Err(Violation {
        kind,
        operations: operations.iter().copied().cloned().collect(),
    })
}

impl Violation {
    /// Returns the violated rule.
    pub fn kind(&self) -> ViolationKind {
        self.kind
    }

    /// Returns the operations that contradict each other, in the order of the message.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }
}

impl Error for Violation {}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ViolationKind::Fork => "two swaps replaced or made the same revision",
            ViolationKind::Unwritten => {
                "a revision was found or replaced that no swap had proposed"
            }
            ViolationKind::Refuted => "a swap took place although its answer denied it",
            ViolationKind::Stale => {
                "an older revision was found after the end of an operation on a newer one"
            }
            ViolationKind::Early => "a revision was seen or replaced before the call that wrote it",
            ViolationKind::Malformed => "the history cannot be checked",
        })?;
        self.operations
            .iter()
            .try_for_each(|operation| write!(f, "; {operation}"))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.started, self.ended)?;
        match self.action {
            Action::Load(found) => write!(f, "load {}", found.get())?,
            Action::Swap {
                expected,
                next,
                answer,
            } => {
                write!(f, "swap {} {} ", expected.get(), next.get())?;
                match answer {
                    Answer::Done => f.write_str("done")?,
                    Answer::Conflict(found) => write!(f, "conflict {}", found.get())?,
                    Answer::Ambiguous => f.write_str("ambiguous")?,
                    Answer::Failed => f.write_str("failed")?,
                }
            }
        }
        write!(f, " {}", self.key)
    }
}

/// A line isn't an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an operation: expected `STARTED ENDED load FOUND KEY` or `STARTED ENDED swap EXPECTED NEXT ANSWER KEY`"
)]
pub struct InvalidOperation;

impl FromStr for Operation {
    type Err = InvalidOperation;

    fn from_str(line: &str) -> Result<Self, InvalidOperation> {
        let mut rest = line;
        let mut word = || {
            let (word, tail) = rest.split_once(' ').ok_or(InvalidOperation)?;
            rest = tail;
            Ok(word)
        };
        let number = |word: &str| word.parse::<u64>().map_err(|_| InvalidOperation);
        let (started, ended) = (number(word()?)?, number(word()?)?);
        let action = match word()? {
            "load" => Action::Load(Revision::new(number(word()?)?)),
            "swap" => Action::Swap {
                expected: Revision::new(number(word()?)?),
                next: Revision::new(number(word()?)?),
                answer: match word()? {
                    "done" => Answer::Done,
                    "conflict" => Answer::Conflict(Revision::new(number(word()?)?)),
                    "ambiguous" => Answer::Ambiguous,
                    "failed" => Answer::Failed,
                    _ => return Err(InvalidOperation),
                },
            },
            _ => return Err(InvalidOperation),
        };
        Ok(Self {
            key: Key::new(rest).map_err(|_| InvalidOperation)?,
            started,
            ended,
            action,
        })
    }
}
