//! A bucket and a register that several gateways share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use http_body::Frame;
use http_body_util::BodyExt;
use ifmatch_blob::BlobStore;
use ifmatch_blob::conformance::{self, blob, gated, kind, pattern, put};
use ifmatch_blob::headers::{Append, BlobHeaders};
use ifmatch_blob::store::{
    AppendBlock, Delete, Peek, Put, Reading, StoreErrorKind, Upload, Wrapper,
};
use ifmatch_blob::test_util::ManualClock;
use ifmatch_blob_indexed::{IndexedStore, Objects, OpenErrorKind, Progress};
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::faulty::FaultyRegister;
use ifmatch_register::{
    Driver, Engine, Guarantee, Key, MemoryRegister, Register, RegisterError, Scan, Swap,
    async_trait,
};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::faulty_objects::FaultyObjects;
use crate::support::{bytes, read};

/// Longer than any body in a record.
const LONG: usize = 10_000;
/// Longer than any body that is sent at once.
const IN_PARTS: usize = 20 * 1024 * 1024;

/// Gateways of which each call uses another one.
struct Turns {
    gateways: Vec<IndexedStore>,
    calls: AtomicUsize,
}

impl Wrapper for Turns {
    fn inner(&self) -> &dyn BlobStore {
        &self.gateways[self.calls.fetch_add(1, Ordering::SeqCst) % self.gateways.len()]
    }

    fn peek(&self) -> Option<&dyn Peek> {
        self.gateways[0].peek()
    }
}

fn gateways(number: usize, objects: &Arc<dyn ObjectStore>) -> Turns {
    let records = Arc::new(MemoryRegister::unbounded());
    let open = || {
        let register = FaultyRegister::on(Arc::clone(&records));
        let objects = Objects::new(Arc::clone(objects), Path::from("blobs")).copied_by_store();
        IndexedStore::in_bucket(objects, Driver::new(register)).unwrap()
    };
    Turns {
        gateways: (0..number).map(|_| open()).collect(),
        calls: AtomicUsize::new(0),
    }
}

async fn conforms(store: Turns) {
    conformance::check(&crate::subject(store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_gateway_on_a_bucket_conforms() {
    let objects: Arc<dyn ObjectStore> = Arc::new(FaultyObjects::default());
    conforms(gateways(1, &objects)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_gateways_on_files_conform() {
    let folder = tempfile::tempdir().unwrap();
    let objects: Arc<dyn ObjectStore> =
        Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    conforms(gateways(3, &objects)).await;
}

/// Two gateways on one bucket, with faults of their own, and with one clock.
struct Two {
    objects: FaultyObjects,
    registers: [FaultyRegister; 2],
    stores: [IndexedStore; 2],
    clock: ManualClock,
}

fn two() -> Two {
    two_with(ManualClock::default())
}

fn two_with(clock: ManualClock) -> Two {
    let (objects, records) = (
        FaultyObjects::default(),
        Arc::new(MemoryRegister::unbounded()),
    );
    let registers = [(); 2].map(|()| FaultyRegister::on(Arc::clone(&records)));
    let stores = [0, 1].map(|at: usize| {
        let driver = Driver::with_clock(registers[at].clone(), clock.clone());
        IndexedStore::in_bucket(
            Objects::new(Arc::new(objects.clone()), Path::default()),
            driver,
        )
        .unwrap()
    });
    Two {
        objects,
        registers,
        stores,
        clock,
    }
}

/// Waits for work in the background, which the manual clock lets go on.
async fn until(what: &str, mut is_done: impl AsyncFnMut() -> bool) {
    for _ in 0..10_000 {
        if is_done().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("after 10 seconds, not yet: {what}");
}

#[tokio::test]
async fn a_body_is_read_whatever_its_length() {
    let Two {
        objects,
        stores: [one, other],
        ..
    } = two();
    for length in [0, 4_096, 4_097, 200_000, IN_PARTS] {
        let blob = blob("c", &length.to_string());
        one.put(&blob, put(pattern(length))).await.unwrap();
        assert_eq!(read(&other, &blob).await, pattern(length), "{length}");
        if length > 0 {
            let mut opened = other.open(&blob, Reading::RANGES).await.unwrap().unwrap();
            let middle = opened
                .source
                .read(Some(length as u64 / 2..length as u64))
                .await
                .unwrap();
            assert_eq!(
                middle.collect().await.unwrap().to_bytes(),
                pattern(length).slice(length / 2..),
                "{length}"
            );
        }
    }
    assert_eq!(
        objects.bodies().await.len(),
        3,
        "short bodies are in their records"
    );
}

#[tokio::test]
async fn a_write_without_an_answer_of_the_bucket_changes_nothing() {
    let Two {
        objects,
        stores: [one, other],
        ..
    } = two();
    let blob = blob("c", "b");
    one.put(&blob, put(pattern(LONG))).await.unwrap();
    objects.lose_one_of(1);
    for _ in 0..4 {
        assert_eq!(
            kind(one.put(&blob, put(pattern(LONG + 1))).await),
            StoreErrorKind::Unavailable
        );
    }
    objects.arrive().await;
    assert_eq!(read(&other, &blob).await, pattern(LONG));
}

#[tokio::test]
async fn a_replaced_body_stays_for_the_readers_of_other_gateways() {
    let Two {
        objects,
        stores: [one, other],
        clock,
        ..
    } = two();
    let blob = blob("c", "b");
    one.put(&blob, put(pattern(LONG))).await.unwrap();
    let mut opened = other.open(&blob, Reading::WHOLE).await.unwrap().unwrap();
    one.put(&blob, put(pattern(LONG + 1))).await.unwrap();
    clock.advance(Duration::from_secs(299));
    // Time enough for a removal that doesn't wait.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bytes(&mut opened).await, pattern(LONG));
    assert_eq!(objects.bodies().await.len(), 2);
    clock.advance(Duration::from_secs(1));
    until("the removal", async || objects.bodies().await.len() == 1).await;
    assert_eq!(read(&other, &blob).await, pattern(LONG + 1));
}

#[tokio::test]
async fn a_refused_body_is_removed_at_once() {
    let Two {
        objects,
        stores: [one, other],
        ..
    } = two();
    let blob = blob("c", "b");
    one.put(&blob, put(pattern(LONG))).await.unwrap();
    let (body, asked, open) = gated("late");
    let preconditions = conformance::if_match(
        &one.open(&blob, Reading::HEAD)
            .await
            .unwrap()
            .unwrap()
            .info
            .tag
            .unwrap(),
    );
    let late = Put {
        body,
        preconditions,
        ..put("")
    };
    let slow = one.put(
        &blob,
        Put {
            length: None,
            ..late
        },
    );
    let (refused, ()) = futures_util::join!(slow, async {
        asked.await.unwrap();
        other.put(&blob, put(pattern(LONG + 1))).await.unwrap();
        open.send(()).unwrap();
    });
    assert!(matches!(
        kind(refused),
        StoreErrorKind::PreconditionFailed { .. }
    ));
    assert_eq!(
        objects.bodies().await.len(),
        2,
        "the current one, and the replaced one"
    );
}

/// The body could be swept before the swap.
#[tokio::test]
async fn a_body_that_took_too_long_is_not_named() {
    let Two {
        objects,
        stores: [one, other],
        clock,
        ..
    } = two();
    let blob = blob("c", "b");
    for (seconds, is_late) in [(6 * 3_600, false), (6 * 3_600 + 1, true)] {
        one.put(&blob, put("before")).await.unwrap();
        let (body, asked, open) = gated("x");
        let body = Upload::new(body.map_frame(|_| Frame::data(pattern(LONG))));
        let (written, ()) = futures_util::join!(one.put(&blob, Put { body, ..put("") }), async {
            asked.await.unwrap();
            clock.advance(Duration::from_secs(seconds));
            open.send(()).unwrap();
        });
        if is_late {
            assert_eq!(kind(written), StoreErrorKind::Unavailable);
            assert_eq!(read(&other, &blob).await, "before");
        } else {
            written.unwrap();
        }
    }
    until("the removals", async || objects.bodies().await.is_empty()).await;
}

/// Runs a sweep to its end.
async fn sweep(
    store: &IndexedStore,
    clock: &ManualClock,
) -> Result<u64, ifmatch_blob_indexed::OpenError> {
    let store = store.clone();
    let mut sweeping = tokio::spawn(async move { store.sweep().await });
    for _ in 0..10_000 {
        match tokio::time::timeout(Duration::from_millis(5), &mut sweeping).await {
            Ok(swept) => return swept.unwrap(),
            Err(_) => clock.advance(Duration::from_mins(5)),
        }
    }
    panic!("the sweep takes longer than 50 seconds");
}

#[tokio::test]
async fn the_sweep_removes_old_bodies_that_no_record_names() {
    let Two {
        objects,
        stores: [one, other],
        clock,
        ..
    } = two();
    let kept = blob("c", "kept");
    one.put(&kept, put(pattern(LONG))).await.unwrap();
    let number = |number| Path::from(format!("bodies/{}-{number:016x}", "ab".repeat(32)));
    let orphans = [
        number(1),
        number(2),
        Path::from("bodies/long-8000000000000003"),
    ];
    for orphan in &orphans {
        objects.put(orphan, "an orphan".into()).await.unwrap();
    }
    let foreign = Path::from("bodies/readme.txt");
    objects.put(&foreign, "not a body".into()).await.unwrap();
    objects.age(23);
    assert_eq!(sweep(&one, &clock).await.unwrap(), 0, "they are too young");
    objects.age(24);
    assert_eq!(sweep(&one, &clock).await.unwrap(), 3);
    assert_eq!(sweep(&other, &clock).await.unwrap(), 0);
    assert_eq!(objects.bodies().await.len(), 2);
    assert_eq!(read(&other, &kept).await, pattern(LONG));
}

#[tokio::test]
async fn two_sweeps_at_a_time_remove_the_same_bodies() {
    let Two {
        objects,
        stores: [one, other],
        clock,
        ..
    } = two();
    objects
        .put(
            &Path::from("bodies/long-8000000000000003"),
            "an orphan".into(),
        )
        .await
        .unwrap();
    objects.age(24);
    let (first, second) = futures_util::join!(sweep(&one, &clock), sweep(&other, &clock));
    assert_eq!((first.unwrap(), second.unwrap()), (1, 1));
    assert!(objects.bodies().await.is_empty());
}

/// Any body may be the damaged record's.
#[tokio::test]
async fn a_damaged_record_prevents_the_sweep() {
    let Two {
        objects,
        stores: [one, _],
        clock,
        registers: [register, _],
    } = two();
    let damaged = blob("c", "b");
    one.put(&damaged, put(pattern(LONG))).await.unwrap();
    let (key, record) = register
        .records()
        .scan(&Scan {
            prefix: "b/",
            after: None,
            limit: 1,
        })
        .await
        .unwrap()
        .remove(0);
    let now = Timestamp::from_micros(0);
    let payload = record.state(now).version().unwrap().payload().clone();
    let mut bytes = payload.to_vec();
    *bytes.last_mut().unwrap() ^= 0xff;
    let content = Content::Kept {
        payload: bytes.into(),
    };
    let write = Write::new(&Method::PUT, &Preconditions::NONE, content, 7);
    let next = record.apply(&Command::Write(write), now).next.unwrap();
    register
        .records()
        .compare_and_swap(&key, record.revision(), Some(&next))
        .await
        .unwrap();
    objects.age(48);
    assert_eq!(sweep(&one, &clock).await.unwrap(), 0);
    assert_eq!(objects.bodies().await.len(), 1);
}

#[tokio::test]
async fn a_copy_has_a_body_of_its_own() {
    let objects: Arc<dyn ObjectStore> = Arc::new(FaultyObjects::default());
    let Turns { gateways, .. } = gateways(2, &objects);
    let (source, copy) = (blob("c", "source"), blob("c", "copy"));
    for length in [LONG, IN_PARTS] {
        gateways[0]
            .put(&source, put(pattern(length)))
            .await
            .unwrap();
        let opened = gateways[1]
            .open(&source, Reading::RANGES)
            .await
            .unwrap()
            .unwrap();
        gateways[1]
            .put(&copy, Put::copying(&source, opened).await.unwrap())
            .await
            .unwrap();
        gateways[0]
            .delete(&source, Delete::default())
            .await
            .unwrap();
        assert_eq!(read(&gateways[0], &copy).await, pattern(length));
    }
}

/// The object of an append is named by the hash of the bytes before it, which are the version that is copied.
#[tokio::test]
async fn a_copy_of_a_version_before_an_append_has_the_bytes_of_that_version() {
    let objects: Arc<dyn ObjectStore> = Arc::new(FaultyObjects::default());
    let Turns { gateways, .. } = gateways(1, &objects);
    let (log, copy) = (blob("c", "log"), blob("c", "copy"));
    let headers = BlobHeaders {
        append: Some(Append::default()),
        ..BlobHeaders::default()
    };
    let first = Put {
        headers,
        ..put(pattern(LONG))
    };
    gateways[0].put(&log, first).await.unwrap();
    let opened = gateways[0].open(&log, Reading::WHOLE).await.unwrap();
    let copying = Put::copying(&log, opened.unwrap()).await.unwrap();
    gateways[0]
        .append(&log, AppendBlock::new("more".into()))
        .await
        .unwrap();
    gateways[0].put(&copy, copying).await.unwrap();
    assert_eq!(read(&gateways[0], &copy).await, pattern(LONG));
}

/// Each append is a copy, since an object can't be lengthened. A block of one gateway is neither lost nor torn by the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_append_to_one_blob() {
    let objects: Arc<dyn ObjectStore> = Arc::new(FaultyObjects::default());
    let Turns { gateways, .. } = gateways(2, &objects);
    let log = blob("c", "log");
    for beginning in [0, LONG, IN_PARTS] {
        let headers = BlobHeaders {
            append: Some(Append::default()),
            ..BlobHeaders::default()
        };
        gateways[0]
            .put(
                &log,
                Put {
                    headers,
                    ..put(pattern(beginning))
                },
            )
            .await
            .unwrap();
        let appends = (0..12_u8).map(|number| {
            let (store, log) = (gateways[usize::from(number % 2)].clone(), log.clone());
            tokio::spawn(async move {
                store
                    .append(&log, AppendBlock::new(vec![number; 3_000].into()))
                    .await
            })
        });
        let mut offsets = Vec::new();
        for appended in join_all(appends).await {
            offsets.push(appended.unwrap().unwrap().offset);
        }
        let bytes = read(&gateways[1], &log).await;
        assert_eq!(bytes.len(), beginning + 12 * 3_000);
        assert_eq!(bytes[..beginning], pattern(beginning));
        for (number, offset) in (0..).zip(offsets) {
            let block = usize::try_from(offset).unwrap();
            assert_eq!(
                bytes[block..block + 3_000],
                [number; 3_000],
                "the block of append {number}"
            );
        }
    }
}

/// The write began before the deletion, and swaps after it.
#[tokio::test]
async fn a_write_into_a_container_that_was_deleted_for_being_empty_fails() {
    let Two {
        registers: [register, _],
        stores: [one, other],
        ..
    } = two();
    let blob = blob("c", "b");
    one.create_container(&blob.container, BlobHeaders::default())
        .await
        .unwrap();
    let container = blob.container.clone();
    let deleting = other.clone();
    register.before_swap("b/", async move {
        deleting
            .delete_empty_container(&container, Delete::default())
            .await
            .unwrap();
    });
    assert_eq!(
        kind(one.put(&blob, put("1")).await),
        StoreErrorKind::ContainerNotFound
    );
    assert!(!register.waits_for_swap());
    assert!(other.container(&blob.container).await.unwrap().is_none());
}

/// The deletion found no blob, and is about to delete the container.
#[tokio::test]
async fn a_write_keeps_away_the_deletion_of_an_empty_container() {
    let Two {
        registers: [_, register],
        stores: [one, other],
        ..
    } = two_with(ManualClock::default().with_timers());
    let path = blob("c", "b");
    one.create_container(&path.container, BlobHeaders::default())
        .await
        .unwrap();
    let (writer, written, again) = (one.clone(), path.clone(), register.clone());
    // The first swap marks the container.
    register.before_swap("c/", async move {
        again.before_swap("c/", async move {
            writer.put(&written, put("1")).await.unwrap();
        });
    });
    let refused = other
        .delete_empty_container(&path.container, Delete::default())
        .await;
    assert_eq!(kind(refused), StoreErrorKind::ContainerNotEmpty);
    assert!(!register.waits_for_swap());
    assert_eq!(read(&other, &path).await, "1");
    // No mark is left.
    one.delete(&path, Delete::default()).await.unwrap();
    one.delete_empty_container(&path.container, Delete::default())
        .await
        .unwrap();
}

/// The deletion found no container to mark. Then another gateway creates it, with a blob.
#[tokio::test]
async fn a_deletion_that_found_no_container_leaves_a_new_one_alone() {
    let Two {
        registers: [_, register],
        stores: [one, other],
        ..
    } = two_with(ManualClock::default().with_timers());
    let path = blob("c", "b");
    let (writer, written, again) = (one.clone(), path.clone(), register.clone());
    // The first load is of the mark.
    register.before_load("c/", async move {
        again.before_load("c/", async move {
            writer
                .create_container(&written.container, BlobHeaders::default())
                .await
                .unwrap();
            writer.put(&written, put("1")).await.unwrap();
        });
    });
    let refused = other
        .delete_empty_container(&path.container, Delete::default())
        .await;
    assert!(!register.waits_for_load());
    assert_eq!(kind(refused), StoreErrorKind::ContainerNotEmpty);
    assert_eq!(read(&other, &path).await, "1");
}

/// The copy has the record when the blob's container is deleted, and its body and its record are collected.
#[tokio::test]
async fn a_blob_that_is_deleted_during_a_copy_of_the_store_is_left_out() {
    let Two {
        objects,
        registers: [register, _],
        stores: [store, _],
        ..
    } = two();
    store
        .put(&blob("c", "b"), put(pattern(LONG)))
        .await
        .unwrap();
    let copy = async || {
        let target = two().stores[0].clone();
        store.copy_into(&target, &Progress::default()).await
    };
    assert_eq!(copy().await.unwrap().bodies, 1);
    objects.delete(&objects.bodies().await[0]).await.unwrap();
    let lost = copy().await.unwrap_err();
    assert_eq!(lost.kind(), OpenErrorKind::Other, "{lost}");
    assert!(
        lost.to_string().contains("can't copy the body of"),
        "{lost}"
    );

    let records = Arc::clone(register.records());
    register.before_load("b/", async move {
        let scan = Scan {
            prefix: "b/",
            after: None,
            limit: 1,
        };
        let (key, record) = records.scan(&scan).await.unwrap().remove(0);
        records
            .compare_and_swap(&key, record.revision(), None)
            .await
            .unwrap();
    });
    assert_eq!(copy().await.unwrap().bodies, 0);
    assert!(!register.waits_for_load());
}

#[tokio::test]
async fn a_register_that_may_lose_swaps_is_refused() {
    let register = FaultyRegister::default();
    register.set_engine(Engine {
        guarantee: Guarantee::UntilFailover,
        ..Engine::default()
    });
    let objects = Objects::new(Arc::new(FaultyObjects::default()), Path::default());
    let refused = IndexedStore::in_bucket(objects, Driver::new(register)).unwrap_err();
    assert_eq!(refused.kind(), OpenErrorKind::Other);
    assert!(
        refused.to_string().contains("acknowledged swaps"),
        "{refused}"
    );
}

/// A register that counts its calls, each of which takes a millisecond. Its engine can fail over.
#[derive(Clone)]
struct Counted {
    records: Arc<MemoryRegister>,
    loads: Arc<AtomicUsize>,
    swaps: Arc<AtomicUsize>,
}

#[async_trait]
impl ifmatch_register::Wrapper for Counted {
    fn inner(&self) -> &dyn Register {
        &self.records
    }

    fn engine(&self) -> Engine {
        Engine {
            fails_over: true,
            ..self.records.engine()
        }
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.records.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.swaps.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.records.compare_and_swap(key, expected, next).await
    }
}

/// A write looks at its container twice, but those at the same time look together.
#[tokio::test(start_paused = true)]
async fn writes_at_the_same_time_share_their_looks_at_the_container() {
    let records = Arc::new(MemoryRegister::unbounded());
    let register = Counted {
        records,
        loads: Arc::default(),
        swaps: Arc::default(),
    };
    let objects = Objects::new(Arc::new(FaultyObjects::default()), Path::default());
    let store = IndexedStore::in_bucket(objects, Driver::new(register.clone())).unwrap();
    store.put(&blob("c", "first"), put("1")).await.unwrap();
    let calls = async |writes: usize| {
        let before = [&register.loads, &register.swaps].map(|calls| calls.load(Ordering::SeqCst));
        let written = (0..writes).map(|number| {
            let store = store.clone();
            async move {
                store
                    .put(
                        &blob("c", &number.to_string()),
                        Put {
                            length: Some(1),
                            ..put("1")
                        },
                    )
                    .await
            }
        });
        for written in join_all(written).await {
            written.unwrap();
        }
        [
            register.loads.load(Ordering::SeqCst) - before[0],
            register.swaps.load(Ordering::SeqCst) - before[1],
        ]
    };
    assert_eq!(calls(1).await, [3, 1]);
    let [loads, swaps] = calls(64).await;
    assert_eq!(swaps, 64);
    assert!((64..=72).contains(&loads), "{loads} loads");
}
