//! Containers while they are deleted: the states of `container/state.rs`, and the interleavings of `container/delete.rs`.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ifmatch_blob::conformance::{self, Subject, kind, put};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{Delete, ListQuery, MissingContainer, Put, StoreError, StoreErrorKind};
use ifmatch_blob_objects::{BackingStore, ObjectBlobs};
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_register::{Key, Register, Swap};
use ifmatch_runtime::{Clock, SystemClock};
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value;

use crate::faults::Faulty;
use crate::{durable_on, register, subject, within, write_soon};

/// A store and a register that processes share.
struct Setup {
    store: Arc<Faulty>,
    register: Arc<dyn Register>,
    process: Subject,
    blob: BlobPath,
}

/// A process with the empty container of a blob.
async fn setup() -> Setup {
    let (store, register) = (Faulty::in_memory(false), register());
    let process = durable_on(&store, register.clone()).await;
    let blob = conformance::blob("c", "b");
    process
        .store
        .create_container(&blob.container, BlobHeaders::default())
        .await
        .unwrap();
    Setup {
        store,
        register,
        process,
        blob,
    }
}

impl Setup {
    /// Another process, which remembers containers for a while.
    async fn with_memory(&self) -> Subject {
        let backing = BackingStore::new(Arc::clone(&self.store) as Arc<dyn ObjectStore>);
        let backing = backing.with_container_memory(Duration::from_secs(5));
        subject(
            ObjectBlobs::open_durable(backing, self.register.clone())
                .await
                .expect("the store can be used"),
        )
    }

    /// Returns the payload of the container's record.
    async fn payload(&self) -> Value {
        let record = self
            .register
            .load(&key())
            .await
            .unwrap()
            .expect("the container's record");
        let version = record
            .state(SystemClock.now())
            .version()
            .expect("the container")
            .clone();
        serde_json::from_slice(version.payload()).unwrap()
    }

    /// Waits until the container is closed.
    async fn closed(&self) {
        within("the container is closed", async {
            while self.payload().await.get("closing").is_none() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Leaves the mark of a deleter whose turn ends then.
    async fn leave(&self, mark: &str, until: Timestamp) {
        let mut payload = self.payload().await;
        let record = self
            .register
            .load(&key())
            .await
            .unwrap()
            .expect("the container's record");
        // A later version names the one that created the container.
        let generation = record
            .state(SystemClock.now())
            .version()
            .expect("the container")
            .generation()
            .get();
        for field in ["created", "since"] {
            if payload[field].is_null() {
                payload[field] = generation.into();
            }
        }
        payload[mark] = until.micros().into();
        self.record(serde_json::to_vec(&payload).unwrap()).await;
    }

    /// Replaces the payload of the container's record.
    async fn record(&self, payload: Vec<u8>) {
        let record = self
            .register
            .load(&key())
            .await
            .unwrap()
            .expect("the container's record");
        let content = Content::Hashed {
            hash: ContentHash::of(b""),
            payload: payload.into(),
        };
        let write = Write::new(&Method::DELETE, &Preconditions::NONE, content, 7)
            .with_lease(LeaseUse::Read(None));
        let next = record
            .apply(&Command::Write(write), SystemClock.now())
            .next
            .expect("a change");
        let swap = self
            .register
            .compare_and_swap(&key(), record.revision(), Some(&next))
            .await
            .unwrap();
        assert_eq!(swap, Swap::Done);
    }
}

fn key() -> Key {
    Key::new("c/c").unwrap()
}

async fn delete_empty(subject: &Subject, container: &ContainerName) -> Result<(), StoreError> {
    subject
        .store
        .delete_empty_container(container, Delete::default())
        .await
}

fn into_existing() -> Put {
    Put {
        container: MissingContainer::Refuse,
        ..put("1")
    }
}

#[tokio::test]
async fn a_write_under_way_keeps_its_container() {
    let setup = setup().await;
    let Setup {
        store,
        process,
        blob,
        ..
    } = &setup;
    let (sent, arrive) = store.hold_write();
    let writing = process.store.put(blob, into_existing());
    let deleting = async {
        sent.await.expect("the object is sent");
        delete_empty(process, &blob.container).await
    };
    let meanwhile = async {
        setup.closed().await;
        let other = conformance::blob("c", "other");
        let refused = kind(process.store.put(&other, into_existing()).await);
        assert!(
            matches!(refused, StoreErrorKind::InFlight { .. }),
            "{refused:?}"
        );
        arrive.send(()).expect("the write waits");
    };
    let (written, deleted, ()) = futures_util::join!(writing, deleting, meanwhile);
    written.expect("it began before");
    assert_eq!(kind(deleted), StoreErrorKind::ContainerNotEmpty);
    assert_eq!(
        process.read(blob).await.expect("it was acknowledged").1,
        "1"
    );
    process
        .store
        .put(blob, into_existing())
        .await
        .expect("the container is open again");
}

/// The writer asked for its container right before another process closed it.
#[tokio::test]
async fn a_write_by_an_earlier_answer_keeps_its_container() {
    // A response lasts for a second. A machine that stops for longer needs another attempt.
    for _ in 0..20 {
        let setup = setup().await;
        let (writer, deleter) = (setup.with_memory().await, setup.with_memory().await);
        assert!(
            writer.read(&setup.blob).await.is_none(),
            "it asks for the container"
        );
        let write = async {
            setup.closed().await;
            writer.store.put(&setup.blob, into_existing()).await
        };
        let (ended, written) =
            futures_util::join!(delete_empty(&deleter, &setup.blob.container), write);
        match written {
            Ok(_) => {
                assert_eq!(kind(ended), StoreErrorKind::ContainerNotEmpty);
                assert_eq!(
                    setup
                        .process
                        .read(&setup.blob)
                        .await
                        .expect("it was acknowledged")
                        .1,
                    "1"
                );
                return;
            }
            Err(error) => assert!(
                matches!(error.kind(), StoreErrorKind::InFlight { .. }),
                "{error}"
            ),
        }
    }
    panic!("no write relied on an earlier answer in 20 attempts");
}

/// The states of `container/state.rs`, as requests see them.
#[tokio::test]
async fn a_container_with_a_mark_takes_no_writes_and_is_read_until_its_deletion_has_begun() {
    for (mark, is_there) in [("closing", true), ("deleting", false)] {
        let setup = setup().await;
        let Setup { process, blob, .. } = &setup;
        process.write(blob, "1").await;
        setup
            .leave(
                mark,
                SystemClock.now().saturating_add(Duration::from_mins(1)),
            )
            .await;
        let store = &process.store;
        assert_eq!(
            process
                .read(blob)
                .await
                .is_some_and(|(_, bytes)| bytes == "1"),
            is_there,
            "{mark}"
        );
        assert_eq!(
            store.container(&blob.container).await.unwrap().is_some(),
            is_there,
            "{mark}"
        );
        let all = ListQuery::first(10);
        assert_eq!(
            store
                .list(&blob.container, &all)
                .await
                .unwrap()
                .map(|page| page.items.len()),
            is_there.then_some(1)
        );
        assert_eq!(
            store.containers(&all).await.unwrap().items.len(),
            usize::from(is_there),
            "{mark}"
        );
        let created = kind(
            store
                .create_container(&blob.container, BlobHeaders::default())
                .await,
        );
        assert_eq!(
            created == StoreErrorKind::ContainerExists,
            is_there,
            "{mark}: {created:?}"
        );
        for missing in [MissingContainer::Refuse, MissingContainer::Create] {
            let refused = kind(
                store
                    .put(
                        blob,
                        Put {
                            container: missing,
                            ..put("2")
                        },
                    )
                    .await,
            );
            assert!(
                matches!(refused, StoreErrorKind::InFlight { .. }),
                "{mark}: {refused:?}"
            );
        }
        assert_eq!(
            setup
                .store
                .get(&"c/b".into())
                .await
                .unwrap()
                .bytes()
                .await
                .unwrap(),
            "1",
            "it is unchanged"
        );
    }
}

/// The deleter has crashed, or sleeps: its turn is over.
#[tokio::test]
async fn the_next_request_opens_a_closed_container_and_completes_a_deletion() {
    for mark in ["closing", "deleting"] {
        for request in ["write", "delete", "delete if empty"] {
            let setup = setup().await;
            let Setup { process, blob, .. } = &setup;
            process.write(blob, "1").await;
            let container = async || process.store.container(&blob.container).await.unwrap();
            let before = container().await.expect("it is there").created;
            setup.leave(mark, SystemClock.now()).await;
            match request {
                "write" => {
                    let other = conformance::blob("c", "other");
                    write_soon(process, &other, || put("1")).await;
                }
                "delete" => process
                    .store
                    .delete_container(&blob.container, Delete::default())
                    .await
                    .unwrap(),
                _ => {
                    let ended = delete_empty(process, &blob.container).await;
                    assert_eq!(ended.is_ok(), mark == "deleting", "{ended:?}");
                }
            }
            let is_kept = mark == "closing" && request != "delete";
            assert_eq!(
                process.read(blob).await.is_some(),
                is_kept,
                "{mark}, {request}"
            );
            assert_eq!(
                setup.store.head(&"c/b".into()).await.is_ok(),
                is_kept,
                "{mark}, {request}"
            );
            let after = container().await.map(|info| info.created);
            assert_eq!(
                after == Some(before),
                is_kept,
                "{mark}, {request}: it is the same container, or none"
            );
        }
    }
}

/// Such as the mark of a deleter of a newer release.
#[tokio::test]
async fn a_container_whose_record_is_unreadable_takes_no_writes() {
    let setup = setup().await;
    let Setup { process, blob, .. } = &setup;
    process.store.put(blob, into_existing()).await.unwrap();
    setup.record(b"{".to_vec()).await;
    assert_eq!(
        kind(process.store.put(blob, into_existing()).await),
        StoreErrorKind::Unreadable
    );
    assert_eq!(
        kind(delete_empty(process, &blob.container).await),
        StoreErrorKind::Unreadable
    );
    assert_eq!(
        kind(process.store.container(&blob.container).await),
        StoreErrorKind::Unreadable
    );
    // The other containers can be listed, and those behind it looked after.
    let all = ListQuery::first(10);
    let listed = process.store.containers(&all).await.unwrap();
    assert_eq!(
        listed
            .items
            .iter()
            .map(|entry| &entry.name)
            .collect::<Vec<_>>(),
        [&blob.container]
    );
    let backing = BackingStore::new(Arc::clone(&setup.store) as Arc<dyn ObjectStore>);
    ObjectBlobs::open_durable(backing, setup.register.clone())
        .await
        .unwrap()
        .forget_idle()
        .await
        .unwrap();
}

/// The deleter lists no object, and then sleeps for longer than its turn.
#[tokio::test]
async fn a_deleter_that_lost_its_turn_deletes_nothing() {
    let setup = setup().await;
    let Setup {
        store,
        process,
        blob,
        ..
    } = &setup;
    let deleter = setup.with_memory().await;
    let meanwhile = async {
        setup.closed().await;
        let (listed, wake) = store.hold_listing();
        listed.await.expect("the deleter lists the objects");
        setup.leave("closing", SystemClock.now()).await;
        write_soon(process, blob, into_existing).await;
        wake.send(()).expect("the deleter waits");
    };
    let (ended, ()) = futures_util::join!(delete_empty(&deleter, &blob.container), meanwhile);
    ended.expect_err("the container was opened");
    assert_eq!(
        process.read(blob).await.expect("it was acknowledged").1,
        "1"
    );
    process
        .store
        .put(blob, into_existing())
        .await
        .expect("the container is open");
}
