//! Writes with a lost response: the winner is determined, or no writer gets a success.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_blob::store::{Delete, Put, StoreErrorKind};
use ifmatch_blob_objects::{BackingStore, ObjectBlobs, StoreCapabilities};
use ifmatch_core::lease::{BreakPeriod, LeaseAction, LeaseUse};
use ifmatch_core::precondition::Preconditions;
use ifmatch_register::{Key, Register};
use ifmatch_runtime::{Clock, SystemClock};
use object_store::ObjectStore;

use crate::faults::{Fault, Faulty};
use crate::{LONG, open, register, subject};
use ifmatch_blob::conformance::leases::{acquire, id, request};
use ifmatch_blob::conformance::{Subject, blob, if_absent, pattern, put};

async fn faulty(ignores_conditions: bool) -> (Arc<Faulty>, Subject) {
    let store = Faulty::in_memory(ignores_conditions);
    let blobs = open(BackingStore::new(Arc::clone(&store) as Arc<dyn ObjectStore>)).await;
    (store, subject(blobs))
}

#[tokio::test]
async fn an_upload_in_parts_with_a_lost_response_succeeds() {
    let (store, subject) = faulty(false).await;
    let blob = blob("c", "b");
    for fault in [Fault::LostAnswer, Fault::Retried] {
        store.schedule([fault]);
        let written = subject.write(&blob, pattern(LONG)).await;
        assert_eq!(written.tag, Some(subject.tag(&blob).await));
    }
}

/// Returns `true` if a writer has the permit.
async fn is_held(register: &Arc<dyn Register>, key: &str) -> bool {
    let record = register
        .load(&Key::new(key).unwrap())
        .await
        .unwrap()
        .expect("a record of the write");
    record.permit(SystemClock.now()).is_some()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Update,
    LeasedUpdate,
    Creation,
}

/// A write with a lost response.
struct Lost {
    what: &'static str,
    is_ignored: bool,
    /// `true` if the store's tags are hashes of the bytes.
    tags_repeat: bool,
    kind: Kind,
    bytes: bytes::Bytes,
    waits: bool,
}

#[tokio::test]
async fn others_wait_only_if_it_could_replace_their_writes() {
    let update = || Lost {
        what: "an update",
        is_ignored: false,
        tags_repeat: false,
        kind: Kind::Update,
        bytes: pattern(1),
        waits: false,
    };
    let lost = [
        update(),
        Lost {
            what: "an update where conditions are ignored",
            is_ignored: true,
            waits: true,
            ..update()
        },
        Lost {
            what: "an update where tags come again",
            tags_repeat: true,
            waits: true,
            ..update()
        },
        Lost {
            what: "an update in parts",
            bytes: pattern(LONG),
            waits: true,
            ..update()
        },
        Lost {
            what: "an update under a lease",
            kind: Kind::LeasedUpdate,
            waits: true,
            ..update()
        },
        Lost {
            what: "a creation",
            kind: Kind::Creation,
            waits: true,
            ..update()
        },
    ];
    for Lost {
        what,
        is_ignored,
        tags_repeat,
        kind,
        bytes,
        waits,
    } in lost
    {
        let register = register();
        let store = Faulty::in_memory(is_ignored);
        let backing = BackingStore::new(Arc::clone(&store) as Arc<dyn ObjectStore>);
        let blobs = if tags_repeat {
            let capability = StoreCapabilities {
                unique_tags: false,
                ..StoreCapabilities::FULL
            };
            ObjectBlobs::trusting(backing, register.clone(), capability).unwrap()
        } else {
            ObjectBlobs::open_durable(backing, register.clone())
                .await
                .unwrap()
        };
        let (subject, blob) = (subject(blobs), blob("c", "b"));
        if kind != Kind::Creation {
            subject.write(&blob, "before").await;
        }
        if kind == Kind::LeasedUpdate {
            subject.store.lease(&blob, acquire(1)).await.unwrap();
        }
        store.schedule([Fault::LostRequest]);
        let lease = LeaseUse::Write((kind == Kind::LeasedUpdate).then(|| id(1)));
        let error = subject
            .store
            .put(
                &blob,
                Put {
                    lease,
                    ..put(bytes)
                },
            )
            .await
            .unwrap_err();
        assert_eq!(
            error.kind(),
            &StoreErrorKind::OutcomeUnknown,
            "{what}: {error}"
        );
        assert_eq!(is_held(&register, "b/c/b").await, waits, "{what}");
    }
}

/// A deletion carries no condition. Its request can still arrive after the lease has ended, and would delete what the next
/// holder has written.
#[tokio::test]
async fn others_wait_for_a_deletion_with_a_lost_answer_even_if_its_lease_has_ended() {
    let register = register();
    let store = Faulty::in_memory(false);
    let backing = BackingStore::new(Arc::clone(&store) as Arc<dyn ObjectStore>);
    let subject = subject(
        ObjectBlobs::open_durable(backing, register.clone())
            .await
            .unwrap(),
    );
    let blob = blob("c", "b");
    subject.write(&blob, "before").await;
    subject.store.lease(&blob, acquire(1)).await.unwrap();
    let soon = BreakPeriod::from_seconds(14).unwrap();
    subject
        .store
        .lease(
            &blob,
            request(LeaseAction::Break {
                period: Some(soon),
                token: None,
            }),
        )
        .await
        .unwrap();
    store.schedule([Fault::LostRequest]);
    let lease = LeaseUse::Write(Some(id(1)));
    let error = subject
        .store
        .delete(
            &blob,
            Delete {
                lease,
                ..Delete::default()
            },
        )
        .await
        .unwrap_err();
    assert_eq!(error.kind(), &StoreErrorKind::OutcomeUnknown, "{error}");
    let record = register
        .load(&Key::new("b/c/b").unwrap())
        .await
        .unwrap()
        .unwrap();
    let permit = record
        .permit(SystemClock.now())
        .expect("it may still take effect");
    assert!(
        record.lease().unwrap().end().unwrap() < permit.deadline,
        "{record:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_refused_as_too_soon_is_retried() {
    for bytes in [pattern(1), pattern(LONG)] {
        let register = register();
        let store = Faulty::in_memory(false);
        let backing = BackingStore::new(Arc::clone(&store) as Arc<dyn ObjectStore>);
        let subject = subject(ObjectBlobs::open(backing, register.clone()).await.unwrap());
        let blob = blob("c", "b");
        store.schedule([Fault::TooSoon, Fault::TooSoon]);
        let written = subject
            .write_if(&blob, if_absent(), bytes.clone())
            .await
            .expect("it is written in the end");
        assert!(written.created && !store.is_scheduled());
        // The store keeps refusing. The write certainly had no effect, so the next writer needn't wait.
        store.schedule(std::iter::repeat_n(Fault::TooSoon, 8));
        let error = subject
            .write_if(&blob, Preconditions::default(), bytes)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), &StoreErrorKind::Unavailable, "{error}");
        assert!(!is_held(&register, "b/c/b").await);
        assert_eq!(Some(subject.tag(&blob).await), written.tag);
        store.schedule([Fault::TooSoon]);
        subject
            .delete_if(&blob, Preconditions::default())
            .await
            .expect("it is finally deleted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_does_not_end_is_abandoned() {
    let (store, subject) = faulty(false).await;
    store.schedule([Fault::Stuck]);
    let error = subject
        .write_if(&blob("c", "b"), if_absent(), "1")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), &StoreErrorKind::OutcomeUnknown, "{error}");
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_delay_the_next() {
    let (_store, subject) = faulty(false).await;
    let blob = blob("c", "b");
    for _ in 0..20 {
        // Dropped at an arbitrary point.
        let _ = tokio::time::timeout(
            Duration::from_micros(50),
            subject.store.put(&blob, put("left")),
        )
        .await;
        let written = subject.write(&blob, "stayed").await;
        let (info, bytes) = subject.read(&blob).await.unwrap();
        if info.tag == written.tag {
            assert_eq!(bytes, "stayed");
        } else {
            assert_eq!(bytes, "left");
        }
    }
}
