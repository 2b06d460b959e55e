//! Two gateways with their own registers, or with none, on one store share nothing but its conditions.

use std::sync::Arc;

use futures_util::future::join_all;
use ifmatch_blob::store::{Put, StoreError, StoreErrorKind};
use ifmatch_blob_objects::{Backing, Capability, ObjectBlobs};
use ifmatch_core::precondition::Preconditions;
use object_store::memory::InMemory;

use crate::{open, subject};
use ifmatch_blob::conformance::{self, Subject, blob, if_absent, if_match};

const ROUNDS: usize = 20;

fn backing() -> Backing {
    Backing::new(Arc::new(InMemory::new()))
}

fn unrecorded(backing: &Backing) -> Subject {
    subject(ObjectBlobs::unrecorded(backing.clone(), Capability::FULL))
}

async fn gateways() -> [[Subject; 2]; 2] {
    let (own, none) = (backing(), backing());
    [[subject(open(own.clone()).await), subject(open(own).await)], [unrecorded(&none), unrecorded(&none)]]
}

#[tokio::test(flavor = "multi_thread")]
async fn one_creator_wins() {
    for (gateways, round) in gateways().await.iter().flat_map(|pair| (0..ROUNDS).map(move |round| (pair, round))) {
        let blob = blob("c", &round.to_string());
        let writers = (0..20).map(|writer| gateways[writer % 2].write_if(&blob, if_absent(), writer.to_string()));
        let results = join_all(writers).await;
        let winners: Vec<_> = (0..20).filter(|writer| results[*writer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{results:?}");
        assert_eq!(gateways[0].read(&blob).await.unwrap().1, winners[0].to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_increment_is_lost() {
    let own = backing();
    let first = subject(open(own.clone()).await);
    // Only the gateway that owns the store creates blobs; the second one owns it from here on.
    first.write(&blob("c", "counter"), "0").await;
    count([first, subject(open(own).await)]).await;
    let none = backing();
    let first = unrecorded(&none);
    first.write(&blob("c", "counter"), "0").await;
    count([first, unrecorded(&none)]).await;
}

async fn count(gateways: [Subject; 2]) {
    let blob = blob("c", "counter");
    let increment = async |subject: &Subject| {
        for _ in 0..ROUNDS {
            loop {
                let (info, bytes) = subject.read(&blob).await.unwrap();
                let next = std::str::from_utf8(&bytes).unwrap().parse::<usize>().unwrap() + 1;
                match subject.write_if(&blob, if_match(&info.tag.unwrap()), next.to_string()).await {
                    Ok(_) => break,
                    Err(error) => match error.kind() {
                        StoreErrorKind::PreconditionFailed { .. } | StoreErrorKind::InFlight { .. } => {}
                        _ => panic!("{error}"),
                    },
                }
            }
        }
    };
    join_all((0..6).map(|writer| increment(&gateways[writer % 2]))).await;
    assert_eq!(gateways[1].read(&blob).await.unwrap().1, (6 * ROUNDS).to_string());
}

#[tokio::test]
async fn without_records_uncovered_changes_are_refused() {
    let gateway = unrecorded(&backing());
    let blob = blob("c", "b");
    let tag = gateway.write(&blob, "1").await.tag.unwrap();
    let refused = |error: StoreError| assert_eq!(error.kind(), &StoreErrorKind::Unsupported, "{error}");
    // The store has no conditional deletion.
    refused(gateway.delete_if(&blob, if_match(&tag)).await.unwrap_err());
    let long = vec![0; (8 << 20) + 1];
    refused(gateway.write_if(&blob, if_match(&tag), long.clone()).await.unwrap_err());
    let put = Put { length: None, ..conformance::put(long) };
    refused(gateway.store.put(&blob, Put { preconditions: if_match(&tag), ..put }).await.unwrap_err());
    assert_eq!(gateway.read(&blob).await.unwrap().1, "1");
    gateway.delete_if(&blob, Preconditions::default()).await.unwrap();
    assert!(gateway.read(&blob).await.is_none());
}
