//! Containers are created, changed and deleted as a whole. A container inherits nothing from an earlier one of its
//! name.

use futures_util::future::join_all;
use ifmatch_core::date::HttpDate;
use ifmatch_core::precondition::{Precondition, Preconditions};

use super::headers::set;
use super::{Subject, blob, gated, kind, put, refusal};
use crate::headers::{BlobHeaders, FieldText};
use crate::name::{BlobPath, ContainerName};
use crate::store::{
    ContainerInfo, Delete, HeaderChange, ListQuery, MissingContainer, Put, RequestKey, SetHeaders,
    StoreErrorKind,
};

pub(crate) async fn check(subject: &Subject) {
    a_container_is_created_once(subject).await;
    a_change_keeps_the_blobs(subject).await;
    a_deletion_includes_the_blobs(subject).await;
    a_deletion_is_conditional(subject).await;
    a_write_can_require_the_container(subject).await;
    a_write_in_flight_does_not_outlive_its_container(subject).await;
    one_creator_and_one_deleter_win(subject).await;
    after_all_deletions_nothing_is_left(subject).await;
    a_retried_deletion_keeps_the_next_container(subject).await;
    only_an_empty_container_is_deleted_as_such(subject).await;
    no_acknowledged_write_is_in_a_container_deleted_as_empty(subject).await;
}

fn named(name: &str) -> ContainerName {
    ContainerName::new(name).expect("a valid container")
}

fn owner(value: &str) -> BlobHeaders {
    let metadata = [("owner".into(), FieldText::new(value).expect("valid"))].into();
    BlobHeaders {
        metadata,
        ..BlobHeaders::default()
    }
}

impl Subject {
    async fn create(&self, container: &ContainerName) -> ContainerInfo {
        self.store
            .create_container(container, BlobHeaders::default())
            .await
            .expect("there is none")
    }

    async fn info(&self, container: &ContainerName) -> Option<ContainerInfo> {
        self.store
            .container(container)
            .await
            .expect("the store answers")
    }

    async fn blobs(&self, container: &ContainerName) -> Option<Vec<String>> {
        let query = ListQuery {
            leases: true,
            ..ListQuery::first(1_000)
        };
        let page = self
            .store
            .list(container, &query)
            .await
            .expect("the store answers")?;
        Some(
            page.items
                .into_iter()
                .map(|item| item.name.to_string())
                .collect(),
        )
    }
}

async fn a_container_is_created_once(subject: &Subject) {
    let container = named("containers-once");
    assert_eq!(subject.info(&container).await, None);
    assert_eq!(subject.blobs(&container).await, None);
    let created = subject
        .store
        .create_container(&container, owner("me"))
        .await
        .unwrap();
    assert_eq!(subject.info(&container).await, Some(created.clone()));
    assert_eq!(created.headers, owner("me"));
    assert!(created.last_modified.is_some() && created.created.is_some());
    assert_eq!(subject.blobs(&container).await, Some(Vec::new()));
    let again = subject
        .store
        .create_container(&container, owner("you"))
        .await;
    assert_eq!(kind(again), StoreErrorKind::ContainerExists);
    assert_eq!(subject.info(&container).await, Some(created.clone()));
    let query = ListQuery {
        prefix: "containers-once".into(),
        leases: true,
        ..ListQuery::first(10)
    };
    let listed = subject.store.containers(&query).await.unwrap().items;
    assert_eq!(
        listed
            .into_iter()
            .map(|entry| entry.info)
            .collect::<Vec<_>>(),
        [created]
    );

    let implied = named("containers-implied");
    subject.write(&blob("containers-implied", "x"), "1").await;
    assert!(subject.info(&implied).await.is_some());
    let again = subject
        .store
        .create_container(&implied, BlobHeaders::default())
        .await;
    assert_eq!(kind(again), StoreErrorKind::ContainerExists);
}

async fn a_change_keeps_the_blobs(subject: &Subject) {
    let container = named("containers-change");
    let blob = blob("containers-change", "x");
    let refused = subject.store.set_container(&container, change("me")).await;
    assert_eq!(kind(refused), StoreErrorKind::ContainerNotFound);
    let created = subject.create(&container).await;
    subject.write(&blob, "1").await;
    for value in ["me", "you"] {
        let changed = subject
            .store
            .set_container(&container, change(value))
            .await
            .unwrap();
        assert_eq!(changed.headers, owner(value));
        assert_eq!(changed.created, created.created);
        assert!(changed.last_modified >= created.last_modified);
        assert!(changed.tag.is_none() || changed.tag != created.tag);
        assert_eq!(subject.info(&container).await, Some(changed));
        assert_eq!(subject.read(&blob).await.unwrap().1, "1");
    }
    let stale = Preconditions {
        if_unmodified_since: Some(HttpDate::from_unix(0)),
        ..Preconditions::default()
    };
    let refused = SetHeaders {
        preconditions: stale,
        ..change("them")
    };
    let refused = refusal(subject.store.set_container(&container, refused).await);
    assert_eq!(refused.0, Precondition::IfUnmodifiedSince);
    assert_eq!(
        subject.info(&container).await.unwrap().headers,
        owner("you")
    );

    let policies = FieldText::new("one,,,r").ok();
    subject
        .store
        .set_container(&container, set(HeaderChange::Policies(policies.clone())))
        .await
        .unwrap();
    subject
        .store
        .set_container(&container, change("them"))
        .await
        .unwrap();
    let both = BlobHeaders {
        policies,
        ..owner("them")
    };
    assert_eq!(subject.info(&container).await.unwrap().headers, both);
    subject
        .store
        .set_container(&container, set(HeaderChange::Policies(None)))
        .await
        .unwrap();
    assert_eq!(
        subject.info(&container).await.unwrap().headers,
        owner("them")
    );
}

fn change(value: &str) -> SetHeaders {
    set(HeaderChange::Metadata(owner(value).metadata))
}

async fn a_deletion_includes_the_blobs(subject: &Subject) {
    let container = named("containers-gone");
    let (small, large) = (
        blob("containers-gone", "small"),
        blob("containers-gone", "deep/er/large"),
    );
    subject.write(&small, "1").await;
    subject.write(&large, super::pattern(300_000)).await;
    let before = subject.info(&container).await.unwrap();
    let tag = subject.tag(&small).await;
    subject.write(&blob("containers-gone2", "other"), "1").await;
    subject
        .store
        .delete_container(&container, Delete::default())
        .await
        .unwrap();

    for _ in 0..2 {
        for blob in [&small, &large] {
            assert!(subject.read(blob).await.is_none(), "{blob}");
            assert_eq!(
                kind(subject.delete_if(blob, super::if_match(&tag)).await),
                StoreErrorKind::ContainerNotFound
            );
        }
        assert_eq!(
            (
                subject.info(&container).await,
                subject.blobs(&container).await
            ),
            (None, None)
        );
        let again = subject
            .store
            .delete_container(&container, Delete::default())
            .await;
        assert_eq!(kind(again), StoreErrorKind::ContainerNotFound);
    }
    let after = subject.create(&container).await;
    assert!(after.created > before.created, "another container");
    assert_eq!(subject.blobs(&container).await, Some(Vec::new()));
    assert!(subject.read(&small).await.is_none());
    assert_eq!(
        kind(subject.delete_if(&small, Preconditions::default()).await),
        StoreErrorKind::NotFound
    );
    let written = subject.write(&small, "1").await;
    assert!(written.created);
    assert_ne!(written.tag, Some(tag), "a tag was reused");
    assert_eq!(subject.blobs(&container).await, Some(vec!["small".into()]));
    assert_eq!(
        subject
            .read(&blob("containers-gone2", "other"))
            .await
            .unwrap()
            .1,
        "1"
    );
}

async fn a_deletion_is_conditional(subject: &Subject) {
    let container = named("containers-condition");
    let date = subject
        .create(&container)
        .await
        .last_modified
        .expect("a date");
    let since = |date| Delete {
        preconditions: Preconditions {
            if_unmodified_since: Some(date),
            ..Preconditions::default()
        },
        ..Delete::default()
    };
    let refused = refusal(
        subject
            .store
            .delete_container(&container, since(date.previous()))
            .await,
    );
    assert_eq!(refused.0, Precondition::IfUnmodifiedSince);
    assert!(subject.info(&container).await.is_some());
    subject
        .store
        .delete_container(&container, since(date))
        .await
        .unwrap();
    assert!(subject.info(&container).await.is_none());
}

fn within(put: Put) -> Put {
    Put {
        container: MissingContainer::Refuse,
        ..put
    }
}

async fn a_write_can_require_the_container(subject: &Subject) {
    let blob = blob("containers-refuse", "x");
    assert_eq!(
        kind(subject.store.put(&blob, within(put("1"))).await),
        StoreErrorKind::ContainerNotFound
    );
    assert_eq!(subject.info(&blob.container).await, None);
    let refused = subject
        .write_if(
            &blob,
            Preconditions {
                if_match: Some(ifmatch_core::tag::TagList::Any),
                ..Preconditions::default()
            },
            "1",
        )
        .await;
    assert_eq!(refusal(refused).0, Precondition::IfMatch);
    assert_eq!(
        subject.info(&blob.container).await,
        None,
        "a refused write leaves no container behind"
    );
    subject.create(&blob.container).await;
    assert!(
        subject
            .store
            .put(&blob, within(put("1")))
            .await
            .unwrap()
            .created
    );
}

async fn a_write_in_flight_does_not_outlive_its_container(subject: &Subject) {
    for (missing, name) in [
        (MissingContainer::Refuse, "refuse"),
        (MissingContainer::Create, "create"),
    ] {
        for recreated in [false, true] {
            let blob = blob(&format!("containers-flight-{name}-{recreated}"), "x");
            subject.create(&blob.container).await;
            let (body, asked, open) = gated("late");
            let late = Put {
                container: missing,
                body,
                ..put("")
            };
            let writing = subject.store.put(&blob, late);
            let deleting = async {
                asked.await.expect("the body is requested");
                subject
                    .store
                    .delete_container(&blob.container, Delete::default())
                    .await
                    .unwrap();
                if recreated {
                    subject.create(&blob.container).await;
                }
                open.send(()).expect("the body is waited for");
            };
            let (written, ()) = futures_util::join!(writing, deleting);
            if missing == MissingContainer::Refuse {
                assert_eq!(kind(written), StoreErrorKind::ContainerNotFound);
                assert_eq!(
                    subject.blobs(&blob.container).await,
                    recreated.then(Vec::new)
                );
                assert!(subject.read(&blob).await.is_none());
            } else {
                assert_eq!(
                    subject.tag(&blob).await,
                    written.unwrap().tag.unwrap(),
                    "the blob has the reported tag"
                );
            }
        }
    }
}

async fn one_creator_and_one_deleter_win(subject: &Subject) {
    let container = named("containers-race");
    for _ in 0..3 {
        let created = join_all((0..10).map(|_| {
            subject
                .store
                .create_container(&container, BlobHeaders::default())
        }))
        .await;
        assert_eq!(created.iter().filter(|result| result.is_ok()).count(), 1);
        for error in created.into_iter().filter_map(Result::err) {
            assert_eq!(error.kind(), &StoreErrorKind::ContainerExists);
        }
        let deleted = join_all((0..10).map(|_| {
            subject
                .store
                .delete_container(&container, Delete::default())
        }))
        .await;
        assert_eq!(deleted.iter().filter(|result| result.is_ok()).count(), 1);
        for error in deleted.into_iter().filter_map(Result::err) {
            assert_eq!(error.kind(), &StoreErrorKind::ContainerNotFound);
        }
    }
}

/// Writers, deleters and creators race. Afterwards no write is in flight, and a deletion must leave nothing.
async fn after_all_deletions_nothing_is_left(subject: &Subject) {
    let container = named("containers-storm");
    let expected = |error: &StoreErrorKind| {
        matches!(
            error,
            StoreErrorKind::ContainerNotFound
                | StoreErrorKind::ContainerExists
                | StoreErrorKind::InFlight { .. }
        )
    };
    // A store that refuses one attempt may begin to delete the container before the next. It then can't tell if the
    // first attempt was a repetition of its own.
    let expected_write =
        |error: &StoreErrorKind| expected(error) || *error == StoreErrorKind::OutcomeUnknown;
    for round in 0..4 {
        let writers = join_all((0..subject.writers).map(|writer| {
            let blob = BlobPath {
                container: container.clone(),
                ..blob("c", &format!("{round}-{writer}"))
            };
            async move {
                for missing in [
                    MissingContainer::Refuse,
                    MissingContainer::Create,
                    MissingContainer::Refuse,
                ] {
                    let bytes = vec![b'x'; 5_000];
                    let result = subject
                        .store
                        .put(
                            &blob,
                            Put {
                                container: missing,
                                ..put(bytes)
                            },
                        )
                        .await;
                    assert!(
                        result
                            .as_ref()
                            .err()
                            .is_none_or(|error| expected_write(error.kind())),
                        "{result:?}"
                    );
                    if let Some((info, bytes)) = subject.read(&blob).await {
                        assert_eq!(info.length, bytes.len() as u64);
                    }
                }
            }
        }));
        let deleter = async {
            for _ in 0..6 {
                let result = subject
                    .store
                    .delete_container(&container, Delete::default())
                    .await;
                assert!(
                    result
                        .as_ref()
                        .err()
                        .is_none_or(|error| expected(error.kind())),
                    "{result:?}"
                );
                let result = subject
                    .store
                    .create_container(&container, BlobHeaders::default())
                    .await;
                assert!(
                    result
                        .as_ref()
                        .err()
                        .is_none_or(|error| expected(error.kind())),
                    "{result:?}"
                );
            }
        };
        futures_util::join!(writers, deleter);
        let listed = subject.blobs(&container).await.unwrap_or_default();
        for name in &listed {
            let blob = BlobPath {
                container: container.clone(),
                ..blob("c", name)
            };
            assert!(
                subject.read(&blob).await.is_some(),
                "{name} is listed and cannot be read"
            );
        }
        if subject.info(&container).await.is_some() {
            subject
                .store
                .delete_container(&container, Delete::default())
                .await
                .unwrap();
        }
        subject.create(&container).await;
        assert_eq!(subject.blobs(&container).await, Some(Vec::new()));
    }
}

async fn only_an_empty_container_is_deleted_as_such(subject: &Subject) {
    let container = named("containers-empty");
    let blob = blob("containers-empty", "deep/er/x");
    let delete = |delete| subject.store.delete_empty_container(&container, delete);
    assert_eq!(
        kind(delete(Delete::default()).await),
        StoreErrorKind::ContainerNotFound
    );
    subject.create(&container).await;
    subject.write(&blob, "1").await;
    let before = subject.info(&container).await;
    for _ in 0..2 {
        assert_eq!(
            kind(delete(Delete::default()).await),
            StoreErrorKind::ContainerNotEmpty
        );
        assert_eq!(subject.read(&blob).await.unwrap().1, "1");
    }
    assert_eq!(subject.info(&container).await, before);
    subject.write(&blob, "2").await;
    subject
        .delete_if(&blob, Preconditions::default())
        .await
        .unwrap();
    let stale = Preconditions {
        if_unmodified_since: Some(HttpDate::from_unix(0)),
        ..Preconditions::default()
    };
    let refused = refusal(
        delete(Delete {
            preconditions: stale,
            ..Delete::default()
        })
        .await,
    );
    assert_eq!(refused.0, Precondition::IfUnmodifiedSince);
    assert!(
        subject
            .store
            .put(&blob, within(put("3")))
            .await
            .unwrap()
            .created,
        "the container takes writes"
    );
    subject
        .delete_if(&blob, Preconditions::default())
        .await
        .unwrap();
    delete(Delete::default()).await.unwrap();
    assert_eq!(subject.info(&container).await, None);
    assert_eq!(
        kind(subject.store.put(&blob, within(put("4"))).await),
        StoreErrorKind::ContainerNotFound
    );
}

/// Writers race with a deletion, each after some steps of the others.
async fn no_acknowledged_write_is_in_a_container_deleted_as_empty(subject: &Subject) {
    let container = named("containers-empty-race");
    for round in 0..12 {
        if subject.info(&container).await.is_none() {
            subject.create(&container).await;
        }
        let write = async |writer: usize| {
            for _ in 0..(round * writer) {
                tokio::task::yield_now().await;
            }
            let blob = blob("containers-empty-race", &format!("{round}-{writer}"));
            match subject.store.put(&blob, within(put("1"))).await {
                Ok(_) => Some(blob),
                Err(error) => {
                    let expected = matches!(
                        error.kind(),
                        StoreErrorKind::ContainerNotFound | StoreErrorKind::InFlight { .. }
                    );
                    assert!(expected, "{error}");
                    None
                }
            }
        };
        let deletion = async {
            for _ in 0..(round * 4) {
                tokio::task::yield_now().await;
            }
            subject
                .store
                .delete_empty_container(&container, Delete::default())
                .await
        };
        let (written, deleted) =
            futures_util::join!(join_all((0..subject.writers).map(write)), deletion);
        let written: Vec<_> = written.into_iter().flatten().collect();
        match deleted {
            Ok(()) => assert!(
                written.is_empty(),
                "{written:?} were acknowledged, and their container deleted"
            ),
            Err(error) => {
                let expected = matches!(
                    error.kind(),
                    StoreErrorKind::ContainerNotEmpty | StoreErrorKind::InFlight { .. }
                );
                assert!(expected, "{error}");
            }
        }
        for blob in &written {
            assert_eq!(
                subject.read(blob).await.expect("it was acknowledged").1,
                "1"
            );
            subject
                .delete_if(blob, Preconditions::default())
                .await
                .unwrap();
        }
    }
}

async fn a_retried_deletion_keeps_the_next_container(subject: &Subject) {
    if !subject.remembers_deletions {
        return;
    }
    let container = named("containers-retry");
    subject.create(&container).await;
    let delete = || Delete {
        request: Some(RequestKey::of(&[b"delete"])),
        ..Delete::default()
    };
    subject
        .store
        .delete_container(&container, delete())
        .await
        .unwrap();
    subject
        .store
        .delete_container(&container, delete())
        .await
        .unwrap();
    subject.create(&container).await;
    subject
        .store
        .delete_container(&container, delete())
        .await
        .unwrap();
    assert!(
        subject.info(&container).await.is_some(),
        "the late retry deletes nothing"
    );
}
