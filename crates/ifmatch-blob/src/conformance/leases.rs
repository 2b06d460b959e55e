//! A lease admits one writer and rejects all others. Expiry is tested where a clock can be moved.

use std::collections::HashSet;

use futures_util::future::join_all;
use ifmatch_core::lease::{
    BreakPeriod, Lease, LeaseAction, LeaseConflict, LeaseDuration, LeaseFailure, LeaseId,
    LeaseState, LeaseUse, SeenLease,
};
use ifmatch_core::precondition::{Precondition, Preconditions};

use super::headers::set;
use super::{Subject, blob, if_absent, if_match, kind, put, refusal};
use crate::headers::BlobHeaders;
use crate::name::{BlobPath, ContainerName};
use crate::store::{
    ContentChange, Delete, HeaderChange, LeaseRequest, Leased, ListQuery, Put, RequestKey,
    SetHeaders, StoreError, StoreErrorKind, Update, Updated, Written,
};

pub(crate) async fn check(subject: &Subject) {
    if !subject.leases {
        a_lease_is_refused_without_a_durable_register(subject).await;
        return;
    }
    a_missing_blob_has_no_lease(subject).await;
    a_lease_changes_no_version(subject).await;
    a_lease_rejects_others(subject).await;
    the_lease_is_checked_before_the_conditions(subject).await;
    a_broken_lease_admits_others(subject).await;
    a_break_by_token_spares_a_later_lease(subject).await;
    an_operation_is_conditional(subject).await;
    one_acquisition_wins(subject).await;
    the_holder_writes_alone(subject).await;
    a_retry_gets_the_first_answer(subject).await;
    a_deleted_blob_has_no_lease(subject).await;
    a_container_deletion_ends_the_leases_of_its_blobs(subject).await;
    a_container_is_protected_from_deletion_only(subject).await;
}

/// Returns a lease id made of this byte.
pub fn id(number: u8) -> LeaseId {
    LeaseId::from_random([number; 16])
}

/// Returns an unconditional lease operation.
pub fn request(action: LeaseAction) -> LeaseRequest {
    LeaseRequest {
        action,
        preconditions: Preconditions::default(),
        request: None,
    }
}

/// Returns the acquisition of an infinite lease with this id.
pub fn acquire(number: u8) -> LeaseRequest {
    request(LeaseAction::Acquire {
        id: id(number),
        duration: LeaseDuration::Infinite,
        holder: None,
    })
}

fn with(number: u8) -> LeaseUse {
    LeaseUse::Write(Some(id(number)))
}

impl Subject {
    async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError> {
        self.store.lease(blob, request).await
    }

    async fn write_with(
        &self,
        blob: &BlobPath,
        lease: LeaseUse,
        bytes: &'static str,
    ) -> Result<Written, StoreError> {
        self.store
            .put(
                blob,
                Put {
                    lease,
                    ..put(bytes)
                },
            )
            .await
    }

    async fn delete_with(&self, blob: &BlobPath, lease: LeaseUse) -> Result<(), StoreError> {
        self.store
            .delete(
                blob,
                Delete {
                    lease,
                    ..Delete::default()
                },
            )
            .await
    }

    /// The state of a blob's lease, on which every view of the blob must agree.
    async fn state(&self, blob: &BlobPath) -> LeaseState {
        let head = self.head(blob).await.expect("there is a blob");
        let query = ListQuery {
            prefix: blob.name.to_string(),
            leases: true,
            ..ListQuery::first(1)
        };
        let page = self
            .store
            .list(&blob.container, &query)
            .await
            .expect("the store answers")
            .expect("a container");
        assert_eq!(lease_of(page.items[0].info.lease), lease_of(head.lease));
        head.lease
            .map_or(LeaseState::Available, |seen| seen.state())
    }
}

/// Returns a lease without the time of its reading.
fn lease_of(seen: Option<SeenLease>) -> Option<Lease> {
    seen.map(|seen| seen.lease)
}

fn failure<T: std::fmt::Debug>(result: Result<T, StoreError>) -> LeaseFailure {
    match kind(result) {
        StoreErrorKind::LeaseFailed(failure) => failure,
        other => panic!("another refusal: {other:?}"),
    }
}

fn conflict<T: std::fmt::Debug>(result: Result<T, StoreError>) -> LeaseConflict {
    match kind(result) {
        StoreErrorKind::LeaseConflict(conflict) => conflict,
        other => panic!("another refusal: {other:?}"),
    }
}

async fn a_lease_is_refused_without_a_durable_register(subject: &Subject) {
    let blob = blob("leases", "unsupported");
    subject.write(&blob, "1").await;
    assert_eq!(
        kind(subject.lease(&blob, acquire(1)).await),
        StoreErrorKind::Unsupported
    );
    let container = subject
        .store
        .lease_container(&blob.container, acquire(1))
        .await;
    assert_eq!(kind(container), StoreErrorKind::Unsupported);
    assert_eq!(
        failure(subject.write_with(&blob, with(1), "2").await),
        LeaseFailure::NotPresent
    );
    subject.write(&blob, "3").await;
}

async fn a_missing_blob_has_no_lease(subject: &Subject) {
    let nowhere = blob("leases-nowhere", "x");
    assert_eq!(
        kind(subject.lease(&nowhere, acquire(1)).await),
        StoreErrorKind::ContainerNotFound
    );
    let container = subject
        .store
        .lease_container(&nowhere.container, acquire(1))
        .await;
    assert_eq!(kind(container), StoreErrorKind::ContainerNotFound);
    subject.write(&blob("leases", "something"), "1").await;
    let absent = blob("leases", "absent");
    assert_eq!(
        kind(subject.lease(&absent, acquire(1)).await),
        StoreErrorKind::NotFound
    );
    assert_eq!(
        failure(subject.write_with(&absent, with(1), "1").await),
        LeaseFailure::NotPresent
    );
    assert!(subject.read(&absent).await.is_none());
    assert_eq!(
        kind(subject.delete_with(&absent, with(1)).await),
        StoreErrorKind::NotFound
    );
}

async fn a_lease_changes_no_version(subject: &Subject) {
    let blob = blob("leases", "versions");
    subject.write(&blob, "1").await;
    let before = subject.head(&blob).await.unwrap();
    let acquired = subject.lease(&blob, acquire(1)).await.unwrap();
    let lease = acquired.receipt.lease.expect("a lease");
    assert_eq!(lease.id(), id(1));
    let change = request(LeaseAction::Change {
        id: id(1),
        proposed: id(2),
    });
    for (request, state) in [
        (acquire(1), LeaseState::Leased),
        (request(LeaseAction::Renew(id(1))), LeaseState::Leased),
        (change, LeaseState::Leased),
        (request(LeaseAction::Release(id(2))), LeaseState::Available),
    ] {
        let leased = subject.lease(&blob, request).await.unwrap();
        assert_eq!(
            (&leased.tag, leased.last_modified),
            (&before.tag, before.last_modified)
        );
        assert_eq!(subject.state(&blob).await, state);
    }
    let (after, bytes) = subject.read(&blob).await.unwrap();
    assert_eq!((after, bytes), (before.clone(), "1".into()));
    let again = subject
        .lease(&blob, acquire(1))
        .await
        .unwrap()
        .receipt
        .lease
        .expect("a lease");
    assert!(again.token() > lease.token(), "the fencing token grows");
    assert_eq!(
        conflict(
            subject
                .lease(&blob, request(LeaseAction::Renew(id(3))))
                .await
        ),
        LeaseConflict::IdMismatch
    );
    assert_eq!(subject.head(&blob).await.unwrap().tag, before.tag);
}

async fn a_lease_rejects_others(subject: &Subject) {
    let blob = blob("leases", "others");
    subject.write(&blob, "1").await;
    subject.lease(&blob, acquire(1)).await.unwrap();
    assert_eq!(
        conflict(subject.lease(&blob, acquire(2)).await),
        LeaseConflict::AlreadyPresent
    );
    for (lease, expected) in [
        (LeaseUse::Write(None), LeaseFailure::IdMissing),
        (with(2), LeaseFailure::IdMismatch),
    ] {
        assert_eq!(
            failure(subject.write_with(&blob, lease, "2").await),
            expected
        );
        assert_eq!(failure(subject.delete_with(&blob, lease).await), expected);
        if subject.keeps_headers {
            let change = SetHeaders {
                lease,
                ..set(HeaderChange::Fields(Box::default()))
            };
            assert_eq!(
                failure(subject.store.set_headers(&blob, change).await),
                expected
            );
        }
    }
    let replaced = Update::new(|_| ContentChange::Replace("2".into()));
    assert_eq!(
        failure(subject.store.update(&blob, replaced).await),
        LeaseFailure::IdMissing
    );
    let kept = Update::new(|_| ContentChange::Keep);
    assert_eq!(
        subject.store.update(&blob, kept).await.unwrap(),
        Updated::Kept
    );
    assert_eq!(subject.read(&blob).await.unwrap().1, "1");
    subject.write_with(&blob, with(1), "3").await.unwrap();
    assert_eq!(subject.read(&blob).await.unwrap().1, "3");
    assert_eq!(
        subject.state(&blob).await,
        LeaseState::Leased,
        "a write with the lease leaves it"
    );
    if subject.keeps_headers {
        let change = SetHeaders {
            lease: with(1),
            ..set(HeaderChange::Fields(Box::default()))
        };
        subject.store.set_headers(&blob, change).await.unwrap();
        assert_eq!(subject.state(&blob).await, LeaseState::Leased);
    }
    subject
        .lease(&blob, request(LeaseAction::Release(id(1))))
        .await
        .unwrap();
    assert_eq!(
        failure(subject.write_with(&blob, with(1), "4").await),
        LeaseFailure::NotPresent
    );
    subject.write(&blob, "5").await;
}

async fn the_lease_is_checked_before_the_conditions(subject: &Subject) {
    let blob = blob("leases", "order");
    let tag = subject.write(&blob, "1").await.tag.unwrap();
    subject.lease(&blob, acquire(1)).await.unwrap();
    assert_eq!(
        failure(subject.write_if(&blob, if_absent(), "2").await),
        LeaseFailure::IdMissing
    );
    assert_eq!(
        failure(subject.write_if(&blob, if_match(&tag), "2").await),
        LeaseFailure::IdMissing
    );
    let stale = Put {
        lease: with(1),
        preconditions: if_absent(),
        ..put("2")
    };
    assert_eq!(
        refusal(subject.store.put(&blob, stale).await),
        (Precondition::IfNoneMatch, Some(tag))
    );
    subject.delete_with(&blob, with(1)).await.unwrap();
}

async fn a_broken_lease_admits_others(subject: &Subject) {
    let blob = blob("leases", "broken");
    subject.write(&blob, "1").await;
    subject.lease(&blob, acquire(1)).await.unwrap();
    let slowly = request(LeaseAction::Break {
        period: BreakPeriod::from_seconds(60),
        token: None,
    });
    assert_eq!(
        subject
            .lease(&blob, slowly)
            .await
            .unwrap()
            .receipt
            .seconds_left(),
        Some(60)
    );
    assert_eq!(
        failure(subject.write_with(&blob, LeaseUse::Write(None), "2").await),
        LeaseFailure::IdMissing
    );
    subject.write_with(&blob, with(1), "2").await.unwrap();
    let at_once = request(LeaseAction::Break {
        period: BreakPeriod::from_seconds(0),
        token: None,
    });
    assert_eq!(
        subject
            .lease(&blob, at_once)
            .await
            .unwrap()
            .receipt
            .seconds_left(),
        Some(0)
    );
    assert_eq!(
        failure(subject.write_with(&blob, with(1), "3").await),
        LeaseFailure::Lost
    );
    subject
        .write_with(&blob, LeaseUse::Write(None), "3")
        .await
        .unwrap();
    assert_eq!(
        subject.state(&blob).await,
        LeaseState::Available,
        "a write clears a broken lease"
    );
}

/// An operator breaks the lease that is shown, while its holder releases it and another client acquires one.
async fn a_break_by_token_spares_a_later_lease(subject: &Subject) {
    let blob = blob("leases", "by-token");
    subject.write(&blob, "1").await;
    for _ in 0..4 {
        let shown = subject
            .lease(&blob, acquire(1))
            .await
            .unwrap()
            .receipt
            .lease
            .expect("a lease")
            .token();
        let by_token = request(LeaseAction::Break {
            period: BreakPeriod::from_seconds(0),
            token: Some(shown),
        });
        let exchanged = async {
            // Fails if the lease was broken and replaced first, which only the other client does.
            subject
                .lease(&blob, request(LeaseAction::Release(id(1))))
                .await
                .unwrap();
            subject
                .lease(&blob, acquire(2))
                .await
                .unwrap()
                .receipt
                .lease
                .expect("a lease")
        };
        let (broken, later) =
            futures_util::join!(subject.lease(&blob, by_token.clone()), exchanged);
        if let Err(error) = broken {
            assert_eq!(
                error.kind(),
                &StoreErrorKind::LeaseConflict(LeaseConflict::TokenMismatch)
            );
        }
        assert_eq!(
            lease_of(subject.head(&blob).await.unwrap().lease),
            Some(later),
            "the later lease is broken"
        );
        assert_eq!(
            conflict(subject.lease(&blob, by_token).await),
            LeaseConflict::TokenMismatch
        );
        assert_eq!(subject.state(&blob).await, LeaseState::Leased);
        subject
            .lease(&blob, request(LeaseAction::Release(id(2))))
            .await
            .unwrap();
    }
}

async fn an_operation_is_conditional(subject: &Subject) {
    let blob = blob("leases", "conditional");
    let old = subject.write(&blob, "1").await.tag.unwrap();
    let current = subject.write(&blob, "2").await.tag.unwrap();
    let stale = LeaseRequest {
        preconditions: if_match(&old),
        ..acquire(1)
    };
    assert_eq!(
        refusal(subject.lease(&blob, stale).await),
        (Precondition::IfMatch, Some(current.clone()))
    );
    assert_eq!(subject.state(&blob).await, LeaseState::Available);
    let fresh = LeaseRequest {
        preconditions: if_match(&current),
        ..acquire(1)
    };
    subject.lease(&blob, fresh).await.unwrap();
    subject.delete_with(&blob, with(1)).await.unwrap();
}

async fn one_acquisition_wins(subject: &Subject) {
    let blob = blob("leases", "race");
    subject.write(&blob, "1").await;
    let mut tokens = HashSet::new();
    for _ in 0..3 {
        let results = join_all((1..=20).map(|number| subject.lease(&blob, acquire(number)))).await;
        let winners: Vec<_> = results
            .iter()
            .filter_map(|result| result.as_ref().ok())
            .collect();
        let [winner] = winners[..] else {
            panic!("{} winners", winners.len())
        };
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            assert_eq!(
                error.kind(),
                &StoreErrorKind::LeaseConflict(LeaseConflict::AlreadyPresent)
            );
        }
        let lease = winner.receipt.lease.expect("a lease");
        assert_eq!(
            lease_of(subject.head(&blob).await.unwrap().lease),
            Some(lease)
        );
        assert!(tokens.insert(lease.token()));
        subject
            .lease(&blob, request(LeaseAction::Release(lease.id())))
            .await
            .unwrap();
    }
}

/// The holder writes while others try to write without the lease: none of their writes may succeed.
async fn the_holder_writes_alone(subject: &Subject) {
    let blob = blob("leases", "alone");
    subject.write(&blob, "before").await;
    subject.lease(&blob, acquire(1)).await.unwrap();
    let holder = async {
        let mut tag = subject.tag(&blob).await;
        for _ in 0..8 {
            let next = Put {
                lease: with(1),
                preconditions: if_match(&tag),
                ..put("holder")
            };
            tag = subject
                .store
                .put(&blob, next)
                .await
                .expect("only the holder may write")
                .tag
                .unwrap();
        }
        subject
            .lease(&blob, request(LeaseAction::Release(id(1))))
            .await
            .unwrap();
        tag
    };
    let thieves = join_all((0..subject.writers).map(async |_| {
        loop {
            match subject
                .write_with(&blob, LeaseUse::Write(None), "thief")
                .await
            {
                Ok(written) => break written,
                Err(error) => match error.kind() {
                    StoreErrorKind::LeaseFailed(LeaseFailure::IdMissing)
                    | StoreErrorKind::InFlight { .. } => {
                        tokio::task::yield_now().await;
                    }
                    _ => panic!("{error}"),
                },
            }
        }
    }));
    let (last, after) = futures_util::join!(holder, thieves);
    assert!(
        after
            .iter()
            .all(|written| written.tag.as_ref() != Some(&last))
    );
    assert_eq!(subject.read(&blob).await.unwrap().1, "thief");
}

async fn a_retry_gets_the_first_answer(subject: &Subject) {
    if !subject.knows_retries {
        return;
    }
    let blob = blob("leases", "retry");
    subject.write(&blob, "1").await;
    let keyed = |request: LeaseRequest, key: &[u8]| LeaseRequest {
        request: Some(RequestKey::of(&[key])),
        ..request
    };
    // The store generates the id if the request has none, so a retry has another id.
    let first = subject
        .lease(&blob, keyed(acquire(1), b"acquire"))
        .await
        .unwrap()
        .receipt
        .lease;
    let again = subject
        .lease(&blob, keyed(acquire(2), b"acquire"))
        .await
        .unwrap()
        .receipt
        .lease;
    assert_eq!(
        again.map(|lease| (lease.id(), lease.token())),
        first.map(|lease| (lease.id(), lease.token()))
    );
    let release = || keyed(request(LeaseAction::Release(id(1))), b"release");
    assert_eq!(
        subject.lease(&blob, release()).await.unwrap().receipt.lease,
        None
    );
    assert_eq!(
        subject.lease(&blob, release()).await.unwrap().receipt.lease,
        None
    );
    subject
        .delete_with(&blob, LeaseUse::Write(None))
        .await
        .unwrap();
}

async fn a_deleted_blob_has_no_lease(subject: &Subject) {
    let blob = blob("leases", "deleted");
    subject.write(&blob, "1").await;
    subject.lease(&blob, acquire(1)).await.unwrap();
    subject.delete_with(&blob, with(1)).await.unwrap();
    assert_eq!(
        kind(
            subject
                .lease(&blob, request(LeaseAction::Renew(id(1))))
                .await
        ),
        StoreErrorKind::NotFound
    );
    assert!(subject.write(&blob, "2").await.created);
    assert_eq!(subject.state(&blob).await, LeaseState::Available);
}

async fn a_container_deletion_ends_the_leases_of_its_blobs(subject: &Subject) {
    let blob = blob("leases-gone", "x");
    subject.write(&blob, "1").await;
    subject.lease(&blob, acquire(1)).await.unwrap();
    subject
        .store
        .delete_container(&blob.container, Delete::default())
        .await
        .unwrap();
    assert!(subject.write(&blob, "2").await.created);
    assert_eq!(subject.state(&blob).await, LeaseState::Available);
}

async fn a_container_is_protected_from_deletion_only(subject: &Subject) {
    let container = ContainerName::new("leases-container").expect("valid");
    let blob = blob("leases-container", "x");
    let created = subject
        .store
        .create_container(&container, BlobHeaders::default())
        .await
        .unwrap();
    let leased = subject
        .store
        .lease_container(&container, acquire(1))
        .await
        .unwrap();
    assert_eq!(
        (leased.tag, Some(leased.last_modified)),
        (created.tag, created.last_modified)
    );
    let second = subject.store.lease_container(&container, acquire(2)).await;
    assert_eq!(conflict(second), LeaseConflict::AlreadyPresent);
    let again = subject
        .store
        .create_container(&container, BlobHeaders::default())
        .await;
    assert_eq!(kind(again), StoreErrorKind::ContainerExists);
    subject.write(&blob, "1").await;
    let change = |lease| SetHeaders {
        lease,
        ..set(HeaderChange::Fields(Box::default()))
    };
    let info = subject
        .store
        .set_container(&container, change(LeaseUse::default()))
        .await
        .unwrap();
    assert_eq!(lease_of(info.lease), leased.receipt.lease);
    let wrong = subject
        .store
        .set_container(&container, change(with(2)))
        .await;
    assert_eq!(failure(wrong), LeaseFailure::IdMismatch);
    assert_eq!(
        lease_of(
            subject
                .store
                .container(&container)
                .await
                .unwrap()
                .unwrap()
                .lease
        ),
        leased.receipt.lease
    );
    let query = ListQuery {
        prefix: container.to_string(),
        leases: true,
        ..ListQuery::first(1)
    };
    let listed = subject.store.containers(&query).await.unwrap().items;
    assert_eq!(lease_of(listed[0].info.lease), leased.receipt.lease);

    let delete = |lease| Delete {
        lease,
        ..Delete::default()
    };
    for (lease, expected) in [
        (LeaseUse::Write(None), LeaseFailure::IdMissing),
        (with(2), LeaseFailure::IdMismatch),
    ] {
        assert_eq!(
            failure(
                subject
                    .store
                    .delete_container(&container, delete(lease))
                    .await
            ),
            expected
        );
    }
    assert_eq!(subject.read(&blob).await.unwrap().1, "1");
    subject
        .store
        .delete_container(&container, delete(with(1)))
        .await
        .unwrap();
    let created = subject
        .store
        .create_container(&container, BlobHeaders::default())
        .await
        .unwrap();
    assert_eq!(created.lease, None);
    let failed = failure(
        subject
            .store
            .delete_container(&container, delete(with(1)))
            .await,
    );
    assert_eq!(failed, LeaseFailure::NotPresent);
}
