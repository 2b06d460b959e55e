//! An object store as the backend: updates, a lock and a queue.

use std::time::Duration;

use futures_util::future::join_all;
use ifmatch_client::{Client, ErrorKind, Objects};
use object_store::memory::InMemory;

fn client() -> Client {
    Client::new(Objects::new(InMemory::new())).with_patience(Duration::from_hours(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_64_tasks_with_100_updates_each_none_is_lost() {
    let client = client();
    let task = |_| {
        let hits = client.json::<u64>("box/hits");
        tokio::spawn(async move {
            for _ in 0..100 {
                hits.update(|count| *count += 1).await.unwrap();
            }
        })
    };
    for done in join_all((0..64).map(task)).await {
        done.unwrap();
    }
    assert_eq!(
        client
            .json::<u64>("box/hits")
            .get()
            .await
            .unwrap()
            .unwrap()
            .value,
        6_400
    );
}

#[tokio::test]
async fn a_lock_is_exclusive_a_job_is_taken_once_and_an_old_version_is_rejected() {
    let client = client();
    let held = client.lock("locks/a").acquire().await.unwrap();
    assert!(
        client
            .lock("locks/a")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    held.release().await.unwrap();

    let queue = client.queue("jobs");
    queue.push(&1).await.unwrap();
    let job = queue.take(Duration::from_mins(1)).await.unwrap().unwrap();
    assert!(queue.take(Duration::from_mins(1)).await.unwrap().is_none());
    job.done().await.unwrap();
    assert!(client.backend().list("jobs/").await.unwrap().is_empty());

    let note = client.json::<u8>("note");
    let first = note.create(1).await.unwrap().version;
    note.update(|note| *note += 1).await.unwrap();
    assert!(matches!(
        note.replace(&first, 9).await.unwrap_err().kind(),
        ErrorKind::Conflict { .. }
    ));
    assert!(matches!(
        note.create(9).await.unwrap_err().kind(),
        ErrorKind::Conflict { .. }
    ));
}
