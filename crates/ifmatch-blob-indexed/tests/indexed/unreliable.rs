//! Random clients over a register that delays, fails and loses responses: no acknowledged write is lost, no refused write
//! is visible, and bytes come with their own tag. `ROUNDS` sets the number of seeds to try.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use ifmatch_blob::BlobStore;
use ifmatch_blob::conformance::{blob, if_absent, if_match, put};
use ifmatch_blob::headers::FieldText;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    Delete, HeaderChange, Opened, Put, Reading, RequestKey, SetHeaders, StoreError, StoreErrorKind,
    Written,
};
use ifmatch_blob::test_util::{ManualClock, reopen};
use ifmatch_blob_indexed::{IndexedStore, Objects};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Driver, Key, MemoryRegister, Register, RegisterError, RegisterErrorKind, Swap, Wrapper,
    async_trait,
};
use ifmatch_runtime::Clock;
use object_store::path::Path;
use tokio::task::JoinSet;

use crate::faulty_objects::FaultyObjects;
use crate::support::bytes;

const CLIENTS: u64 = 6;
const OPERATIONS: u64 = 60;
const BLOBS: u64 = 3;

/// Returns the number of seeds to try.
pub(crate) fn rounds(default: u64) -> u64 {
    std::env::var("ROUNDS").map_or(default, |rounds| rounds.parse().expect("a number of seeds"))
}

/// Pseudo-random numbers from a seed (`SplitMix64`).
pub(crate) struct Dice(AtomicU64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    pub(crate) fn roll(&self, sides: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    async fn dawdle(&self) {
        for _ in 0..self.roll(40) {
            tokio::task::yield_now().await;
        }
    }
}

#[derive(Clone)]
pub(crate) struct Unreliable {
    pub(crate) records: Arc<MemoryRegister>,
    pub(crate) dice: Arc<Dice>,
    /// Swaps still in flight.
    pub(crate) late: Arc<Mutex<JoinSet<()>>>,
}

#[async_trait]
impl Wrapper for Unreliable {
    fn inner(&self) -> &dyn Register {
        &self.records
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        match self.dice.roll(100) {
            0..3 => return Err(RegisterErrorKind::Unavailable.into()),
            3..20 => self.dice.dawdle().await,
            _ => {}
        }
        self.records.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let ambiguous = || Err(RegisterErrorKind::Ambiguous.into());
        match self.dice.roll(100) {
            0..4 => Err(RegisterErrorKind::Unavailable.into()),
            4..12 => {
                self.records.compare_and_swap(key, expected, next).await?;
                ambiguous()
            }
            12..16 => ambiguous(),
            16..26 => {
                let (this, key, next) = (self.clone(), key.clone(), next.cloned());
                self.late.lock().unwrap().spawn(async move {
                    this.dice.dawdle().await;
                    this.records
                        .compare_and_swap(&key, expected, next.as_ref())
                        .await
                        .expect("memory does not fail");
                });
                ambiguous()
            }
            26..50 => {
                self.dice.dawdle().await;
                let swapped = self.records.compare_and_swap(key, expected, next).await;
                self.dice.dawdle().await;
                swapped
            }
            _ => self.records.compare_and_swap(key, expected, next).await,
        }
    }
}

#[derive(Default)]
struct History {
    /// Acknowledged successor of each version, by tag.
    replaced: BTreeMap<String, String>,
    /// Latest acknowledged generation of each blob.
    latest: BTreeMap<BlobPath, Revision>,
    /// Writes of observed bytes, and of definitely refused ones.
    seen: BTreeSet<String>,
    refused: BTreeSet<String>,
    acknowledged: usize,
}

impl History {
    fn acknowledge(&mut self, blob: &BlobPath, before: Option<String>, written: Option<&Written>) {
        self.acknowledged += 1;
        if let Some(generation) = written.and_then(|written| written.generation) {
            let latest = self.latest.entry(blob.clone()).or_insert(generation);
            *latest = generation.max(*latest);
        }
        if let Some(before) = before {
            let tag = written.and_then(|written| written.tag.as_ref());
            let after = tag.map_or_else(|| "nothing".to_owned(), ToString::to_string);
            let known = self
                .replaced
                .entry(before.clone())
                .or_insert_with(|| after.clone());
            assert_eq!(known, &after, "{before} was replaced twice");
        }
    }
}

struct Client {
    store: IndexedStore,
    dice: Dice,
    name: u64,
    history: Arc<Mutex<History>>,
    /// The time until which it goes on.
    ends: Option<(ManualClock, Timestamp)>,
}

impl Client {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap()
    }

    async fn run(self) {
        for operation in 0.. {
            if operation >= OPERATIONS
                && self
                    .ends
                    .as_ref()
                    .is_none_or(|(clock, end)| clock.now() >= *end)
            {
                return;
            }
            if let Some((clock, _)) = &self.ends {
                clock.advance(Duration::from_mins(1));
            }
            let blob = blob("c", &self.dice.roll(BLOBS).to_string());
            let write = format!("{}-{operation}", self.name);
            let floor = self.history().latest.get(&blob).copied();
            match self.store.open(&blob, Reading::WHOLE).await {
                Err(error) => assert_eq!(error.kind(), &StoreErrorKind::Unavailable),
                Ok(None) => {
                    let created = self.store.put(&blob, Self::put(&write, if_absent())).await;
                    self.note(&blob, None, Some(&write), created.map(Some));
                }
                Ok(Some(mut opened)) => {
                    let Some(bytes) = self.bytes(&blob, &mut opened).await else {
                        continue;
                    };
                    assert_eq!(
                        Some(ContentHash::of(&bytes)),
                        opened.info.hash,
                        "the bytes of another version"
                    );
                    assert!(
                        opened.info.generation >= floor,
                        "an acknowledged version was lost"
                    );
                    let author = String::from_utf8_lossy(&bytes)
                        .split(' ')
                        .next()
                        .unwrap()
                        .to_owned();
                    self.history().seen.insert(author);
                    let tag = opened.info.tag.expect("a tag");
                    self.change(&blob, &write, &tag.to_string(), if_match(&tag))
                        .await;
                }
            }
        }
    }

    /// Returns the bytes, or `None` if they are gone since another version has taken their place.
    async fn bytes(&self, blob: &BlobPath, opened: &mut Opened) -> Option<Bytes> {
        match opened.source.read(None).await {
            Ok(body) => Some(body.collect().await.unwrap().to_bytes()),
            Err(error) => {
                assert_eq!(error.kind(), &StoreErrorKind::Unavailable);
                let now = self.store.open(blob, Reading::HEAD).await.ok()?;
                let is_replaced = now.is_none_or(|now| now.info.hash != opened.info.hash);
                assert!(
                    is_replaced,
                    "the body of the current version is gone: {error}"
                );
                None
            }
        }
    }

    fn put(write: &str, preconditions: Preconditions) -> Put {
        let text = format!("{write} ");
        let length = if write.len().is_multiple_of(3) {
            100
        } else {
            6_000
        };
        Put {
            preconditions,
            ..put(format!("{text:.<length$}"))
        }
    }

    /// Writes, sets fields or deletes, conditional on the version read; sometimes repeats the request as a retry.
    async fn change(
        &self,
        blob: &BlobPath,
        write: &str,
        before: &str,
        preconditions: Preconditions,
    ) {
        let request = (self.dice.roll(3) == 0).then(|| RequestKey::of(&[write.as_bytes()]));
        let kind = self.dice.roll(10);
        let headers = HeaderChange::Metadata([("n".into(), FieldText::new(write).unwrap())].into());
        for _ in 0..if request.is_some() { 3 } else { 1 } {
            let result = match kind {
                0..7 => {
                    let put = Self::put(write, preconditions.clone());
                    let work = self.store.put(
                        blob,
                        Put {
                            request: request.clone(),
                            ..put
                        },
                    );
                    if self.dice.roll(10) == 0 {
                        // The client disconnects.
                        let _ =
                            tokio::time::timeout(Duration::from_micros(self.dice.roll(300)), work)
                                .await;
                        return;
                    }
                    work.await.map(Some)
                }
                7..9 => {
                    let (preconditions, lease) = (preconditions.clone(), LeaseUse::default());
                    let set = SetHeaders {
                        preconditions,
                        lease,
                        request: request.clone(),
                        ..SetHeaders::new(headers.clone())
                    };
                    self.store.set_headers(blob, set).await.map(Some)
                }
                _ => {
                    let (preconditions, request) = (preconditions.clone(), request.clone());
                    self.store
                        .delete(
                            blob,
                            Delete {
                                preconditions,
                                request,
                                ..Delete::default()
                            },
                        )
                        .await
                        .map(|()| None)
                }
            };
            let is_certain = kind < 7 && request.is_none();
            let is_done = result.is_ok();
            self.note(
                blob,
                Some(before),
                Some(write).filter(|_| is_certain),
                result,
            );
            if is_done && self.dice.roll(4) != 0 {
                return;
            }
        }
    }

    fn note(
        &self,
        blob: &BlobPath,
        before: Option<&str>,
        write: Option<&str>,
        result: Result<Option<Written>, StoreError>,
    ) {
        match result {
            Ok(written) => {
                self.history()
                    .acknowledge(blob, before.map(ToOwned::to_owned), written.as_ref());
            }
            Err(error) => match error.kind() {
                StoreErrorKind::OutcomeUnknown | StoreErrorKind::ContainerNotFound => {}
                StoreErrorKind::PreconditionFailed { .. }
                | StoreErrorKind::NotFound
                | StoreErrorKind::Unavailable => {
                    self.history().refused.extend(write.map(ToOwned::to_owned));
                }
                other => panic!("{other:?}: {error}"),
            },
        }
    }
}

async fn round(seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let (records, dice) = (
        Arc::new(MemoryRegister::unbounded()),
        Arc::new(Dice::new(seed)),
    );
    let register = Unreliable {
        records: Arc::clone(&records),
        dice,
        late: Arc::default(),
    };
    let store = IndexedStore::with_driver(folder.path(), Driver::new(register.clone()))
        .await
        .unwrap();
    let history = Arc::new(Mutex::new(History::default()));
    let clients = (1..=CLIENTS).map(|name| {
        let (store, history, dice) = (
            store.clone(),
            Arc::clone(&history),
            Dice::new(seed << 8 | name),
        );
        tokio::spawn(
            Client {
                store,
                dice,
                name,
                history,
                ends: None,
            }
            .run(),
        )
    });
    for ended in join_all(clients).await {
        ended.unwrap();
    }
    let mut late = std::mem::take(&mut *register.late.lock().unwrap());
    while late.join_next().await.is_some() {}
    drop(store);
    let open =
        async || IndexedStore::with_driver(folder.path(), Driver::new(Arc::clone(&records))).await;
    check(&reopen(open).await, &history).await;
}

/// Checks what is there at the end.
async fn check(store: &IndexedStore, history: &Mutex<History>) {
    let history = std::mem::take(&mut *history.lock().unwrap());
    assert!(
        history.acknowledged > 0,
        "the register lets some writes through"
    );
    let both: Vec<_> = history.refused.intersection(&history.seen).collect();
    assert!(both.is_empty(), "refused, and there all the same: {both:?}");
    for number in 0..BLOBS {
        let Some(mut opened) = store
            .open(&blob("c", &number.to_string()), Reading::WHOLE)
            .await
            .unwrap()
        else {
            continue;
        };
        bytes(&mut opened).await;
        let tag = opened.info.tag.unwrap().to_string();
        assert!(
            !history.replaced.contains_key(&tag),
            "{tag} was replaced, and is back"
        );
    }
}

/// Three gateways on a bucket, with sweeps, for some days of a clock that runs fast. The bucket loses answers, too.
async fn round_in_bucket(seed: u64) {
    let (records, dice, clock) = (
        Arc::new(MemoryRegister::unbounded()),
        Arc::new(Dice::new(seed)),
        ManualClock::default(),
    );
    let objects = FaultyObjects::aging_by(clock.clone());
    objects.lose_one_of(11);
    let late = Arc::default();
    let open = || {
        let register = Unreliable {
            records: Arc::clone(&records),
            dice: Arc::clone(&dice),
            late: Arc::clone(&late),
        };
        let objects = Objects::new(Arc::new(objects.clone()), Path::default());
        IndexedStore::in_bucket(objects, Driver::with_clock(register, clock.clone())).unwrap()
    };
    let stores = [open(), open(), open()];
    let history = Arc::new(Mutex::new(History::default()));
    let end = clock.now().saturating_add(Duration::from_hours(60));
    let clients = (1..=CLIENTS).map(|name| {
        let store = stores[usize::try_from(name).unwrap() % stores.len()].clone();
        let (history, dice, ends) = (
            Arc::clone(&history),
            Dice::new(seed << 8 | name),
            Some((clock.clone(), end)),
        );
        tokio::spawn(
            Client {
                store,
                dice,
                name,
                history,
                ends,
            }
            .run(),
        )
    });
    let clients = join_all(clients);
    let sweeping = async {
        let mut swept = 0;
        loop {
            for store in &stores {
                // The register fails now and then.
                swept += store.sweep().await.unwrap_or(0);
                objects.arrive().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if clock.now() >= end {
                return swept;
            }
        }
    };
    let ticking = async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            clock.advance(Duration::from_secs(20));
        }
    };
    let work = async { futures_util::join!(clients, sweeping) };
    let (ended, swept) = tokio::select! { done = work => done, () = ticking => unreachable!() };
    for ended in ended {
        ended.unwrap();
    }
    let mut late = std::mem::take(&mut *late.lock().unwrap());
    while late.join_next().await.is_some() {}
    assert!(
        swept > 0,
        "the bucket lost answers, so there were bodies to sweep"
    );
    let objects = Objects::new(Arc::new(objects), Path::default());
    check(
        &IndexedStore::in_bucket(objects, Driver::new(Arc::clone(&records))).unwrap(),
        &history,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreliable_register_loses_and_mixes_nothing() {
    for seed in 1..=rounds(3) {
        println!("seed {seed}");
        round(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreliable_register_and_bucket_lose_nothing_of_three_gateways() {
    for seed in 1..=rounds(1) {
        println!("seed {seed}");
        round_in_bucket(seed).await;
    }
}
