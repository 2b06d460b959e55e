//! Two gateways with their own registers on one store share nothing but its conditions.

use std::sync::Arc;

use futures_util::future::join_all;
use ifmatch_blob::store::StoreErrorKind;
use ifmatch_blob_objects::Backing;
use object_store::memory::InMemory;

use crate::{open, subject};
use ifmatch_blob::conformance::{Subject, blob, if_absent, if_match};

const ROUNDS: usize = 20;

async fn gateways() -> [Subject; 2] {
    let backing = Backing::new(Arc::new(InMemory::new()));
    [subject(open(backing.clone()).await), subject(open(backing).await)]
}

#[tokio::test(flavor = "multi_thread")]
async fn one_creator_wins() {
    let gateways = gateways().await;
    for round in 0..ROUNDS {
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
    let backing = Backing::new(Arc::new(InMemory::new()));
    let blob = blob("c", "counter");
    let first = subject(open(backing.clone()).await);
    // Only the gateway that owns the store creates blobs; the second one owns it from here on.
    first.write(&blob, "0").await;
    let gateways = [first, subject(open(backing).await)];
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
