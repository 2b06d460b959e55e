//! A holder that is stopped beyond its time to live, and goes on as if nothing had happened.

use std::time::Duration;

use ifmatch_client::{Client, ErrorKind};

use crate::store::{Stoppable, Store};

#[tokio::test(start_paused = true)]
async fn of_1000_late_writes_of_a_stopped_holder_none_is_accepted() {
    let store = Store::default();
    let clock = Stoppable::default();
    let stopped = Client::new(store.connect())
        .with_clock(clock.clone())
        .with_patience(Duration::from_hours(1));
    let held = stopped.lock("locks/bill").acquire().await.unwrap();
    let bill = stopped.json::<u64>("bill");
    bill.update_fenced(&held, |sum| *sum += 1).await.unwrap();
    clock.stop();

    let client = store.client();
    let next = client.lock("locks/bill").acquire().await.unwrap();
    client
        .json::<u64>("bill")
        .update_fenced(&next, |sum| *sum += 10)
        .await
        .unwrap();

    // Its clock still shows a time at which the lock is held, so only the fence remains.
    assert!(!held.is_lost());
    for _ in 0..1_000 {
        let late = bill.update_fenced(&held, |sum| *sum += 100).await;
        assert_eq!(*late.unwrap_err().kind(), ErrorKind::Lost);
    }
    assert_eq!(
        client
            .json::<u64>("bill")
            .get()
            .await
            .unwrap()
            .unwrap()
            .value,
        11
    );
}

#[tokio::test(start_paused = true)]
async fn a_released_holder_cannot_write() {
    let client = Store::default().client();
    let held = client.lock("locks/bill").acquire().await.unwrap();
    let grant = held.grant().clone();
    held.release().await.unwrap();
    let late = client
        .json::<u64>("bill")
        .update_fenced(&grant, |sum| *sum += 1)
        .await;
    assert_eq!(*late.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_fence_keeps_the_fence() {
    let client = Store::default().client();
    let bill = client.json::<u64>("bill");
    let lock = client.lock("locks/bill");
    let held = lock.acquire().await.unwrap();
    let old = held.grant().clone();
    drop(held);
    let next = lock.acquire().await.unwrap();
    bill.update_fenced(&next, |sum| *sum += 1).await.unwrap();
    bill.update(|sum| *sum += 1).await.unwrap();
    assert!(old.fence() < next.fence());
    let late = bill.update_fenced(&old, |sum| *sum += 1).await;
    assert_eq!(*late.unwrap_err().kind(), ErrorKind::Lost);
}
