//! The register's records, and their use after other programs changed the store.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BoxError, Delete, MissingContainer, Put, StoreErrorKind, Upload};
use ifmatch_blob_objects::{BackingStore, ObjectBlobs};
use ifmatch_core::lease::{BreakPeriod, LeaseAction, LeaseFailure, LeaseUse};
use ifmatch_register::{Key, MemoryRegister, Register};
use ifmatch_runtime::{Clock, SystemClock};
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;

use crate::faults::{Fault, Faulty};
use crate::{durable, durable_on, within, write_soon};
use ifmatch_blob::conformance::leases::{acquire, id, request};
use ifmatch_blob::conformance::{Subject, blob, gated, if_absent, if_match, kind, pattern, put};

#[tokio::test]
async fn writers_in_a_container_without_a_record_do_not_interfere() {
    let store = Faulty::in_memory(false);
    let subject = durable(&store).await;
    store
        .put(&"c/theirs".into(), "theirs".into())
        .await
        .unwrap();
    let writers = (0..8).map(|writer| {
        let (subject, blob) = (&subject, blob("c", &format!("{writer}")));
        async move {
            subject
                .store
                .put(
                    &blob,
                    Put {
                        container: MissingContainer::Refuse,
                        ..put("ours")
                    },
                )
                .await
        }
    });
    for written in join_all(writers).await {
        assert!(
            written
                .expect("the container was there all the time")
                .created
        );
    }
}

/// A store whose register evicts containers.
async fn forgetful() -> (Arc<MemoryRegister>, Subject) {
    let register = Arc::new(MemoryRegister::with_capacity(256));
    let backing = BackingStore::new(Arc::new(InMemory::new()));
    let blobs = ObjectBlobs::open(backing, register.clone()).await.unwrap();
    (register, crate::subject(blobs))
}

/// Lets the register evict the container `c`.
async fn forget(register: &MemoryRegister, subject: &Subject) {
    let container = Key::new("c/c").unwrap();
    for other in 0.. {
        let record = register.load(&container).await.unwrap();
        if record.is_none_or(|record| record.settled(SystemClock.now()).is_none()) {
            break;
        }
        subject.write(&blob("d", &format!("{other}")), "1").await;
    }
}

#[tokio::test]
async fn a_write_finds_a_container_that_the_register_forgot() {
    for another_writes in [false, true] {
        let (register, subject) = forgetful().await;
        subject.write(&blob("c", "something"), "1").await;
        let (body, asked, send) = gated("1");
        let within = Put {
            body,
            container: MissingContainer::Refuse,
            ..put("")
        };
        let forgetting = async {
            asked.await.expect("the body is requested");
            forget(&register, &subject).await;
            if another_writes {
                subject.write(&blob("c", "another"), "1").await;
            }
            send.send(()).expect("the body is waited for");
        };
        let blob = blob("c", "b");
        let (written, ()) = futures_util::join!(subject.store.put(&blob, within), forgetting);
        assert!(
            written
                .expect("the container was there all the time")
                .created
        );
    }
}

/// The parts already have the incarnation that the register forgets.
#[tokio::test]
async fn an_upload_in_parts_stays_in_a_container_that_the_register_forgot() {
    let (register, subject) = forgetful().await;
    let (last, asked, send) = gated("1");
    let first = stream::iter([Ok::<_, BoxError>(Frame::data(pattern(9 * 1024 * 1024)))]);
    let frames = first.chain(last.into_data_stream().map_ok(Frame::data));
    let body = Upload::new(StreamBody::new(frames));
    let forgetting = async {
        asked.await.expect("the end of the body is requested");
        forget(&register, &subject).await;
        send.send(()).expect("the end of the body is waited for");
    };
    let blob = blob("c", "b");
    let (written, ()) = futures_util::join!(
        subject.store.put(&blob, Put { body, ..put("") }),
        forgetting
    );
    let tag = written.unwrap().tag;
    assert_eq!(tag, Some(subject.tag(&blob).await));
}

#[tokio::test]
async fn a_write_keeps_a_container_created_meanwhile() {
    let store = Faulty::in_memory(false);
    let subject = durable(&store).await;
    let blob = blob("c", "b");
    let (body, asked, send) = gated("1");
    let writing = subject.store.put(&blob, Put { body, ..put("") });
    let creating = async {
        asked.await.expect("the body is requested");
        let (begun, open) = store.hold_listing();
        send.send(()).expect("the body is waited for");
        begun.await.expect("the write looks for its container");
        let metadata = [("owner".into(), FieldText::new("me").expect("valid"))].into();
        let headers = BlobHeaders {
            metadata,
            ..BlobHeaders::default()
        };
        let created = subject
            .store
            .create_container(&blob.container, headers)
            .await
            .expect("there is none");
        open.send(()).expect("the listing is held");
        created
    };
    let (written, created) = futures_util::join!(writing, creating);
    assert!(written.unwrap().created);
    assert_eq!(
        subject.store.container(&blob.container).await.unwrap(),
        Some(created)
    );
}

/// A blob with an infinite lease, deleted by another program.
async fn deleted_by_another_program() -> (Arc<Faulty>, Subject, BlobPath) {
    let store = Faulty::in_memory(false);
    let subject = durable(&store).await;
    let blob = blob("c", "b");
    subject.write(&blob, "1").await;
    subject.store.lease(&blob, acquire(1)).await.unwrap();
    store.delete(&"c/b".into()).await.unwrap();
    (store, subject, blob)
}

#[tokio::test]
async fn a_blob_deleted_by_another_program_loses_its_lease() {
    let (_store, subject, lost) = deleted_by_another_program().await;
    assert!(
        subject
            .write_if(&lost, if_absent(), "2")
            .await
            .unwrap()
            .created
    );
    assert_eq!(subject.head(&lost).await.unwrap().lease, None);

    let (_store, subject, lost) = deleted_by_another_program().await;
    let late = Put {
        lease: LeaseUse::Write(Some(id(1))),
        ..put("late")
    };
    let refused = kind(subject.store.put(&lost, late).await);
    assert_eq!(
        refused,
        StoreErrorKind::LeaseFailed(LeaseFailure::NotPresent)
    );

    let (store, subject, lost) = deleted_by_another_program().await;
    let broken = subject
        .store
        .lease(
            &lost,
            request(LeaseAction::Break {
                period: None,
                token: None,
            }),
        )
        .await;
    assert_eq!(kind(broken), StoreErrorKind::NotFound);
    store.put(&"c/b".into(), "theirs".into()).await.unwrap();
    assert_eq!(
        subject.head(&lost).await.unwrap().lease,
        None,
        "the later blob has none"
    );
}

/// The client of the first request disconnects after the permit was granted, while the store is asked if the blob is still
/// absent. The permit, of a minute, would keep out all writers after it.
#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_while_a_lease_is_ended_leaves_no_permit() {
    for is_write in [true, false] {
        let (store, subject, lost) = deleted_by_another_program().await;
        let (asked, answer) = store.hold_second_read();
        let write = async { subject.store.put(&lost, put("left")).await.map(drop) };
        let operation = async { subject.store.lease(&lost, acquire(2)).await.map(drop) };
        tokio::select! {
            ended = write, if is_write => panic!("the store has not answered: {ended:?}"),
            ended = operation, if !is_write => panic!("the store has not answered: {ended:?}"),
            asked = asked => asked.unwrap(),
        }
        // Lets the work go on, if there is any left.
        let _ = answer.send(());
        assert!(
            subject
                .write_if(&lost, if_absent(), "next")
                .await
                .unwrap()
                .created
        );
    }
}

/// Writes a blob with a lease that ends after this number of seconds.
async fn lease_for(seconds: i64, subject: &Subject) -> BlobPath {
    let blob = blob("c", "b");
    subject.write(&blob, "before").await;
    subject.store.lease(&blob, acquire(1)).await.unwrap();
    let slowly = request(LeaseAction::Break {
        period: BreakPeriod::from_seconds(seconds),
        token: None,
    });
    subject.store.lease(&blob, slowly).await.unwrap();
    blob
}

#[tokio::test]
async fn a_write_cut_short_by_its_lease_does_not_replace_the_next() {
    let store = Faulty::in_memory(true);
    let subject = durable(&store).await;
    let blob = lease_for(4, &subject).await;
    store.schedule([Fault::Late]);
    let cut = Put {
        lease: LeaseUse::Write(Some(id(1))),
        ..put("late")
    };
    assert_eq!(
        kind(subject.store.put(&blob, cut).await),
        StoreErrorKind::OutcomeUnknown
    );
    write_soon(&subject, &blob, || put("next")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        subject.read(&blob).await.unwrap().1,
        "next",
        "an acknowledged write was lost"
    );
}

/// Within one process, the second writer would wait until the first one runs again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_writer_that_lost_its_permit_to_another_process_gets_no_success() {
    let (store, register) = (Faulty::in_memory(true), crate::register());
    let (subject, other) = (
        durable_on(&store, register.clone()).await,
        durable_on(&store, register).await,
    );
    let blob = lease_for(3, &subject).await;
    let current = if_match(&subject.tag(&blob).await);
    let resume = store.suspend();
    let lease = LeaseUse::Write(Some(id(1)));
    let suspended = subject.store.put(
        &blob,
        Put {
            lease,
            preconditions: current.clone(),
            ..put("suspended")
        },
    );
    let next = async {
        within("the first writer has the permit", async {
            while store.is_scheduled() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let next = || Put {
            preconditions: current.clone(),
            ..put("next")
        };
        write_soon(&other, &blob, next).await;
        resume.send(()).expect("the thread is waiting");
    };
    let (suspended, ()) = futures_util::join!(suspended, next);
    assert_eq!(kind(suspended), StoreErrorKind::OutcomeUnknown);
}

#[tokio::test(start_paused = true)]
async fn a_failed_container_deletion_leaves_nothing_in_flight() {
    // The deletion of the first object may or may not wait until the second one is gone.
    for faults in [
        [Fault::Late, Fault::Delayed],
        [Fault::Delayed, Fault::Delayed],
    ] {
        let store = Faulty::in_memory(false);
        let subject = durable(&store).await;
        for name in ["a", "b"] {
            subject.write(&blob("c", name), "before").await;
        }
        store.schedule(faults);
        let failed = subject
            .store
            .delete_container(&blob("c", "a").container, Delete::default())
            .await;
        assert_eq!(kind(failed), StoreErrorKind::OutcomeUnknown);
        // The first of these writes completes the deletion.
        for name in ["a", "b"] {
            write_soon(&subject, &blob("c", name), || put("after")).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        for name in ["a", "b"] {
            assert_eq!(
                subject
                    .read(&blob("c", name))
                    .await
                    .expect("an acknowledged write")
                    .1,
                "after"
            );
        }
    }
}
