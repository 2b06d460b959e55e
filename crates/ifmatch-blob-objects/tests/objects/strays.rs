//! Writes that take effect late: under another holder's lease, or in a container deleted since.

use std::sync::Arc;

use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::store::{Delete, ListQuery, MissingContainer, Put, StoreErrorKind};
use ifmatch_blob_objects::{BackingStore, ObjectBlobs};
use ifmatch_core::lease::{LeaseAction, LeaseUse};
use ifmatch_register::{Key, Register};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions};

use crate::faults::{Fault, Faulty};
use crate::{LONG, durable, register};
use ifmatch_blob::conformance::leases::{acquire, id, request};
use ifmatch_blob::conformance::{blob, if_absent, kind, pattern, put};

fn all() -> ListQuery {
    ListQuery::first(100)
}

/// The creation of a blob is still in flight when its container is deleted, and perhaps created again.
#[tokio::test]
async fn a_late_creation_is_no_blob_of_a_deleted_container_or_of_the_next() {
    for comes_again in [false, true] {
        let store = Faulty::in_memory(false);
        let subject = durable(&store).await;
        let (blob, other) = (blob("c", "b"), blob("c", "other"));
        subject
            .store
            .create_container(&blob.container, BlobHeaders::default())
            .await
            .unwrap();
        store.schedule([Fault::Held]);
        let late = Put {
            container: MissingContainer::Refuse,
            ..put("late")
        };
        assert_eq!(
            kind(subject.store.put(&blob, late).await),
            StoreErrorKind::OutcomeUnknown
        );
        subject
            .store
            .delete_container(&blob.container, Delete::default())
            .await
            .unwrap();
        if comes_again {
            subject
                .store
                .create_container(&blob.container, BlobHeaders::default())
                .await
                .unwrap();
            subject.write(&other, "1").await;
        }

        store.release().await.expect("no object has this name");
        assert!(subject.read(&blob).await.is_none());
        assert_eq!(
            subject
                .store
                .container(&blob.container)
                .await
                .unwrap()
                .is_some(),
            comes_again
        );
        assert_eq!(
            subject.store.containers(&all()).await.unwrap().items.len(),
            usize::from(comes_again)
        );
        let listed = subject
            .store
            .list(&blob.container, &all())
            .await
            .unwrap()
            .map(|page| page.items);
        let names = listed.map(|items| items.into_iter().map(|item| item.name).collect::<Vec<_>>());
        assert_eq!(names, comes_again.then(|| vec![other.name]));
        let absent = if comes_again {
            StoreErrorKind::NotFound
        } else {
            StoreErrorKind::ContainerNotFound
        };
        assert_eq!(
            kind(subject.store.delete(&blob, Delete::default()).await),
            absent
        );
        // The late write still holds the permit for a while.
        assert!(
            subject
                .write_if(&blob, if_absent(), "2")
                .await
                .expect("it is absent")
                .created
        );
        assert_eq!(subject.read(&blob).await.unwrap().1, "2");
    }
}

/// A write stays in flight: by the holder of a lease, which then releases it, or without one, which returns its permit at once.
#[tokio::test]
async fn a_late_write_has_no_effect_under_the_next_lease() {
    for is_leased in [true, false] {
        let store = Faulty::in_memory(false);
        let subject = durable(&store).await;
        let blob = blob("c", "b");
        subject.write(&blob, "before").await;
        if is_leased {
            subject.store.lease(&blob, acquire(1)).await.unwrap();
        }
        store.schedule([Fault::Held]);
        let late = Put {
            lease: LeaseUse::Write(is_leased.then(|| id(1))),
            ..put("late")
        };
        assert_eq!(
            kind(subject.store.put(&blob, late).await),
            StoreErrorKind::OutcomeUnknown
        );
        if is_leased {
            subject
                .store
                .lease(&blob, request(LeaseAction::Release(id(1))))
                .await
                .unwrap();
        }

        let leased = subject
            .store
            .lease(&blob, acquire(2))
            .await
            .expect("it is free");
        let tag = subject.tag(&blob).await;
        assert_eq!(leased.tag.as_ref(), Some(&tag));
        store
            .release()
            .await
            .expect_err("the version that it replaces is gone");
        assert_eq!(subject.read(&blob).await.unwrap().1, "before");
        assert_eq!(subject.tag(&blob).await, tag);
    }
}

/// The store completes an upload with a lost response after the container was deleted.
#[tokio::test]
async fn a_late_upload_in_parts_does_not_restore_a_container() {
    let store = Faulty::in_memory(false);
    let subject = durable(&store).await;
    let (blob, location) = (blob("c", "b"), Path::from("c/b"));
    subject.write(&blob, pattern(LONG)).await;
    assert!(store.modes().contains(&"multipart"));
    let uploaded = store.get(&location).await.unwrap();
    let attributes = uploaded.attributes.clone();
    let bytes = uploaded.bytes().await.unwrap();
    subject
        .store
        .delete_container(&blob.container, Delete::default())
        .await
        .unwrap();

    let options = PutOptions {
        attributes,
        ..PutOptions::default()
    };
    store
        .put_opts(&location, bytes.into(), options)
        .await
        .unwrap();
    assert!(subject.read(&blob).await.is_none());
    assert_eq!(
        subject.store.container(&blob.container).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn objects_of_other_programs_are_blobs_of_any_container() {
    let store = Faulty::in_memory(false);
    let subject = durable(&store).await;
    let blob = blob("c", "theirs");
    subject
        .store
        .create_container(&blob.container, BlobHeaders::default())
        .await
        .unwrap();
    subject
        .store
        .delete_container(&blob.container, Delete::default())
        .await
        .unwrap();
    store.put(&"c/theirs".into(), "1".into()).await.unwrap();
    assert_eq!(subject.read(&blob).await.unwrap().1, "1");
    assert!(
        subject
            .store
            .container(&blob.container)
            .await
            .unwrap()
            .is_some()
    );
}

/// Writes an object that carries this incarnation of its container.
async fn plant(objects: &InMemory, location: &str, incarnation: u64) {
    let mut attributes = Attributes::new();
    let stamp = format!("{incarnation:016x}");
    attributes.insert(Attribute::Metadata("ifmatchcontainer".into()), stamp.into());
    let options = PutOptions {
        attributes,
        ..PutOptions::default()
    };
    objects
        .put_opts(&Path::from(location), "stray".into(), options)
        .await
        .unwrap();
}

#[tokio::test]
async fn strays_are_removed_before_their_container_is_forgotten() {
    let register = register();
    let objects = Arc::new(InMemory::new());
    let backing = BackingStore::new(Arc::clone(&objects) as Arc<dyn ObjectStore>);
    let blobs = ObjectBlobs::open_durable(backing, register.clone())
        .await
        .unwrap();
    crate::records::deleted_long_ago(&register, "c/c").await;
    let deleted = register
        .load(&Key::new("c/c").unwrap())
        .await
        .unwrap()
        .unwrap()
        .revision()
        .get();
    plant(&objects, "c/old", deleted - 1).await;
    plant(&objects, "c/new", deleted + 1).await;

    blobs.forget_idle().await.unwrap();
    assert!(
        register
            .load(&Key::new("c/c").unwrap())
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        objects.head(&"c/old".into()).await.is_err(),
        "it would be a blob again"
    );
    objects
        .head(&"c/new".into())
        .await
        .expect("it belongs to no container that was deleted");
}

/// The operator moved the store to another gateway without stopping this one.
#[tokio::test]
async fn a_gateway_that_lost_its_store_removes_no_strays() {
    let register = register();
    let objects = Arc::new(InMemory::new());
    let backing = BackingStore::new(Arc::clone(&objects) as Arc<dyn ObjectStore>);
    let blobs = ObjectBlobs::open_durable(backing.clone(), register.clone())
        .await
        .unwrap();
    crate::records::deleted_long_ago(&register, "c/c").await;
    let deleted = register
        .load(&Key::new("c/c").unwrap())
        .await
        .unwrap()
        .unwrap()
        .revision()
        .get();
    plant(&objects, "c/old", deleted - 1).await;
    objects.delete(&"-ifmatch/owner".into()).await.unwrap();
    drop(
        ObjectBlobs::open_durable(backing, crate::register())
            .await
            .expect("it was given away"),
    );

    blobs.forget_idle().await.unwrap();
    objects
        .head(&"c/old".into())
        .await
        .expect("it may be a blob of the other gateway");
    assert!(
        register
            .load(&Key::new("c/c").unwrap())
            .await
            .unwrap()
            .is_some(),
        "its container's record is kept"
    );
}
