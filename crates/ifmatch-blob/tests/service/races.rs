//! Many concurrent writers and readers: no update is lost, and no read returns a mixture.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Method, StatusCode};
use ifmatch_blob::BlobService;
use ifmatch_blob_embedded::EmbeddedStore;
use ifmatch_core::digest::ContentHash;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::{bytes, files_in, hash_in, request, send};

type Durable = BlobService;

async fn durable() -> (TempDir, Durable) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = EmbeddedStore::open(folder.path()).await.expect("an empty folder opens");
    (folder, BlobService::new(Arc::new(store)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_fifty_creators_one_wins() {
    let (folder, service) = durable().await;
    for (round, size) in [10, 10_000, 10, 10_000].into_iter().enumerate() {
        let path = format!("/c{round}/b");
        let mut creators = JoinSet::new();
        for creator in 0..50 {
            let (service, path) = (service.clone(), path.clone());
            creators.spawn(async move {
                let create = request(Method::PUT, &path, &[("if-none-match", "*")], bytes(size, creator));
                (send(&service, create).await, creator)
            });
        }
        let answers = creators.join_all().await;
        let winners: Vec<_> = answers.iter().filter(|(answer, _)| answer.status == StatusCode::CREATED).collect();
        let [(winner, creator)] = winners[..] else { panic!("{} creators won", winners.len()) };
        let losers = answers.iter().filter(|(answer, _)| answer.status == StatusCode::PRECONDITION_FAILED);
        assert_eq!(losers.count(), 49);
        let got = send(&service, request(Method::GET, &path, &[], "")).await;
        assert_eq!((got.tag(), got.body), (winner.tag(), bytes(size, *creator)));
    }
    assert_eq!(files_in(&folder.path().join("bodies")), 2, "the losers' bodies remain");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn increments_add_up_exactly() {
    const WRITERS: u64 = 8;
    const INCREMENTS: u64 = 12;
    // A number at the beginning of a body, either a small one or one in a file.
    for size in [16, 10_000] {
        let (_folder, service) = durable().await;
        let counter = move |count: u64| format!("{count:<size$}");
        send(&service, request(Method::PUT, "/c/counter", &[], counter(0))).await;
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let service = service.clone();
            writers.spawn(async move {
                let mut done = 0;
                while done < INCREMENTS {
                    let got = send(&service, request(Method::GET, "/c/counter", &[], "")).await;
                    let text = String::from_utf8(got.body.to_vec()).expect("text");
                    let next = counter(text.trim_end().parse::<u64>().expect("a number") + 1);
                    let put = request(Method::PUT, "/c/counter", &[("if-match", &got.tag())], next);
                    match send(&service, put).await.status.as_u16() {
                        200 => done += 1,
                        412 => {}
                        other => panic!("{other}"),
                    }
                }
            });
        }
        writers.join_all().await;
        let end = send(&service, request(Method::GET, "/c/counter", &[], "")).await;
        assert_eq!(end.body, counter(WRITERS * INCREMENTS));
    }
}

/// `send` checks every whole response against its tag. This test also checks ranges.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_get_one_version_each_during_writes() {
    let (folder, service) = durable().await;
    let sizes = [100, 5_000, 140_000, 600_000];
    send(&service, request(Method::PUT, "/c/b", &[], bytes(sizes[0], 0))).await;
    let stop = Arc::new(AtomicBool::new(false));
    let parts = Arc::new(AtomicUsize::new(0));
    let mut readers = JoinSet::new();
    for _ in 0..6 {
        let (service, stop, parts) = (service.clone(), Arc::clone(&stop), Arc::clone(&parts));
        readers.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                // A read of a small blob never waits.
                tokio::task::yield_now().await;
                let whole = send(&service, request(Method::GET, "/c/b", &[], "")).await;
                assert_eq!(whole.status, StatusCode::OK, "{whole:?}");
                let tag = whole.tag();
                let halves = [("if-match", tag.as_str()), ("range", "bytes=10-49")];
                let part = send(&service, request(Method::GET, "/c/b", &halves, "")).await;
                if part.status == StatusCode::PARTIAL_CONTENT {
                    assert_eq!(part.body, whole.body.slice(10..50));
                    assert_eq!(hash_in(&part.tag()), ContentHash::of(&whole.body).hex());
                    parts.fetch_add(1, Ordering::SeqCst);
                } else {
                    assert_eq!(part.status, StatusCode::PRECONDITION_FAILED);
                }
            }
        });
    }
    let mut writers = JoinSet::new();
    for writer in 0..3 {
        let service = service.clone();
        writers.spawn(async move {
            for round in 0..40 {
                let seed = writer * 1000 + round;
                let size = sizes[usize::try_from(seed).expect("small") % sizes.len()];
                let put = request(Method::PUT, "/c/b", &[], bytes(size, seed));
                assert_eq!(send(&service, put).await.status, StatusCode::OK);
            }
        });
    }
    writers.join_all().await;
    stop.store(true, Ordering::SeqCst);
    readers.join_all().await;
    assert!(parts.load(Ordering::SeqCst) > 0, "no reader ever saw the version that it had just read");
    assert!(files_in(&folder.path().join("bodies")) <= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deletions_and_creations_alternate() {
    let (folder, service) = durable().await;
    let created = Arc::new(AtomicUsize::new(0));
    let deleted = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..8_u64 {
        let (service, created, deleted) = (service.clone(), Arc::clone(&created), Arc::clone(&deleted));
        tasks.spawn(async move {
            for round in 0..20 {
                let create = request(Method::PUT, "/c/b", &[("if-none-match", "*")], bytes(5_000, task * 100 + round));
                let answer = send(&service, create).await;
                created.fetch_add(usize::from(answer.status == StatusCode::CREATED), Ordering::SeqCst);
                let answer = send(&service, request(Method::DELETE, "/c/b", &[], "")).await;
                deleted.fetch_add(usize::from(answer.status == StatusCode::NO_CONTENT), Ordering::SeqCst);
            }
        });
    }
    tasks.join_all().await;
    let there = usize::from(send(&service, request(Method::GET, "/c/b", &[], "")).await.status == StatusCode::OK);
    assert_eq!(created.load(Ordering::SeqCst), deleted.load(Ordering::SeqCst) + there);
    assert_eq!(files_in(&folder.path().join("bodies")), there);
}
