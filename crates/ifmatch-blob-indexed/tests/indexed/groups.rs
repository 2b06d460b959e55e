//! Random changes of one blob at the same time: some order of them explains all their results, the content afterwards, and the files.
//! `ROUNDS` sets the number of seeds to try.

use bytes::Bytes;
use futures_util::future::join_all;
use ifmatch_blob::BlobStore;
use ifmatch_blob::conformance::leases::{acquire, id, request};
use ifmatch_blob::conformance::{blob, if_match, put};
use ifmatch_blob::headers::{Append, BlobHeaders};
use ifmatch_blob::store::{
    AppendBlock, ContentChange, Delete, HeaderChange, Put, Reading, SetHeaders, StoreError,
    StoreErrorKind, Update,
};
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_core::EntityTag;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::{LeaseAction, LeaseUse};
use ifmatch_core::precondition::Preconditions;
use ifmatch_register::{Driver, MemoryRegister};

use crate::support::{bodies, bytes};
use crate::unreliable::{Dice, rounds};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Put(usize),
    Append(usize),
    /// An update that adds this many bytes.
    Add(usize),
    /// An update that deletes.
    Drop,
    Delete,
    Metadata,
    Acquire,
    Release,
}

/// A change that writes this byte, perhaps on the condition that the version before the group is there.
#[derive(Clone, Copy, Debug)]
struct Step(Kind, u8, bool, LeaseUse);

#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    content: Option<Vec<u8>>,
    appends: bool,
    is_leased: bool,
    is_first: bool,
}

/// Returns the state after a step, or `None` if it is refused.
fn after(Step(kind, byte, if_first, lease): Step, before: &State) -> Option<State> {
    let is_update = matches!(kind, Kind::Add(_) | Kind::Drop);
    let is_allowed = before.is_leased == (lease.id().is_some() && !is_update);
    let holds = is_update || !if_first || before.is_first && before.content.is_some();
    let mut after = before.clone();
    let found = before.content.clone();
    match kind {
        Kind::Acquire | Kind::Release => {
            after.is_leased = kind == Kind::Acquire;
            return (before.is_leased || after.is_leased && found.is_some()).then_some(after);
        }
        _ if !is_allowed || !holds => return None,
        Kind::Put(_) | Kind::Add(_) => after.appends = !is_update,
        Kind::Append(_) if !before.appends => return None,
        _ if found.is_none() => return None,
        _ => {}
    }
    let mut bytes = found.unwrap_or_default();
    match kind {
        Kind::Put(length) => bytes = vec![byte; length],
        Kind::Append(length) | Kind::Add(length) => bytes.resize(bytes.len() + length, byte),
        _ => {}
    }
    let is_there = !matches!(kind, Kind::Drop | Kind::Delete);
    after.content = Some(bytes).filter(|_| is_there);
    (after.is_first, after.is_leased) = (false, before.is_leased && is_there);
    Some(after)
}

/// Returns `true` if some order of the steps has these results and leads to the last state.
fn is_explained(steps: &[(Step, bool)], before: &State, last: &State) -> bool {
    let ends = |state: &State| (state.content.clone(), state.is_leased);
    (steps.is_empty() && ends(before) == ends(last))
        || (0..steps.len()).any(|at| {
            let mut rest = steps.to_vec();
            let (step, is_done) = rest.remove(at);
            let after = after(step, before);
            after.is_some() == is_done
                && is_explained(&rest, &after.unwrap_or(before.clone()), last)
        })
}

async fn perform(
    Step(kind, byte, if_first, lease): Step,
    store: &IndexedStore,
    tag: &EntityTag,
) -> Result<(), StoreError> {
    let (path, preconditions) = (blob("c", "b"), Preconditions::default());
    let preconditions = if if_first {
        if_match(tag)
    } else {
        preconditions
    };
    let block = |length| Bytes::from(vec![byte; length]);
    match kind {
        Kind::Put(length) => {
            let append = Some(Append::default());
            let headers = BlobHeaders {
                append,
                ..BlobHeaders::default()
            };
            let put = Put {
                preconditions,
                lease,
                headers,
                ..put(block(length))
            };
            store.put(&path, put).await.map(drop)
        }
        Kind::Append(length) => {
            let append = AppendBlock {
                preconditions,
                lease,
                ..AppendBlock::new(block(length))
            };
            store.append(&path, append).await.map(drop)
        }
        Kind::Add(length) => {
            let update = Update::new(move |current| {
                let found = current.map_or(Bytes::new(), |current| current.bytes.clone());
                ContentChange::Replace([&found[..], &vec![byte; length]].concat().into())
            });
            store.update(&path, update).await.map(drop)
        }
        Kind::Drop => {
            let update = Update::new(|_| ContentChange::Delete);
            store.update(&path, update).await.map(drop)
        }
        Kind::Delete => {
            let delete = Delete {
                preconditions,
                lease,
                ..Delete::default()
            };
            store.delete(&path, delete).await
        }
        Kind::Metadata => {
            let set = SetHeaders::new(HeaderChange::Metadata([].into()));
            let set = SetHeaders {
                preconditions,
                lease,
                ..set
            };
            store.set_headers(&path, set).await.map(drop)
        }
        Kind::Acquire => store.lease(&path, acquire(1)).await.map(drop),
        Kind::Release => {
            let release = request(LeaseAction::Release(id(1)));
            store.lease(&path, release).await.map(drop)
        }
    }
}

async fn look(store: &IndexedStore) -> (State, EntityTag) {
    let opened = store.open(&blob("c", "b"), Reading::WHOLE).await.unwrap();
    let Some(mut opened) = opened else {
        return (State::default(), ContentHash::of(b"none").content_tag());
    };
    let state = State {
        content: Some(bytes(&mut opened).await.into()),
        appends: opened.info.headers.append.is_some(),
        is_leased: opened.info.lease.is_some(),
        is_first: true,
    };
    (state, opened.info.tag.unwrap())
}

#[tokio::test]
async fn some_order_explains_changes_at_the_same_time() {
    use Kind::{
        Acquire, Add, Append as Grow, Delete as Erase, Drop, Metadata, Put as New, Release,
    };
    let kinds = [
        New(9),
        New(5_000),
        Grow(50),
        Grow(4_500),
        Add(4_000),
        Drop,
        Erase,
        Metadata,
        Acquire,
        Release,
    ];
    let folder = tempfile::tempdir().unwrap();
    let driver = Driver::new(MemoryRegister::unbounded());
    let store = IndexedStore::with_driver(folder.path(), driver)
        .await
        .unwrap();
    let blob = blob("c", "b");
    store
        .create_container(&blob.container, BlobHeaders::default())
        .await
        .unwrap();
    for seed in 1..=rounds(40) {
        let dice = Dice::new(seed);
        for _ in 0..12 {
            let (first, tag) = look(&store).await;
            let steps = (1..=4).map(|byte| {
                let kind = kinds[usize::try_from(dice.roll(10)).unwrap()];
                let lease = LeaseUse::Write((dice.roll(3) == 0).then(|| id(1)));
                Step(kind, byte, dice.roll(3) == 0, lease)
            });
            let steps: Vec<_> = steps.collect();
            let performed = steps.iter().map(|step| perform(*step, &store, &tag));
            let results = join_all(performed).await.into_iter().map(|result| {
                let kind = result.map_err(|error| error.kind().clone());
                assert!(!matches!(
                    kind,
                    Err(StoreErrorKind::OutcomeUnknown | StoreErrorKind::Unavailable)
                ));
                kind.is_ok()
            });
            let done: Vec<_> = steps.iter().copied().zip(results).collect();
            let (last, _) = look(&store).await;
            assert!(is_explained(&done, &first, &last), "seed {seed}: {done:?}");
            let files = usize::from(last.content.is_some_and(|bytes| bytes.len() > 4096));
            assert_eq!(
                bodies(folder.path()),
                files,
                "seed {seed}: files after {done:?}"
            );
        }
        // Each seed begins without a blob. What isn't there can't be released or deleted.
        let release = request(LeaseAction::Release(id(1)));
        let _ = store.lease(&blob, release).await;
        let _ = store.delete(&blob, Delete::default()).await;
        assert_eq!(look(&store).await.0, State::default());
    }
}
