//! Groups of changes: the same outcomes as one after another, and dates and answers that survive it.

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use ifmatch_core::command::{
    Applied, Authority, Command, Content, LeaseOperation, Outcome, Refusal, Write,
};
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::group::Change;
use ifmatch_core::lease::{LeaseAction, LeaseDuration, LeaseUse};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Receipt, Record, RequestId, Version};
use proptest::prelude::*;

/// The content is a function of the version that a write replaces.
#[derive(Clone, Debug)]
struct Edit {
    method: Method,
    preconditions: Preconditions,
    lease: LeaseUse,
    request: Option<RequestId>,
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    /// Appends a byte to the payload.
    Append(u8),
    Delete,
    Lease(LeaseAction),
}

impl Change for Edit {
    type Error = Infallible;
    type Context = ();

    fn command(
        &self,
        before: &Record,
        now: Timestamp,
        (): &mut (),
    ) -> Result<Command<'_>, Infallible> {
        let content = match self.action {
            Action::Append(byte) => {
                let version = before.state(now).version();
                let mut payload =
                    version.map_or_else(Vec::new, |version| version.payload().to_vec());
                payload.push(byte);
                Content::Hashed {
                    hash: ContentHash::of(&payload),
                    payload: payload.into(),
                }
            }
            Action::Delete => Content::Absent,
            Action::Lease(action) => {
                let operation =
                    LeaseOperation::new(action, &self.preconditions, 7).with_request(self.request);
                return Ok(Command::Lease(
                    operation.with_authority(Authority::Register),
                ));
            }
        };
        let write = Write::new(&self.method, &self.preconditions, content, 7);
        Ok(Command::Write(
            write.with_lease(self.lease).with_request(self.request),
        ))
    }
}

fn edit(action: Action) -> Edit {
    let method = if matches!(action, Action::Delete) {
        Method::DELETE
    } else {
        Method::PUT
    };
    Edit {
        method,
        preconditions: Preconditions::NONE,
        lease: LeaseUse::default(),
        request: None,
        action,
    }
}

fn append(byte: u8) -> Edit {
    edit(Action::Append(byte))
}

fn if_unmodified_since(date: HttpDate) -> Preconditions {
    condition(header::IF_UNMODIFIED_SINCE, &date.to_string())
}

fn condition(name: header::HeaderName, value: &str) -> Preconditions {
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_str(value).unwrap());
    Preconditions::from_headers(&headers)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000).saturating_add(Duration::from_secs(seconds))
}

fn group(record: &Record, edits: &[Edit], now: Timestamp) -> (Vec<Applied>, Record) {
    let group = record.apply_group(edits, now, ());
    let applied = group
        .applied
        .into_iter()
        .map(|Ok(applied)| applied)
        .collect();
    (applied, group.next.unwrap_or_else(|| record.clone()))
}

fn receipt(applied: &Applied) -> Option<&Receipt> {
    match &applied.outcome {
        Outcome::Written(receipt) => Some(receipt),
        _ => None,
    }
}

fn version(record: &Record, now: Timestamp) -> Option<&Version> {
    record.state(now).version()
}

#[test]
fn each_change_meets_the_record_that_the_one_before_it_left() {
    let create = Edit {
        preconditions: Preconditions::absent(),
        ..append(b'a')
    };
    let (applied, record) = group(
        &Record::absent(),
        &[create.clone(), create, append(b'b'), append(b'c')],
        at(0),
    );
    assert!(receipt(&applied[0]).unwrap().created);
    assert!(matches!(
        applied[1].outcome,
        Outcome::Refused(Refusal::PreconditionFailed { .. })
    ));
    assert_eq!(
        (&applied[1].before, &applied[1].after),
        (&applied[0].after, &applied[0].after)
    );
    assert_eq!(version(&record, at(0)).unwrap().payload(), &b"abc"[..]);
    assert_eq!(applied[3].after, record);
}

#[test]
fn a_group_that_changes_nothing_has_no_record() {
    let (_, stored) = group(&Record::absent(), &[append(b'a')], at(0));
    let create = Edit {
        preconditions: Preconditions::absent(),
        ..append(b'b')
    };
    let group = stored.apply_group(&[create.clone(), create], at(1), ());
    assert_eq!((group.applied.len(), group.next), (2, None));
}

/// Two clients read version 1. One client's change replaces it, in the same group as the other client's conditional one.
#[test]
fn the_date_of_the_stored_version_passes_no_change_of_the_same_group() {
    let (_, stored) = group(&Record::absent(), &[append(b'a')], at(0));
    let read = version(&stored, at(100)).unwrap().last_modified();
    let stale = Edit {
        preconditions: if_unmodified_since(read),
        ..append(b'b')
    };
    let (applied, _) = group(&stored, &[append(b'c'), stale], at(100));
    assert!(
        matches!(
            applied[1].outcome,
            Outcome::Refused(Refusal::PreconditionFailed { .. })
        ),
        "{applied:?}"
    );
}

/// A client whose version was skipped knows its date, but not the version that replaced it.
#[test]
fn the_date_of_a_skipped_version_passes_no_later_change() {
    for last in [Action::Append(b'c'), Action::Delete] {
        let (applied, mut stored) = group(
            &Record::absent(),
            &[append(b'a'), append(b'b'), edit(last)],
            at(0),
        );
        stored = group(&stored, &[append(b'd')], at(0)).1;
        for skipped in [0, 1] {
            let date = receipt(&applied[skipped]).unwrap().modified.unwrap();
            let stale = Edit {
                preconditions: if_unmodified_since(date),
                ..append(b'e')
            };
            let outcome = &group(&stored, &[stale], at(0)).0[0].outcome;
            assert!(
                matches!(outcome, Outcome::Refused(_)),
                "{skipped}, {last:?}: {outcome:?}"
            );
        }
    }
}

#[test]
fn dates_run_ahead_by_two_seconds_with_each_group() {
    let mut record = Record::absent();
    let edits: Vec<Edit> = (0..100).map(append).collect();
    for _ in 0..10 {
        record = group(&record, &edits, at(0)).1;
    }
    let ahead =
        version(&record, at(0)).unwrap().last_modified().unix() - at(0).last_modified().unix();
    assert_eq!(ahead, 19, "seconds");
}

/// The response to the swap was lost, and all clients of the group send their requests again.
#[test]
fn every_answer_of_a_group_is_remembered() {
    let id = |number: u8| Some(RequestId::of(&[&[number]]));
    let edits: Vec<Edit> = (0..100)
        .map(|number| Edit {
            request: id(number),
            ..append(number)
        })
        .collect();
    let (applied, stored) = group(&Record::absent(), &edits, at(0));
    for (edit, first) in edits.iter().zip(&applied) {
        let (again, after) = group(&stored, std::slice::from_ref(edit), at(1));
        assert_eq!(
            again[0].outcome,
            Outcome::Replayed(receipt(first).unwrap().clone())
        );
        assert_eq!(after, stored);
    }
    let decoded = Record::decode(&stored.encode()).unwrap();
    assert_eq!(decoded, stored);
    // Clients retry after later changes, too.
    let (_, after) = group(
        &stored,
        &[Edit {
            request: id(100),
            ..append(1)
        }],
        at(2),
    );
    for (edit, first) in edits.iter().zip(&applied) {
        let (again, _) = group(&after, std::slice::from_ref(edit), at(9));
        assert_eq!(
            again[0].outcome,
            Outcome::Replayed(receipt(first).unwrap().clone())
        );
    }
    let (_, after) = group(
        &after,
        &[Edit {
            request: id(101),
            ..append(1)
        }],
        at(11),
    );
    assert!(
        after.size() < stored.size() / 10,
        "{} of {} bytes",
        after.size(),
        stored.size()
    );
}

/// The client gave up its first request and sent another one, and both wait for the same swap.
#[test]
fn a_retry_in_the_same_group_is_answered_and_changes_nothing() {
    let request = Some(RequestId::of(&[b"request"]));
    let first = Edit {
        request,
        ..append(b'a')
    };
    let others = (0..50).map(append);
    let edits: Vec<Edit> = [first.clone()]
        .into_iter()
        .chain(others)
        .chain([first])
        .collect();
    let (applied, stored) = group(&Record::absent(), &edits, at(0));
    assert_eq!(
        applied[51].outcome,
        Outcome::Replayed(receipt(&applied[0]).unwrap().clone())
    );
    assert_eq!(version(&stored, at(0)).unwrap().payload().len(), 51);
}

fn edits() -> impl Strategy<Value = Vec<Vec<Edit>>> {
    let ids = [
        "936da01f-9abd-4d9d-80c7-02af85c822a8",
        "0d4ce3bb-0a4e-4a51-8c3a-4d4a0e0b5a3c",
    ];
    let id = prop::sample::select(ids.map(|id| id.parse().unwrap()).to_vec());
    let duration = LeaseDuration::from_seconds(15).unwrap();
    let acquire = move |id| {
        Action::Lease(LeaseAction::Acquire {
            id,
            duration,
            holder: None,
        })
    };
    let action = prop_oneof![
        6 => any::<u8>().prop_map(Action::Append),
        2 => Just(Action::Delete),
        1 => id.clone().prop_map(acquire),
        1 => id.clone().prop_map(|id| Action::Lease(LeaseAction::Release(id))),
    ];
    let conditions = prop_oneof![
        3 => Just(Preconditions::NONE),
        1 => Just(Preconditions::absent()),
        1 => Just(condition(header::IF_MATCH, "*")),
    ];
    let lease = prop_oneof![4 => Just(None), 1 => id.prop_map(Some)];
    let request = prop::option::weighted(0.5, 0..20_u8);
    let edit =
        (action, conditions, lease, request).prop_map(|(action, preconditions, lease, request)| {
            Edit {
                preconditions,
                lease: LeaseUse::Write(lease),
                request: request.map(|number| RequestId::of(&[&[number]])),
                ..edit(action)
            }
        });
    prop::collection::vec(prop::collection::vec(edit, 1..12), 1..6)
}

proptest! {
    /// A client can't tell if its change was stored alone or as part of a group, apart from the date.
    #[test]
    fn a_group_has_the_outcomes_of_its_changes_one_after_another(groups in edits()) {
        let mut grouped = Record::absent();
        for (second, edits) in groups.iter().enumerate() {
            let now = at(20 * second as u64);
            let (applied, next) = group(&grouped, edits, now);
            prop_assert!(applied.windows(2).all(|pair| pair[0].after.revision() == pair[1].before.revision()));
            for (edit, applied) in edits.iter().zip(&applied) {
                let Ok(command) = edit.command(&applied.before, now, &mut ());
                let alone = applied.before.apply(&command, now);
                prop_assert_eq!(kind(&alone.outcome), kind(&applied.outcome));
                let after = alone.next.as_ref().unwrap_or(&applied.before);
                prop_assert_eq!(after.revision(), applied.after.revision());
                prop_assert_eq!(after.lease(), applied.after.lease());
                prop_assert_eq!(payload(after, now), payload(&applied.after, now));
            }
            grouped = next;
        }
    }

    /// No date that any client was told names two versions of which one was stored. Dates of stored versions grow.
    #[test]
    fn a_date_that_was_told_names_no_other_stored_version(groups in edits(), step in 0..3_u64) {
        let (mut record, mut told, mut stored) = (Record::absent(), Vec::new(), Vec::new());
        for (second, edits) in groups.iter().enumerate() {
            let now = at(step * second as u64);
            let (applied, next) = group(&record, edits, now);
            for receipt in applied.iter().filter_map(receipt) {
                told.extend(receipt.modified.map(|date| (receipt.generation, date)));
            }
            record = next;
            if let Some(version) = version(&record, now) {
                stored.push((version.generation(), version.last_modified()));
            }
        }
        stored.dedup();
        for (generation, date) in &stored {
            let other = told.iter().find(|(told, at)| at == date && told != generation);
            prop_assert!(other.is_none(), "{date} names {generation} and {other:?}");
        }
        prop_assert!(stored.is_sorted_by(|before, after| before.1 < after.1), "{stored:?}");
        prop_assert!(told.iter().all(|(_, date)| *date <= record.latest_date()));
    }
}

/// Returns what a client learns, apart from dates.
fn kind(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Written(Receipt {
            generation,
            tag,
            created,
            ..
        }) => format!("written {generation} {tag:?} {created}"),
        Outcome::Replayed(Receipt {
            generation,
            tag,
            created,
            ..
        }) => {
            format!("replayed {generation} {tag:?} {created}")
        }
        other => format!("{other:?}"),
    }
}

fn payload(record: &Record, now: Timestamp) -> Option<&[u8]> {
    version(record, now).map(|version| &version.payload()[..])
}
