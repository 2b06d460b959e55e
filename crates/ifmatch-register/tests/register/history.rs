//! The history checker: it agrees with stateright, names each kind of fault, and checks long histories.

use ifmatch_core::record::Revision;
use ifmatch_register::Key;
use ifmatch_register::conformance::history::{Action, Answer, Operation, ViolationKind, check};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

/// Parses one operation a line, all on one key.
fn history(lines: &str) -> Vec<Operation> {
    lines
        .split("; ")
        .map(|line| format!("{line} key").parse().unwrap())
        .collect()
}

#[test]
fn correct_histories_pass() {
    let correct = [
        "0 1 load 0",
        "0 1 swap 0 5 done; 2 3 load 5",
        // Concurrent operations may take effect in either order.
        "0 9 swap 0 5 done; 1 2 load 0; 3 4 load 5",
        "0 9 swap 0 5 done; 0 9 swap 5 6 done; 0 9 load 0; 0 9 load 6",
        // A time that two operations share doesn't order them.
        "0 1 swap 0 5 done; 1 2 load 0",
        // The second of two swaps finds the first.
        "0 4 swap 0 5 done; 1 5 swap 0 6 conflict 5",
        // A spurious conflict.
        "0 1 swap 0 5 conflict 0; 2 3 load 0",
        // An ambiguous swap takes place, at any time or never.
        "0 1 swap 0 5 ambiguous; 2 3 load 0; 4 5 load 5",
        "0 1 swap 0 5 ambiguous; 2 3 swap 0 6 done; 4 5 load 6",
        "0 1 swap 0 5 ambiguous; 2 3 swap 5 6 ambiguous; 4 5 swap 6 7 done",
        // Proposals that were refused may share their revision with one that wasn't.
        "0 4 swap 0 5 done; 0 4 swap 0 5 conflict 5; 0 4 swap 0 5 failed",
    ];
    for lines in correct {
        assert_eq!(check(&history(lines)), Ok(()), "{lines}");
    }
}

#[test]
fn each_kind_of_fault_is_found() {
    use ViolationKind::{Early, Fork, Malformed, Refuted, Stale, Unwritten};
    let wrong = [
        ("0 1 swap 0 5 done; 2 3 swap 0 6 done", Fork),
        ("0 9 swap 0 5 done; 0 9 swap 0 6 done", Fork),
        (
            "0 1 swap 0 5 done; 2 3 swap 0 6 ambiguous; 4 5 load 6",
            Fork,
        ),
        // A lost update: an acknowledged swap is replaced by another one of the same revision.
        (
            "0 1 swap 0 5 done; 2 3 swap 5 6 done; 4 5 swap 5 7 done; 6 7 load 7",
            Fork,
        ),
        ("0 1 swap 0 5 done; 2 3 swap 0 5 done", Fork),
        ("0 1 load 5", Unwritten),
        // A gap: the revision that a swap replaced doesn't exist.
        ("0 1 swap 0 5 done; 2 3 swap 6 7 done", Unwritten),
        ("0 1 swap 0 5 conflict 4", Unwritten),
        ("0 1 swap 0 5 failed; 2 3 load 5", Refuted),
        ("0 1 swap 0 5 conflict 0; 2 3 load 5", Refuted),
        // A client that retried by itself makes its own success look like a conflict.
        ("0 1 swap 0 5 conflict 5", Refuted),
        (
            "0 1 swap 0 5 done; 2 3 swap 5 6 failed; 4 5 swap 6 7 done",
            Refuted,
        ),
        ("0 1 swap 0 5 done; 2 3 load 0", Stale),
        ("0 1 swap 0 5 done; 2 3 swap 5 6 done; 4 5 load 5", Stale),
        ("0 9 swap 0 5 done; 1 2 load 5; 3 4 load 0", Stale),
        ("0 9 swap 0 5 ambiguous; 1 2 load 5; 3 4 load 0", Stale),
        // All was lost.
        ("0 1 swap 0 5 done; 2 3 swap 5 6 done; 4 5 load 0", Stale),
        (
            "0 1 swap 0 5 done; 2 3 swap 5 6 done; 4 5 swap 6 7 conflict 5",
            Stale,
        ),
        ("0 1 load 5; 2 3 swap 0 5 done", Early),
        ("0 1 load 5; 2 3 swap 0 5 ambiguous", Early),
        ("0 1 swap 5 6 done; 2 3 swap 0 5 done", Early),
        // The load saw the second swap before the first one was called.
        ("0 9 swap 5 6 done; 1 2 load 6; 3 9 swap 0 5 done", Early),
        ("1 0 load 0", Malformed),
        ("0 1 swap 5 5 done", Malformed),
        ("0 1 swap 0 5 ambiguous; 0 1 swap 0 5 ambiguous", Malformed),
    ];
    for (lines, kind) in wrong {
        let violation = check(&history(lines)).expect_err(lines);
        assert_eq!(violation.kind(), kind, "{lines}: {violation}");
        assert!(!violation.operations().is_empty());
    }
}

#[test]
fn keys_are_independent() {
    let mut operations = history("0 1 swap 0 5 done; 2 3 load 5");
    let other = Key::new("another key").unwrap();
    operations.extend(operations.clone().into_iter().map(|operation| Operation {
        key: other.clone(),
        ..operation
    }));
    assert_eq!(check(&operations), Ok(()));
    operations.push(Operation {
        key: other,
        started: 4,
        ended: 5,
        action: Action::Load(Revision::NONE),
    });
    let violation = check(&operations).unwrap_err();
    assert_eq!(
        violation.operations()[1],
        "4 5 load 0 another key".parse().unwrap()
    );
}

#[test]
fn an_operation_is_read_as_it_was_written() {
    for line in [
        "1 2 load 3",
        "1 2 swap 3 4 done",
        "1 2 swap 3 4 conflict 5",
        "1 2 swap 3 4 ambiguous",
    ] {
        let line = format!("{line} a key/with spaces");
        assert_eq!(line.parse::<Operation>().unwrap().to_string(), line);
    }
    for line in [
        "",
        "1 2 load 3",
        "1 2 load key",
        "1 2 swap 3 4 maybe key",
        "1 2 swap 3 4 conflict key",
        "1 2 read 3 k",
    ] {
        assert!(line.parse::<Operation>().is_err(), "{line}");
    }
}

#[test]
fn a_million_operations_are_checked() {
    const OPERATIONS: u64 = 1_000_000;
    let mut random = Random(0);
    let names: Vec<Key> = (0..10_000)
        .map(|key| Key::new(format!("key/{key}")).unwrap())
        .collect();
    let mut current = vec![Revision::NONE; names.len()];
    let mut operations: Vec<Operation> = (1..=OPERATIONS)
        .map(|at| {
            // Half of the operations are on one key.
            let key = random.below(names.len()) * random.below(2);
            let expected = current[key];
            let next = Revision::new(at);
            let action = match random.below(4) {
                0 => Action::Load(expected),
                1 => Action::Swap {
                    expected: next,
                    next: Revision::new(at + 1),
                    answer: Answer::Conflict(expected),
                },
                _ => {
                    current[key] = next;
                    let answer = if random.below(50) == 0 {
                        Answer::Ambiguous
                    } else {
                        Answer::Done
                    };
                    Action::Swap {
                        expected,
                        next,
                        answer,
                    }
                }
            };
            Operation {
                key: names[key].clone(),
                started: 2 * at,
                ended: 2 * at + 5,
                action,
            }
        })
        .collect();
    assert_eq!(check(&operations), Ok(()));
    for key in [0, 1] {
        let is_load =
            |action: Action| matches!(action, Action::Load(found) if found != Revision::NONE);
        let found =
            |operation: &Operation| operation.key == names[key] && is_load(operation.action);
        let at = operations.iter().rposition(found).unwrap();
        let before = std::mem::replace(&mut operations[at].action, Action::Load(Revision::NONE));
        assert_eq!(check(&operations).unwrap_err().kind(), ViolationKind::Stale);
        operations[at].action = before;
    }
}

/// Small histories, some of them altered, and the verdict of stateright on each.
#[test]
fn verdicts_agree_with_stateright() {
    let (mut passed, mut rejected) = (0, 0);
    for seed in 0..4_000 {
        let mut random = Random(seed);
        let mut operations = recorded(&mut random);
        for _ in 0..random.below(3) {
            alter(&mut operations, &mut random);
        }
        let verdict = check(&operations);
        let expected = is_linearizable(&operations);
        assert_eq!(
            verdict.is_ok(),
            expected,
            "seed {seed}: {verdict:?}\n{operations:#?}"
        );
        *(if expected { &mut passed } else { &mut rejected }) += 1;
    }
    assert!(
        passed >= 1_000 && rejected >= 1_000,
        "{passed} histories passed, {rejected} did not"
    );
}

/// Returns a correct history. Each operation takes effect at a time of its own, between its start and its end.
fn recorded(random: &mut Random) -> Vec<Operation> {
    let mut current = Revision::NONE;
    let mut past = vec![Revision::NONE];
    (1..=3 + random.below(6))
        .map(|at| {
            let next = Revision::new(10 * at as u64);
            let expected = if random.below(3) == 0 {
                past[random.below(past.len())]
            } else {
                current
            };
            let answer = match random.below(8) {
                0 => Answer::Failed,
                _ if expected != current => Answer::Conflict(current),
                1 | 2 => Answer::Ambiguous,
                _ => Answer::Done,
            };
            let takes_place =
                answer == Answer::Done || answer == Answer::Ambiguous && random.below(2) == 0;
            let action = if random.below(3) == 0 {
                Action::Load(current)
            } else {
                if takes_place {
                    current = next;
                    past.push(next);
                }
                Action::Swap {
                    expected,
                    next,
                    answer,
                }
            };
            // No two operations share a time.
            let time = |offset| (100 + 10 * at + offset) as u64 * 16 + at as u64;
            let (started, ended) = (
                time(0) - 16 * random.below(40) as u64,
                time(random.below(40)),
            );
            Operation {
                key: Key::new("key").unwrap(),
                started,
                ended,
                action,
            }
        })
        .collect()
}

/// Changes a response or a time at random, or removes an operation.
fn alter(operations: &mut Vec<Operation>, random: &mut Random) {
    let at = random.below(operations.len());
    let any = Revision::new(10 * random.below(operations.len() + 1) as u64);
    let answers = [
        Answer::Done,
        Answer::Conflict(any),
        Answer::Ambiguous,
        Answer::Failed,
    ];
    let choice = random.below(6);
    if choice == 0 && operations.len() > 1 {
        operations.remove(at);
        return;
    }
    let operation = &mut operations[at];
    match (choice, &mut operation.action) {
        (1, _) => operation.ended = operation.started,
        (2, _) => operation.started = operation.ended,
        (_, Action::Load(found)) => *found = any,
        (3, Action::Swap { expected, next, .. }) if any < *next => *expected = any,
        (_, Action::Swap { answer, .. }) => *answer = answers[random.below(4)],
    }
}

fn is_linearizable(operations: &[Operation]) -> bool {
    let failed = |operation: &Operation| {
        matches!(
            operation.action,
            Action::Swap {
                answer: Answer::Failed,
                ..
            }
        )
    };
    let calls = operations
        .iter()
        .enumerate()
        .filter(|(_, operation)| !failed(operation));
    let mut events: Vec<(u64, bool, usize)> = calls
        .flat_map(|(at, operation)| [(operation.started, false, at), (operation.ended, true, at)])
        .collect();
    events.sort_unstable();
    // Each operation has a thread of its own. An ambiguous one never returns.
    let mut tester = LinearizabilityTester::new(Model(Revision::NONE));
    for (_, is_return, at) in events {
        let action = operations[at].action;
        if !is_return {
            tester.on_invoke(at, action).unwrap();
        } else if !matches!(
            action,
            Action::Swap {
                answer: Answer::Ambiguous,
                ..
            }
        ) {
            tester.on_return(at, ()).unwrap();
        }
    }
    tester.is_consistent()
}

/// A register for stateright. Each operation contains its response.
#[derive(Clone)]
struct Model(Revision);

impl SequentialSpec for Model {
    type Op = Action;
    type Ret = ();

    fn invoke(&mut self, operation: &Action) {
        if let Action::Swap { expected, next, .. } = *operation
            && expected == self.0
        {
            self.0 = next;
        }
    }

    fn is_valid_step(&mut self, operation: &Action, (): &()) -> bool {
        let current = self.0;
        self.invoke(operation);
        match *operation {
            Action::Load(found) => found == current,
            Action::Swap {
                answer: Answer::Conflict(found),
                ..
            } => {
                self.0 = current;
                found == current
            }
            Action::Swap { expected, .. } => expected == current,
        }
    }
}

/// A sequence of numbers by `SplitMix64`, the same for each seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }
}
