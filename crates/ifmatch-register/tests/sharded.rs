//! A register made of several.

#![expect(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use http::Method;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::conformance::{self, Traits};
use ifmatch_register::{
    AnyRegister, Key, MemoryRegister, Register, RegisterError, RegisterErrorKind, Scan, ShardError, ShardedRegister,
    Swap,
};
use ifmatch_runtime::{Clock, SystemClock, nonce};
use tokio::task::yield_now;

fn memory(count: usize) -> Vec<AnyRegister> {
    (0..count).map(|_| AnyRegister::new(MemoryRegister::unbounded())).collect()
}

fn record() -> Record {
    let content = Content::Hashed { hash: ContentHash::of(b""), payload: b"payload".to_vec().into() };
    let write = Write::new(&Method::PUT, &Preconditions::NONE, content, nonce().unwrap());
    Record::unknown().apply(&Command::Write(write.with_lease(LeaseUse::Read(None))), SystemClock.now()).next.unwrap()
}

/// A register that cannot be reached.
struct Unreachable;

impl Register for Unreachable {
    async fn load(&self, _: &Key) -> Result<Option<Record>, RegisterError> {
        Err(RegisterErrorKind::Unavailable.into())
    }

    async fn compare_and_swap(&self, _: &Key, _: Revision, _: Option<&Record>) -> Result<Swap, RegisterError> {
        Err(RegisterErrorKind::Unavailable.into())
    }

    async fn scan(&self, _: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        Err(RegisterErrorKind::Unavailable.into())
    }
}

/// A register that lets other tasks run before each operation.
struct Yielding(AnyRegister);

impl Register for Yielding {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        yield_now().await;
        self.0.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        yield_now().await;
        self.0.compare_and_swap(key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        yield_now().await;
        self.0.scan(scan).await
    }
}

async fn fill(register: &impl Register, count: usize) {
    for number in 0..count {
        let key = Key::new(format!("k/{number}")).unwrap();
        let record = record();
        assert_eq!(register.compare_and_swap(&key, Revision::NONE, Some(&record)).await.unwrap(), Swap::Done);
    }
}

/// Returns the number of records in each shard, without that of its place.
async fn sizes(shards: &[AnyRegister]) -> Vec<usize> {
    let mut sizes = Vec::new();
    for shard in shards {
        sizes.push(shard.scan(&Scan { prefix: "k/", after: None, limit: 10_000 }).await.unwrap().len());
    }
    sizes
}

#[tokio::test(flavor = "multi_thread")]
async fn several_registers_conform() {
    for count in [1, 2, 5] {
        conformance::run(ShardedRegister::open(memory(count)).await.unwrap(), Traits::default()).await;
    }
}

#[tokio::test]
async fn keys_are_spread_and_stay_where_they_are() {
    let shards = memory(4);
    fill(&ShardedRegister::open(shards.clone()).await.unwrap(), 1_000).await;
    let before = sizes(&shards).await;
    assert_eq!(before.iter().sum::<usize>(), 1_000);
    assert!(before.iter().all(|size| (150..350).contains(size)), "{before:?}");

    let again = ShardedRegister::open(shards.clone()).await.unwrap();
    for number in 0..1_000 {
        assert!(again.load(&Key::new(format!("k/{number}")).unwrap()).await.unwrap().is_some());
    }
    let mut listed = Vec::new();
    loop {
        let after = listed.last().map(|key: &Key| key.as_str().to_owned());
        let page = again.scan(&Scan { prefix: "", after: after.as_deref(), limit: 7 }).await.unwrap();
        if page.is_empty() {
            break;
        }
        listed.extend(page.into_iter().map(|(key, _)| key));
    }
    assert_eq!(listed.len(), 1_000);
    assert!(listed.is_sorted());
}

#[tokio::test]
async fn another_list_of_shards_is_refused() {
    let shards = memory(3);
    ShardedRegister::open(shards.clone()).await.unwrap();
    let list = |order: &[usize]| order.iter().map(|index| shards[*index].clone()).collect::<Vec<_>>();
    let other = memory(3);
    ShardedRegister::open(other.clone()).await.unwrap();
    let empty = memory(1).remove(0);
    for (wrong, at) in [
        (list(&[1, 0, 2]), 0),
        (list(&[0, 2, 1]), 1),
        (list(&[0, 1]), 0),
        (list(&[0, 1, 2, 2]), 0),
        (vec![shards[0].clone(), other[1].clone(), shards[2].clone()], 1),
        // A shard that has lost its records.
        (vec![shards[0].clone(), shards[1].clone(), empty.clone()], 2),
        (vec![empty, shards[1].clone(), shards[2].clone()], 1),
    ] {
        match ShardedRegister::open(wrong).await {
            Err(ShardError::Misplaced { index, .. }) => assert_eq!(index, at),
            other => panic!("{other:?}"),
        }
    }
    assert!(ShardedRegister::check_single(&shards[0]).await.is_err());
    assert!(ShardedRegister::open(shards).await.is_ok());

    let used = memory(1).remove(0);
    fill(&used, 1).await;
    assert!(ShardedRegister::check_single(&used).await.is_ok());
    assert!(matches!(
        ShardedRegister::open(vec![used, memory(1).remove(0)]).await,
        Err(ShardError::Misplaced { index: 0, .. })
    ));
}

/// A process ends after it has placed the first shard. The next one places the others.
#[tokio::test]
async fn an_interrupted_first_start_is_completed() {
    let shards: Vec<_> = memory(2).into_iter().map(|shard| AnyRegister::new(Yielding(shard))).collect();
    let (first, second) = tokio::join!(ShardedRegister::open(shards.clone()), ShardedRegister::open(shards.clone()));
    assert!(first.is_ok() && second.is_ok(), "two processes may start at the same time");

    let shards = memory(2);
    let _incomplete = ShardedRegister::open(vec![shards[0].clone(), AnyRegister::new(Unreachable)]).await.unwrap_err();
    assert!(ShardedRegister::open(shards).await.is_ok());
}
