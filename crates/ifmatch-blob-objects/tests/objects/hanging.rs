//! Processes that get no response about a container from the register, or whose earlier responses are outdated.
//!
//! ## Interleavings
//!
//! - **The register hangs.** A read goes on with the previous response, or as if all objects were blobs, and later reads don't
//!   ask again.
//! - **A response from before a deletion** arrives after it. Later reads must not rely on it.
//! - **A container that is being deleted**, as a read has seen, when the register hangs: its blobs stay hidden.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ifmatch_blob::conformance::{Subject, blob, kind, put};
use ifmatch_blob::store::{Delete, ListQuery, Reading, StoreErrorKind};
use ifmatch_blob_objects::{BackingStore, ObjectBlobs};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Record;
use ifmatch_register::{Key, MemoryRegister, Register, RegisterError, Wrapper, async_trait};
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::sync::watch;

use crate::faults::{Fault, Faulty};
use crate::subject;

/// A register that can hold back its responses about containers.
struct Slow {
    inner: MemoryRegister,
    /// Numbers of the loads whose responses are held back.
    held: watch::Sender<Range<usize>>,
    /// Number of loads of containers.
    asked: AtomicUsize,
}

impl Slow {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryRegister::unbounded(),
            held: watch::Sender::new(0..0),
            asked: AtomicUsize::new(0),
        })
    }

    /// Holds back all responses from now on.
    fn hang(&self) {
        self.held.send_replace(0..usize::MAX);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Wrapper for Slow {
    fn inner(&self) -> &dyn Register {
        &self.inner
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        let record = self.inner.load(key).await;
        if key.as_str().starts_with("c/") {
            let number = self.asked.fetch_add(1, Ordering::SeqCst);
            self.held
                .subscribe()
                .wait_for(|held| !held.contains(&number))
                .await
                .expect("the sender is kept");
        }
        record
    }
}

/// Another process on the same store and register. Its reads reuse responses for this time.
async fn process(store: &Arc<Faulty>, register: &Arc<Slow>, memory: Duration) -> Subject {
    let backing =
        BackingStore::new(Arc::clone(store) as Arc<dyn ObjectStore>).with_container_memory(memory);
    subject(
        ObjectBlobs::open_durable(backing, Arc::clone(register) as Arc<dyn Register>)
            .await
            .expect("opens"),
    )
}

/// Answers are never recent, but are kept.
const SHORT: Duration = Duration::from_micros(1);
const LONG: Duration = Duration::from_hours(1);

/// Each container that only the store knows takes a request to the register.
#[tokio::test]
async fn a_page_of_containers_asks_for_no_container_behind_it() {
    let (store, register) = (Faulty::in_memory(false), Slow::new());
    let process = process(&store, &register, Duration::ZERO).await;
    let names: Vec<_> = (10..30).map(|number| format!("c{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        if number % 3 == 0 {
            process.write(&blob(name, "ours"), "1").await;
        } else {
            let theirs = format!("{name}/theirs");
            store.put(&theirs.into(), "1".into()).await.unwrap();
        }
    }
    let (mut found, mut query) = (Vec::new(), ListQuery::first(4));
    loop {
        let before = register.asked();
        let page = process.store.containers(&query).await.unwrap();
        assert!(register.asked() - before <= 5, "one more than the page");
        found.extend(page.items.iter().map(|entry| entry.name.to_string()));
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    assert_eq!(found, names);
}

#[tokio::test(start_paused = true)]
async fn a_read_goes_on_without_a_register_that_hangs() {
    for is_cold in [true, false] {
        let (store, register) = (Faulty::in_memory(false), Slow::new());
        let reader = process(&store, &register, if is_cold { LONG } else { SHORT }).await;
        let blob = blob("c", "b");
        if is_cold {
            process(&store, &register, LONG)
                .await
                .write(&blob, "1")
                .await;
        } else {
            reader.write(&blob, "1").await;
            assert_eq!(reader.read(&blob).await.unwrap().1, "1");
        }
        register.hang();
        assert_eq!(reader.read(&blob).await.unwrap().1, "1");
        if is_cold {
            let asked = register.asked();
            assert_eq!(reader.read(&blob).await.unwrap().1, "1");
            assert_eq!(register.asked(), asked, "the failure is remembered");
        }
    }
}

/// Leaves an object of a late write in a deleted container, which a process with a previous response hides.
#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_deletion_is_not_stored_after_it() {
    let (store, register) = (Faulty::in_memory(false), Slow::new());
    let [subject, writer] = [
        process(&store, &register, LONG).await,
        process(&store, &register, LONG).await,
    ];
    let (late, other) = (blob("c", "late"), blob("c", "other"));
    writer.write(&other, "1").await;
    store.schedule([Fault::Held]);
    assert_eq!(
        kind(writer.store.put(&late, put("late")).await),
        StoreErrorKind::OutcomeUnknown
    );

    // The read has its record, and the response arrives after the deletion.
    let asked = register.asked();
    register.held.send_replace(asked..asked + 1);
    let delete = async {
        while register.asked() == asked {
            tokio::task::yield_now().await;
        }
        subject
            .store
            .delete_container(&other.container, Delete::default())
            .await
            .expect("it exists");
        register.held.send_replace(0..0);
    };
    futures_util::join!(subject.read(&other), delete);
    store.release().await.expect("no object has this name");
    assert!(
        subject.read(&late).await.is_none(),
        "an object of the deleted container"
    );
}

#[tokio::test(start_paused = true)]
async fn blobs_of_a_container_that_is_being_deleted_stay_hidden() {
    let (store, register) = (Faulty::in_memory(false), Slow::new());
    let [deleter, reader] = [
        process(&store, &register, LONG).await,
        process(&store, &register, LONG).await,
    ];
    let blob = blob("c", "b");
    deleter.write(&blob, "1").await;
    store.schedule([Fault::Refused]);
    deleter
        .store
        .delete_container(&blob.container, Delete::default())
        .await
        .expect_err("an object is left");
    assert!(
        store.get(&"c/b".into()).await.is_ok(),
        "the object is still there"
    );
    assert!(reader.read(&blob).await.is_none());
    register.hang();
    for process in [&deleter, &reader] {
        for _ in 0..2 {
            let hidden = process.store.open(&blob, Reading::HEAD).await;
            assert_eq!(kind(hidden.map(drop)), StoreErrorKind::Unavailable);
        }
    }
}

/// Writes rely on a response about their container for a second, and a deletion in another process waits for that. In real time, by
/// which the age of responses counts.
#[tokio::test]
async fn a_write_never_reaches_a_container_that_another_process_has_deleted() {
    let (store, register) = (Faulty::in_memory(false), Slow::new());
    let [deleter, writer] = [
        process(&store, &register, LONG).await,
        process(&store, &register, LONG).await,
    ];
    let blob = blob("c", "b");
    for _ in 0..3 {
        writer.write(&blob, "before").await;
        deleter
            .store
            .delete_container(&blob.container, Delete::default())
            .await
            .expect("it exists");
        let written = writer.write(&blob, "after").await;
        assert!(written.created, "in a new container");
        for process in [&deleter, &writer] {
            assert_eq!(
                process.read(&blob).await.expect("it was acknowledged").1,
                "after"
            );
        }
    }
}

/// A process creates a blob of which it has an outdated record. Another process has since replaced and deleted the
/// blob, but got no response to the deletion. The blob is gone while the creation waits for the deletion to end, so the
/// creation must not be refused because the blob exists.
#[tokio::test(start_paused = true)]
async fn an_outdated_record_refuses_no_creation() {
    let (store, register) = (Faulty::in_memory(false), Slow::new());
    let [outdated, other] = [
        process(&store, &register, LONG).await,
        process(&store, &register, LONG).await,
    ];
    let blob = blob("c", "b");
    outdated.write(&blob, "1").await;
    other.write(&blob, "2").await;
    store.schedule([Fault::Delayed]);
    assert_eq!(
        kind(other.store.delete(&blob, Delete::default()).await),
        StoreErrorKind::OutcomeUnknown
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        outdated.read(&blob).await.is_none(),
        "the deletion took effect"
    );
    let created = outdated.write_if(&blob, Preconditions::absent(), "3").await;
    assert!(created.expect("the blob is gone").created);
}
