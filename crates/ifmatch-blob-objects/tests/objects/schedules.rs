//! Writes under all schedules of up to two faults: other programs write between the lookup and the write, and responses are lost.

use std::iter::once;
use std::sync::Arc;

use ifmatch_blob::store::StoreErrorKind;
use ifmatch_blob_objects::BackingStore;
use ifmatch_core::precondition::Preconditions;
use object_store::ObjectStore;

use crate::faults::{Fault, Faulty};
use crate::{open, subject};
use ifmatch_blob::conformance::{blob, if_absent, if_match};

const FAULTS: [Fault; 6] = [
    Fault::Foreign("theirs"),
    Fault::ForeignDeletion,
    Fault::LostAnswer,
    Fault::Retried,
    Fault::LostRequest,
    Fault::TooSoon,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    None,
    Absent,
    /// The version that was there before.
    First,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Written { created: bool },
    Refused,
    Unknown,
}

/// Returns the outcome of a write, and the text that is there after it. `None` if there is nothing that another program could delete.
fn expected(
    first: Option<&'static str>,
    condition: Condition,
    faults: &[Fault],
) -> Option<(Outcome, Option<&'static str>)> {
    let mut there = first;
    for fault in faults.iter().map(Some).chain(once(None)) {
        let holds = match condition {
            Condition::None => true,
            Condition::Absent => there.is_none(),
            Condition::First => there == first,
        };
        if !holds {
            return Some((Outcome::Refused, there));
        }
        match fault {
            Some(Fault::Foreign(text)) => there = Some(*text),
            Some(Fault::ForeignDeletion) => there = there.map(|_| None)?,
            Some(Fault::LostRequest) => return Some((Outcome::Unknown, there)),
            Some(Fault::TooSoon) => {}
            _ => {
                return Some((
                    Outcome::Written {
                        created: there.is_none(),
                    },
                    Some("ours"),
                ));
            }
        }
    }
    None
}

async fn run(first: Option<&'static str>, condition: Condition, faults: &[Fault]) {
    let Some((expected, there)) = expected(first, condition, faults) else {
        return;
    };
    let what = format!("{first:?}, {condition:?}, {faults:?}");
    let store = Faulty::in_memory(false);
    let subject =
        subject(open(BackingStore::new(Arc::clone(&store) as Arc<dyn ObjectStore>)).await);
    let blob = blob("c", "b");
    let preconditions = match (condition, first) {
        (Condition::None, None) => Preconditions::NONE,
        (Condition::Absent, None) => if_absent(),
        (condition, Some(first)) => {
            let tag = subject.write(&blob, first).await.tag.unwrap();
            match condition {
                Condition::None => Preconditions::NONE,
                Condition::Absent => if_absent(),
                Condition::First => if_match(&tag),
            }
        }
        (Condition::First, None) => return,
    };
    store.modes();
    store.schedule(faults.iter().cloned());
    let written = subject.write_if(&blob, preconditions, "ours").await;
    let (found, tag) = match written {
        Ok(written) => (
            Outcome::Written {
                created: written.created,
            },
            Some(written.tag),
        ),
        Err(error) => match error.kind() {
            StoreErrorKind::PreconditionFailed { current, .. } => {
                (Outcome::Refused, Some(current.clone()))
            }
            StoreErrorKind::OutcomeUnknown => (Outcome::Unknown, None),
            _ => panic!("{what}: {error}"),
        },
    };
    assert_eq!(found, expected, "{what}");
    let (info, text) = subject.read(&blob).await.unzip();
    assert_eq!(text.as_deref(), there.map(str::as_bytes), "{what}");
    assert!(
        tag.is_none_or(|tag| tag == info.and_then(|info| info.tag)),
        "{what}: it tells the tag of what is there"
    );
    assert!(
        !store.modes().contains(&"overwrite"),
        "{what}: no write goes without a condition"
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_takes_effect_on_the_version_that_it_expects_or_not_at_all() {
    let pairs = FAULTS.iter().flat_map(|first| {
        FAULTS
            .iter()
            .map(|second| vec![first.clone(), second.clone()])
    });
    let schedules: Vec<_> = once(Vec::new())
        .chain(FAULTS.map(|fault| vec![fault]))
        .chain(pairs)
        .collect();
    for first in [None, Some("first")] {
        for condition in [Condition::None, Condition::Absent, Condition::First] {
            for faults in &schedules {
                run(first, condition, faults).await;
            }
        }
    }
}
