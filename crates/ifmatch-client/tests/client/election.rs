//! Elections: one leader at a time, and the next one after a loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use ifmatch_client::Leader;

use crate::store::Store;

#[tokio::test(start_paused = true)]
async fn candidates_lead_one_after_another() {
    let store = Store::default();
    let leaders = Arc::new(AtomicUsize::new(0));
    let candidate = |name: usize| {
        let election = store
            .client()
            .election("leaders/mail")
            .name(name.to_string());
        let leaders = Arc::clone(&leaders);
        async move {
            election
                .run(|term| {
                    let leaders = Arc::clone(&leaders);
                    async move {
                        assert_eq!(leaders.fetch_add(1, Ordering::SeqCst), 0, "two leaders");
                        tokio::time::sleep(Duration::from_secs(100)).await;
                        leaders.fetch_sub(1, Ordering::SeqCst);
                        term.fence()
                    }
                })
                .await
                .unwrap()
        }
    };
    let mut terms = join_all((0..5).map(candidate)).await;
    terms.sort_unstable();
    terms.dedup();
    assert_eq!(terms.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_loses_its_term_becomes_a_candidate_again() {
    let store = Store::default();
    let client = store.client();
    let mut terms = 0;
    let election = client.election("leaders/mail");
    let result = election.run(|_term| {
        terms += 1;
        let last = terms == 3;
        let record = client.json::<serde_json::Value>("leaders/mail");
        async move {
            if last {
                return "done";
            }
            record
                .update(|record| record["held"] = false.into())
                .await
                .unwrap();
            std::future::pending().await
        }
    });
    assert_eq!(result.await.unwrap(), "done");
    assert_eq!(terms, 3);
}

#[tokio::test(start_paused = true)]
async fn observers_see_each_leader() {
    let store = Store::default();
    let election = store.client().election("leaders/mail").name("host 1");
    let mut leader = election.observe().await.unwrap();
    assert_eq!(*leader.borrow_and_update(), None);
    let term = election.run(|term| {
        let mut leader = leader.clone();
        async move {
            leader.changed().await.unwrap();
            let seen = leader.borrow_and_update().clone();
            assert_eq!(
                seen,
                Some(Leader {
                    name: "host 1".to_owned(),
                    term: term.fence()
                })
            );
        }
    });
    term.await.unwrap();
    leader.wait_for(Option::is_none).await.unwrap();
}
