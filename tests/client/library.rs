//! The library over HTTP.

use std::time::Duration;

use futures_util::future::join_all;
use ifmatch_client::{Client, ErrorKind, Http};
use ifmatch_testbed::{Network, Proxy};

use crate::serve;

/// Far beyond the time that the updates take.
const PATIENCE: Duration = Duration::from_hours(1);

fn client(url: &str) -> Client {
    Client::http(url).unwrap().with_patience(PATIENCE)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_64_tasks_with_100_updates_each_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path());
    // Eight documents contend. The tasks of each take turns.
    let documents: Vec<_> = (0..8).map(|_| client(&gateway.url("/box")).json::<u64>("hits")).collect();
    let task = |number: usize| {
        let document = documents[number % documents.len()].clone();
        tokio::spawn(async move {
            for _ in 0..100 {
                document.update(|count| *count += 1).await.unwrap();
            }
        })
    };
    for done in join_all((0..64).map(task)).await {
        done.unwrap();
    }
    assert_eq!(documents[0].get().await.unwrap().unwrap().value, 6_400);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_lost_after_the_commit_neither_fail_nor_repeat_an_update() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path());
    let proxy = Proxy::start(gateway.address()).await;
    let document = client(&format!("http://{}/box", proxy.address())).json::<u64>("hits");
    for number in 0..1_000 {
        // The closure runs after the read, so that the answer of the write is lost.
        let cut = if number % 2 == 0 { Network::CutAfterCommit } else { Network::CutBeforeSending };
        document
            .update(|count| {
                proxy.set(cut);
                *count += 1;
            })
            .await
            .unwrap();
    }
    assert_eq!(document.get().await.unwrap().unwrap().value, 1_000);
}

#[tokio::test]
async fn the_gateway_itself_fences_late_writes_off() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path());
    let client = client(&gateway.url("/box"));
    let lock = client.lock("lock");
    let old = lock.acquire().await.unwrap();
    let next = {
        // An operator deletes the record, and another client acquires the lock.
        let record = client.json::<serde_json::Value>("lock").get().await.unwrap().unwrap();
        client.backend().delete("lock", &record.version).await.unwrap();
        client.lock("lock").acquire().await.unwrap()
    };
    assert!(next.fence() > old.fence());
    let bill = client.json::<u64>("bill");
    bill.update_fenced(&next, |sum| *sum += 1).await.unwrap();
    // Replaces the document with one that has no stamp, so that only the gateway knows the larger token.
    let version = bill.get().await.unwrap().unwrap().version;
    let server = Http::new(&gateway.url("/box")).unwrap();
    let headers = http::HeaderMap::from_iter([(http::header::IF_MATCH, version.as_str().parse().unwrap())]);
    server.send(http::Method::PUT, "bill", headers, "5".into()).await.unwrap();
    let late = client.json::<u64>("bill").update_fenced(&old, |sum| *sum += 100).await.unwrap_err();
    assert_eq!(*late.kind(), ErrorKind::Lost);
    assert_eq!(bill.get().await.unwrap().unwrap().value, 5);
}

#[tokio::test]
async fn jobs_go_through_the_listing_of_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path());
    for url in [gateway.url(""), gateway.url("/box"), gateway.url("/box/deep")] {
        let queue = client(&url).queue("jobs");
        assert!(queue.take(Duration::from_mins(1)).await.unwrap().is_none());
        queue.push(&"résumé").await.unwrap();
        let job = queue.take(Duration::from_mins(1)).await.unwrap().expect("a job");
        assert_eq!(job.payload::<String>().unwrap(), "résumé");
        job.done().await.unwrap();
        assert!(queue.take(Duration::from_mins(1)).await.unwrap().is_none());
    }
}

/// Each worker takes one job and ends, as those that a timer starts: only the dates of the gateway tell that the time of the first is
/// over.
#[tokio::test]
async fn workers_that_end_at_once_recover_a_job_from_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path());
    let worker = || client(&gateway.url("/box")).queue("jobs");
    worker().push(&"resize").await.unwrap();
    drop(worker().take(Duration::from_secs(3)).await.unwrap().expect("a job"));
    let taken_again = async {
        loop {
            if let Some(job) = worker().take(Duration::from_mins(1)).await.unwrap() {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let job = tokio::time::timeout(Duration::from_mins(2), taken_again).await.expect("a job within two minutes");
    assert_eq!(job.attempts(), 2);
}
